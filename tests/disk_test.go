//go:build heavy

package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// disk is a file system of limited size.
type disk struct {
	t    *testing.T
	path string
}

// newDisk mounts one; that needs root, and the test fails without.
func newDisk(t *testing.T, bytes int64) *disk {
	t.Helper()
	d := &disk{t: t, path: t.TempDir()}
	if err := syscall.Mount("tmpfs", d.path, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		t.Fatalf("mount a tmpfs on %s: %v; run this test as root", d.path, err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d.path, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", d.path, err)
		}
	})
	return d
}

func (d *disk) resize(bytes int64) {
	d.t.Helper()
	if err := syscall.Mount("tmpfs", d.path, "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("size=%d", bytes)); err != nil {
		d.t.Fatalf("resize %s to %d: %v", d.path, bytes, err)
	}
}

func (d *disk) free() int64 {
	d.t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(d.path, &s); err != nil {
		d.t.Fatal(err)
	}
	return int64(s.Bavail) * s.Bsize
}

func (d *disk) used() int64 {
	d.t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(d.path, &s); err != nil {
		d.t.Fatal(err)
	}
	return int64(s.Blocks-s.Bfree) * s.Bsize
}

// filler pushes events of its own until it is told to stop, and knows which of them were
// acknowledged.
type filler struct {
	t      *testing.T
	conn   *natsio.Conn
	random *rand.Rand
	next   int
	acked  []click
	tried  []click // not acknowledged: they may be stored or not
}

// push sends n events of about size bytes and answers whether they were acknowledged.
func (f *filler) push(n, size int) bool {
	f.t.Helper()
	base := time.Date(2025, 3, 1, 8, 0, 0, 0, time.UTC).UnixMilli()
	var b strings.Builder
	var batch []click
	for range n {
		e := click{id: fmt.Sprintf("f-%d", f.next), user: f.random.IntN(2000), n: 1, at: base + int64(f.next)*500}
		fmt.Fprintf(&b, `{"id":%q,"user":"user-%d","n":1,"at":%d,"pad":%q}`+"\n", e.id, e.user, e.at, strings.Repeat("x", size))
		batch = append(batch, e)
		f.next++
	}
	m := nats.NewMsg(subject.Ingest("clicks", "web", 0))
	m.Header.Set(subject.HeaderContentType, "application/x-ndjson")
	m.Data = []byte(b.String())
	reply, err := f.conn.NC.RequestMsg(m, 4*time.Second)
	var answer struct {
		Accepted int
		Error    json.RawMessage
	}
	if err == nil && json.Unmarshal(reply.Data, &answer) == nil && answer.Error == nil && answer.Accepted == n {
		f.acked = append(f.acked, batch...)
		return true
	}
	f.tried = append(f.tried, batch...)
	return false
}

// rows compares what readers see with what was acknowledged: nothing of that is missing,
// and nothing is there that was never sent.
func (f *filler) rows(u *up) {
	f.t.Helper()
	least, most := map[string]int{}, map[string]int{}
	high := int64(0)
	for _, e := range f.acked {
		least[e.row()]++
		most[e.row()]++
		high = max(high, e.at)
	}
	for _, e := range f.tried {
		most[e.row()]++
	}
	got := u.windows("clicks")
	for k, row := range got {
		var n int
		fmt.Sscan(row.text("clicks"), &n)
		if n < least[k] || n > most[k] {
			f.t.Fatalf("%s counts %d, acknowledged are %d, sent %d", k, n, least[k], most[k])
		}
	}
	for k := range least {
		start, err := time.Parse(time.RFC3339, k[strings.LastIndexByte(k, ' ')+1:])
		if _, have := got[k]; err == nil && !have && start.UnixMilli()+60_000 <= high-2000 {
			f.t.Fatalf("%s is missing, it has %d acknowledged events", k, least[k])
		}
	}
}

var oneSource = strings.Replace(crashDocuments, "partitions: 2}", "partitions: 1}", 1)

// diskMesh starts the services with their data on one disk and the server's on another.
func diskMesh(t *testing.T, store *disk, local string) (*mesh, map[string]*process, map[string]string, *filler) {
	t.Helper()
	m := newMesh(t, store.path, "")
	conn := m.connected()
	must(t, "apply", "-f", write(t, "clicks.yaml", oneSource), "--server", m.url)
	services, urls := map[string]*process{}, map[string]string{}
	for _, verb := range []string{"ingest", "windower", "projector"} {
		port := freePort(t)
		urls[verb] = fmt.Sprintf("http://127.0.0.1:%d", port)
		services[verb] = m.process(verb, binary, verb, "--server", m.url, "--data", filepath.Join(local, verb), "--http", fmt.Sprintf("127.0.0.1:%d", port))
		services[verb].start()
	}
	for _, p := range services {
		p.ready()
	}
	return m, services, urls, &filler{t: t, conn: conn, random: rand.New(rand.NewPCG(3, 3))}
}

func healthy(t *testing.T, urls map[string]string, within time.Duration) error {
	t.Helper()
	var last error
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		last = nil
		for verb, url := range urls {
			reply, err := http.Get(url + "/readyz?verbose")
			if err != nil {
				last = err
				continue
			}
			reply.Body.Close()
			if reply.StatusCode != http.StatusOK {
				last = fmt.Errorf("%s is not ready", verb)
			}
		}
		if last == nil {
			return nil
		}
	}
	return last
}

// The disk under JetStream fills up. Ingest stops acknowledging and says why; nothing
// that was acknowledged is lost; with more space everything goes on.
func TestDiskFullUnderJetStream(t *testing.T) {
	store := newDisk(t, 48<<20)
	m, services, urls, f := diskMesh(t, store, t.TempDir())
	begun := time.Now()
	for failures := 0; failures < 3; {
		if !f.push(40, 6_000) {
			failures++
		}
		if time.Since(begun) > 5*time.Minute {
			t.Fatalf("the disk was never full: %d bytes are free", store.free())
		}
	}
	t.Logf("%d events acknowledged, %d not; %d of the disk's bytes are free", len(f.acked), len(f.tried), store.free())
	readyz(t, urls["ingest"], "JetStream")
	for verb, p := range services {
		if !p.running() {
			t.Errorf("%s ended on a full disk\n%s", verb, p.log)
		}
	}
	store.resize(512 << 20)
	restarted := false
	if err := healthy(t, urls, 20*time.Second); err != nil {
		// A stream that met a write error stays frozen until its server starts again.
		t.Logf("after 20 s with space: %v; the server is started again", err)
		restarted = true
		m.nats.stop()
		m.nats.start()
		m.connected().Close()
	}
	if err := healthy(t, urls, time.Minute); err != nil {
		t.Fatalf("with space and restarted=%v: %v\n%s\n%s", restarted, err, services["ingest"].log, m.nats.log)
	}
	for end := time.Now().Add(time.Minute); !f.push(10, 10); {
		if time.Now().After(end) {
			t.Fatal("ingest never acknowledges again")
		}
	}
	must(t, "wait", "clicks", "--server", m.url, "--timeout", "2m")
	f.rows(m.up())
	if r := run(t, "verify", "clicks", "--server", m.url); r.code != 0 {
		t.Errorf("verify ended with %d\n%s%s", r.code, r.out, r.err)
	}
	t.Logf("server restarted: %v; batches without their COMMIT on the revisions stream: %d", restarted, voidPrefixes(t, f.conn))
}

// voidPrefixes counts batches of the revisions stream that end without their last message.
func voidPrefixes(t *testing.T, conn *natsio.Conn) int {
	t.Helper()
	stream := subject.RevisionsStream("clicks")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	last, err := journal.LastSeq(ctx, conn.JS, stream, "")
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]bool{}
	err = journal.ReadRange(ctx, conn.JS, stream, 0, 1, last, func(m journal.Msg) error {
		if id := m.Header.Get(subject.HeaderBatchID); id != "" {
			open[id] = true
			if m.Header.Get(subject.HeaderBatchCommit) != "" {
				delete(open, id)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// The disk under the local files of windower and projector fills up. Windows go on being
// computed or wait, nothing is lost, and with more space everything goes on.
func TestDiskFullUnderLocalFiles(t *testing.T) {
	store, local := newDisk(t, 1<<30), newDisk(t, 256<<20)
	m, services, urls, f := diskMesh(t, store, local.path)
	for range 20 {
		f.push(200, 10)
	}
	must(t, "wait", "clicks", "--server", m.url)
	local.resize(local.used() + 16<<10)
	for end := time.Now().Add(45 * time.Second); time.Now().Before(end); {
		f.push(200, 10)
		if local.free() < 8<<10 && strings.Contains(services["windower"].log.String()+services["projector"].log.String(), "no space left") {
			break
		}
	}
	told := ""
	for verb, p := range services {
		if !p.running() {
			t.Fatalf("%s ended on a full disk\n%s", verb, p.log)
		}
		if strings.Contains(p.log.String(), "no space left") {
			told += " " + verb
		}
	}
	if told == "" {
		t.Fatalf("nobody met the full disk (%d bytes free)", local.free())
	}
	for range 20 {
		f.push(200, 10)
	}
	local.resize(1 << 30)
	if err := healthy(t, urls, time.Minute); err != nil {
		t.Fatalf("with space: %v\n%s\n%s", err, services["windower"].log, services["projector"].log)
	}
	for !f.push(10, 10) {
		time.Sleep(50 * time.Millisecond)
	}
	must(t, "wait", "clicks", "--server", m.url, "--timeout", "2m")
	f.rows(m.up())
	if r := run(t, "verify", "clicks", "--server", m.url); r.code != 0 {
		t.Errorf("verify ended with %d\n%s%s", r.code, r.out, r.err)
	}
	t.Logf("met by%s; %d events acknowledged, %d not", told, len(f.acked), len(f.tried))
}

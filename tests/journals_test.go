package tests

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// journalMesh is a mesh whose services have taken in some events.
func journalMesh(t *testing.T) (m *mesh, services map[string]*process, urls map[string]string, conn *natsio.Conn) {
	t.Helper()
	m = newMesh(t, "", "")
	conn = m.connected()
	must(t, "apply", "-f", write(t, "clicks.yaml", crashDocuments), "--server", m.url)
	services, urls = map[string]*process{}, map[string]string{}
	for _, verb := range []string{"ingest", "windower", "projector"} {
		port := freePort(t)
		urls[verb] = fmt.Sprintf("http://127.0.0.1:%d", port)
		services[verb] = m.service(verb, verb, "--http", fmt.Sprintf("127.0.0.1:%d", port))
		services[verb].start()
	}
	for _, p := range services {
		p.ready()
	}
	for p := range 2 {
		must(t, "send", clicks(t, p, 2_000), "--stream", "clicks", "--source", "web", "--partition", fmt.Sprint(p), "--server", m.url)
	}
	must(t, "wait", "clicks", "--server", m.url)
	return m, services, urls, conn
}

func (m *mesh) last(conn *natsio.Conn, stream string) uint64 {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 10*time.Second)
	defer cancel()
	st, err := conn.JS.Stream(ctx, stream)
	if err != nil {
		m.t.Fatal(err)
	}
	return st.CachedInfo().State.LastSeq
}

// recreate deletes a stream under the running services and makes it anew, empty.
func (m *mesh) recreate(conn *natsio.Conn, stream string) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 20*time.Second)
	defer cancel()
	st, err := conn.JS.Stream(ctx, stream)
	if err != nil {
		m.t.Fatal(err)
	}
	config := st.CachedInfo().Config
	if err := conn.JS.DeleteStream(ctx, stream); err != nil {
		m.t.Fatal(err)
	}
	if _, err := conn.JS.CreateStream(ctx, config); err != nil {
		m.t.Fatal(err)
	}
}

// Streams that are deleted and made anew under running services: the partitions that
// stood in them halt with the stream's name, nothing is computed from the new ones, also
// after a restart; the other partitions go on.
func TestRecreatedStreamsHaltTheirPartitions(t *testing.T) {
	m, services, urls, conn := journalMesh(t)
	events, windows := subject.EventsStream("clicks", 1), subject.WindowsStream("clicks", "per-minute", 1, 2)
	before := m.last(conn, subject.WindowsStream("clicks", "per-minute", 1, 1))
	m.recreate(conn, events)
	m.recreate(conn, windows)
	readyz(t, urls["windower"], events, windows)
	readyz(t, urls["projector"], windows)
	for _, verb := range []string{"windower", "projector"} {
		services[verb].kill()
		services[verb].start()
	}
	readyz(t, urls["windower"], events)
	readyz(t, urls["projector"], windows)
	// What belongs to the other partitions goes on.
	for p := range 2 {
		must(t, "send", clicksFrom(t, p, 2_000, 500), "--stream", "clicks", "--source", "web", "--partition", fmt.Sprint(p), "--server", m.url)
	}
	grown := subject.WindowsStream("clicks", "per-minute", 1, 0)
	was := m.last(conn, grown)
	for end := time.Now().Add(time.Minute); m.last(conn, grown) <= was; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("key partition 0 does not go on")
		}
	}
	// Claims may stand behind the last COMMIT, records may not.
	if now := len(records(t, conn, subject.WindowsStream("clicks", "per-minute", 1, 1))); now == 0 {
		t.Error("the records before the damage are gone")
	}
	if after := m.last(conn, subject.WindowsStream("clicks", "per-minute", 1, 1)); after > before+64 {
		t.Errorf("%d messages were appended behind the damage", after-before)
	}
}

// clicksFrom is clicks later in event time and under other ids.
func clicksFrom(t *testing.T, partition, first, n int) string {
	t.Helper()
	var b strings.Builder
	base := time.Date(2025, 3, 1, 9, 0, 0, 0, time.UTC).UnixMilli()
	for i := range n {
		fmt.Fprintf(&b, `{"id":"p%d-later-%d","user":"user-%d","n":1,"at":%d}`+"\n", partition, first+i, i%40, base+int64(first+i)*1000)
	}
	return write(t, "later.jsonl", b.String())
}

// A nats-server that comes back with an older copy of its store, as after the restore of a
// backup: every journal is behind what was read from it, and every partition stops.
func TestServerThatComesBackOlderHaltsThePartitions(t *testing.T) {
	m, services, urls, _ := journalMesh(t)
	store := filepath.Join(m.dir, "nats")
	m.nats.stop()
	if err := os.CopyFS(filepath.Join(m.dir, "backup"), os.DirFS(store)); err != nil {
		t.Fatal(err)
	}
	m.nats.start()
	m.connected().Close()
	for p := range 2 {
		must(t, "send", clicksFrom(t, p, 2_000, 500), "--stream", "clicks", "--source", "web", "--partition", fmt.Sprint(p), "--server", m.url, "--timeout", "30s")
	}
	must(t, "wait", "clicks", "--server", m.url, "--timeout", "1m")
	m.nats.kill()
	if err := os.RemoveAll(store); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(m.dir, "backup"), store); err != nil {
		t.Fatal(err)
	}
	m.nats.start()
	m.connected().Close()
	readyz(t, urls["windower"], subject.EventsStream("clicks", 0), "ends at sequence")
	readyz(t, urls["projector"], "ends at sequence")
	for verb, p := range services {
		if !p.running() {
			t.Errorf("%s ended: %v\n%s", verb, p.cmd.ProcessState, p.log)
		}
	}
}

// A source that goes back and sends everything again, long after the server has forgotten
// what it had: no revision, no row changes.
func TestRewoundSourceMakesNoRevision(t *testing.T) {
	u := startUp(t, filepath.Join(t.TempDir(), "data"))
	u.must("apply", "-f", write(t, "clicks.yaml", strings.Replace(crashDocuments, "partitions: 2}", "partitions: 1}", 1)))
	conn := connect(t, u.NATS)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for pp := range 4 {
		shortDedupe(ctx, t, conn.JS, subject.EventsStream("clicks", pp))
	}
	text, err := os.ReadFile(clicks(t, 0, 3_000))
	if err != nil {
		t.Fatal(err)
	}
	// Each time under another name, so that `send` does not resume but sends everything.
	push := func(name string) {
		u.must("send", write(t, name, string(text)+strings.Repeat("\n", len(name))), "--stream", "clicks", "--source", "web", "--partition", "0")
		u.must("wait", "clicks")
	}
	push("once.jsonl")
	revisions := func() uint64 {
		st, err := conn.JS.Stream(ctx, subject.RevisionsStream("clicks"))
		if err != nil {
			t.Fatal(err)
		}
		info, err := st.Info(ctx, jetstream.WithSubjectFilter(subject.RevisionsAll("clicks")))
		if err != nil {
			t.Fatal(err)
		}
		n := uint64(0)
		for _, count := range info.State.Subjects {
			n += count
		}
		return n
	}
	before, rows := revisions(), u.windows("clicks")
	if before == 0 {
		t.Fatal("there are no revisions to compare")
	}
	push("twice.jsonl")
	push("thrice.jsonl")
	if after := revisions(); after != before {
		t.Errorf("%d revisions before the rewind, %d after it", before, after)
	}
	for k, row := range u.windows("clicks") {
		if fmt.Sprint(row) != fmt.Sprint(rows[k]) {
			t.Errorf("%s was %v and is %v", k, rows[k], row)
		}
	}
	u.verified("clicks")
}

// shortDedupe makes a stream forget message ids at once.
func shortDedupe(ctx context.Context, t *testing.T, js jetstream.JetStream, stream string) {
	t.Helper()
	st, err := js.Stream(ctx, stream)
	if err != nil {
		t.Fatal(err)
	}
	config := st.CachedInfo().Config
	config.Duplicates = 100 * time.Millisecond
	if _, err := js.UpdateStream(ctx, config); err != nil {
		t.Fatal(err)
	}
}

package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
	"github.com/tidemark-mesh/tidemark/pkg/subscribe"
)

// fleet is two processes of every service, and who of them owns what.
type fleet struct {
	*mesh
	conn *natsio.Conn
	kv   jetstream.KeyValue
	all  map[string]*process // by name, e.g. windower-1
}

var fleetServices = []string{"ingest", "windower", "projector"}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{mesh: newMesh(t, "", ""), all: map[string]*process{}}
	f.conn = f.connected()
	must(t, "apply", "-f", write(t, "clicks.yaml", crashDocuments), "--server", f.url)
	var err error
	if f.kv, err = f.conn.JS.KeyValue(t.Context(), subject.LeaseBucket); err != nil {
		t.Fatal(err)
	}
	for _, service := range fleetServices {
		for n := 1; n <= 2; n++ {
			name := fmt.Sprintf("%s-%d", service, n)
			f.all[name] = f.service(service, name)
		}
	}
	return f
}

// each does something with process n of every service.
func (f *fleet) each(n int, do func(*process)) {
	for _, service := range fleetServices {
		do(f.all[fmt.Sprintf("%s-%d", service, n)])
	}
}

// instance answers under which name a process is known to the others.
func (f *fleet) instance(name string) string {
	text, err := os.ReadFile(filepath.Join(f.dir, name, "tidemark.json"))
	if err != nil {
		return "" // it never ran
	}
	var marker struct{ Instance string }
	if err := json.Unmarshal(text, &marker); err != nil {
		f.t.Fatal(err)
	}
	return marker.Instance
}

// owners answers how many units of a service each of its two processes owns, and how many
// units have an entry of somebody else or none.
func (f *fleet) owners(service string) (counts [2]int, total int) {
	f.t.Helper()
	lister, err := f.kv.ListKeysFiltered(f.t.Context(), subject.LeasesOf(service))
	if err != nil {
		f.t.Fatal(err)
	}
	for key := range lister.Keys() {
		e, err := f.kv.Get(f.t.Context(), key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			continue
		}
		if err != nil {
			f.t.Fatal(err)
		}
		var lease struct{ Instance string }
		if err := json.Unmarshal(e.Value(), &lease); err != nil {
			f.t.Fatal(err)
		}
		total++
		for n := range counts {
			if lease.Instance == f.instance(fmt.Sprintf("%s-%d", service, n+1)) {
				counts[n]++
			}
		}
	}
	return counts, total
}

// units is how many units each service has of crashDocuments.
var units = map[string]int{"ingest": 2, "windower": 4, "projector": 4}

// moved waits until the first and second process of every service own first and second of
// their units (in parts of all), and logs how long each service took.
func (f *fleet) moved(what string, first, second float64) {
	f.t.Helper()
	begun, took := time.Now(), map[string]time.Duration{}
	for end := begun.Add(time.Minute); len(took) < len(fleetServices); time.Sleep(20 * time.Millisecond) {
		for _, service := range fleetServices {
			if _, done := took[service]; done {
				continue
			}
			counts, total := f.owners(service)
			if n := units[service]; total == n && counts == [2]int{int(first * float64(n)), int(second * float64(n))} {
				took[service] = time.Since(begun)
			} else if time.Now().After(end) {
				f.t.Fatalf("%s: %s is spread %v of %d", what, service, counts, total)
			}
		}
	}
	var text []string
	for _, service := range fleetServices {
		text = append(text, fmt.Sprintf("%s %.1f s", service, took[service].Seconds()))
	}
	f.t.Logf("%-22s %s", what, strings.Join(text, ", "))
	if time.Since(begun) > 9*time.Second { // far from what it takes: the logs tell why
		for name, p := range f.all {
			f.t.Logf("%s\n%s", name, p.log)
		}
	}
}

// watchers are readers that must not notice anything.
type watchers struct {
	t    *testing.T
	away bool // there are times without any living projector
	stop context.CancelFunc
	wait sync.WaitGroup

	mu        sync.Mutex
	revisions map[string]uint64 // newest of each window, from the feed
	queries   int
}

// has tells whether the feed has brought exactly these revisions last.
func (w *watchers) has(newest map[string]uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Equal(w.revisions, newest)
}

func (f *fleet) watch(away bool) *watchers {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &watchers{t: f.t, away: away, stop: cancel, revisions: map[string]uint64{}}
	f.t.Cleanup(cancel)
	feed, err := subscribe.Open(ctx, f.connected().NC, subscribe.Options{Stream: "clicks", Job: "per-minute"})
	if err != nil {
		f.t.Fatal(err)
	}
	w.wait.Go(func() { w.follow(ctx, feed) })
	nc := f.connected().NC
	w.wait.Go(func() { w.ask(ctx, nc) })
	return w
}

// follow checks that every revision of a window comes once and in order.
func (w *watchers) follow(ctx context.Context, feed *subscribe.Subscription) {
	for {
		b, err := feed.Next(ctx)
		if err != nil {
			if ctx.Err() == nil {
				w.t.Errorf("the feed ended: %v", err)
			}
			return
		}
		for _, r := range b.Revisions {
			window := r.Key + " " + time.UnixMicro(int64(r.Window.Start)).UTC().Format(time.RFC3339)
			w.mu.Lock()
			if r.Revision != w.revisions[window]+1 {
				w.t.Errorf("window %s: revision %d comes after %d", window, r.Revision, w.revisions[window])
			}
			w.revisions[window] = r.Revision
			w.mu.Unlock()
		}
	}
}

// ask queries all the time, the way that is written down for clients: whoever does not
// answer within a second is not waited for.
func (w *watchers) ask(ctx context.Context, nc *nats.Conn) {
	for ; ctx.Err() == nil; w.queries++ {
		inbox := nc.NewRespInbox()
		sub, err := nc.SubscribeSync(inbox)
		if err != nil {
			w.t.Error(err)
			return
		}
		var answer *nats.Msg
		for try := 0; answer == nil && ctx.Err() == nil; try++ {
			if try == 10 && !w.away {
				w.t.Errorf("query %d was not answered", w.queries)
				return
			}
			if err := nc.PublishRequest(subject.Query("clicks", "windows"), inbox, []byte(`{"limit":50}`)); err != nil {
				w.t.Error(err)
				return
			}
			answer, _ = sub.NextMsg(time.Second) // nobody: asked again
		}
		sub.Unsubscribe()
		if answer != nil && (len(answer.Data) == 0 || strings.Contains(string(answer.Data), `"error"`)) {
			w.t.Errorf("query %d: %q %v", w.queries, answer.Data, answer.Header)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// flow sends both files until done; the senders must not notice anything either.
func (f *fleet) flow(rate int, files ...string) (done func()) {
	f.t.Helper()
	var wait sync.WaitGroup
	for p, file := range files {
		cmd := exec.Command(binary, "send", file, "--stream", "clicks", "--source", "web", "--partition", fmt.Sprint(p),
			"--server", f.url, "--rate", fmt.Sprint(rate), "--finish", "--timeout", "30s")
		var out lines
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			f.t.Fatal(err)
		}
		f.t.Cleanup(func() { cmd.Process.Kill() })
		wait.Go(func() {
			if err := cmd.Wait(); err != nil {
				f.t.Errorf("the sender of partition %d: %v\n%s", p, err, &out)
			}
		})
	}
	return wait.Wait
}

// complete checks the result against the plain computation, verify, and what the feed saw.
func (f *fleet) complete(w *watchers, files ...string) {
	f.t.Helper()
	must(f.t, "wait", "clicks", "--server", f.url, "--timeout", "2m")
	u := f.up()
	want, got := expectedClicks(f.t, files...), u.windows("clicks")
	if len(got) != len(want) {
		f.t.Errorf("%d windows, want %d", len(got), len(want))
	}
	for k, v := range want {
		if g := got[k]; g.text("clicks") != fmt.Sprint(v[0]) || g.text("total") != fmt.Sprint(v[1]) {
			f.t.Fatalf("window %s: %s clicks, total %s; want %d, %d", k, g.text("clicks"), g.text("total"), v[0], v[1])
		}
	}
	u.verified("clicks")
	newest := map[string]uint64{}
	for k, g := range got {
		newest[k] = g.Revision
	}
	for end := time.Now().Add(30 * time.Second); !w.has(newest) && time.Now().Before(end) && !f.t.Failed(); {
		time.Sleep(10 * time.Millisecond) // the feed goes on in its own time
	}
	w.stop()
	w.wait.Wait()
	if !w.has(newest) {
		f.t.Errorf("the feed ends at other revisions than the view: %d windows, want %d", len(w.revisions), len(newest))
	}
	f.t.Logf("%d windows, %d queries", len(newest), w.queries)
}

// Processes join, stand still, go on, die and leave while events flow, at the default
// ttl. Senders and readers notice nothing, and the result is the plain computation's.
func TestProcessesComeAndGoWhileEventsFlow(t *testing.T) {
	f := newFleet(t)
	f.each(1, (*process).start)
	f.each(1, (*process).ready)
	files := []string{clicks(t, 0, 30_000), clicks(t, 1, 30_000)}
	sent := f.flow(1300, files...)
	w := f.watch(false)
	f.moved("one has everything", 1, 0)
	f.each(2, (*process).start)
	f.moved("two join", 0.5, 0.5)
	f.each(1, func(p *process) { p.signal(syscall.SIGSTOP) })
	f.moved("one stands still", 0, 1)
	f.each(1, func(p *process) { p.signal(syscall.SIGCONT) })
	f.moved("it goes on", 0.5, 0.5)
	f.each(2, (*process).kill)
	f.moved("one is killed", 1, 0)
	if err := os.RemoveAll(filepath.Join(f.dir, "windower-2")); err != nil { // its disk is gone too
		t.Fatal(err)
	}
	f.each(2, (*process).start)
	f.moved("it is back", 0.5, 0.5)
	f.all["windower-2"].says("restored a snapshot")
	f.each(1, func(p *process) { p.signal(syscall.SIGTERM) })
	f.moved("one leaves", 0, 1)
	for _, service := range fleetServices {
		if code, took := f.all[service+"-1"].stop(); code != 0 || took > 20*time.Second {
			t.Errorf("%s ended with %d after %s", service, code, took)
		}
	}
	sent()
	f.complete(w, files...)
}

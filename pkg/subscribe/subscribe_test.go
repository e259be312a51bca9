package subscribe_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
	"github.com/tidemark-mesh/tidemark/pkg/subscribe"
)

var server *natsio.Embedded // one for the package

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "subscribe-test-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		if server, err = natsio.Embed(context.Background(), natsio.EmbeddedOptions{Dir: dir}); err != nil {
			panic(err)
		}
		defer server.Shutdown()
		return m.Run()
	}())
}

const (
	hour = envelope.EventTime(3600 * 1_000_000)
	base = envelope.EventTime(1796032800000000) // 2026-11-30T10:00Z
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// feed writes a revisions stream as a projector would: one job of one key partition.
type feed struct {
	t      testing.TB
	ctx    context.Context
	conn   *natsio.Conn
	stream string
	writer *journal.FencedWriter
	commit revision.Commit
	heads  map[string]*revision.Predecessor
}

func newFeed(t testing.TB) *feed {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	conn, err := server.Connect(ctx, t.Name())
	must(t, err)
	t.Cleanup(conn.Close)
	f := &feed{t: t, ctx: ctx, conn: conn, stream: strings.ToLower(t.Name()), commit: revision.NewCommit(), heads: map[string]*revision.Predecessor{}}
	must(t, natsio.Provision(ctx, conn.JS, 1))
	must(t, natsio.ProvisionStream(ctx, conn.JS, f.stream, 1, 1))
	f.claim()
	return f
}

func (f *feed) claim() {
	f.t.Helper()
	w, _, err := journal.ClaimFenced(f.ctx, f.conn.JS, journal.FencedSettings{
		Stream: subject.RevisionsStream(f.stream), Fence: subject.Commits(f.stream, "hourly", 1, 0), Owner: "feed",
	})
	must(f.t, err)
	f.t.Cleanup(w.Close)
	f.writer = w
}

// next answers the message of the next revision of a key's window.
func (f *feed) next(key string, start envelope.EventTime) journal.Message {
	r := &revision.Revision{
		Stream: f.stream, Job: "hourly", PolicyGeneration: "hourly@1", PolicyDigest: strings.Repeat("ab", 32),
		Key: key, Window: revision.Window{Start: start, End: start + hour},
		LogicalWindowID: strings.Repeat("cd", 32), ProjectionID: fmt.Sprintf("%064x", key+start.String())[:64],
		Op: revision.Upsert, Revision: 1, State: revision.OnTimeEmitted, Firing: revision.FiringOnTime, ValueChanged: true,
		Value: []revision.Field{{Name: "orders", Text: "1"}}, Delta: []revision.Field{{Name: "orders", Text: "1"}},
		Inputs: revision.Inputs{First: 1, Last: 1, Events: 1}, Watermark: revision.Watermark{At: start + hour, Data: start + hour},
		Cause: revision.CauseOnTime, Epoch: f.writer.Epoch(),
	}
	name := key + start.String()
	if head := f.heads[name]; head != nil {
		r.Revision, r.Predecessor, r.State, r.Firing = head.Revision+1, head, revision.Corrected, revision.FiringLate
	}
	f.heads[name] = &revision.Predecessor{Revision: r.Revision, Digest: r.ComputeDigest()}
	return journal.Message{
		Subject: subject.Revision(f.stream, "hourly", 1, 0, key),
		Header:  nats.Header{subject.HeaderSchema: []string{revision.Schema}},
		Data:    r.AppendJSON(nil),
	}
}

// accept writes one batch with watermark w.
func (f *feed) accept(w envelope.EventTime, messages ...journal.Message) {
	f.t.Helper()
	f.commit.W, f.commit.Wdata = w, w
	_, err := f.writer.Commit(f.ctx, messages, f.commit)
	must(f.t, err)
}

// void writes what a projector leaves behind that dies inside a batch on a full disk.
func (f *feed) void(m journal.Message) {
	f.t.Helper()
	msg := nats.NewMsg(m.Subject)
	msg.Data = m.Data
	msg.Header.Set("X-Batch", "none")
	_, err := f.conn.JS.PublishMsg(f.ctx, msg)
	must(f.t, err)
}

func (f *feed) alias(generation int, epoch uint64) {
	f.t.Helper()
	a := revision.Alias{Job: "hourly", Canonical: generation, Epoch: epoch}
	_, err := f.conn.JS.Publish(f.ctx, subject.Alias(f.stream, "hourly"), a.AppendJSON(nil))
	must(f.t, err)
}

func (f *feed) open(o subscribe.Options) *subscribe.Subscription {
	f.t.Helper()
	o.Stream, o.Job = f.stream, "hourly"
	sub, err := subscribe.Open(f.ctx, f.conn.NC, o)
	must(f.t, err)
	f.t.Cleanup(sub.Close)
	return sub
}

// words answers a batch as "key@hour/revision" words.
func (f *feed) words(sub *subscribe.Subscription) (string, subscribe.Batch) {
	f.t.Helper()
	b, err := sub.Next(f.ctx)
	must(f.t, err)
	var words []string
	for _, r := range b.Revisions {
		words = append(words, fmt.Sprintf("%s@%d/%d", r.Key, (r.Window.Start-base)/hour, r.Revision))
	}
	return strings.Join(words, " "), b
}

func (f *feed) expect(sub *subscribe.Subscription, want string) subscribe.Batch {
	f.t.Helper()
	got, b := f.words(sub)
	if got != want {
		f.t.Fatalf("batch %q, want %q", got, want)
	}
	return b
}

func TestWholeBatchesAndResume(t *testing.T) {
	t.Parallel()
	f := newFeed(t)
	f.alias(1, 1)
	f.accept(base+hour, f.next("eu", base), f.next("us", base))
	f.accept(base + hour + 1) // moves the watermark only
	lost := f.next("eu", base)
	f.void(lost)
	f.claim() // its successor
	f.accept(base+2*hour, lost, f.next("eu", base+hour))
	f.accept(base+2*hour, f.next("us", base))

	sub := f.open(subscribe.Options{})
	first := f.expect(sub, "eu@0/1 us@0/1")
	second := f.expect(sub, "eu@0/2 eu@1/1")
	f.expect(sub, "us@0/2")
	f.accept(base+3*hour, f.next("eu", base+2*hour))
	live := f.expect(sub, "eu@2/1")
	if first.Generation != 1 || second.W != base+2*hour || live.State(live.Revisions[0], revision.Finality{Lateness: int64(hour)}) != revision.OnTimeEmitted ||
		live.State(first.Revisions[0], revision.Finality{Lateness: int64(2 * hour)}) != revision.Finalized {
		t.Errorf("batches: %+v %+v %+v", first, second, live)
	}

	resumed := f.open(subscribe.Options{From: first.Token})
	f.expect(resumed, "eu@0/2 eu@1/1")
	f.expect(resumed, "us@0/2")

	progress := f.open(subscribe.Options{Progress: true, From: first.Token})
	if b := f.expect(progress, ""); b.W != base+hour+1 {
		t.Errorf("progress: %+v", b)
	}
}

func TestOneKey(t *testing.T) {
	t.Parallel()
	f := newFeed(t)
	f.alias(1, 1)
	f.accept(base+hour, f.next("a", base), f.next("Zürich 2.x", base), f.next("b", base), f.next("Zürich 2.x", base+hour))
	f.accept(base+hour, f.next("b", base))
	f.accept(base+hour, f.next("Zürich 2.x", base))
	sub := f.open(subscribe.Options{Key: "Zürich 2.x"})
	f.expect(sub, "Zürich 2.x@0/1 Zürich 2.x@1/1")
	b := f.expect(sub, "Zürich 2.x@0/2")
	if _, err := subscribe.Open(f.ctx, f.conn.NC, subscribe.Options{Stream: f.stream, Job: "hourly", Key: "b", From: b.Token}); !errors.Is(err, subscribe.ErrToken) {
		t.Errorf("a token of another key: %v", err)
	}
}

func TestAliasSwitch(t *testing.T) {
	t.Parallel()
	f := newFeed(t)
	if _, err := subscribe.Open(f.ctx, f.conn.NC, subscribe.Options{Stream: f.stream, Job: "hourly"}); !errors.Is(err, subscribe.ErrNoGeneration) {
		t.Fatalf("without an alias: %v", err)
	}
	f.alias(1, 1)
	f.accept(base+hour, f.next("eu", base))
	sub := f.open(subscribe.Options{})
	b := f.expect(sub, "eu@0/1")
	f.accept(base+hour, f.next("eu", base))
	f.alias(2, 2)
	f.accept(base+hour, f.next("eu", base))
	f.expect(sub, "eu@0/2")
	var switched *subscribe.SwitchedError
	if _, err := sub.Next(f.ctx); !errors.As(err, &switched) || switched.From != 1 || switched.To != 2 {
		t.Fatalf("at the switch: %v", err)
	}
	if _, err := subscribe.Open(f.ctx, f.conn.NC, subscribe.Options{Stream: f.stream, Job: "hourly", From: b.Token}); !errors.Is(err, subscribe.ErrSwitched) {
		t.Fatalf("a token from before the switch: %v", err)
	}
	f.expect(f.open(subscribe.Options{Generation: 1, From: b.Token}), "eu@0/2")
}

func TestReplacedStream(t *testing.T) {
	t.Parallel()
	f := newFeed(t)
	f.accept(base+hour, f.next("eu", base))
	b := f.expect(f.open(subscribe.Options{Generation: 1}), "eu@0/1")
	must(t, f.conn.JS.DeleteStream(f.ctx, subject.RevisionsStream(f.stream)))
	must(t, natsio.ProvisionStream(f.ctx, f.conn.JS, f.stream, 1, 1))
	_, err := subscribe.Open(f.ctx, f.conn.NC, subscribe.Options{Stream: f.stream, Job: "hourly", Generation: 1, From: b.Token})
	if !errors.Is(err, subscribe.ErrRecreated) {
		t.Fatalf("error: %v", err)
	}
}

func TestSeen(t *testing.T) {
	t.Parallel()
	var s subscribe.Seen
	r := func(n uint64) *revision.Revision { return &revision.Revision{ProjectionID: "p", Revision: n} }
	s.Note("p", 2)
	for n, want := range map[uint64]bool{1: false, 2: false} {
		if s.Fresh(r(n)) != want {
			t.Errorf("revision %d", n)
		}
	}
	if !s.Fresh(r(3)) || s.Fresh(r(3)) {
		t.Error("revision 3 is fresh once")
	}
}

// The example is a module of its own with a foreign path: it must build from what a
// clone has, and print what was accepted for its key.
func TestExampleConsumer(t *testing.T) {
	t.Parallel()
	f := newFeed(t)
	f.alias(1, 1)
	f.accept(base+hour, f.next("eu", base), f.next("us", base))
	dir, err := filepath.Abs("../../examples/revision-consumer")
	must(t, err)
	source, err := os.ReadFile(filepath.Join(dir, "main.go"))
	must(t, err)
	if lines := strings.Count(string(source), "\n"); lines > 40 {
		t.Errorf("main.go has %d lines, at most 40 are promised", lines)
	}
	binary := filepath.Join(t.TempDir(), "revision-consumer")
	build := exec.CommandContext(f.ctx, "go", "build", "-mod=readonly", "-o", binary, ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOWORK=off", "GOPROXY=off", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	run := exec.CommandContext(f.ctx, binary, server.URL(), f.stream, "hourly", "eu")
	out, err := run.StdoutPipe()
	must(t, err)
	must(t, run.Start())
	line := make([]byte, 256)
	n, err := out.Read(line)
	must(t, err)
	must(t, run.Process.Signal(os.Interrupt))
	must(t, run.Wait())
	if got := string(line[:n]); got != "eu 2026-11-30T10:00:00Z 2026-11-30T11:00:00Z UPSERT 1 [orders=1]\n" {
		t.Errorf("the consumer prints %q", got)
	}
}

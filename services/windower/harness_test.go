package windower

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// shared is the server of all tests that do not stop it.
var shared struct {
	conn   *natsio.Conn
	serial atomic.Int64
}

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "windower")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		server, err := natsio.Embed(context.Background(), natsio.EmbeddedOptions{Dir: dir, Port: -1})
		if err != nil {
			panic(err)
		}
		defer server.Shutdown()
		if shared.conn, err = server.Connect(context.Background(), "tests"); err != nil {
			panic(err)
		}
		defer shared.conn.Close()
		if err := natsio.Provision(context.Background(), shared.conn.JS, 1); err != nil {
			panic(err)
		}
		return m.Run()
	}())
}

const (
	testSource    = "shop"
	testExtractor = "order.occurred_at@1"
	epoch         = envelope.EventTime(1_796_032_800_000_000)
	hour          = int64(policy.Hour)
)

// world is one business stream with one job, and the ingest process that writes it.
type world struct {
	t            testing.TB
	bs           *policy.BusinessStream
	pol          *policy.StreamTimePolicy
	dir          string
	policyDigest string
	number       []uint64   // frames written, per key partition
	frames       [][][]byte // the same frames, per key partition
	offset       uint64
	high         envelope.EventTime
}

func deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newWorld(t testing.TB, partitions int) *world {
	t.Helper()
	name := fmt.Sprintf("bs%d", shared.serial.Add(1))
	w := &world{
		t: t, dir: t.TempDir(), policyDigest: "digest-1",
		bs: &policy.BusinessStream{
			Name: name, Partitions: partitions, Key: []string{"/k"}, MaxEventBytes: 1 << 18,
			Values:     []policy.ValueSpec{{Name: "amount", Path: "/amount", Type: policy.Decimal, Scale: 2}},
			Extractors: []policy.Extractor{{Name: testExtractor, Path: "/at", Format: policy.RFC3339}},
		},
		pol: &policy.StreamTimePolicy{
			Stream: name, Job: "revenue", Generation: 1, Extractor: testExtractor,
			Sources: []policy.SourceRef{{Name: testSource, Partitions: 1}}, OutOfOrderness: 5 * policy.Minute,
			Window:          policy.WindowSpec{Kind: policy.Tumbling, Size: policy.Hour, Zone: "UTC"},
			Aggregates:      []policy.AggregateSpec{{Name: "orders", Func: "count"}, {Name: "revenue", Func: "sum", Arg: "amount"}},
			AllowedLateness: policy.Day, RetainIDs: 2 * policy.Day, Late: "rebuild", AllIdle: policy.Hold,
		},
		number: make([]uint64, partitions), frames: make([][][]byte, partitions), high: envelope.MinEventTime,
	}
	must(t, natsio.ProvisionStream(deadline(t), shared.conn.JS, name, partitions, 1))
	must(t, natsio.ProvisionPolicy(deadline(t), shared.conn.JS, name, w.pol.Job, 1, partitions, 1))
	return w
}

// order is one event.
func (w *world) order(key string, at envelope.EventTime, cents int64) *envelope.Event {
	w.offset++
	w.high = max(w.high, at)
	return &envelope.Event{
		ID: fmt.Sprintf("o-%d", w.offset), Source: testSource, Key: key, SourceOffset: 1<<32 | w.offset,
		PartitionGeneration: 1 << 32, Times: []envelope.EventTime{at}, Values: []envelope.Value{{Int: cents}},
		Digest: [32]byte{byte(w.offset), byte(w.offset >> 8)}, Data: []byte(`{}`),
	}
}

// frame encodes records as the next frame of key partition pp.
func (w *world) frame(pp int, records ...envelope.Record) []byte {
	w.t.Helper()
	w.number[pp]++
	data, err := envelope.AppendFrame(nil, &envelope.Frame{
		Writer: "writer-1", Number: w.number[pp], Extractors: []string{testExtractor}, Values: []string{"amount"}, Records: records,
	})
	must(w.t, err)
	return data
}

// write appends a frame to the events journal and answers its sequence.
func (w *world) write(pp int, data []byte) uint64 {
	w.t.Helper()
	ack, err := shared.conn.JS.Publish(deadline(w.t), subject.Events(w.bs.Name, pp), data)
	must(w.t, err)
	w.frames[pp] = append(w.frames[pp], data)
	return ack.Sequence
}

func (w *world) events(pp int, events ...*envelope.Event) uint64 {
	w.t.Helper()
	records := make([]envelope.Record, len(events))
	for i, e := range events {
		records[i].Event = e
	}
	return w.write(pp, w.frame(pp, records...))
}

// mark appends a mark that says the highest event time is high.
func (w *world) mark(pp int, high envelope.EventTime) uint64 {
	w.t.Helper()
	return w.write(pp, w.frame(pp, envelope.Record{Mark: w.markOf(pp, high)}))
}

func (w *world) markOf(pp int, high envelope.EventTime) *envelope.Mark {
	return &envelope.Mark{
		Source: testSource, Epoch: 1, Generation: 1 << 32, Offset: 1<<32 | w.offset,
		MaxEventTime: []envelope.EventTime{high}, IngestNow: envelope.IngestTime(epoch), Writer: "writer-1", Frames: w.number[pp],
	}
}

func (w *world) part(pp int) partition {
	return partition{stream: w.bs.Name, job: w.pol.Job, generation: w.pol.Generation, number: pp}
}

// unit makes a unit whose data directory is dir.
func (w *world) unit(pp int, dir string) *unit {
	m, err := newMetrics(nil, clock.System())
	must(w.t, err)
	return &unit{
		part: w.part(pp), business: w.bs, policy: w.pol, policyDigest: w.policyDigest, coreVersion: window.CoreVersion,
		nc: shared.conn.NC, js: shared.conn.JS, owner: "test", file: w.part(pp).file(dir),
		clock: clock.System(), every: time.Nanosecond, cut: cutBytes,
		metrics: m, log: zerolog.Nop(), role: roleWaiting,
	}
}

// running is a unit that holds its partition.
type running struct {
	u      *unit
	cancel context.CancelFunc
	lost   chan struct{}
	done   chan error
}

func start(t testing.TB, u *unit) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{u: u, cancel: cancel, lost: make(chan struct{}), done: make(chan error, 1)}
	go func() { r.done <- u.hold(ctx, r.lost) }()
	t.Cleanup(cancel)
	return r
}

// end waits for the unit and answers how it ended.
func (r *running) end(t testing.TB) error {
	t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-time.After(60 * time.Second):
		t.Fatal("the unit did not end")
		return nil
	}
}

// drain ends the unit as a SIGTERM does.
func (r *running) drain(t testing.TB) {
	t.Helper()
	r.cancel()
	must(t, r.end(t))
}

// crash ends the unit without any goodbye: uncommitted work and the next checkpoint are lost.
func (r *running) crash(t testing.TB) {
	t.Helper()
	close(r.lost)
	if err := r.end(t); err != nil && !errors.Is(err, errLeaseLost) {
		t.Fatal(err)
	}
	r.cancel()
}

// await polls until ok.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// reached waits until the unit is live and everything before sequence next is committed.
func (r *running) reached(t testing.TB, next uint64) {
	t.Helper()
	await(t, fmt.Sprintf("commit up to %d", next), func() bool {
		select {
		case err := <-r.done:
			t.Fatalf("the unit ended: %v", err)
		default:
		}
		c := r.u.accepted()
		return r.u.state() == roleLive && c != nil && c.Inputs[0].Seq >= next
	})
}

func (u *unit) accepted() *revision.Commit {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.last
}

func (u *unit) state() role {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.role
}

// books is a windows journal read as a whole.
type books struct {
	records [][]byte
	commits []revision.Commit
	claims  int
}

// read reads the windows journal and checks what must hold of each.
func (w *world) read(pp int) books {
	w.t.Helper()
	var b books
	var chain journal.Chain
	chain.Start()
	var digest revision.Digest
	name := w.part(pp).windowsStream()
	must(w.t, journal.ReadRange(deadline(w.t), shared.conn.JS, name, 0, 1, 1<<62, func(m journal.Msg) error {
		e, err := journal.DecodeEntry(m.Seq, m.Data)
		if err != nil {
			return err
		}
		if e.Claim != nil {
			b.claims++
		}
		if e.Commit == nil {
			return nil
		}
		for _, record := range e.Records {
			digest = chainOver(digest, record)
			b.records = append(b.records, bytes.Clone(record))
		}
		if digest != e.Commit.RecordsDigest || e.Commit.Records != uint64(len(b.records)) {
			return fmt.Errorf("sequence %d: the COMMIT does not fit the records", m.Seq)
		}
		if n := len(b.commits); n > 0 && e.Commit.Inputs[0].Less(b.commits[n-1].Inputs[0]) {
			return fmt.Errorf("sequence %d: position %s goes backward", m.Seq, place(e.Commit.Inputs[0]))
		}
		b.commits = append(b.commits, *e.Commit)
		return chain.Next(name, m.Seq, e.Commit)
	}))
	return b
}

// want runs the core over the frames that were written, in memory.
func (w *world) want(pp int) [][]byte {
	w.t.Helper()
	u := w.unit(pp, "")
	op, err := window.New(u.operator())
	must(w.t, err)
	f := newFold(u.part, w.pol.Extractor, op)
	var out [][]byte
	for i, data := range w.frames[pp] {
		must(w.t, f.load(uint64(i+1), data))
		must(w.t, f.advance(func() bool { return false }))
		for _, record := range f.cut() {
			out = append(out, bytes.Clone(record))
		}
	}
	return out
}

// same compares the journal with what the core says.
func (w *world) same(pp int) books {
	w.t.Helper()
	got, want := w.read(pp), w.want(pp)
	if len(want) == 0 {
		w.t.Fatal("the trace makes no records at all")
	}
	if len(got.records) != len(want) {
		w.t.Fatalf("%d records in the journal, want %d", len(got.records), len(want))
	}
	for i := range want {
		if !bytes.Equal(got.records[i], want[i]) {
			w.t.Fatalf("record %d differs", i)
		}
	}
	return got
}

// traffic writes hours of events with marks, late events and repetitions among them.
func (w *world) traffic(pp, from, hours, keys int) (last uint64) {
	w.t.Helper()
	for h := from; h < from+hours; h++ {
		at := epoch.Add(int64(h) * hour)
		var events []*envelope.Event
		for k := range keys {
			e := w.order(fmt.Sprintf("key-%d", k), at.Add(int64(k)*1000), int64(100+k))
			events = append(events, e)
			if k%7 == 0 {
				events = append(events, e)
			}
			if h > 0 && k%5 == 0 {
				events = append(events, w.order(fmt.Sprintf("key-%d", k), at.Add(-hour+int64(k)), 7))
			}
		}
		w.events(pp, events...)
		last = w.mark(pp, at.Add(hour-1))
	}
	return last
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	must(t, err)
	must(t, os.MkdirAll(filepath.Dir(to), 0o755))
	must(t, os.WriteFile(to, data, 0o600))
}

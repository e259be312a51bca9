package ingest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

var server *natsio.Embedded

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "tidemark-ingest")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		server, err = natsio.Embed(context.Background(), natsio.EmbeddedOptions{Dir: dir, Port: -1})
		if err != nil {
			panic(err)
		}
		defer server.Shutdown()
		return m.Run()
	}())
}

func connect(t testing.TB) *natsio.Conn {
	t.Helper()
	conn, err := server.Connect(context.Background(), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// until polls because what it waits for is in another process's hands.
func until(t testing.TB, what string, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !met(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// world is one business stream of its own, with everything provisioned.
type world struct {
	t        testing.TB
	conn     *natsio.Conn
	stream   *policy.BusinessStream
	policies []*policy.StreamTimePolicy
	leases   *sharedLeases
}

var worlds struct {
	sync.Mutex
	n int
}

func newWorld(t testing.TB, partitions int) *world {
	t.Helper()
	worlds.Lock()
	worlds.n++
	name := fmt.Sprintf("s%d", worlds.n)
	worlds.Unlock()
	w := &world{t: t, conn: connect(t), leases: &sharedLeases{held: map[string]*fakeLease{}}}
	w.stream = &policy.BusinessStream{
		Name: name, Partitions: partitions, Key: []string{"/region"},
		Values:           []policy.ValueSpec{{Name: "amount", Path: "/amount", Type: policy.Decimal, Scale: 2}},
		Extractors:       []policy.Extractor{{Name: "at@1", Path: "/at", Format: policy.RFC3339}},
		MaxFuture:        policy.Day,
		NotBefore:        envelope.EventTime(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()),
		SchemaGeneration: 3, Retractions: true, MaxEventBytes: 256 << 10,
	}
	w.policies = []*policy.StreamTimePolicy{{
		Stream: name, Job: "sums", Generation: 1, Sources: []policy.SourceRef{{Name: "shop", Partitions: 2}}, Extractor: "at@1",
		IdleAfter: 2 * policy.Second, AllIdle: policy.Advance, Window: policy.WindowSpec{Kind: policy.Tumbling, Size: policy.Hour, Zone: "UTC"},
	}}
	if err := natsio.ProvisionStream(context.Background(), w.conn.JS, name, partitions, 1); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) snapshot() config.Snapshot {
	snap := config.Snapshot{Streams: []config.Entry{{Stream: w.stream, Digest: fmt.Sprint(len(w.stream.Extractors))}}}
	for _, p := range w.policies {
		snap.Policies = append(snap.Policies, config.Entry{Policy: p})
	}
	return snap
}

// node is one running ingest process.
type node struct {
	*Service
	w    *world
	stop func()
}

type option func(*Config, *Service)

// run starts an ingest process on a connection of its own and waits until its documents
// are followed.
func (w *world) run(name string, options ...option) *node {
	w.t.Helper()
	c := Config{Conn: connect(w.t), Instance: name, Address: "http://" + name, Log: zerolog.Nop(), WaitFor: 200 * time.Millisecond}
	for _, o := range options {
		o(&c, nil)
	}
	s, err := newService(c, &namedLeases{w.leases, "http://" + name})
	if err != nil {
		w.t.Fatal(err)
	}
	s.watch = func(ctx context.Context, _ jetstream.JetStream, changed func(config.Snapshot)) error {
		changed(w.snapshot())
		<-ctx.Done()
		return nil
	}
	for _, o := range options {
		o(nil, s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	n := &node{Service: s, w: w}
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("Run: %v", err)
		}
	})
	w.t.Cleanup(n.stop)
	until(w.t, "documents followed", func() bool { _, err := s.streamNamed(w.stream.Name); return err == nil })
	return n
}

// ready waits until every source partition of the stream is owned by the node.
func (n *node) ready() *node {
	n.w.t.Helper()
	until(n.w.t, "partitions owned", func() bool { return n.st().owned() == len(n.st().all()) && len(n.Problems()) == 0 })
	return n
}

func (n *node) st() *stream {
	st, err := n.streamNamed(n.w.stream.Name)
	if err != nil {
		n.w.t.Fatal(err)
	}
	return st
}

func (n *node) push(req *Request) (Reply, error) {
	if req.Stream == "" {
		req.Stream = n.w.stream.Name
	}
	if req.Source == "" {
		req.Source = "shop"
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return n.Push(ctx, req)
}

func (n *node) mustPush(req *Request) Reply {
	n.w.t.Helper()
	reply, err := n.push(req)
	if err != nil {
		n.w.t.Fatal(err)
	}
	return reply
}

func (n *node) flushNow() {
	n.w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if _, err := n.st().flush(ctx); err != nil {
		n.w.t.Fatal(err)
	}
}

// sale is one good event of the world's stream.
func sale(id, region string, second int) string {
	at := time.Date(2026, 11, 30, 10, 0, second, 0, time.UTC).Format(time.RFC3339)
	return fmt.Sprintf(`{"id":%q,"region":%q,"at":%q,"amount":"12.50"}`, id, region, at)
}

func plain(texts ...string) []Item {
	items := make([]Item, len(texts))
	for i, text := range texts {
		items[i] = Item{Format: 1, Bytes: []byte(text)}
	}
	return items
}

// placed is a record of the events journal with its place.
type placed struct {
	pp     int
	seq    uint64
	writer string
	number uint64
	event  *envelope.Event
	mark   *envelope.Mark
}

// journal reads the events journals; frames had before are skipped as readers do.
type journalState struct {
	records []placed
	frames  map[string]int // writer/pp/number: how often it is stored
}

func (w *world) journal() journalState {
	w.t.Helper()
	ctx := context.Background()
	out := journalState{frames: map[string]int{}}
	for pp := range w.stream.Partitions {
		st, err := w.conn.JS.Stream(ctx, subject.EventsStream(w.stream.Name, pp))
		if err != nil {
			w.t.Fatal(err)
		}
		for seq := uint64(1); seq <= st.CachedInfo().State.LastSeq; seq++ {
			msg, err := st.GetMsg(ctx, seq)
			if err != nil {
				w.t.Fatal(err)
			}
			f, err := envelope.DecodeFrame(msg.Data)
			if err != nil {
				w.t.Fatal(err)
			}
			id := fmt.Sprintf("%s/%d/%d", f.Writer, pp, f.Number)
			out.frames[id]++
			if out.frames[id] > 1 {
				continue
			}
			for _, r := range f.Records {
				out.records = append(out.records, placed{pp, seq, f.Writer, f.Number, r.Event, r.Mark})
			}
		}
	}
	return out
}

func (j journalState) events() (out []*envelope.Event) {
	for _, r := range j.records {
		if r.event != nil {
			out = append(out, r.event)
		}
	}
	return out
}

// marks answers the marks of one source partition in one key partition's journal.
func (j journalState) marks(source string, number uint32, pp int) (out []*envelope.Mark) {
	for _, r := range j.records {
		if r.mark != nil && r.pp == pp && r.mark.Source == source && r.mark.Partition == number {
			out = append(out, r.mark)
		}
	}
	return out
}

func (j journalState) lastMark(t testing.TB, source string, number uint32, pp int) *envelope.Mark {
	t.Helper()
	marks := j.marks(source, number, pp)
	if len(marks) == 0 {
		t.Fatalf("no mark of %s/%d in key partition %d", source, number, pp)
	}
	return marks[len(marks)-1]
}

func (w *world) quarantined() (out []envelope.QuarantineRecord) {
	w.t.Helper()
	ctx := context.Background()
	st, err := w.conn.JS.Stream(ctx, subject.QuarantineStream(w.stream.Name))
	if err != nil {
		w.t.Fatal(err)
	}
	seen := map[string]bool{}
	for seq := uint64(1); seq <= st.CachedInfo().State.LastSeq; seq++ {
		msg, err := st.GetMsg(ctx, seq)
		if err != nil {
			w.t.Fatal(err)
		}
		if msg.Subject == subject.QuarantineDisposition(w.stream.Name) {
			continue
		}
		r, err := envelope.DecodeQuarantine(msg.Data)
		if err != nil {
			w.t.Fatal(err)
		}
		if want := subject.Quarantine(w.stream.Name, r.Reason); msg.Subject != want {
			w.t.Errorf("quarantine record on %s, want %s", msg.Subject, want)
		}
		if id := fmt.Sprint(r.Writer, r.Number); !seen[id] {
			seen[id] = true
			out = append(out, r)
		}
	}
	return out
}

func (w *world) lastSource(number uint32) sourceRecord {
	w.t.Helper()
	ctx := context.Background()
	st, err := w.conn.JS.Stream(ctx, subject.SourcesStream(w.stream.Name))
	if err != nil {
		w.t.Fatal(err)
	}
	msg, err := st.GetLastMsgForSubject(ctx, subject.Source(w.stream.Name, "shop", number))
	if err != nil {
		w.t.Fatal(err)
	}
	var rec sourceRecord
	if err := json.Unmarshal(msg.Data, &rec); err != nil {
		w.t.Fatal(err)
	}
	return rec
}

// checkComplete is the promise of marks: at each mark, every event up to its offset
// stands before it, and offsets 1..Offset are all in events or quarantine, once.
func (w *world) checkComplete() {
	w.t.Helper()
	type origin struct {
		source string
		number uint32
		epoch  uint64
	}
	j := w.journal()
	have := map[origin]map[uint64]int{}
	note := func(source string, number uint32, offset uint64) {
		o := origin{source, number, offset >> 32}
		if have[o] == nil {
			have[o] = map[uint64]int{}
		}
		have[o][offset&0xffffffff]++
	}
	for _, ev := range j.events() {
		note(ev.Source, ev.SourcePartition, ev.SourceOffset)
	}
	for _, q := range w.quarantined() {
		note(q.Source, q.Partition, q.Offset)
	}
	for pp := range w.stream.Partitions {
		marked := map[origin]uint64{}
		contiguous := map[string]map[uint64]bool{}
		for _, r := range j.records {
			if r.pp != pp {
				continue
			}
			if contiguous[r.writer] == nil {
				contiguous[r.writer] = map[uint64]bool{}
			}
			contiguous[r.writer][r.number] = true
			if ev := r.event; ev != nil {
				o := origin{ev.Source, ev.SourcePartition, ev.SourceOffset >> 32}
				if ev.SourceOffset <= marked[o] {
					w.t.Errorf("event %s at offset %d stands behind a mark of offset %d", ev.ID, ev.SourceOffset, marked[o])
				}
			}
			if m := r.mark; m != nil {
				o := origin{m.Source, m.Partition, m.Epoch}
				marked[o] = max(marked[o], m.Offset)
				for n := uint64(1); n <= m.Offset&0xffffffff; n++ {
					if have[o][n] != 1 {
						w.t.Errorf("mark of %v at %d: offset %d is stored %d times", o, m.Offset, n, have[o][n])
					}
				}
				for n := uint64(1); n <= m.Frames; n++ {
					if !contiguous[m.Writer][n] {
						w.t.Errorf("mark of %v: frame %d of %d does not stand before it", o, n, m.Frames)
					}
				}
			}
		}
	}
}

// sharedLeases gives each key to the first who asks, until it is released or taken away.
type sharedLeases struct {
	mu   sync.Mutex
	held map[string]*fakeLease
}

type fakeLease struct {
	from    *sharedLeases
	key     string
	address string
	lost    chan struct{}
	yield   chan struct{}
	free    chan struct{}
	once    sync.Once
}

func (l *fakeLease) Lost() <-chan struct{} { return l.lost }

func (l *fakeLease) Yield() <-chan struct{} { return l.yield }

func (l *fakeLease) Abandon() { l.Release() }

func (l *fakeLease) Release() {
	l.once.Do(func() {
		l.from.mu.Lock()
		defer l.from.mu.Unlock()
		delete(l.from.held, l.key)
		close(l.free)
	})
}

type namedLeases struct {
	*sharedLeases
	address string
}

func (n *namedLeases) Run(ctx context.Context) { <-ctx.Done() }

func (n *namedLeases) acquire(ctx context.Context, key string) (lease, error) {
	for {
		n.mu.Lock()
		other := n.held[key]
		if other == nil {
			mine := &fakeLease{from: n.sharedLeases, key: key, address: n.address, lost: make(chan struct{}), yield: make(chan struct{}), free: make(chan struct{})}
			n.held[key] = mine
			n.mu.Unlock()
			return mine, nil
		}
		n.mu.Unlock()
		select {
		case <-other.free:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (n *namedLeases) Who(_ context.Context, key string) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.held[key]; l != nil {
		return l.address, nil
	}
	return "", nil
}

// fakeClock moves only when told. Its wall can be set apart from its monotonic time.
type fakeClock struct {
	mu     sync.Mutex
	mono   time.Duration
	step   time.Duration
	start  time.Time
	timers []*fakeTimer
}

func newFakeClock() *fakeClock {
	return &fakeClock{start: time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)}
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.start.Add(c.mono + c.step)
}

// Since is monotonic: the stamper asks only about the start.
func (c *fakeClock) Since(t time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mono - t.Sub(c.start)
}

type fakeTimer struct {
	clock  *fakeClock
	c      chan time.Time
	at     time.Duration
	period time.Duration
	on     bool
}

func (c *fakeClock) add(d, period time.Duration) *fakeTimer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &fakeTimer{clock: c, c: make(chan time.Time, 1), at: c.mono + d, period: period, on: true}
	c.timers = append(c.timers, t)
	return t
}

func (c *fakeClock) NewTimer(d time.Duration) clock.Timer   { return c.add(d, 0) }
func (c *fakeClock) NewTicker(d time.Duration) clock.Ticker { return fakeTicker{c.add(d, d)} }

func (t *fakeTimer) C() <-chan time.Time { return t.c }

func (t *fakeTimer) Reset(d time.Duration) {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.at, t.on = t.clock.mono+d, true
	if !slices.Contains(t.clock.timers, t) {
		t.clock.timers = append(t.clock.timers, t)
	}
}

func (t *fakeTimer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	was := t.on
	t.on = false
	t.clock.timers = slices.DeleteFunc(t.clock.timers, func(o *fakeTimer) bool { return o == t })
	return was
}

type fakeTicker struct{ *fakeTimer }

func (t fakeTicker) Stop() { t.fakeTimer.Stop() }

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mono += d
	for _, t := range c.timers {
		if !t.on || t.at > c.mono {
			continue
		}
		select {
		case t.c <- c.start.Add(c.mono + c.step):
		default:
		}
		if t.period == 0 {
			t.on = false
			continue
		}
		for t.at <= c.mono {
			t.at += t.period
		}
	}
}

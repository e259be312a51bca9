package effector

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/adapters"
	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/core/identity"
	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/internal/dispatchfile"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/internal/providersim"
	"github.com/tidemark-mesh/tidemark/internal/sendlimit"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adapter"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

var (
	server *natsio.Embedded // one for the package
	worlds atomic.Int32     // business streams made so far, for their names
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "effector-test-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		if server, err = natsio.Embed(context.Background(), natsio.EmbeddedOptions{Dir: dir, Port: -1}); err != nil {
			panic(err)
		}
		defer server.Shutdown()
		return m.Run()
	}())
}

const hour = envelope.EventTime(3600 * 1_000_000)

// base is the first hour that tests use: 2026-11-30T10:00Z.
const base = envelope.EventTime(1796032800000000)

const documents = `
apiVersion: tidemark/v1
kind: BusinessStream
name: NAME
partitions: PARTITIONS
key: [/order/region]
values:
  amount: {path: /order/amount, type: decimal, scale: 2}
eventTime:
  order.occurred_at@1: {path: /order/occurred_at, format: rfc3339}
bounds: {maxFuture: 5m, notBefore: 2020-01-01T00:00:00Z}
schemaGeneration: 1
retractions: true
maxEventBytes: 256KiB
---
apiVersion: tidemark/v1
kind: StreamTimePolicy
schema: streamTimePolicy.v1
stream: NAME
job: hourly
generation: 1
sources: [{name: shop, partitions: 1}]
timestampExtractor: order.occurred_at@1
watermark: {boundedOutOfOrderness: 5m}
idle: {after: 15m, allIdle: hold}
window: WINDOW
aggregates: {revenue: sum(amount), orders: count()}
allowedLateness: 24h
late: rebuild
retention: {ids: 48h, raw: unlimited}
correctionMode: UPSERT_REVISION
---
apiVersion: tidemark/v1
kind: Adapter
name: NAME-api@1
type: http
url: URL/v1/issue
allow: [127.0.0.0/8]
evidence: {key: /effectKey, amount: /amount, subject: /subject, ref: /id}
timeout: 1s
sendWithin: 1s
grace: 1s
rate: {perSecond: 500, concurrency: 16}
reject: [{status: 422, code: account_closed}]
bodyMismatch: [{status: 422, code: idempotency_mismatch}]
inFlight: [{status: 409, code: in_flight}]
pending: [{status: 202}]
throttle: [{status: 429}]
ADAPTER
---
apiVersion: tidemark/v1
kind: EffectPolicy
name: reward@1
stream: NAME
job: hourly
effectType: issue-reward
subject: key
when: value.revenue >= decimal("100")
payload: {subject: key, amount: value.revenue}
adapter: NAME-api@1
POLICY
`

// What providers promise.
const (
	idempotent = "idempotency: {header: Idempotency-Key, retention: 24h, onBodyMismatch: error}\nretry: {mode: auto, first: 50ms, most: 200ms}\n"
	queryable  = "query: {url: 'URL/v1/by-ref/{effectKey}', absence: authoritative, lateArrivalBound: 10m}\n"
	anyAge     = "airlock: {windowOlderThan: 87600h}\n"
)

// terms change the documents of a world.
type terms struct {
	adapter, policy, window string
	partitions              int
	sim                     providersim.Options
}

// world is a business stream with one effect policy and a provider that keeps its own log.
type world struct {
	t     testing.TB
	conn  *natsio.Conn
	name  string
	docs  []policy.Document
	sim   *providersim.Sim
	feeds map[string]*acceptor
}

func newWorld(t testing.TB, o terms) *world {
	t.Helper()
	w := &world{t: t, name: fmt.Sprintf("orders%d", worlds.Add(1)), conn: connect(t), feeds: map[string]*acceptor{}}
	ctx := testContext(t)
	if o.sim.Log == "" {
		o.sim.Log = filepath.Join(t.TempDir(), "provider.log")
	}
	o.sim.Settings.Fields = providersim.Fields{Amount: "/amount", Subject: "/subject"}
	var err error
	w.sim, err = providersim.Start(o.sim)
	must(t, err)
	t.Cleanup(func() { must(t, w.sim.Close(context.Background())) })
	t.Cleanup(w.forget)
	if o.window == "" {
		o.window = "{tumbling: 1h, zone: UTC}"
	}
	if o.policy == "" {
		o.policy = anyAge
	}
	text := strings.NewReplacer("ADAPTER", o.adapter, "POLICY", o.policy, "WINDOW", o.window).Replace(documents)
	text = strings.NewReplacer("NAME", w.name, "URL", w.sim.URL(), "PARTITIONS", fmt.Sprint(max(1, o.partitions))).Replace(text)
	w.apply(ctx, text)
	return w
}

// forget takes the documents away, so that a service of another test does not own this
// stream.
func (w *world) forget() {
	ctx := testContext(w.t)
	bucket, err := w.conn.JS.KeyValue(ctx, subject.ConfigBucket)
	must(w.t, err)
	keys, err := bucket.Keys(ctx)
	must(w.t, err)
	for _, key := range keys {
		if slices.ContainsFunc(strings.FieldsFunc(key, func(r rune) bool { return r == '.' }), func(part string) bool {
			return part == w.name || part == w.name+"-api"
		}) {
			must(w.t, bucket.Delete(ctx, key))
		}
	}
}

// apply lets `apply` do what it does: store the documents, make the policy active.
func (w *world) apply(ctx context.Context, text string) {
	w.t.Helper()
	docs, findings := policy.Parse("test.yaml", []byte(text))
	if len(findings) > 0 {
		w.t.Fatal(findings)
	}
	must(w.t, natsio.Provision(ctx, w.conn.JS, 1))
	_, err := config.Apply(ctx, w.conn.JS, docs, config.Options{Replicas: 1})
	must(w.t, err)
	w.docs = append(w.docs, docs...)
}

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func connect(t testing.TB) *natsio.Conn {
	t.Helper()
	conn, err := server.Connect(testContext(t), t.Name())
	must(t, err)
	t.Cleanup(conn.Close)
	return conn
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until check answers "" and fails with its last answer at the deadline.
func eventually(t testing.TB, check func() string) {
	t.Helper()
	deadline := time.Now().Add(45 * time.Second)
	for {
		problem := check()
		if problem == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(problem)
		}
		time.Sleep(5 * time.Millisecond) // between two looks
	}
}

// acceptor writes accepted revisions as a projector would.
type acceptor struct {
	w      *world
	gen    int
	pp     int
	writer *journal.FencedWriter
	static record.Static
	heads  map[string]*revision.Predecessor
	data   envelope.EventTime // Wdata of the COMMITs
}

// generation answers the acceptor of a generation and key partition.
func (w *world) generation(gen, pp int) *acceptor {
	w.t.Helper()
	id := fmt.Sprintf("%d %d", gen, pp)
	if w.feeds[id] != nil {
		return w.feeds[id]
	}
	writer, _, err := journal.ClaimFenced(testContext(w.t), w.conn.JS, journal.FencedSettings{
		Stream: subject.RevisionsStream(w.name), Fence: subject.Commits(w.name, "hourly", gen, pp), Owner: "acceptor",
	})
	must(w.t, err)
	w.t.Cleanup(writer.Close)
	a := &acceptor{w: w, gen: gen, pp: pp, writer: writer, heads: map[string]*revision.Predecessor{}, data: envelope.MaxEventTime, static: record.Static{
		Stream: w.name, Job: "hourly", PolicyGeneration: policy.PolicyGeneration("hourly", gen), PolicyDigest: strings.Repeat("ab", 32),
	}}
	w.feeds[id] = a
	return a
}

// next answers the next revision of a window.
func (a *acceptor) next(key string, w revision.Window, revenue int, change func(*revision.Revision)) *revision.Revision {
	r := &revision.Revision{
		Key: key, Window: w, Op: revision.Upsert, Revision: 1,
		State: revision.OnTimeEmitted, Firing: revision.FiringOnTime, ValueChanged: true,
		Value:     []revision.Field{{Name: "orders", Text: "1"}, {Name: "revenue", Text: fmt.Sprintf("%d.00", revenue), Quoted: true}},
		Delta:     []revision.Field{{Name: "orders", Text: "1"}, {Name: "revenue", Text: fmt.Sprintf("%d.00", revenue), Quoted: true}},
		Inputs:    revision.Inputs{Partition: a.pp, First: 1, Last: 2, Events: 1, IDDigest: [16]byte{1}},
		Watermark: revision.Watermark{At: w.End, Data: min(a.data, w.End)}, Cause: revision.CauseOnTime,
	}
	if head := a.heads[fmt.Sprint(key, w)]; head != nil {
		r.Revision, r.Predecessor = head.Revision+1, head
		r.State, r.Firing, r.Cause = revision.Corrected, revision.FiringLate, revision.CauseLateEvent
	}
	if change != nil {
		change(r)
	}
	a.static.Fill(r)
	a.heads[fmt.Sprint(key, w)] = &revision.Predecessor{Revision: r.Revision, Digest: r.ComputeDigest()}
	return r
}

// retract answers the retraction of a window; by names what replaces it.
func (a *acceptor) retract(key string, w revision.Window, by string) *revision.Revision {
	return a.next(key, w, 0, func(r *revision.Revision) {
		r.Op, r.Value, r.Delta, r.Inputs.Events, r.SupersededBy = revision.Retract, nil, nil, 0, by
	})
}

// accept has revisions accepted in one batch and answers the sequence of its COMMIT.
func (a *acceptor) accept(list ...*revision.Revision) uint64 {
	a.w.t.Helper()
	c := revision.NewCommit()
	c.W, c.Wdata = a.data, a.data
	var messages []journal.Message
	for _, r := range list {
		messages = append(messages, journal.Message{
			Subject: subject.Revision(a.w.name, "hourly", a.gen, a.pp, r.Key), Data: r.AppendJSON(nil),
		})
	}
	seq, err := a.writer.Commit(context.Background(), messages, c)
	must(a.w.t, err)
	return seq
}

// hourOf is the n-th hour of the tests.
func hourOf(n int) revision.Window {
	return revision.Window{Start: base + envelope.EventTime(n)*hour, End: base + envelope.EventTime(n+1)*hour}
}

// sold has one hour of a region accepted.
func (w *world) sold(region string, n, revenue int) uint64 {
	w.t.Helper()
	a := w.generation(1, 0)
	return a.accept(a.next(region, hourOf(n), revenue, nil))
}

// keyOf is the effectKey of a region's hour.
func (w *world) keyOf(region string, n int) effect.EffectKey {
	return w.keyOfWindow(region, hourOf(n))
}

func (w *world) keyOfWindow(region string, window revision.Window) effect.EffectKey {
	key, err := effect.ParseEffectKey(identity.Effect("issue-reward", identity.LogicalWindow(w.name, region, window.Start, window.End), region))
	must(w.t, err)
	return key
}

// history answers every record of an effect, as the journal of key partition 0 has it.
func (w *world) history(key effect.EffectKey) (list []*effect.Record) {
	w.t.Helper()
	for _, e := range w.entries() {
		for _, data := range e.Records {
			o, err := effectlog.DecodeOwned(data)
			must(w.t, err)
			if o.Effect != nil && o.Effect.Key == key {
				list = append(list, o.Effect)
			}
		}
	}
	return list
}

func (w *world) entries() (list []*journal.Entry) {
	w.t.Helper()
	name := subject.EffectsStream(w.name, 0)
	last, err := journal.LastSeq(testContext(w.t), w.conn.JS, name, "")
	must(w.t, err)
	err = journal.ReadRange(testContext(w.t), w.conn.JS, name, 0, 1, last, func(m journal.Msg) error {
		e, err := journal.DecodeEntry(m.Seq, m.Data)
		list = append(list, e)
		return err
	})
	must(w.t, err)
	return list
}

// now answers the last record of an effect, nil if there is none.
func (w *world) now(key effect.EffectKey) *effect.Record {
	w.t.Helper()
	list := w.history(key)
	if len(list) == 0 {
		return nil
	}
	return list[len(list)-1]
}

// await waits until an effect is in a state.
func (w *world) await(key effect.EffectKey, s effect.State) *effect.Record {
	w.t.Helper()
	var r *effect.Record
	eventually(w.t, func() string {
		if r = w.now(key); r == nil {
			return fmt.Sprintf("no record of %s, waiting for %s", key, s)
		}
		if r.State != s {
			return fmt.Sprintf("%s is %s after %s, waiting for %s", key, r.State, r.Step.Name, s)
		}
		return ""
	})
	return r
}

// executed fails unless the provider's own log has so many executions of an effect.
func (w *world) executed(key effect.EffectKey, want int) {
	w.t.Helper()
	if got := len(w.sim.Executions(key.String())); got != want {
		w.t.Errorf("the provider executed %s %d times, want %d", key, got, want)
	}
}

// control appends a CONTROL record and answers its sequence.
func (w *world) control(c effectlog.Control) uint64 {
	w.t.Helper()
	c.Stamp = w.stamp()
	data, err := c.Encode()
	must(w.t, err)
	return w.append(data)
}

func (w *world) gate(scope effectlog.Scope, closed bool) uint64 {
	w.t.Helper()
	return w.control(effectlog.Control{Gate: &effectlog.Gate{Scope: scope, Closed: closed}})
}

// command appends a COMMAND record and waits for its answer.
func (w *world) command(c effectlog.Command) *effectlog.Done {
	w.t.Helper()
	c.Stamp = w.stamp()
	data, err := c.Encode()
	must(w.t, err)
	seq := w.append(data)
	var done *effectlog.Done
	eventually(w.t, func() string {
		for _, e := range w.entries() {
			for _, data := range e.Records {
				if o, err := effectlog.DecodeOwned(data); err == nil && o.Done != nil && o.Done.Sequence == seq {
					done = o.Done
					return ""
				}
			}
		}
		return fmt.Sprintf("command %s at sequence %d has no answer", c.Act, seq)
	})
	return done
}

var stamps atomic.Int32

func (w *world) stamp() effectlog.Stamp {
	w.t.Helper()
	last, err := journal.LastSeq(testContext(w.t), w.conn.JS, subject.EffectsStream(w.name, 0), "")
	must(w.t, err)
	return effectlog.Stamp{ID: fmt.Sprintf("test-stamp-%d", stamps.Add(1)), Basis: last, Who: "ana", Reason: "a test", At: effect.Time(base)}
}

func (w *world) append(data []byte) uint64 {
	w.t.Helper()
	seq, err := journal.AppendControl(testContext(w.t), w.conn.JS, subject.EffectsStream(w.name, 0), subject.Effects(w.name, 0), data)
	must(w.t, err)
	return seq
}

// node is one process's share of key partition 0, without the lease around it.
type node struct {
	*unit
	t       testing.TB
	dir     string
	stopped bool
	lost    chan struct{}
	cancel  context.CancelFunc
	done    chan error
	release context.CancelFunc
}

// node makes a unit that has its own directory, limits and adapters, as a process has.
func (w *world) node(dir string) *node {
	w.t.Helper()
	limits := sendlimit.NewGroup(clock.System())
	m, err := newMetrics(nil, nil, limits)
	must(w.t, err)
	u := &unit{
		part: partition{stream: w.name}, js: w.conn.JS, owner: w.t.Name(), dir: dir, clock: clock.System(), metrics: m,
		log: zerolog.New(zerolog.NewTestWriter(w.t)).Level(zerolog.InfoLevel), askFirst: 50 * time.Millisecond, askMost: time.Second,
		providers: &providers{
			make:   func(doc *policy.Adapter) (adapter.Adapter, error) { return adapters.New(doc, adapters.Deps{}) },
			limits: limits, all: map[string]*provider{},
		},
		answers: newMailbox[answered](), findings: newMailbox[finding](), changed: make(chan struct{}, 1), role: roleWaiting,
		library: w.library(),
	}
	n := &node{unit: u, t: w.t, dir: dir}
	u.sending, n.release = context.WithCancel(context.Background())
	w.t.Cleanup(func() {
		n.release()
		u.sends.Wait()
	})
	return n
}

func (w *world) library() *library {
	w.t.Helper()
	snap, err := config.Load(testContext(w.t), w.conn.JS)
	must(w.t, err)
	l := libraries(snap)[w.name]
	if l == nil {
		w.t.Fatal("the stream has no effect policies")
	}
	return l
}

// start owns the partition in a goroutine.
func (n *node) start() *node {
	ctx, cancel := context.WithCancel(testContext(n.t))
	n.cancel, n.lost, n.done, n.stopped = cancel, make(chan struct{}), make(chan error, 1), false
	go func() { n.done <- n.own(ctx, n.lost, nil) }()
	n.t.Cleanup(func() { n.stop() })
	return n
}

// stop ends the owner as SIGTERM does, and answers how it ended.
func (n *node) stop() error {
	if n.stopped {
		return nil
	}
	n.stopped = true
	n.cancel()
	return <-n.done
}

// hand makes an owner whose loop the test turns by hand.
func (n *node) hand() *owner {
	n.t.Helper()
	ctx := testContext(n.t)
	file, v := n.files()
	o, err := n.claim(ctx, ctx, v, file)
	must(n.t, err)
	o.reading = ctx
	o.beat = n.monitor.Start("test")
	must(n.t, o.refresh(ctx))
	n.t.Cleanup(func() {
		o.endFeeds()
		o.close()
	})
	return o
}

func (n *node) files() (*dispatchfile.File, *view) {
	n.t.Helper()
	file, err := dispatchfile.Open(n.part.dispatchFile(n.dir))
	must(n.t, err)
	v, _, err := openView(n.part.viewFile(n.dir), n.part)
	must(n.t, err)
	n.t.Cleanup(func() {
		must(n.t, file.Close())
		must(n.t, v.close())
	})
	return file, v
}

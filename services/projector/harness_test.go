package projector

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

var (
	server  *natsio.Embedded // one for the package
	streams atomic.Int32     // business streams made so far, for their names
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "projector-test-")
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

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func connect(t testing.TB) *natsio.Conn {
	t.Helper()
	conn, err := server.Connect(testContext(t), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// eventually waits until check answers "" and fails with its last answer at the deadline.
func eventually(t testing.TB, check func() string) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		problem := check()
		if problem == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(problem)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newPartition provisions a business stream of its own with one job of one generation.
func newPartition(t testing.TB, conn *natsio.Conn, partitions int) partition {
	t.Helper()
	ctx := testContext(t)
	p := partition{stream: fmt.Sprintf("orders%d", streams.Add(1)), job: "hourly", generation: 1}
	must(t, natsio.Provision(ctx, conn.JS, 1))
	must(t, natsio.ProvisionStream(ctx, conn.JS, p.stream, partitions, 1))
	must(t, natsio.ProvisionPolicy(ctx, conn.JS, p.stream, p.job, p.generation, partitions, 1))
	return p
}

func staticOf(p partition) record.Static {
	return record.Static{
		Stream: p.stream, Job: p.job, PolicyGeneration: policy.PolicyGeneration(p.job, p.generation),
		PolicyDigest: strings.Repeat("ab", 32),
	}
}

// author writes a windows journal as a windower would.
type author struct {
	t      testing.TB
	part   partition
	static record.Static
	writer *journal.Writer
	heads  map[string]*revision.Predecessor
	commit revision.Commit
}

func newAuthor(t testing.TB, conn *natsio.Conn, p partition, static record.Static) *author {
	t.Helper()
	w, _, err := journal.ClaimWriter(testContext(t), conn.JS, journal.Settings{
		Stream: p.windowsStream(), Subject: subject.Windows(p.stream, p.job, p.generation, p.number), Owner: "author",
	})
	must(t, err)
	t.Cleanup(func() { w.Close() })
	a := &author{t: t, part: p, static: static, writer: w, heads: map[string]*revision.Predecessor{}, commit: revision.NewCommit()}
	a.commit.Inputs = []revision.InputPosition{{Stream: subject.EventsStream(p.stream, p.number), Created: 1, Seq: 1}}
	return a
}

// revision answers the next revision of an hour; change may bend it.
func (a *author) revision(key string, start envelope.EventTime, orders int, change func(*revision.Revision)) *revision.Revision {
	return a.next(key, revision.Window{Start: start, End: start + hour}, orders, change)
}

// next answers the next revision of a window; change may bend it.
func (a *author) next(key string, w revision.Window, orders int, change func(*revision.Revision)) *revision.Revision {
	r := &revision.Revision{
		Key: key, Window: w, Op: revision.Upsert, Revision: 1,
		State: revision.OnTimeEmitted, Firing: revision.FiringOnTime, ValueChanged: true,
		Value:     []revision.Field{{Name: "orders", Text: fmt.Sprint(orders)}, {Name: "revenue", Text: fmt.Sprintf("%d.50", orders), Quoted: true}},
		Delta:     []revision.Field{{Name: "orders", Text: fmt.Sprint(orders)}, {Name: "revenue", Text: fmt.Sprintf("%d.50", orders), Quoted: true}},
		Inputs:    revision.Inputs{Partition: a.part.number, First: 1, Last: 2, Events: uint64(orders), IDDigest: [16]byte{1}},
		Watermark: revision.Watermark{At: w.End, Data: w.End}, Cause: revision.CauseOnTime,
	}
	if head := a.heads[headKey(r)]; head != nil {
		r.Revision, r.Predecessor = head.Revision+1, head
		r.State, r.Firing, r.Cause = revision.Corrected, revision.FiringLate, revision.CauseLateEvent
	}
	if change != nil {
		change(r)
	}
	a.static.Fill(r)
	return r
}

func headKey(r *revision.Revision) string { return fmt.Sprint(r.Key, r.Window) }

// propose answers the record of the next revision of a window.
func (a *author) propose(key string, start envelope.EventTime, orders int) []byte {
	return a.record(a.revision(key, start, orders, nil))
}

func (a *author) record(r *revision.Revision) []byte {
	digest := r.ComputeDigest()
	a.heads[headKey(r)] = &revision.Predecessor{Revision: r.Revision, Digest: digest}
	return record.AppendProposal(nil, r, digest)
}

// retract answers the retraction of a window; by names what replaces it, "" = nothing.
func (a *author) retract(key string, w revision.Window, by string) *revision.Revision {
	return a.next(key, w, 0, func(r *revision.Revision) {
		r.Op, r.Value, r.Delta, r.Inputs.Events, r.SupersededBy = revision.Retract, nil, nil, 0, by
	})
}

// supersede answers the revisions of a group: gone become one session.
func (a *author) supersede(key string, gone []revision.Window, to revision.Window, orders int) []*revision.Revision {
	last := a.next(key, to, orders, nil)
	var group []*revision.Revision
	for _, w := range gone {
		r := a.retract(key, w, last.ProjectionID)
		last.Supersedes = append(last.Supersedes, revision.Supersession{ProjectionID: r.ProjectionID, Revision: r.Revision})
		group = append(group, r)
	}
	return append(group, last)
}

// records answers the records of revisions.
func (a *author) records(list ...*revision.Revision) (out [][]byte) {
	for _, r := range list {
		out = append(out, a.record(r))
	}
	return out
}

// late answers the record of a refused pair.
func (a *author) late(key string) []byte {
	return record.AppendLate(nil, &record.Late{Event: record.EventRef{Source: "shop", ID: "late-1", Key: key, Place: record.Place{Seq: 1}}, Window: revision.Window{Start: base, End: base + hour}, W: base})
}

// write appends one entry with watermark w and answers its sequence.
func (a *author) write(w envelope.EventTime, records ...[]byte) uint64 {
	a.t.Helper()
	seq, err := a.append(w, records...)
	must(a.t, err)
	return seq
}

func (a *author) append(w envelope.EventTime, records ...[]byte) (uint64, error) {
	a.commit.W, a.commit.Wdata = w, w-hour/2
	a.commit.Inputs = []revision.InputPosition{a.commit.Inputs[0]}
	a.commit.Inputs[0].Seq++
	for _, r := range records {
		a.commit.Records++
		a.commit.RecordsDigest = sha256.Sum256(append(a.commit.RecordsDigest[:], r...))
	}
	pending, err := a.writer.Commit(context.Background(), records, a.commit)
	if err != nil {
		return 0, err
	}
	<-pending.Done()
	return pending.Result()
}

// node is one process's share of a partition, without the lease around it.
type node struct {
	*unit
	t testing.TB
}

func newNode(t testing.TB, conn *natsio.Conn, p partition, dir string) *node {
	t.Helper()
	m, err := newMetrics(nil, clock.System())
	must(t, err)
	return &node{t: t, unit: &unit{
		part: p, policy: &policy.StreamTimePolicy{Stream: p.stream, Job: p.job, Generation: p.generation, AllowedLateness: policy.Day},
		static: staticOf(p), js: conn.JS, owner: t.Name(), file: p.viewFile(dir), every: flushAfter,
		clock: clock.System(), metrics: m, log: zerolog.New(zerolog.NewTestWriter(t)),
		role: roleStarting, ready: make(chan struct{}),
	}}
}

// follower opens the view and reads it up to what the stream holds now.
func (n *node) follower(ctx context.Context) *follower {
	n.t.Helper()
	v, err := n.openView()
	must(n.t, err)
	f, err := startFollower(ctx, n.js, n.part, v)
	must(n.t, err)
	n.t.Cleanup(f.reader.Close)
	must(n.t, f.upTo(ctx, f.target))
	return f
}

// owner accepts in a goroutine until stop is called, which answers how it ended.
func (n *node) own(ctx context.Context) (stop func() error) {
	n.t.Helper()
	f := n.follower(ctx)
	lost, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- n.unit.own(ctx, f, lost) }()
	stopped := false
	return func() error {
		if !stopped {
			stopped = true
			close(lost)
		}
		return <-done
	}
}

// awaitWindows waits until everything before the windows entry behind seq is accepted.
func (n *node) awaitWindows(seq uint64) revision.Commit {
	n.t.Helper()
	var c revision.Commit
	eventually(n.t, func() string {
		if v := n.opened(); v != nil {
			if at := v.at(); at.Commit != nil {
				c = *at.Commit
				if c.Inputs[0].Seq > seq {
					return ""
				}
			}
		}
		return fmt.Sprintf("accepted up to %+v, waiting for windows sequence %d", c.Inputs, seq)
	})
	return c
}

// dump answers the logical content of a view's file, which is closed.
func dump(t testing.TB, path string) string {
	t.Helper()
	v, err := readView(path, byWindow, clock.System(), flushAfter)
	must(t, err)
	defer v.store.Close()
	return contents(t, v)
}

// contents answers every row and the place of a view.
func contents(t testing.TB, v *view) string {
	t.Helper()
	var out strings.Builder
	_, err := v.scan(nil, nil, func(key, value []byte) ([]byte, bool, error) {
		fmt.Fprintf(&out, "%x=%x\n", key, value)
		return nil, true, nil
	})
	must(t, err)
	at := v.at()
	commit := at.Commit
	at.Commit = nil
	fmt.Fprintf(&out, "%+v\n", at)
	if commit != nil {
		out.Write(commit.AppendJSON(nil))
	}
	return out.String()
}

// hourUnit makes a number of hours a factor of hour.
func hourUnit(n int) envelope.EventTime { return envelope.EventTime(n) }

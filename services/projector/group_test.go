package projector

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

const minute = hour / 60

// between answers the session from one minute after base to another.
func between(from, to int) revision.Window {
	return revision.Window{Start: base + envelope.EventTime(from)*minute, End: base + envelope.EventTime(to)*minute}
}

// newSessionNode is a node of a policy with sessions: gap 11 min, a day of lateness.
func newSessionNode(t testing.TB, conn *natsio.Conn, p partition, dir string) *node {
	t.Helper()
	n := newNode(t, conn, p, dir)
	n.policy.Window = policy.WindowSpec{Kind: policy.Session, Gap: 11 * policy.Minute, Rule: "gap-11-v2"}
	return n
}

// neighbours answers n sessions of a minute each, two minutes apart.
func neighbours(n int) (list []revision.Window) {
	for i := range n {
		list = append(list, between(2*i, 2*i+1))
	}
	return list
}

// acceptedBatches answers the accepted batches of a partition.
func acceptedBatches(t testing.TB, conn *natsio.Conn, p partition) (batches [][]*revision.Revision) {
	t.Helper()
	grouper := journal.NewBatchGrouper(subject.RevisionsStream(p.stream), p.fence())
	must(t, journal.ReadRange(testContext(t), conn.JS, subject.RevisionsStream(p.stream), 0, 1, 1<<62, func(m journal.Msg) error {
		b, err := grouper.Add(m)
		if b == nil || err != nil {
			return err
		}
		var batch []*revision.Revision
		for _, m := range b.Messages {
			r, err := revision.ParseJSON(m.Data)
			if err != nil {
				return err
			}
			batch = append(batch, r)
		}
		batches = append(batches, batch)
		return nil
	}, p.revisions(), p.fence()))
	return batches
}

// The largest groups there are, of policies and keys whose names are as long and as
// strange as they can be, move to a batch of their own whole when the one under way has
// no room for them.
func TestTheLargestGroupIsNotSplit(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("s", 63)
	for name, c := range map[string]struct {
		key     string
		sources int    // of one partition
		results string // digits of results
	}{
		"a usual key":    {"account-29", 1, "1"},
		"a long key":     {strings.Repeat("ü", 128), 1, "1"},
		"a hostile key":  {strings.Repeat("\x01", 256), 1, "1"},
		"all at its end": {strings.Repeat("\x01", 256), 16, strings.Repeat("9", 39)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t)
			p := newPartition(t, conn, 1)
			a := newAuthor(t, conn, p, staticOf(p))
			n := newSessionNode(t, conn, p, t.TempDir())
			defer n.closeView()
			ctx := testContext(t)
			for i := range c.sources {
				n.policy.Sources = append(n.policy.Sources, policy.SourceRef{Name: fmt.Sprintf("%s-%02d", long, i), Partitions: 1})
			}
			var delta []revision.Field
			for _, name := range []string{"orders", "revenue"} {
				n.policy.Aggregates = append(n.policy.Aggregates, policy.AggregateSpec{Name: name})
				delta = append(delta, revision.Field{Name: name, Text: "-" + c.results})
			}
			most := n.policy.MergeLimit()
			dress := func(r *revision.Revision) *revision.Revision {
				r.Delta = delta
				for _, s := range n.policy.Sources {
					for pp := range s.Partitions {
						r.Inputs.Offsets = append(r.Inputs.Offsets, revision.OffsetRange{Source: s.Name, Partition: uint32(pp), First: 1 << 62, Last: 1<<62 + 1})
					}
				}
				return r
			}
			gone := neighbours(most)
			var records [][]byte
			for i, w := range gone {
				records = append(records, a.record(a.next(c.key, w, 1, nil)))
				if len(records) == 200 || i == most-1 {
					a.write(w.End, records...)
					records = nil
				}
			}
			for i := range 700 { // leave no room for the group in their batch
				records = append(records, a.propose(fmt.Sprintf("b%04d", i), base, 1))
			}
			a.write(base, records...)
			group := a.supersede(c.key, gone, between(0, 2*most), most)
			records, bytes := nil, 0
			for _, r := range group {
				records = append(records, a.record(dress(r)))
				bytes += len(records[len(records)-1])
			}
			t.Logf("%d revisions, %d bytes in the windows journal", len(group), bytes)
			seq := a.write(base+24*hour, records...)
			stop := n.own(ctx)
			n.awaitWindows(seq)
			must(t, stop())

			holds := 0
			for _, batch := range acceptedBatches(t, conn, p) {
				members := 0
				for _, r := range batch {
					if r.SupersededBy != "" || len(r.Supersedes) > 0 {
						members++
					}
				}
				if members != 0 {
					holds++
				}
				if members != 0 && members != len(group) {
					t.Errorf("a batch of %d holds %d of the group's %d", len(batch), members, len(group))
				}
			}
			if holds != 1 {
				t.Errorf("%d batches hold the group", holds)
			}
		})
	}
}

// A chain of merges, a retraction without successor, and bounds that come back.
func TestChainsAndLoneRetractions(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	p := newPartition(t, conn, 1)
	a := newAuthor(t, conn, p, staticOf(p))
	n := newSessionNode(t, conn, p, t.TempDir())
	ctx := testContext(t)
	stop := n.own(ctx)
	defer n.closeView()

	five := neighbours(5)
	var list []*revision.Revision
	for _, w := range five {
		list = append(list, a.next("k", w, 1, nil))
	}
	a.write(base+hour, a.records(list...)...)
	middle := revision.Window{Start: five[0].Start, End: five[2].End}
	records := a.records(a.supersede("k", five[:3], middle, 3)...)
	records = append(records, a.records(a.supersede("k", []revision.Window{middle, five[3], five[4]}, between(0, 10), 6)...)...)
	a.write(base+2*hour, records...)
	a.write(base+2*hour, a.records(a.retract("k", between(0, 10), ""))...)
	seq := a.write(base+2*hour, a.records(a.next("k", middle, 4, nil))...)
	c := n.awaitWindows(seq)
	must(t, stop())

	if c.Records != 5+4+4+1+1 || countOf(c, countAccepted) != 15 {
		t.Fatalf("commit: %s", c.AppendJSON(nil))
	}
	batches := acceptedBatches(t, conn, p)
	last := batches[len(batches)-1]
	if r := last[len(last)-1]; r.Revision != 3 || r.Op != revision.Upsert {
		t.Errorf("bounds that come back continue with revision %d %s", r.Revision, r.Op)
	}
	follower := newSessionNode(t, conn, p, t.TempDir())
	follower.follower(ctx)
	defer follower.closeView()
	if x, y := contents(t, n.opened()), contents(t, follower.opened()); x != y {
		t.Errorf("views differ:\n%s\n%s", x, y)
	}
}

// A group that its author cannot have written so is damage: nothing of it is accepted.
func TestBrokenGroupsHalt(t *testing.T) {
	t.Parallel()
	two := neighbours(2)
	merged := between(0, 3)
	group := func(a *author) []*revision.Revision { return a.supersede("k", two, merged, 2) }
	for name, c := range map[string]struct {
		records func(a *author) [][]byte
		want    string
	}{
		"a retraction is missing": {func(a *author) [][]byte {
			g := group(a)
			return a.records(g[0], g[2])
		}, "replaces 2 projections, but 1 retractions"},
		"the successor is missing": {func(a *author) [][]byte { return a.records(group(a)[:2]...) }, "ends inside a supersession group"},
		"another order": {func(a *author) [][]byte {
			g := group(a)
			return a.records(g[1], g[0], g[2])
		}, "is retracted before it"},
		"another successor": {func(a *author) [][]byte {
			g := group(a)
			g[1].SupersededBy = strings.Repeat("cd", 32)
			return a.records(g...)
		}, "names " + strings.Repeat("cd", 32)},
		"a retraction of another key": {func(a *author) [][]byte {
			a.write(base, a.records(a.next("other", two[0], 1, nil))...)
			g := group(a)
			g[0] = a.retract("other", two[0], g[2].ProjectionID)
			return a.records(g...)
		}, `replaces one of key "other"`},
		"a retraction without successor inside": {func(a *author) [][]byte {
			g := group(a)
			return a.records(g[0], a.retract("k", two[1], ""))
		}, "names none follows"},
		"a late record inside": {func(a *author) [][]byte {
			g := a.records(group(a)...)
			return [][]byte{g[0], a.late("k"), g[1], g[2]}
		}, "another record stands inside"},
		"accepted in part": {func(a *author) [][]byte {
			g := group(a)
			first := a.record(g[0])
			lone := *g[0]
			lone.SupersededBy = ""
			a.write(base, a.records(&lone)...)
			return append([][]byte{first}, a.records(g[1:]...)...)
		}, "DUPLICATE_DIFFERENT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t)
			p := newPartition(t, conn, 1)
			a := newAuthor(t, conn, p, staticOf(p))
			n := newSessionNode(t, conn, p, t.TempDir())
			f := n.follower(testContext(t))
			defer n.closeView()
			a.write(base+hour, a.records(a.next("k", two[0], 1, nil), a.next("k", two[1], 1, nil))...)
			a.write(base+hour, c.records(a)...)
			err := n.unit.own(testContext(t), f, make(chan struct{}))
			if err == nil || !halts(err) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error: %v, want %q", err, c.want)
			}
			for _, batch := range acceptedBatches(t, conn, p) {
				for _, r := range batch {
					if r.SupersededBy != "" || len(r.Supersedes) > 0 {
						t.Errorf("revision %d of %s to %s was accepted", r.Revision, r.Window.Start, r.Window.End)
					}
				}
			}
		})
	}
}

// A process that dies before the commit of a group leaves nothing of it; a group that
// stands in the journal twice is accepted once.
func TestAGroupAgainIsNoOp(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	p := newPartition(t, conn, 1)
	a := newAuthor(t, conn, p, staticOf(p))
	n := newSessionNode(t, conn, p, t.TempDir())
	defer n.closeView()
	ctx := testContext(t)
	two := neighbours(2)
	stop := n.own(ctx)
	n.awaitWindows(a.write(base+hour, a.records(a.next("k", two[0], 1, nil), a.next("k", two[1], 1, nil))...))
	must(t, stop())
	group := a.records(a.supersede("k", two, between(0, 3), 2)...)
	seq := a.write(base+hour, group...)
	dying := n.acceptorFor(ctx, &stopper{})
	must(t, dying.take(ctx, seq, readEntry(t, conn, p, seq)))
	if err := dying.commit(ctx); !errors.Is(err, errStopped) {
		t.Fatalf("commit: %v", err)
	}
	if got := len(readRevisions(t, conn, p)); got != 2 {
		t.Fatalf("%d revisions stand in the stream behind the crash", got)
	}
	stop = n.own(ctx)
	c := n.awaitWindows(a.write(base+hour, group...))
	must(t, stop())
	if got := len(readRevisions(t, conn, p)); got != 5 || c.Records != 5 || countOf(c, countDuplicate) != 3 {
		t.Errorf("%d revisions, commit: %s", got, c.AppendJSON(nil))
	}
}

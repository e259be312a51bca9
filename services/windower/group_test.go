package windower

import (
	"fmt"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// TestGroupsAreNotCut: one mark merges 400 sessions of each key; the groups come to more
// than one commit holds, and no commit ends inside one. What a crash leaves goes on there.
func TestGroupsAreNotCut(t *testing.T) {
	const keys, sessions, gap = 12, 400, 10
	for name, cut := range map[string]int{"full commits": cutBytes, "a commit a group": 1} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			w.pol.Window = policy.WindowSpec{Kind: policy.Session, Gap: gap, Rule: "rule"}
			u := w.unit(0, w.dir)
			u.cut = cut
			r := start(t, u)
			front := epoch.Add(sessions * gap)
			high := front.Add(int64(w.pol.OutOfOrderness) + gap)
			for k := range keys {
				w.line(k, sessions, gap, 0)
			}
			w.mark(0, high)
			for k := range keys {
				w.line(k, sessions-1, gap, gap/2) // bridges
			}
			open := w.mark(0, high) // before its outputs, the bridged sessions wait
			r.reached(t, open+1)
			r.crash(t)
			again := start(t, w.unit(0, w.dir))
			end := w.mark(0, high.Add(1))
			again.reached(t, end+1)
			again.drain(t)
			w.wholeGroups(w.same(0), keys)
		})
	}
}

// line writes events of a key, one every gap.
func (w *world) line(key, n int, gap, from int64) {
	w.t.Helper()
	var events []*envelope.Event
	for i := range n {
		events = append(events, w.order(fmt.Sprintf("key-%02d", key), epoch.Add(int64(i)*gap+from), 100))
	}
	w.events(0, events...)
}

// wholeGroups checks that every commit holds whole groups, and what openFrom says.
func (w *world) wholeGroups(b books, keys int) {
	w.t.Helper()
	merged, from := 0, uint64(0)
	for i, c := range b.commits {
		pending := 0
		for _, data := range b.records[from:c.Records] {
			rec, err := record.Decode(data)
			must(w.t, err)
			r := rec.Proposal
			switch {
			case r.Op == revision.Retract:
				pending++
			case len(r.Supersedes) != pending:
				w.t.Fatalf("commit %d: an UPSERT supersedes %d, %d were retracted before it", i, len(r.Supersedes), pending)
			case pending > 0:
				pending = 0
				merged++
			}
		}
		if pending > 0 {
			w.t.Fatalf("commit %d ends inside a group", i)
		}
		from = c.Records
		if merged > 0 && merged < keys && c.OpenFrom != epoch {
			w.t.Fatalf("commit %d: openFrom is %s after %d of %d merges", i, c.OpenFrom, merged, keys)
		}
	}
	if merged != keys {
		w.t.Fatalf("%d merges, want %d", merged, keys)
	}
	if c := b.commits[len(b.commits)-1]; c.OpenFrom != envelope.MaxEventTime {
		w.t.Fatalf("nothing waits at the end, but openFrom is %s", c.OpenFrom)
	}
}

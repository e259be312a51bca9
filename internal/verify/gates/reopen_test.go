package gates

import (
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

func reopen(t *testing.T, epoch uint64, add ...envelope.ReopenEvent) envelope.Record {
	t.Helper()
	body, err := envelope.AppendReopen(nil, &envelope.Reopen{
		PolicyGeneration: "j@1", Key: "a", Epoch: epoch, AsOf: envelope.ReopenPlace{Seq: 1, Index: 3}, Add: add,
	})
	if err != nil {
		t.Fatal(err)
	}
	return envelope.Record{Reopen: body}
}

// reopenedWorld has an event that was too late and is handed back, and a REOPEN of a
// reconciler that was replaced.
func reopenedWorld(t *testing.T) *unit {
	t.Helper()
	_, p := documents()
	late := event("2", 1*minute, 9)
	return worldOf(t, p,
		envelope.Record{Event: event("1", 10*minute, 5)},
		envelope.Record{Mark: mark(14 * minute)},
		envelope.Record{Event: late},
		reopen(t, 2, envelope.ReopenEvent{Source: late.Source, ID: late.ID, Time: late.Times[0], Digest: late.Digest, Values: late.Values, Seq: 1, Index: 2}),
		reopen(t, 1),
	)
}

func TestReopenedEventsAreAccountedFor(t *testing.T) {
	u := reopenedWorld(t)
	if failed := judge(u); failed != nil {
		t.Fatalf("failed: %v", failed)
	}
	row := u.accepted.rows[rowKey{"a", 1 * minute, 2 * minute}]
	if row == nil || row.Firing != revision.FiringReopened || u.proposed.count(window.CountReopened) != 1 || len(u.proposed.refused) != 1 {
		t.Fatalf("row %+v, %d reopened, refused %v", row, u.proposed.count(window.CountReopened), u.proposed.refused)
	}
	for name, c := range map[string]struct {
		damage func(*unit)
		gate   string
	}{
		"a reopened event uncounted": {func(u *unit) {
			for i := range u.proposed.commit.Counts {
				if c := &u.proposed.commit.Counts[i]; c.Name == window.CountReopened {
					c.N--
				}
			}
		}, "in = applied"},
		"an answer lost":  {func(u *unit) { u.proposed.refused = nil }, "answers to REOPENs"},
		"another answer":  {func(u *unit) { u.proposed.refused[0] += "?" }, "answers to REOPENs"},
		"another firing":  {func(u *unit) { u.accepted.rows[rowKey{"a", 1 * minute, 2 * minute}].Firing = revision.FiringLate }, "results equal the oracle"},
		"a row not there": {func(u *unit) { delete(u.accepted.rows, rowKey{"a", 1 * minute, 2 * minute}) }, "results equal the oracle"},
	} {
		t.Run(name, func(t *testing.T) {
			u := reopenedWorld(t)
			c.damage(u)
			if failed := judge(u); !strings.Contains(strings.Join(failed, "; "), c.gate) {
				t.Errorf("gates that failed: %v, want %q", failed, c.gate)
			}
		})
	}
}

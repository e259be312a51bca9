package windower

import (
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// reopen writes a REOPEN as a reconciler does: in a frame without a writer.
func (w *world) reopen(r *envelope.Reopen) uint64 {
	w.t.Helper()
	r.PolicyGeneration = w.pol.PolicyGeneration()
	body, err := envelope.AppendReopen(nil, r)
	must(w.t, err)
	data, err := envelope.AppendFrame(nil, &envelope.Frame{Extractors: []string{testExtractor}, Values: []string{"amount"}, Records: []envelope.Record{{Reopen: body}}})
	must(w.t, err)
	return w.write(0, data)
}

// TestReopen hands late events back to final windows, in parts between which the unit is
// killed, and asks again for what was done. The journal holds what the core says.
func TestReopen(t *testing.T) {
	for _, c := range []struct {
		spec    policy.WindowSpec
		windows int // that hold the events
	}{
		{policy.WindowSpec{Kind: policy.Tumbling, Size: policy.Hour, Zone: "UTC"}, 1},
		{policy.WindowSpec{Kind: policy.Hopping, Size: policy.Hour, Every: 30 * policy.Minute, Zone: "UTC"}, 2},
		{policy.WindowSpec{Kind: policy.Calendar, Calendar: policy.CalendarDay, Zone: "Europe/Paris"}, 1},
		{policy.WindowSpec{Kind: policy.Session, Gap: policy.Hour, Rule: "gap-60", Zone: "UTC"}, 1},
	} {
		t.Run(string(c.spec.Kind), func(t *testing.T) {
			w := newWorld(t, 1)
			w.pol.Window = c.spec
			w.pol.RetainIDs = w.pol.AllowedLateness + c.spec.Longest()
			r := start(t, w.unit(0, w.dir))
			w.events(0, w.order("k", epoch, 100))
			w.mark(0, epoch.Add(80*hour)) // far behind end + L of every kind
			late := w.order("k", epoch.Add(1), 50)
			seq := w.events(0, late)
			r.reached(t, seq+1)
			r.crash(t)

			one := envelope.Reopen{
				Key: "k", Epoch: 1, Part: 1, Parts: 2, AsOf: envelope.ReopenPlace{Seq: seq + 1}, AsOfNow: envelope.IngestTime(epoch),
				Add: []envelope.ReopenEvent{{Source: testSource, ID: late.ID, Time: epoch.Add(1), Digest: late.Digest, SourceOffset: late.SourceOffset, Values: late.Values, Seq: seq}},
			}
			r = start(t, w.unit(0, w.dir))
			r.reached(t, w.reopen(&one)+1)
			r.crash(t)
			two := one
			two.Part, two.Add = 2, nil
			r = start(t, w.unit(0, w.dir))
			w.reopen(&two)
			one.Part, one.Parts = 0, 0
			r.reached(t, w.reopen(&one)+1)
			r.drain(t)

			var reopened, refused int
			for _, raw := range w.same(0).records {
				rec, err := record.Decode(raw)
				must(t, err)
				switch {
				case rec.Refused != nil && rec.Refused.Why == record.RefusedReopened:
					refused++
				case rec.Proposal != nil && rec.Proposal.Firing == revision.FiringReopened && rec.Proposal.Op == revision.Upsert:
					reopened++
					if rec.Proposal.Inputs.Events != 2 {
						t.Errorf("%+v holds %d events, want both", rec.Proposal.Window, rec.Proposal.Inputs.Events)
					}
				}
			}
			if reopened != c.windows || refused != 1 {
				t.Errorf("%d revisions were reopened and %d REOPENs refused, want %d and 1", reopened, refused, c.windows)
			}
		})
	}
}

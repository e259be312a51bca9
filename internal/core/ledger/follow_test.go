package ledger_test

import (
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// The pairs of the design, and nothing else: what no row lists is impossible.
func TestTransitionsAreThoseOfTheDesign(t *testing.T) {
	const table = `
		- PREPARED HELD UNKNOWN
		PREPARED PREPARED HELD VOIDED DISPATCHING UNKNOWN
		HELD PREPARED HELD VOIDED UNKNOWN
		VOIDED VOIDED PREPARED HELD RECONCILED UNKNOWN
		DISPATCHING DISPATCHING ACKED PREPARED REJECTED UNKNOWN
		UNKNOWN UNKNOWN ACKED RECONCILED DISPATCHING REJECTED MANUAL
		MANUAL MANUAL RECONCILED REJECTED
		REJECTED REJECTED RECONCILED UNKNOWN
		ACKED ACKED COMPENSATION_REQUIRED
		RECONCILED RECONCILED COMPENSATION_REQUIRED
		COMPENSATED COMPENSATED COMPENSATION_REQUIRED
		WAIVED WAIVED COMPENSATION_REQUIRED
		COMPENSATION_REQUIRED COMPENSATION_REQUIRED ACKED RECONCILED COMPENSATED WAIVED`
	listed := map[string]bool{}
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		for i := 1; i < len(f); i++ {
			listed[strings.TrimPrefix(f[0], "-")+" "+f[i]] = true
		}
	}
	names := map[string]bool{}
	for _, tr := range ledger.Transitions() {
		if names[tr.Name] || tr.Name == "" || len(tr.From) == 0 || len(tr.By) == 0 {
			t.Errorf("transition %q is not one of its own name, states and actors", tr.Name)
		}
		names[tr.Name] = true
	}
	for _, from := range append([]effect.State{effect.None}, effect.States()...) {
		for _, to := range effect.States() {
			moves := false
			for _, tr := range ledger.Transitions() {
				moves = moves || tr.Moves(from, to)
			}
			if pair := string(from) + " " + string(to); moves != listed[pair] {
				t.Errorf("%s: possible %v, listed %v", pair, moves, listed[pair])
			}
		}
	}
}

// history answers the records of an effect that was approved, sent, lost, sent again,
// acknowledged, and corrected.
func history(t *testing.T) []*effect.Record {
	t.Helper()
	locked := judged(5, 100)
	locked.Airlock = "amountAbove"
	list := []*effect.Record{must(t, nil, judge(locked), t0)}
	for i, e := range []ledger.Event{
		ledger.Hold{},
		dispatch(judged(5, 100)),
		answer(effect.Ambiguous),
		ledger.Query{Adapter: proven()},
		dispatch(judged(5, 100)),
		secondAnswer(effect.Executed),
		judge(judged(6, 0)),
		ledger.Waive{Who: "ana", Reason: "small"},
	} {
		if i == 0 {
			e = approval(list[0])
		}
		if d, ok := e.(ledger.Dispatch); ok && i > 2 {
			d.Judgement.Adapter.SendUnproven = true
			again := *list[len(list)-1].Approval // a second consent, as a journal might hold it
			again.Attempt, again.Sequence = 0, 10
			list[len(list)-1].Approval = &again
		}
		list = append(list, must(t, list[len(list)-1], e, t0.Add(int64(i+1)*minute)))
	}
	return list
}

func TestReplayGivesTheLastRecord(t *testing.T) {
	list := history(t)
	last, err := ledger.Replay(list)
	if err != nil || last != list[len(list)-1] {
		t.Fatalf("%v, %v", last, err)
	}
	if last, err := ledger.Replay(nil); last != nil || err != nil {
		t.Errorf("%v, %v of nothing", last, err)
	}
	for i := 1; i < len(list); i++ {
		if _, err := ledger.Replay(append(append([]*effect.Record{}, list[:i-1]...), list[i:]...)); err == nil {
			t.Errorf("nobody misses step %d", i)
		}
	}
}

func TestHistoriesThatCannotBe(t *testing.T) {
	other := effect.EffectKey{5}
	list := history(t)
	for _, c := range []struct {
		name   string
		step   int // index of the record that is changed
		change func(*effect.Record)
	}{
		{"is another effect", 4, func(r *effect.Record) { r.Identity.Job = "another" }},
		{"comes from another state", 4, func(r *effect.Record) { r.Step.From = effect.Held }},
		{"breaks the contract", 4, func(r *effect.Record) { r.Schema = "" }},
		{"no such transition", 4, func(r *effect.Record) { r.Step.Name = "wish" }},
		{"another transition's name", 4, func(r *effect.Record) { r.Step.Name = "approve" }},
		{"another actor", 4, func(r *effect.Record) { r.Step.By = effect.Sweeper }},
		{"an attempt from nowhere", 4, func(r *effect.Record) { r.LastAttempt = 9 }},
		{"other bytes", 5, func(r *effect.Record) { r.Request.Payload += " " }},
		{"another revision", 5, func(r *effect.Record) { r.Bound = &r.Latest.Revision; r.Bound.Revision = 8 }},
		{"the first send moved", 5, func(r *effect.Record) { r.FirstPossibleSendAt++ }},
		{"the deadline moved", 5, func(r *effect.Record) { r.ResendDeadline++ }},
		{"settled anew", 7, func(r *effect.Record) { r.Settled = effect.Reconciled }},
		{"attempts went back", 5, func(r *effect.Record) { r.LastAttempt, r.Attempts[1].N, r.Attempts[0].N = 0, 2, 1 }},
		{"an attempt is gone", 5, func(r *effect.Record) { r.Attempts = r.Attempts[1:] }},
		{"an attempt ended anew", 5, func(r *effect.Record) { r.Attempts[0].End = effect.Refused }},
		{"an attempt was sent elsewhen", 5, func(r *effect.Record) { r.Attempts[0].At-- }},
		{"it skipped a number", 2, func(r *effect.Record) { r.LastAttempt, r.Attempts[0].N, r.Approval.Attempt = 2, 2, 2 }},
		{"it sent other bytes", 2, func(r *effect.Record) { r.Attempts[0].Digest = digestOf("other") }},
		{"its bytes are not those of the digest", 2, func(r *effect.Record) { r.Request.Payload += " " }},
		{"it was not approved", 2, func(r *effect.Record) { r.Approval.Attempt = 0 }},
		{"another payload was approved", 2, func(r *effect.Record) { r.Approval.Digest = digestOf("other") }},
		{"its approval was void", 2, func(r *effect.Record) { r.Approval.Void = true }},
		{"it was sent while two sessions shared it", 2, func(r *effect.Record) {
			r.Clash = []revision.Window{window, {Start: window.End, End: window.End + 1}}
		}},
		{"it was sent again too late", 5, func(r *effect.Record) { r.ResendDeadline = r.Attempts[1].SendBy }},
		{"it was sent again too early", 5, func(r *effect.Record) { r.Attempts[1].At = r.Attempts[0].SendBy }},
		{"it was sent again, and does not say so", 5, func(r *effect.Record) { r.Attempts[1].Resend = false }},
		{"it was settled for nothing", 6, func(r *effect.Record) { r.Step.Evidence = nil }},
		{"it was settled by another's evidence", 6, func(r *effect.Record) { r.Step.Evidence.Key = other }},
		{"two corrections at once", 7, func(r *effect.Record) { r.Corrections = 2 }},
		{"an approval is gone", 4, func(r *effect.Record) { r.Approval = nil }},
		{"an older approval", 4, func(r *effect.Record) { a := *r.Approval; a.Sequence = 1; r.Approval = &a }},
		{"it became a correction", 4, func(r *effect.Record) {
			r.Correction = &effect.Correction{Of: other, Number: 1, Mode: effect.Adjust}
		}},
		{"it covers less", 4, func(r *effect.Record) { r.Covered = &revision.Window{Start: window.Start, End: window.End - 1} }},
		{"it covers nothing", 4, func(r *effect.Record) { r.Covered = nil }},
	} {
		changed := cloneOf(t, list[c.step])
		c.change(changed)
		if err := ledger.Follow(list[c.step-1], changed); err == nil {
			t.Errorf("%s: nobody minds", c.name)
		}
	}

	none := ledger.Query{Adapter: proven()}
	rejected := walk(t, in(t, effect.Unknown), none, none)
	gone := must(t, rejected, none, t0.Add(hour))
	gone.Absences = 2
	if ledger.Follow(rejected, gone) == nil {
		t.Error("nobody minds that two absences reject")
	}
	pending := cloneOf(t, list[4])
	pending.CompensationPending = true
	if ledger.Follow(pending, list[5]) == nil {
		t.Error("nobody minds that it was sent again against a contradiction")
	}

	merged := must(t, in(t, effect.Acked), ledger.Merge{Into: other}, t0)
	next := must(t, merged, ledger.Waive{Who: "ana", Reason: "small"}, t0)
	next.MergedInto = &effect.EffectKey{6}
	if ledger.Follow(merged, next) == nil {
		t.Error("nobody minds that it merged into another")
	}
	conflict := must(t, in(t, effect.Dispatching), answer(effect.OtherBytes), t0)
	next = must(t, conflict, ledger.Escalate{}, t0)
	next.Conflict = ""
	if ledger.Follow(conflict, next) == nil {
		t.Error("nobody minds that a conflict is gone")
	}
}

// cloneOf answers a copy of r that shares nothing with it.
func cloneOf(t testing.TB, r *effect.Record) *effect.Record {
	t.Helper()
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	copied, err := effect.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return copied
}

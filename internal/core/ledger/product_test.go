package ledger_test

import (
	_ "embed"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

//go:embed testdata/product.txt
var product string

// stimulus is one event of the product, with the time after t0 at which it comes.
type stimulus struct {
	name string
	at   int64
	of   func(*effect.Record) ledger.Event
}

func always(e ledger.Event) func(*effect.Record) ledger.Event {
	return func(*effect.Record) ledger.Event { return e }
}

func altered(j ledger.Judgement, change func(*ledger.Judgement)) ledger.Event {
	change(&j)
	return judge(j)
}

func evidence(change func(*effect.Evidence)) effect.Evidence {
	e := proof()
	change(&e)
	return e
}

func otherKey(e *effect.Evidence)    { e.Key = effect.EffectKey{1} }
func otherAmount(e *effect.Evidence) { e.Amount = "99" }

// linkedOf answers the linked effect of r's open correction, run to the end.
func linkedOf(r *effect.Record) ledger.Event {
	l := &effect.Record{State: effect.Acked, Key: effect.EffectKey{2}}
	if r != nil {
		l.Correction = &effect.Correction{Of: r.Key, Number: r.Corrections, Mode: effect.Compensate}
	}
	return ledger.Compensated{Linked: l}
}

func judgements() []stimulus {
	return []stimulus{
		{"judge-same-newer", 100, always(judge(judged(9, 100)))},
		{"judge-other-newer", 100, always(judge(judged(9, 50)))},
		{"judge-false-newer", 100, always(judge(judged(9, 0)))},
		{"judge-locked-newer", 100, always(altered(judged(9, 50), func(j *ledger.Judgement) { j.Airlock = "amountAbove" }))},
		{"judge-replayed-newer", 100, always(altered(judged(9, 50), func(j *ledger.Judgement) { j.Live = false }))},
		{"judge-same-again", 100, func(r *effect.Record) ledger.Event {
			if r == nil || r.Latest.Desire.Holds {
				return judge(judged(5, 100))
			}
			return judge(judged(6, 0))
		}},
		{"judge-same-differs", 100, func(r *effect.Record) ledger.Event {
			if r == nil || r.Latest.Desire.Holds {
				return judge(judged(5, 50))
			}
			return judge(judged(6, 50))
		}},
		{"judge-older", 100, always(judge(judged(4, 50)))},
		{"judge-not-canonical", 100, always(altered(judged(9, 50), func(j *ledger.Judgement) { j.Canonical = false }))},
		{"judge-no-provenance", 100, always(altered(judged(9, 50), func(j *ledger.Judgement) { j.Provenance = false }))},
	}
}

func acts() []stimulus {
	return []stimulus{
		{"hold-effector", 100, always(ledger.Hold{By: effect.Effector, Rule: "windowOlderThan"})},
		{"hold-operator", 100, always(ledger.Hold{By: effect.Operator, Who: "ana", Reason: "looks odd"})},
		{"hold-sweeper", 100, always(ledger.Hold{By: effect.Sweeper, Rule: "windowOlderThan"})},
		{"approve-shown", 100, func(r *effect.Record) ledger.Event {
			if r == nil {
				return ledger.Approve{}
			}
			return approval(r)
		}},
		{"approve-other", 100, always(ledger.Approve{Sequence: 9, Who: "ana", Reason: "checked", Digest: digestOf("another"), Expires: t0.Add(hour)})},
		{"void-false", 100, always(ledger.Void{Who: "ana", Reason: "refunded", Judgement: judged(9, 0)})},
		{"void-holds", 100, always(ledger.Void{Who: "ana", Reason: "refunded", Judgement: judged(9, 100)})},
		{"dispatch", 100, always(dispatch(judged(5, 100)))},
		{"dispatch-gate-closed", 100, always(func() ledger.Event {
			e := dispatch(judged(5, 100))
			e.ClosedGate = "global"
			return e
		}())},
		{"escalate-capable", 100, always(ledger.Escalate{Adapter: proven()})},
		{"escalate-incapable", 100, always(ledger.Escalate{})},
		{"resolve-applied", 100, always(ledger.Resolve{Applied: true, Who: "ana", Reason: "seen in the ledger", Evidence: digestOf("screenshot")})},
		{"resolve-not-applied", 100, always(ledger.Resolve{Who: "ana", Reason: "not in the ledger", Evidence: digestOf("screenshot")})},
		{"resolve-no-evidence", 100, always(ledger.Resolve{Who: "ana", Reason: "it must be so"})},
		{"link", 100, always(ledger.Correct{})},
		{"compensated", 100, linkedOf},
		{"compensated-outside", 100, always(ledger.CompensatedOutside{Who: "ana", Reason: "undone by hand"})},
		{"waive", 100, always(ledger.Waive{Who: "ana", Reason: "below the limit"})},
		{"cover", 100, always(ledger.Cover{Window: revision.Window{Start: window.Start - 1, End: window.End + 1}})},
		{"cover-covered", 100, always(ledger.Cover{Window: window})},
		{"clash", 100, always(ledger.Clash{Sessions: []revision.Window{window, {Start: window.End, End: window.End + 1}}})},
		{"merge", 100, always(ledger.Merge{Into: effect.EffectKey{3}})},
		{"recover-unknown", 100, always(ledger.Recover{Key: rewardKey(), Identity: rewardOf(), Attempt: 2, Epoch: 7, Digest: digestOf("lost"), Adapter: proven()})},
		{"recover-known", 100, always(ledger.Recover{Key: rewardKey(), Identity: rewardOf(), Attempt: 0, Digest: digestOf("lost")})},
		{"lose-claim", 2, always(ledger.Lose{By: effect.Effector, Claim: true})},
		{"lose-early", 2, always(ledger.Lose{By: effect.Sweeper, Adapter: proven()})},
		{"lose-late", 100, always(ledger.Lose{By: effect.Sweeper, Adapter: proven()})},
	}
}

func answers() []stimulus {
	list := []stimulus{}
	for _, class := range effect.Classes() {
		list = append(list, stimulus{"answer-" + string(class), 100, always(answer(class))})
	}
	of := func(attempt uint32, class effect.Class, e effect.Evidence) ledger.Event {
		return ledger.Answer{Epoch: 7, Attempt: attempt, Class: class, Evidence: e}
	}
	return append(
		list,
		stimulus{"answer-other-key", 100, always(of(1, effect.Executed, evidence(otherKey)))},
		stimulus{"answer-other-amount", 100, always(of(1, effect.Executed, evidence(otherAmount)))},
		stimulus{"answer-no-attempt", 100, always(of(9, effect.Executed, proof()))},
		stimulus{"receipt", 100, always(ledger.Receipt{Verified: true, Evidence: proof(), Adapter: proven()})},
		stimulus{"receipt-unverified", 100, always(ledger.Receipt{Evidence: proof(), Adapter: proven()})},
		stimulus{"receipt-other-key", 100, always(ledger.Receipt{Verified: true, Evidence: evidence(otherKey), Adapter: proven()})},
		stimulus{"receipt-other-amount", 100, always(ledger.Receipt{Verified: true, Evidence: evidence(otherAmount), Adapter: proven()})},
		stimulus{"query-one", 100, always(ledger.Query{Found: 1, Evidence: proof(), Adapter: proven()})},
		stimulus{"query-several", 100, always(ledger.Query{Found: 2, Evidence: proof(), Adapter: proven()})},
		stimulus{"query-other-key", 100, always(ledger.Query{Found: 1, Evidence: evidence(otherKey), Adapter: proven()})},
		stimulus{"query-other-amount", 100, always(ledger.Query{Found: 1, Evidence: evidence(otherAmount), Adapter: proven()})},
		stimulus{"query-none", 100, always(ledger.Query{Adapter: proven()})},
		stimulus{"query-not-queryable", 100, always(ledger.Query{Found: 1, Evidence: proof()})},
	)
}

func stimuli() []stimulus { return append(append(judgements(), acts()...), answers()...) }

// cell answers what happens to r: "→STATE", "=" (a record that leaves the state), or the
// name of the refusal.
func cell(t *testing.T, r *effect.Record, s stimulus) string {
	t.Helper()
	next, why := ledger.Decide(r, s.of(r), t0.Add(s.at*second))
	if why != "" {
		if why.Why() == "" {
			t.Errorf("%s from %q: refusal %q has no reason", s.name, stateOf(r), why)
		}
		return string(why)
	}
	if err := ledger.Follow(r, next); err != nil {
		t.Errorf("%s from %q: %v", s.name, stateOf(r), err)
	}
	if next.State == stateOf(r) {
		return "="
	}
	return "→" + string(next.State)
}

// The table has a line for every event and state; a state with nothing before it is "-".
// Every one is decided, and none is decided by accident: the table is the review.
func TestEveryStateDecidesEveryEvent(t *testing.T) {
	want := map[string]string{}
	for line := range strings.Lines(product) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		if len(f) != 3 {
			t.Fatalf("line %q has no three columns", line)
		}
		want[f[0]+" "+f[1]] = f[2]
	}
	states := append([]effect.State{effect.None}, effect.States()...)
	for _, s := range stimuli() {
		for _, state := range states {
			r := in(t, state)
			at := s.name + " " + string(state)
			if state == effect.None {
				at = s.name + " -"
			}
			if got := cell(t, r, s); got != want[at] {
				t.Errorf("%s %s\t(the table has %q)", at, got, want[at])
			}
			delete(want, at)
		}
	}
	for at := range want {
		t.Errorf("the table has %q, which is no event and state", at)
	}
}

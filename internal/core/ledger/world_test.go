package ledger_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/identity"
	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

const (
	second = int64(1_000_000)
	minute = 60 * second
	hour   = 60 * minute

	t0 effect.Time = 1796036400000000 // 2026-11-30T11:00Z
)

// The hour from 2026-11-30T10:00Z, taken for a session here and there.
var window = revision.Window{Start: 1796032800000000, End: 1796036400000000}

func rewardOf() effect.Identity {
	return effect.Identity{
		Stream: "orders", Job: "hourly-revenue", EffectType: "issue-reward", Key: "eu-west", Subject: "eu-west",
		LogicalWindowID: identity.LogicalWindow("orders", "eu-west", window.Start, window.End), Window: window,
	}
}

func rewardKey() effect.EffectKey {
	id := rewardOf()
	return ledger.Key(&id)
}

// proven is an adapter with every capability.
func proven() ledger.Adapter {
	return ledger.Adapter{
		Idempotent: true, OnBodyMismatch: ledger.BodyError, Retention: 24 * hour,
		Query: true, Authoritative: true, LateArrivalBound: 10 * minute, QueryFor: 48 * hour, Receipts: true,
		SendWithin: 5 * second, Timeout: 20 * second, Grace: 2 * second, ClockUncertainty: second,
	}
}

func digestOf(text string) revision.Digest {
	return revision.ValueDigest([]revision.Field{{Name: "t", Text: text, Quoted: true}})
}

// points answers a payload worth n points to the holder of key.
func points(key effect.EffectKey, n int) effect.Request {
	return effect.Request{
		Policy: "reward@3", Adapter: "rewards-api@2",
		Scope:   effect.Scope{URL: "https://rewards.example/v1/issue", Account: "a-1", Environment: "test"},
		Payload: fmt.Sprintf(`{"ref":%q,"account":"eu-west","points":%d}`, key, n),
		Expect:  effect.Expectation{Amount: fmt.Sprint(n), Subject: "eu-west"},
	}
}

// judged answers what the policy makes of revision n: so many points, or none at all.
func judged(n uint64, worth int) ledger.Judgement {
	j := ledger.Judgement{
		Revision: effect.Bound{
			AliasEpoch: 1, PolicyGeneration: "hourly-revenue@14", ProjectionID: strings.Repeat("a", 64),
			Revision: n, Digest: digestOf(fmt.Sprint("revision ", n)), Sequence: 100 + n,
		},
		Canonical: true, Holds: worth > 0, Provenance: true, Live: true,
		Request: effect.Request{Policy: "reward@3"}, Adapter: proven(),
	}
	if worth > 0 {
		j.Request = points(rewardKey(), worth)
	}
	return j
}

func judge(j ledger.Judgement) ledger.Judge {
	w := window
	return ledger.Judge{Identity: rewardOf(), Covered: &w, Judgement: j}
}

func dispatch(j ledger.Judgement) ledger.Dispatch {
	return ledger.Dispatch{
		Epoch: 7, Policy: "reward@3", Adapter: "rewards-api@2", Judgement: j, RevisionsUpTo: 1000, Token: true,
	}
}

// proof is evidence that the reward ran.
func proof() effect.Evidence {
	return effect.Evidence{Key: rewardKey(), Amount: "100.00", Subject: "eu-west", Ref: "r-1", Digest: digestOf("answer")}
}

func answer(class effect.Class) ledger.Answer {
	return ledger.Answer{Epoch: 7, Attempt: 1, Class: class, Evidence: proof()}
}

func approval(r *effect.Record) ledger.Approve {
	return ledger.Approve{Sequence: 9, Who: "ana", Reason: "checked", Digest: r.Request.PayloadDigest, Expires: t0.Add(hour)}
}

// must makes a step that may be made.
func must(t testing.TB, r *effect.Record, e ledger.Event, now effect.Time) *effect.Record {
	t.Helper()
	next, why := ledger.Decide(r, e, now)
	if why != "" {
		t.Fatalf("%T from %q: refused: %s (%s)", e, stateOf(r), why, why.Why())
	}
	if err := ledger.Follow(r, next); err != nil {
		t.Fatalf("%T from %q: %v", e, stateOf(r), err)
	}
	return next
}

// refused checks that a step is refused by a name, and with a reason.
func refused(t testing.TB, r *effect.Record, e ledger.Event, now effect.Time, want ledger.Refusal) {
	t.Helper()
	next, why := ledger.Decide(r, e, now)
	if why != want || next != nil {
		t.Errorf("%T from %q: refusal is %q, want %q (record %v)", e, stateOf(r), why, want, next != nil)
	}
	if want != "" && want.Why() == "" {
		t.Errorf("refusal %q has no reason", want)
	}
}

func stateOf(r *effect.Record) effect.State {
	if r == nil {
		return effect.None
	}
	return r.State
}

// in answers an effect of 100 points that got to a state on the shortest way.
func in(t testing.TB, s effect.State) *effect.Record {
	t.Helper()
	from := func(s effect.State, e ledger.Event, at int64) *effect.Record {
		return must(t, in(t, s), e, t0.Add(at*second))
	}
	switch s {
	case effect.Prepared:
		return must(t, nil, judge(judged(5, 100)), t0)
	case effect.Held:
		j := judged(5, 100)
		j.Airlock = "amountAbove"
		return must(t, nil, judge(j), t0)
	case effect.Dispatching:
		return from(effect.Prepared, dispatch(judged(5, 100)), 1)
	case effect.Acked:
		return from(effect.Dispatching, answer(effect.Executed), 2)
	case effect.Unknown:
		return from(effect.Dispatching, answer(effect.Ambiguous), 2)
	case effect.Reconciled:
		return from(effect.Unknown, ledger.Query{Found: 1, Evidence: proof(), Adapter: proven()}, 3)
	case effect.Rejected:
		return from(effect.Dispatching, answer(effect.Refused), 2)
	case effect.Voided:
		return from(effect.Prepared, judge(judged(6, 0)), 1)
	case effect.Manual:
		return from(effect.Unknown, ledger.Escalate{}, 3)
	case effect.CompensationRequired:
		return from(effect.Acked, judge(judged(6, 0)), 3)
	case effect.Compensated:
		return from(effect.CompensationRequired, ledger.CompensatedOutside{Who: "ana", Reason: "undone by hand"}, 4)
	case effect.Waived:
		return from(effect.CompensationRequired, ledger.Waive{Who: "ana", Reason: "below the limit"}, 4)
	}
	return nil
}

package ledger_test

import (
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// absent answers an UNKNOWN effect whose provider was asked once and had nothing.
func absent(t *testing.T) *effect.Record {
	return must(t, in(t, effect.Unknown), ledger.Query{Adapter: proven()}, t0.Add(30*second))
}

func TestEveryGuardOfASendRefusesByItsName(t *testing.T) {
	type facts = ledger.Dispatch
	for _, c := range []struct {
		want   ledger.Refusal
		change func(*facts)
	}{
		{"", func(*facts) {}},
		{ledger.GateClosed, func(e *facts) { e.ClosedGate = "adapter rewards-api" }},
		{ledger.NotCanonical, func(e *facts) { e.Judgement.Canonical = false }},
		{ledger.OlderRevision, func(e *facts) { e.Judgement.Revision.Revision = 4 }},
		{ledger.RevisionsUnread, func(e *facts) { e.RevisionsUpTo = 104 }},
		{ledger.RuleFalse, func(e *facts) { e.Judgement.Holds = false }},
		{ledger.ProvenanceUnmet, func(e *facts) { e.Judgement.Provenance = false }},
		{ledger.InactivePolicy, func(e *facts) { e.Policy = "reward@4" }},
		{ledger.InactiveAdapter, func(e *facts) { e.Adapter = "rewards-api@3" }},
		{ledger.NoSendWindow, func(e *facts) { e.Judgement.Adapter.SendWithin = 0 }},
		{ledger.NoSendWindow, func(e *facts) { e.Judgement.Adapter.Timeout = 0 }},
		{ledger.BreakerOpen, func(e *facts) { e.BreakerOpen = true }},
		{ledger.RateLimited, func(e *facts) { e.Token = false }},
		{ledger.ApprovalMissing, func(e *facts) { e.Judgement.Airlock = "windowOlderThan" }},
	} {
		e := dispatch(judged(5, 100))
		c.change(&e)
		for _, r := range []*effect.Record{in(t, effect.Prepared), absent(t)} {
			if _, why := ledger.Decide(r, e, t0.Add(100*second)); why != c.want {
				t.Errorf("%s: refusal is %q, want %q", r.State, why, c.want)
			}
		}
	}
}

func TestAFirstSendIsOfTheNewestRevision(t *testing.T) {
	r, later := in(t, effect.Prepared), t0.Add(second)
	refused(t, r, dispatch(judged(6, 100)), later, ledger.RevisionUnjudged)
	refused(t, r, dispatch(judged(5, 50)), later, ledger.PayloadChanged)
	moved := judged(5, 100)
	moved.Request.Scope.URL = "https://elsewhere.example"
	refused(t, r, dispatch(moved), later, ledger.PayloadChanged)
}

func TestWhatIsDamagedIsNotSent(t *testing.T) {
	r := in(t, effect.Prepared)
	r.Request.Payload = points(rewardKey(), 999).Payload
	j := judged(5, 999)
	refused(t, r, dispatch(j), t0.Add(second), ledger.DigestBroken)
}

func TestEveryGuardOfAResendRefusesByItsName(t *testing.T) {
	at := func(s int64) effect.Time { return t0.Add(s * second) }
	ready := absent(t)
	with := func(change func(*ledger.Judgement)) ledger.Dispatch {
		j := judged(5, 100)
		change(&j)
		return dispatch(j)
	}
	plain := dispatch(judged(5, 100))

	refused(t, ready, plain, at(25), ledger.StillAnswering) // sendBy is 6 s, timeout 20 s
	must(t, ready, plain, at(26))
	refused(t, in(t, effect.Unknown), plain, at(26), ledger.QueryFirst)
	refused(t, ready, with(func(j *ledger.Judgement) { j.Adapter.Idempotent = false }), at(26), ledger.NotIdempotent)
	refused(t, ready, with(func(j *ledger.Judgement) { j.Adapter.OnBodyMismatch = ledger.BodyExecute }), at(26), ledger.NotIdempotent)
	refused(t, ready, with(func(j *ledger.Judgement) { j.Adapter.Retention = 0 }), at(26), ledger.NotIdempotent)
	refused(t, ready, with(func(j *ledger.Judgement) { j.Request.Scope.URL = "https://elsewhere.example" }), at(26), ledger.ScopeMoved)
	refused(t, ready, dispatch(judged(6, 50)), at(26), ledger.Contradicted)

	contradicted := must(t, ready, judge(judged(6, 0)), at(26))
	if !contradicted.CompensationPending {
		t.Error("a contradiction of what may have run is not pending")
	}
	refused(t, contradicted, dispatch(judged(6, 0)), at(27), ledger.Contradicted)
	agreed := must(t, contradicted, judge(judged(7, 100)), at(27))
	if agreed.CompensationPending {
		t.Error("a contradiction that is gone is still pending")
	}
	must(t, agreed, dispatch(judged(7, 100)), at(28))

	clash := must(t, ready, ledger.Clash{Sessions: []revision.Window{window, {Start: window.End, End: window.End + 1}}}, at(26))
	refused(t, clash, plain, at(27), ledger.TwoSessions)
	conflict := must(t, ready, ledger.Receipt{Verified: true, Evidence: evidence(otherAmount), Adapter: proven()}, at(26))
	refused(t, conflict, plain, at(27), ledger.InConflict)
	lost := must(t, ready, ledger.Recover{Key: ready.Key, Attempt: 2, Digest: ready.Request.PayloadDigest, Adapter: proven()}, at(26))
	refused(t, lost, plain, at(99), ledger.ScopeUnknown)
}

func TestAResendEndsWithTheDeadline(t *testing.T) {
	r := absent(t)
	// First sent at 1 s; a day of retention less a twentieth; the first byte goes out within 5 s.
	deadline := t0.Add(second + 24*hour - 24*hour/20)
	if r.ResendDeadline != deadline {
		t.Fatalf("deadline is %s, want %s", r.ResendDeadline, deadline)
	}
	must(t, r, dispatch(judged(5, 100)), deadline.Add(-5*second-1))
	refused(t, r, dispatch(judged(5, 100)), deadline.Add(-5*second), ledger.DeadlinePassed)
}

func TestAnEffectIsResentFiveTimes(t *testing.T) {
	r, now := in(t, effect.Unknown), t0
	for n := range uint32(ledger.MaxResends) {
		now = now.Add(minute)
		r = must(t, r, ledger.Query{Adapter: proven()}, now)
		first := r.FirstPossibleSendAt
		r = must(t, r, dispatch(judged(5, 100)), now)
		if a := r.Attempts[n+1]; a.N != n+2 || !a.Resend || r.FirstPossibleSendAt != first || r.Absences != 0 {
			t.Fatalf("resend %d is %+v", n+1, a)
		}
		r = must(t, r, ledger.Answer{Epoch: 7, Attempt: n + 2, Class: effect.InFlight}, now.Add(second))
	}
	r = must(t, r, ledger.Query{Adapter: proven()}, now.Add(minute))
	refused(t, r, dispatch(judged(5, 100)), now.Add(2*minute), ledger.AttemptsSpent)
}

func TestAThrottledResendIsNotCounted(t *testing.T) {
	r, now := in(t, effect.Unknown), t0
	for n := range uint32(2 * ledger.MaxResends) {
		now = now.Add(minute)
		r = must(t, r, ledger.Query{Adapter: proven()}, now)
		r = must(t, r, dispatch(judged(5, 100)), now)
		r = must(t, r, ledger.Answer{Epoch: 7, Attempt: n + 2, Class: effect.Throttled}, now.Add(second))
		if r.State != effect.Unknown || len(r.Attempts) != 1 {
			t.Fatalf("%s with %d attempts", r.State, len(r.Attempts))
		}
	}
}

func TestApprovals(t *testing.T) {
	r, now := in(t, effect.Held), t0.Add(second)
	refused(t, r, ledger.Approve{Sequence: 9, Reason: "x", Digest: r.Request.PayloadDigest, Expires: now}, now, ledger.NoPerson)
	refused(t, r, ledger.Approve{Sequence: 9, Who: "ana", Digest: r.Request.PayloadDigest, Expires: now}, now, ledger.NoReason)
	refused(t, r, approval(r), t0.Add(hour+1), ledger.ApprovalExpired)

	approved := must(t, r, approval(r), now)
	refused(t, approved, dispatch(judged(5, 100)), t0.Add(hour+1), ledger.ApprovalExpired)
	sent := must(t, approved, dispatch(judged(5, 100)), now)
	if sent.Approval.Attempt != 1 {
		t.Errorf("approval was used by attempt %d, want 1", sent.Approval.Attempt)
	}

	// Nothing went out: the approval is used all the same, and does not come back.
	back := must(t, sent, answer(effect.NotSent), now.Add(second))
	refused(t, back, dispatch(judged(5, 100)), now.Add(minute), ledger.ApprovalUsed)
	again := must(t, back, ledger.Hold{By: effect.Effector, Rule: "amountAbove"}, now.Add(minute))
	refused(t, again, approval(r), now.Add(minute), ledger.ApprovalUsed)
	e := approval(r)
	e.Sequence = 10
	must(t, must(t, again, e, now.Add(minute)), dispatch(judged(5, 100)), now.Add(minute))
}

func TestRevisionsThatChangeNothingLeaveAnApproval(t *testing.T) {
	r := must(t, in(t, effect.Held), approval(in(t, effect.Held)), t0)
	for n := uint64(6); n < 106; n++ {
		r = must(t, r, judge(judged(n, 100)), t0.Add(second))
	}
	if r.Bound.Revision != 105 || r.State != effect.Prepared {
		t.Fatalf("%s, bound to revision %d", r.State, r.Bound.Revision)
	}
	must(t, r, dispatch(judged(105, 100)), t0.Add(second))
}

func TestAnotherPayloadVoidsAnApprovalForGood(t *testing.T) {
	r := must(t, in(t, effect.Held), approval(in(t, effect.Held)), t0)
	lockedTo := func(n uint64, worth int) ledger.Judgement {
		j := judged(n, worth)
		j.Airlock = "amountAbove"
		return j
	}
	r = must(t, r, judge(lockedTo(6, 50)), t0)
	if r.State != effect.Held || !r.Approval.Void {
		t.Fatalf("%s, approval %+v", r.State, r.Approval)
	}
	r = must(t, r, judge(lockedTo(7, 100)), t0) // the payload that was approved once
	if r.State != effect.Held {
		t.Fatal("it went on without a new approval")
	}
	refused(t, r, approval(r), t0, ledger.ApprovalUsed)
}

func TestAnOperatorsHoldOutlivesPayloads(t *testing.T) {
	r := must(t, in(t, effect.Prepared), ledger.Hold{By: effect.Operator, Who: "ana", Reason: "looks odd"}, t0)
	r = must(t, r, judge(judged(6, 50)), t0)
	r = must(t, r, judge(judged(7, 0)), t0)
	r = must(t, r, judge(judged(8, 50)), t0)
	if r.State != effect.Held || r.Airlock != ledger.LockOperator {
		t.Errorf("%s, airlock %q", r.State, r.Airlock)
	}
	refused(t, in(t, effect.Prepared), ledger.Hold{By: effect.Operator, Who: "ana"}, t0, ledger.NoReason)
	refused(t, in(t, effect.Prepared), ledger.Hold{By: effect.Effector}, t0, ledger.NoRule)
}

func TestWhatMustBeHeldFirst(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(*ledger.Judgement)
	}{
		{"", func(*ledger.Judgement) {}},
		{"firstOfGeneration", func(j *ledger.Judgement) { j.Airlock = "firstOfGeneration" }},
		{ledger.LockOrigin, func(j *ledger.Judgement) { j.Live = false }},
		{ledger.LockSwitch, func(j *ledger.Judgement) { j.Switched = true }},
		{ledger.LockUnproven, func(j *ledger.Judgement) { j.Adapter = ledger.Adapter{} }},
		{ledger.LockUnproven, func(j *ledger.Judgement) {
			j.Adapter = ledger.Adapter{Idempotent: true, Retention: hour, OnBodyMismatch: ledger.BodyExecute}
		}},
		{"", func(j *ledger.Judgement) { j.Adapter = ledger.Adapter{SendUnproven: true} }},
		{"", func(j *ledger.Judgement) { j.Adapter = ledger.Adapter{Query: true} }},
		{"", func(j *ledger.Judgement) { j.Adapter = ledger.Adapter{Idempotent: true, Retention: hour} }},
	} {
		j := judged(5, 100)
		c.change(&j)
		r := must(t, nil, judge(j), t0)
		if r.Airlock != c.want || (r.State == effect.Held) != (c.want != "") {
			t.Errorf("%s, airlock %q, want %q", r.State, r.Airlock, c.want)
		}
	}
}

func TestPayloadsThatCannotBeSentAreNotPrepared(t *testing.T) {
	for want, payload := range map[ledger.Refusal]string{
		ledger.PayloadEmpty:    "",
		ledger.PayloadTooLarge: string(make([]byte, effect.MaxPayload+1)),
		ledger.PayloadNoKey:    `{"points":100}`,
		ledger.Malformed:       rewardKey().String() + "\xff",
	} {
		j := judged(6, 100)
		j.Request.Payload = payload
		refused(t, nil, judge(j), t0, want)
		refused(t, in(t, effect.Prepared), judge(j), t0, want)
	}
}

func TestAnotherPolicyVersionJudgesWhatWasNeverSentAgain(t *testing.T) {
	newer := func(n uint64, worth int) ledger.Judgement {
		j := judged(n, worth)
		j.Request.Policy = "reward@4"
		return j
	}
	r := must(t, in(t, effect.Prepared), judge(newer(5, 50)), t0)
	if r.State != effect.Prepared || r.Request.Policy != "reward@4" {
		t.Errorf("%s under %s", r.State, r.Request.Policy)
	}
	same := must(t, in(t, effect.Prepared), judge(newer(5, 100)), t0)
	if same.Request.Policy != "reward@4" {
		t.Errorf("the same payload stays under %s", same.Request.Policy)
	}
	refused(t, in(t, effect.Acked), judge(newer(5, 50)), t0, ledger.OtherPolicy)
}

func TestRevisionsOfSeveralSessionsAreOrderedByPlace(t *testing.T) {
	// The revisions of another session of the same effect are ordered by their place in the stream.
	r := in(t, effect.Prepared)
	other := judged(1, 50)
	other.Revision.ProjectionID = "bb" + other.Revision.ProjectionID[2:]
	other.Revision.Sequence = 104
	refused(t, r, judge(other), t0, ledger.OlderRevision)
	other.Revision.Sequence = 106
	r = must(t, r, judge(other), t0)
	other = judged(1, 100)
	other.Revision.AliasEpoch = 2
	other.Revision.Sequence = 1
	if r = must(t, r, judge(other), t0); r.Bound.AliasEpoch != 2 {
		t.Error("a later alias epoch is not newer")
	}
}

func TestAnApprovalThatIsNotOfThisPayloadSendsNothing(t *testing.T) {
	approved := must(t, in(t, effect.Held), approval(in(t, effect.Held)), t0)
	old := judged(8, 100)
	old.Airlock = "windowOlderThan"

	// The payload changed and came back while no rule matched; then one does.
	r := must(t, must(t, approved, judge(judged(7, 50)), t0), judge(judged(8, 100)), t0)
	refused(t, r, dispatch(old), t0, ledger.ApprovalMissing)
	// So it is if the rule was false in between.
	r = must(t, must(t, approved, judge(judged(7, 0)), t0), judge(judged(8, 100)), t0)
	refused(t, r, dispatch(old), t0, ledger.ApprovalMissing)

	damaged := cloneOf(t, approved)
	damaged.Approval.Digest = digestOf("another")
	refused(t, damaged, dispatch(judged(5, 100)), t0, ledger.ApprovalMissing)
}

func TestWhatAnOlderPolicyPreparedIsJudgedBeforeItIsSent(t *testing.T) {
	e := dispatch(judged(5, 100))
	e.Policy, e.Judgement.Request.Policy = "reward@4", "reward@4"
	refused(t, in(t, effect.Prepared), e, t0.Add(second), ledger.InactivePolicy)
	must(t, must(t, in(t, effect.Prepared), judge(e.Judgement), t0), e, t0)
	must(t, absent(t), e, t0.Add(minute)) // what may have been sent stays as it is
}

func TestAnotherGenerationMayStandEarlierInTheStream(t *testing.T) {
	j := judged(1, 100)
	j.Revision.AliasEpoch, j.Revision.Sequence = 2, 40
	e := dispatch(j)
	e.RevisionsUpTo = 50
	must(t, absent(t), e, t0.Add(minute))
}

func TestNoAdapterMovesTheDeadlineOfAResend(t *testing.T) {
	r := absent(t)
	e := dispatch(judged(5, 100))
	e.Judgement.Adapter.Retention *= 2
	if next := must(t, r, e, t0.Add(minute)); next.ResendDeadline != r.ResendDeadline {
		t.Errorf("deadline moved from %s to %s", r.ResendDeadline, next.ResendDeadline)
	}
}

// Records like these are never written; they are refused all the same.
func TestASentEffectIsNotPreparedHeldOrSentAgain(t *testing.T) {
	sent := func(s effect.State) *effect.Record {
		r := cloneOf(t, in(t, s))
		r.Attempts, r.LastAttempt = in(t, effect.Unknown).Attempts, 1
		return r
	}
	p, h := sent(effect.Prepared), sent(effect.Held)
	for _, e := range []ledger.Event{
		judge(judged(9, 100)), judge(judged(9, 50)), judge(judged(9, 0)), dispatch(judged(5, 100)),
		ledger.Hold{By: effect.Effector, Rule: "x"},
		ledger.Void{Who: "ana", Reason: "x", Judgement: judged(9, 0)},
	} {
		refused(t, p, e, t0, ledger.Sent)
	}
	refused(t, h, approval(h), t0, ledger.Sent)
}

func TestPersonsGiveTheirNameAndReason(t *testing.T) {
	for _, c := range []struct {
		s effect.State
		e ledger.Event
	}{
		{effect.Prepared, ledger.Void{Who: "ana", Judgement: judged(9, 0)}},
		{effect.Prepared, ledger.Hold{By: effect.Operator, Who: "ana"}},
		{effect.Held, ledger.Approve{Who: "ana"}},
		{effect.Manual, ledger.Resolve{Who: "ana", Evidence: digestOf("x")}},
		{effect.CompensationRequired, ledger.Waive{Who: "ana"}},
		{effect.CompensationRequired, ledger.CompensatedOutside{Who: "ana"}},
	} {
		refused(t, in(t, c.s), c.e, t0, ledger.NoReason)
	}
}

func TestAnApprovalSendsNothingThatTwoSessionsShare(t *testing.T) {
	r := must(t, in(t, effect.Held), approval(in(t, effect.Held)), t0)
	r = cloneOf(t, r)
	r.Clash = []revision.Window{window, {Start: window.End, End: window.End + 1}}
	refused(t, r, dispatch(judged(5, 100)), t0, ledger.TwoSessions)
	into := effect.EffectKey{4}
	r.MergedInto = &into
	refused(t, r, dispatch(judged(5, 100)), t0, ledger.MergedAway)
}

func TestADispatchNamesTheRuleThatWantedItsApproval(t *testing.T) {
	unlocked := must(t, must(t, in(t, effect.Held), approval(in(t, effect.Held)), t0), judge(judged(6, 100)), t0)
	j := judged(6, 100)
	j.Airlock = "windowOlderThan"
	if r := must(t, unlocked, dispatch(j), t0); r.Airlock != "amountAbove" || r.Approval.Attempt != 1 {
		t.Errorf("airlock %q, approval %+v", r.Airlock, r.Approval)
	}
}

package ledger_test

import (
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// walk makes steps a minute apart, beginning at t0.
func walk(t *testing.T, r *effect.Record, events ...ledger.Event) *effect.Record {
	t.Helper()
	for i, e := range events {
		r = must(t, r, e, t0.Add(int64(i)*minute))
	}
	return r
}

func wantState(t *testing.T, r *effect.Record, want effect.State) {
	t.Helper()
	if r.State != want || r.Outcome != want.Outcome() {
		t.Errorf("state is %s (%s), want %s", r.State, r.Outcome, want)
	}
}

func secondAnswer(class effect.Class) ledger.Answer {
	return ledger.Answer{Epoch: 7, Attempt: 2, Class: class, Evidence: proof()}
}

// resent answers an effect whose first attempt is ambiguous and whose second is open.
func resent(t *testing.T) *effect.Record {
	return must(t, absent(t), dispatch(judged(5, 100)), t0.Add(minute))
}

func TestAnUnsentResendProvesNothingAboutTheFirst(t *testing.T) {
	for _, class := range []effect.Class{effect.NotSent, effect.Throttled, effect.Refused} {
		r := must(t, resent(t), secondAnswer(class), t0.Add(2*minute))
		wantState(t, r, effect.Unknown)
		if r.Request.PayloadDigest != r.Attempts[0].Digest {
			t.Error("the payload is no longer that of the first attempt")
		}
	}
}

func TestALateAnswerOfTheFirstAttemptEndsTheSecond(t *testing.T) {
	r := must(t, resent(t), answer(effect.Executed), t0.Add(2*minute))
	wantState(t, r, effect.Acked)
	if r.Attempts[0].End != effect.Executed || r.Attempts[1].End != effect.Ambiguous {
		t.Errorf("attempts ended %s and %s", r.Attempts[0].End, r.Attempts[1].End)
	}
	refused(t, resent(t), answer(effect.NotSent), t0.Add(2*minute), ledger.AttemptClosed)
}

func TestOnlyTheProcessOfAnAttemptSaysItWasNotSent(t *testing.T) {
	stranger := answer(effect.NotSent)
	stranger.Epoch = 8
	refused(t, in(t, effect.Dispatching), stranger, t0.Add(minute), ledger.OtherOwner)
	stranger.Class = effect.Executed
	wantState(t, must(t, in(t, effect.Dispatching), stranger, t0.Add(minute)), effect.Acked)
	refused(t, in(t, effect.Dispatching), answer("MAYBE"), t0.Add(minute), ledger.Malformed)
}

// A process that stood still for five minutes after its lease comes back with a 200.
func TestALateAnswerOfAFormerOwnerIsEvidence(t *testing.T) {
	r := walk(t, in(t, effect.Dispatching), ledger.Lose{By: effect.Effector, Claim: true}, answer(effect.Executed))
	wantState(t, r, effect.Acked)
	if r.LastAttempt != 1 {
		t.Error("it was sent again meanwhile")
	}
}

func TestALateAnswerReachesTheOperatorsItem(t *testing.T) {
	wantState(t, must(t, in(t, effect.Manual), answer(effect.Executed), t0.Add(hour)), effect.Reconciled)
}

func TestAKeyThatTheProviderKnowsWithOtherBytesGoesToAPerson(t *testing.T) {
	r := must(t, in(t, effect.Dispatching), answer(effect.OtherBytes), t0.Add(minute))
	wantState(t, r, effect.Unknown)
	r = must(t, r, ledger.Escalate{Adapter: proven()}, t0.Add(minute))
	wantState(t, r, effect.Manual)
	if r.Step.Reason == "" || r.Conflict == "" {
		t.Error("the item does not say why")
	}
}

func TestAnAnswerThatProvesNothingIsAmbiguous(t *testing.T) {
	for _, change := range []func(*effect.Evidence){otherKey, otherAmount, func(e *effect.Evidence) { e.Subject = "us-east" }} {
		e := answer(effect.Executed)
		e.Evidence = evidence(change)
		r := must(t, in(t, effect.Dispatching), e, t0.Add(minute))
		wantState(t, r, effect.Unknown)
		if r.Attempts[0].End != effect.Ambiguous || (r.Conflict == "") != (e.Evidence.Key != rewardKey()) {
			t.Errorf("attempt ended %s, conflict %q", r.Attempts[0].End, r.Conflict)
		}
	}
	late := answer(effect.Executed)
	late.Evidence = evidence(otherAmount)
	r := must(t, in(t, effect.Unknown), late, t0.Add(minute))
	refused(t, r, late, t0.Add(minute), ledger.NothingNew)
	differs := ledger.Receipt{Verified: true, Evidence: evidence(otherAmount), Adapter: proven()}
	refused(t, r, differs, t0.Add(minute), ledger.NothingNew)
	differs.Adapter = ledger.Adapter{}
	refused(t, r, differs, t0.Add(minute), ledger.NoReceipts)
}

func TestAmountsAreComparedByValue(t *testing.T) {
	for amount, same := range map[string]bool{
		"100": true, "100.0": true, "0100": true, "100.01": false, "-100": false, "1e2": false, "": false, "100.": false, ".": false,
	} {
		e := proof()
		e.Amount = amount
		r, why := ledger.Decide(in(t, effect.Unknown), ledger.Query{Found: 1, Evidence: e, Adapter: proven()}, t0)
		if why != "" || (r.State == effect.Reconciled) != same {
			t.Errorf("amount %q: %s, refusal %q", amount, stateOf(r), why)
		}
	}
	j := judged(5, 100)
	j.Request.Expect = effect.Expectation{Amount: "-0.50"}
	r := walk(t, nil, judge(j), dispatch(j), answer(effect.Ambiguous))
	wantState(t, must(t, r, ledger.Query{Found: 1, Evidence: evidence(func(e *effect.Evidence) { e.Amount = "-00.5" }), Adapter: proven()}, t0), effect.Reconciled)
	j.Request.Expect = effect.Expectation{Amount: "0"}
	r = walk(t, nil, judge(j), dispatch(j), answer(effect.Ambiguous))
	wantState(t, must(t, r, ledger.Query{Found: 1, Evidence: evidence(func(e *effect.Evidence) { e.Amount = "-0.0" }), Adapter: proven()}, t0), effect.Reconciled)
}

// "Not found" for 90 seconds, then found: never REJECTED.
func TestThreeEarlyAbsencesRejectNothing(t *testing.T) {
	r := in(t, effect.Unknown)
	for i := range int64(9) {
		r = must(t, r, ledger.Query{Adapter: proven()}, t0.Add(10*second*i))
	}
	wantState(t, r, effect.Unknown)
	wantState(t, must(t, r, ledger.Query{Found: 1, Evidence: proof(), Adapter: proven()}, t0.Add(90*second)), effect.Reconciled)
}

func TestTheThirdAbsenceBehindTheBoundRejects(t *testing.T) {
	none := ledger.Query{Adapter: proven()}
	bound := t0.Add(26*second + 10*minute) // sendBy 6 s, timeout 20 s, lateArrivalBound 10 min
	twice := walk(t, in(t, effect.Unknown), none, none)
	wantState(t, must(t, twice, none, bound), effect.Unknown)
	wantState(t, must(t, twice, none, bound+1), effect.Rejected)
	wantState(t, must(t, in(t, effect.Unknown), none, bound+1), effect.Unknown)

	none.Adapter.Authoritative = false
	wantState(t, must(t, twice, none, bound+1), effect.Unknown)
	none.Adapter = proven()
	none.Adapter.LateArrivalBound = 0
	wantState(t, must(t, twice, none, bound+1), effect.Unknown)

	// It was rejected for absence, and ran all the same: evidence is not dropped.
	rejected := must(t, twice, ledger.Query{Adapter: proven()}, bound+1)
	wantState(t, must(t, rejected, ledger.Receipt{Verified: true, Evidence: proof(), Adapter: proven()}, bound+2), effect.Reconciled)
}

func TestABackAndForthBeforeTheFirstByte(t *testing.T) {
	r := walk(t, nil, judge(judged(1, 100)), judge(judged(2, 0)), judge(judged(3, 100)), judge(judged(4, 0)))
	wantState(t, r, effect.Voided)
	refused(t, r, dispatch(judged(3, 100)), t0, ledger.IsVoided)
}

// The rule turns false while the attempt is open, and nothing goes out.
func TestARuleThatTurnsFalseUnderAnUnsentAttemptSendsNothing(t *testing.T) {
	r := walk(t, in(t, effect.Dispatching), judge(judged(6, 0)), answer(effect.NotSent))
	wantState(t, r, effect.Prepared)
	refused(t, r, dispatch(judged(6, 0)), t0.Add(hour), ledger.RuleFalse)
	refused(t, r, dispatch(judged(5, 100)), t0.Add(hour), ledger.OlderRevision)
	r = must(t, r, judge(judged(6, 0)), t0.Add(hour))
	wantState(t, r, effect.Voided)
}

func TestAnotherPayloadUnderAnUnsentAttemptIsPreparedAgain(t *testing.T) {
	r := walk(t, in(t, effect.Dispatching), judge(judged(6, 50)), answer(effect.NotSent))
	refused(t, r, dispatch(judged(6, 50)), t0.Add(hour), ledger.PayloadChanged)
	r = walk(t, r, judge(judged(6, 50)), dispatch(judged(6, 50)))
	wantState(t, r, effect.Dispatching)
	if a := r.Attempts[0]; a.N != 2 || a.Digest != r.Request.PayloadDigest || r.FirstPossibleSendAt != t0.Add(second) {
		t.Errorf("attempt %+v, first possible send %s", a, r.FirstPossibleSendAt)
	}
}

func TestWhatWasThoughtUnsentAndRanIsHeld(t *testing.T) {
	unsent := must(t, in(t, effect.Dispatching), answer(effect.NotSent), t0.Add(minute))
	for _, e := range []ledger.Event{
		answer(effect.Executed),
		ledger.Receipt{Verified: true, Evidence: evidence(otherAmount), Adapter: proven()},
		ledger.Query{Found: 2, Adapter: proven()},
	} {
		r := must(t, unsent, e, t0.Add(hour))
		wantState(t, r, effect.Held)
		refused(t, r, e, t0.Add(hour), ledger.NothingNew)
		r = must(t, r, judge(judged(6, 50)), t0.Add(hour))
		wantState(t, r, effect.Held)
	}
	approved := must(t, in(t, effect.Held), approval(in(t, effect.Held)), t0)
	if r := must(t, approved, ledger.Query{Found: 1, Evidence: proof(), Adapter: proven()}, t0); !r.Approval.Void {
		t.Error("the approval outlives the evidence")
	}
	foreign := answer(effect.Executed)
	foreign.Evidence = evidence(otherKey)
	refused(t, unsent, foreign, t0.Add(hour), ledger.EvidenceOfAnother)
}

func TestEvidenceForAVoidedEffectKeepsItFromBeingRevived(t *testing.T) {
	r := must(t, in(t, effect.Voided), ledger.Receipt{Verified: true, Evidence: proof(), Adapter: proven()}, t0)
	wantState(t, must(t, r, judge(judged(9, 100)), t0), effect.Held)
	tried := walk(t, in(t, effect.Dispatching), answer(effect.NotSent), judge(judged(6, 0)))
	wantState(t, must(t, tried, ledger.Receipt{Verified: true, Evidence: proof(), Adapter: proven()}, t0), effect.Reconciled)
	wantState(t, must(t, tried, answer(effect.Executed), t0), effect.Reconciled)
}

func TestAContradictionWaitsForTheOutcome(t *testing.T) {
	r := must(t, in(t, effect.Unknown), judge(judged(6, 0)), t0.Add(minute))
	r = must(t, r, ledger.Query{Found: 1, Evidence: proof(), Adapter: proven()}, t0.Add(minute))
	if !r.CompensationPending || !ledger.IsContradicted(r) {
		t.Fatal("the contradiction was forgotten")
	}
	r = must(t, r, judge(judged(6, 0)), t0.Add(minute))
	wantState(t, r, effect.CompensationRequired)
	if r.Corrections != 1 || r.CompensationPending {
		t.Errorf("%d corrections, pending %v", r.Corrections, r.CompensationPending)
	}
	rejected := walk(t, in(t, effect.Manual), judge(judged(6, 0)), ledger.Resolve{Who: "ana", Reason: "not there", Evidence: digestOf("list")})
	if rejected.CompensationPending {
		t.Error("what did not run waits to be compensated")
	}
}

func TestCorrectionsFlipBackAndForth(t *testing.T) {
	for _, s := range []effect.State{effect.Acked, effect.Reconciled} {
		r := must(t, in(t, s), judge(judged(6, 0)), t0)
		r = must(t, r, judge(judged(7, 50)), t0)
		if r.Corrections != 1 {
			t.Errorf("%d corrections are open, want 1", r.Corrections)
		}
		r = must(t, r, judge(judged(8, 100)), t0)
		wantState(t, r, s)
		r = must(t, r, judge(judged(9, 0)), t0)
		if wantState(t, r, effect.CompensationRequired); r.Corrections != 2 {
			t.Errorf("%d corrections, want 2", r.Corrections)
		}
	}
}

func TestAPolicyUnderAMovedURLContradictsNothing(t *testing.T) {
	j := judged(6, 100)
	j.Request.Scope.URL, j.Request.Adapter = "https://elsewhere.example", "rewards-api@3"
	refused(t, in(t, effect.Acked), judge(j), t0, ledger.NothingNew)
}

func TestAWaivedCorrectionStaysWaived(t *testing.T) {
	r := in(t, effect.Waived) // nothing should be there, and is
	refused(t, r, judge(judged(7, 0)), t0, ledger.NothingNew)
	r = must(t, r, judge(judged(8, 100)), t0) // right by itself
	wantState(t, r, effect.Waived)
	r = must(t, r, judge(judged(9, 50)), t0)
	wantState(t, r, effect.CompensationRequired)
	refused(t, r, ledger.Waive{Reason: "x"}, t0, ledger.NoPerson)
	refused(t, r, ledger.CompensatedOutside{Who: "ana"}, t0, ledger.NoReason)
}

// linked answers the linked effect of r's correction, HELD.
func linked(t *testing.T, r *effect.Record, makes effect.Desire) *effect.Record {
	t.Helper()
	j := judged(7, 100)
	j.Request = points(ledger.CorrectionKey(effect.Compensate, r.Key, r.Corrections), 100)
	l := must(t, nil, ledger.Correct{Of: r, Mode: effect.Compensate, Makes: makes, Judgement: j}, t0)
	wantState(t, l, effect.Held)
	return l
}

// ranLinked sends l and has it answered.
func ranLinked(t *testing.T, l *effect.Record) *effect.Record {
	t.Helper()
	j := judged(7, 100)
	j.Request = points(l.Key, 100)
	e := approval(l)
	l = walk(t, l, e, dispatch(j))
	return must(t, l, ledger.Answer{Epoch: 7, Attempt: 1, Class: effect.Executed, Evidence: evidence(func(e *effect.Evidence) { e.Key = l.Key })}, t0)
}

func TestALinkedEffectCompensates(t *testing.T) {
	r := in(t, effect.CompensationRequired)
	l := linked(t, r, effect.Desire{})
	refused(t, r, ledger.Compensated{Linked: l}, t0, ledger.LinkNotApplied)
	refused(t, r, ledger.Compensated{}, t0, ledger.LinkOfAnother)
	done := ranLinked(t, l)
	refused(t, done, judge(judged(8, 0)), t0, ledger.IsCorrection)

	r = must(t, r, ledger.Compensated{Linked: done}, t0)
	wantState(t, r, effect.Compensated)
	if r.Net.Holds || *r.Link != l.Key {
		t.Errorf("net %+v, link %s", r.Net, r.Link)
	}
	refused(t, r, judge(judged(8, 0)), t0, ledger.NothingNew)

	// The rule is true again, and false again: what stands outside is nothing.
	r = must(t, r, judge(judged(9, 100)), t0)
	if wantState(t, r, effect.CompensationRequired); r.Corrections != 2 {
		t.Errorf("%d corrections, want 2", r.Corrections)
	}
	refused(t, r, ledger.Compensated{Linked: done}, t0, ledger.LinkOfAnother)
	r = must(t, r, judge(judged(10, 0)), t0)
	if wantState(t, r, effect.Compensated); *r.Link != l.Key {
		t.Errorf("link %s", r.Link)
	}
	wantState(t, must(t, r, judge(judged(11, 50)), t0), effect.CompensationRequired)
}

func TestACorrectionIsNotClosedUnderALinkedEffectThatMayHaveRun(t *testing.T) {
	r := in(t, effect.CompensationRequired)
	right := judge(judged(8, 100))
	l := linked(t, r, effect.Desire{})
	right.Linked = l
	wantState(t, must(t, r, right, t0), effect.Acked)
	ran := ranLinked(t, l)
	right.Linked = ran
	r = must(t, r, right, t0) // noted, so that it is known when the linked effect is settled
	if wantState(t, r, effect.CompensationRequired); r.Latest.Revision.Revision != 8 {
		t.Errorf("judged by revision %d", r.Latest.Revision.Revision)
	}
	right.Linked = in(t, effect.Prepared)
	refused(t, r, right, t0, ledger.LinkOfAnother)
	refused(t, r, ledger.Waive{Who: "ana", Reason: "small", Linked: ran}, t0, ledger.LinkedSent)
	refused(t, r, ledger.CompensatedOutside{Who: "ana", Reason: "undone", Linked: ran}, t0, ledger.LinkedSent)
	wantState(t, must(t, r, ledger.Waive{Who: "ana", Reason: "small", Linked: l}, t0), effect.Waived)

	r = must(t, r, ledger.Compensated{Linked: ran}, t0)
	if !ledger.IsContradicted(r) {
		t.Error("what was judged while the linked effect ran is forgotten")
	}
	wantState(t, must(t, r, judge(judged(8, 100)), t0), effect.CompensationRequired)
}

// adjusting answers the linked effect that makes what stands outside of r worth so much.
func adjusting(r *effect.Record, n uint64, delta, worth int, airlock string) (ledger.Judgement, effect.Desire) {
	target, j := judged(n, worth), judged(n, delta)
	j.Request, j.Airlock = points(ledger.CorrectionKey(effect.Adjust, r.Key, r.Corrections), delta), airlock
	return j, ledger.Wants(r, &target)
}

func TestAnAdjustmentNeedsNoApprovalButWhereAnAirlockHoldsIt(t *testing.T) {
	r := must(t, in(t, effect.Acked), judge(judged(6, 150)), t0)
	j, makes := adjusting(r, 6, 50, 150, "")
	wantState(t, must(t, nil, ledger.Correct{Of: r, Mode: effect.Adjust, Makes: makes, Judgement: j}, t0), effect.Prepared)
	for _, lock := range []string{"amountAbove", ledger.LockOrigin} {
		j.Airlock, j.Live = lock, lock != ledger.LockOrigin
		held := must(t, nil, ledger.Correct{Of: r, Mode: effect.Adjust, Makes: makes, Judgement: j}, t0)
		if wantState(t, held, effect.Held); held.Airlock != lock {
			t.Errorf("held by %q, want %q", held.Airlock, lock)
		}
	}
}

func TestAnUnsentAdjustmentAimsAtTheNewestRevision(t *testing.T) {
	r := must(t, in(t, effect.Acked), judge(judged(6, 150)), t0)
	j, makes := adjusting(r, 6, 50, 150, "")
	l := must(t, nil, ledger.Correct{Of: r, Mode: effect.Adjust, Makes: makes, Judgement: j}, t0)
	before := *l.Correction

	r = must(t, r, judge(judged(7, 200)), t0)
	j, makes = adjusting(r, 7, 100, 200, "")
	l2 := must(t, l, ledger.Judge{Judgement: j, Makes: makes}, t0)
	if l2.Correction.Makes != r.Latest.Desire || *l.Correction != before {
		t.Errorf("makes %+v, and the record before %+v", l2.Correction.Makes, l.Correction.Makes)
	}
	sent := must(t, l2, dispatch(j), t0)
	later, target := adjusting(r, 8, 150, 250, "")
	sent = must(t, sent, ledger.Judge{Judgement: later, Makes: target}, t0)
	if sent.Correction.Makes != makes || !sent.CompensationPending {
		t.Error("what may have been sent was aimed at another revision")
	}
	moved := *sent
	moved.Correction = &effect.Correction{Of: before.Of, Number: 1, Mode: effect.Adjust, Makes: target}
	moved.Step.N, moved.Step.From = sent.Step.N+1, sent.State
	if err := ledger.Follow(sent, &moved); err == nil || !strings.Contains(err.Error(), "the correction that it carries out changed") {
		t.Errorf("a record changes what a sent correction makes: %v", err)
	}
}

func TestLinkedEffectsAreOfAnOpenCorrection(t *testing.T) {
	e := ledger.Correct{Of: in(t, effect.CompensationRequired), Mode: effect.Adjust, Judgement: judged(7, 100)}
	refused(t, nil, e, t0, ledger.PayloadNoKey)
	e.Judgement.Holds = false
	refused(t, nil, e, t0, ledger.RuleFalse)
	e.Judgement.Canonical = false
	refused(t, nil, e, t0, ledger.NotCanonical)
	e.Of = in(t, effect.Acked)
	refused(t, nil, e, t0, ledger.NoCorrectionOpen)
}

func TestAnAttemptThatTheJournalLost(t *testing.T) {
	lost := ledger.Recover{Key: rewardKey(), Identity: rewardOf(), Attempt: 3, Epoch: 6, Digest: digestOf("lost"), Adapter: proven(), Covered: &window}
	r := must(t, nil, lost, t0)
	wantState(t, r, effect.Unknown)
	refused(t, r, judge(judged(5, 100)), t0, ledger.PayloadUnknown)
	refused(t, r, dispatch(judged(5, 100)), t0.Add(hour), ledger.ScopeUnknown)
	wantState(t, must(t, r, ledger.Query{Found: 1, Evidence: evidence(otherAmount), Adapter: proven()}, t0), effect.Reconciled)
	merged := must(t, must(t, r, ledger.Query{Found: 1, Evidence: proof(), Adapter: proven()}, t0), ledger.Merge{Into: effect.EffectKey{4}}, t0)
	wantState(t, merged, effect.CompensationRequired)
	wantState(t, must(t, merged, ledger.Waive{Who: "ana", Reason: "small"}, t0), effect.Waived)
	wantState(t, must(t, merged, ledger.CompensatedOutside{Who: "ana", Reason: "undone"}, t0), effect.Compensated)
	late := ledger.Answer{Attempt: 3, Class: effect.Executed, Evidence: proof()}
	wantState(t, must(t, r, late, t0), effect.Acked)

	// A revision that gives the bytes of the file's digest says what was sent.
	named, j := lost, judged(5, 100)
	named.Digest, named.Judgement = ledger.PayloadDigest(rewardOf().EffectType, &j.Request), &j
	r = must(t, nil, named, t0)
	wantState(t, r, effect.Unknown)
	refused(t, r, judge(judged(5, 100)), t0, ledger.NothingNew)
	refused(t, r, dispatch(judged(5, 100)), t0.Add(hour), ledger.ScopeUnknown)
	wantState(t, must(t, r, ledger.Query{Found: 1, Evidence: proof(), Adapter: proven()}, t0), effect.Reconciled)
	if r = must(t, r, ledger.Query{Found: 1, Evidence: evidence(otherAmount), Adapter: proven()}, t0); r.State != effect.Manual || r.Conflict == "" {
		t.Errorf("another amount than was sent made it %s, conflict %q", r.State, r.Conflict)
	}

	foreign := lost
	foreign.Key = effect.EffectKey{9}
	refused(t, in(t, effect.Prepared), foreign, t0, ledger.KeyOfAnother)

	// The bytes are not those that the journal has: only a person can tell.
	r = must(t, in(t, effect.Dispatching), lost, t0.Add(minute))
	if r.Conflict == "" || r.ResendDeadline != 0 || r.Attempts[0].End != effect.Ambiguous {
		t.Errorf("conflict %q, deadline %s, attempts %+v", r.Conflict, r.ResendDeadline, r.Attempts)
	}
	wantState(t, must(t, r, ledger.Escalate{Adapter: proven()}, t0.Add(minute)), effect.Manual)
	if r = must(t, in(t, effect.Voided), lost, t0); !r.CompensationPending {
		t.Error("what may have run against the rule is not pending")
	}
}

func TestSessionsThatShareAnEffectSendNothing(t *testing.T) {
	two := ledger.Clash{Sessions: []revision.Window{window, {Start: window.End, End: window.End + 1}}}
	r := must(t, in(t, effect.Prepared), two, t0)
	if wantState(t, r, effect.Held); r.Airlock != ledger.LockSessions {
		t.Errorf("airlock is %q", r.Airlock)
	}
	refused(t, r, approval(r), t0, ledger.TwoSessions)
	refused(t, r, two, t0, ledger.NothingNew)
	refused(t, r, ledger.Clash{Sessions: two.Sessions[:1]}, t0, ledger.NoClash)
	r = must(t, r, judge(judged(6, 100)), t0) // one of them is left
	if len(r.Clash) > 0 {
		t.Error("the clash is still there")
	}
	must(t, r, approval(r), t0)
	kept := must(t, must(t, in(t, effect.Prepared), ledger.Hold{By: effect.Operator, Who: "ana", Reason: "odd"}, t0), two, t0)
	if kept.Airlock != ledger.LockOperator {
		t.Errorf("airlock is %q", kept.Airlock)
	}
}

func TestAMergedEffectMatchesNoMore(t *testing.T) {
	into := ledger.Merge{Into: effect.EffectKey{4}}
	refused(t, in(t, effect.Prepared), ledger.Merge{Into: rewardKey()}, t0, ledger.IntoItself)
	r := must(t, in(t, effect.Acked), into, t0)
	if wantState(t, r, effect.CompensationRequired); r.Corrections != 1 || r.Latest.Desire.Holds {
		t.Errorf("%d corrections, should be %+v", r.Corrections, r.Latest.Desire)
	}
	for _, e := range []ledger.Event{into, judge(judged(9, 100)), ledger.Cover{Window: window}, ledger.Clash{}} {
		refused(t, r, e, t0, ledger.MergedAway)
	}
	refused(t, must(t, in(t, effect.Prepared), into, t0), judge(judged(9, 100)), t0, ledger.MergedAway)

	tumbling := judge(judged(5, 100))
	tumbling.Covered = nil
	plain := must(t, nil, tumbling, t0)
	for _, e := range []ledger.Event{into, ledger.Cover{Window: window}, ledger.Clash{}} {
		refused(t, plain, e, t0, ledger.NotASession)
	}
}

func TestARevisionThatCameUnderAnUnsentAttemptIsBound(t *testing.T) {
	r := walk(t, in(t, effect.Dispatching), judge(judged(6, 0)), judge(judged(7, 100)), answer(effect.NotSent))
	r = must(t, r, judge(judged(7, 100)), t0)
	if r.Bound.Revision != 7 {
		t.Errorf("bound to revision %d", r.Bound.Revision)
	}
}

func TestARecoveredAttemptMakesAbsencesWorthless(t *testing.T) {
	r := walk(t, in(t, effect.Unknown), ledger.Query{Adapter: proven()}, ledger.Query{Adapter: proven()})
	r = must(t, r, ledger.Recover{Key: r.Key, Attempt: 2, Digest: r.Request.PayloadDigest, Adapter: proven()}, t0)
	wantState(t, must(t, r, ledger.Query{Adapter: proven()}, t0.Add(hour)), effect.Unknown)
}

func TestACompensationEndsAWaiver(t *testing.T) {
	r := must(t, in(t, effect.Waived), judge(judged(7, 50)), t0)
	r = must(t, r, ledger.CompensatedOutside{Who: "ana", Reason: "50 taken back"}, t0)
	wantState(t, must(t, r, judge(judged(8, 0)), t0), effect.CompensationRequired)

	r = must(t, in(t, effect.Waived), judge(judged(7, 50)), t0)
	r = must(t, r, ledger.Compensated{Linked: ranLinked(t, linked(t, r, r.Latest.Desire))}, t0)
	wantState(t, must(t, r, judge(judged(8, 0)), t0), effect.CompensationRequired)
}

func TestALinkedEffectStaysHeldWhateverItsPayload(t *testing.T) {
	l := linked(t, in(t, effect.CompensationRequired), effect.Desire{})
	j := judged(8, 50)
	j.Request = points(l.Key, 50)
	l = must(t, l, ledger.Judge{Judgement: j}, t0)
	if l.State != effect.Held || l.Airlock != ledger.LockLinked {
		t.Errorf("%s, airlock %q", l.State, l.Airlock)
	}
}

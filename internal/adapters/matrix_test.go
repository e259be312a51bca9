package adapters

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/effectrule"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adapter"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adaptertest"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

const (
	second = int64(1_000_000)
	minute = 60 * second
	hour   = 60 * minute
)

// story is an effect that the ledger decides about and a real adapter carries out. Its
// time stands still unless it is moved.
type story struct {
	t *testing.T
	*httpBench
	caps      ledger.Adapter
	judgement ledger.Judgement
	identity  effect.Identity
	record    *effect.Record
	now       effect.Time
}

func begin(t *testing.T, idempotent, query bool) *story {
	t.Helper()
	s := adaptertest.Setup{Capabilities: adaptertest.Capabilities{Idempotent: idempotent, Query: query}, Timeout: setup.Timeout}
	b := openHTTP(t, s, false)
	story := &story{t: t, httpBench: b, caps: effectrule.Capabilities(document(t, b.yaml(s))), now: 1796036400000000}
	story.identity = effect.Identity{
		Stream: "orders", Job: "hourly-revenue", EffectType: "issue-reward", Key: "eu-west", Subject: fmt.Sprint(t.Name()),
		LogicalWindowID: strings.Repeat("a", 64), Window: revision.Window{Start: 1796032800000000, End: 1796036400000000},
	}
	key := ledger.Key(&story.identity)
	story.judgement = ledger.Judgement{
		Revision: effect.Bound{
			AliasEpoch: 1, PolicyGeneration: "hourly-revenue@1", ProjectionID: strings.Repeat("b", 64), Revision: 1,
			Digest: digestOf([]byte("revision")), Sequence: 10,
		},
		Canonical: true, Holds: true, Provenance: true, Live: true, Adapter: story.caps,
		Request: effect.Request{
			Policy: "reward@1", Adapter: "rewards-api@1", Scope: b.Scope(),
			Payload: string(adaptertest.Payload(key, "12.50", "account-1")), Expect: effect.Expectation{Amount: "12.50", Subject: "account-1"},
		},
	}
	story.decide(ledger.Judge{Identity: story.identity, Judgement: story.judgement})
	return story
}

// decide makes a step that the ledger must allow.
func (s *story) decide(e ledger.Event) {
	s.t.Helper()
	next, why := ledger.Decide(s.record, e, s.now)
	if why != "" {
		s.t.Fatalf("%T is refused: %s", e, why)
	}
	s.record = next
}

func (s *story) want(state effect.State, executions int) {
	s.t.Helper()
	if s.record.State != state {
		s.t.Errorf("the effect is %s after %s; want %s", s.record.State, s.record.Step.Name, state)
	}
	if n := s.Executions(s.record.Key); n != executions {
		s.t.Errorf("the provider executed it %d times; want %d", n, executions)
	}
}

// wantPlan checks what the sweeper would do, after whatever it has to wait for.
func (s *story) wantPlan(want ledger.Action) {
	s.t.Helper()
	action, until := ledger.Plan(s.record, &s.caps, s.now)
	if action == ledger.Wait {
		s.now = until
		action, _ = ledger.Plan(s.record, &s.caps, s.now)
	}
	if action != want {
		s.t.Fatalf("the plan is %s; want %s", action, want)
	}
}

func (s *story) dispatch() {
	s.t.Helper()
	s.decide(ledger.Dispatch{Epoch: 7, Policy: "reward@1", Adapter: "rewards-api@1", Judgement: s.judgement, RevisionsUpTo: 10, Token: true})
}

// attempt answers what becomes of the open attempt, before the ledger knows.
func (s *story) attempt(b adaptertest.Behaviour) ledger.Answer {
	s.t.Helper()
	s.Behave(s.record.Key, b)
	q, last := s.record.Request, s.record.Attempts[len(s.record.Attempts)-1]
	got := s.adapter.Send(s.t.Context(), adapter.Call{
		Key: s.record.Key, Attempt: last.N, EffectType: s.identity.EffectType, Scope: q.Scope, Payload: []byte(q.Payload), Expect: q.Expect,
		MaySend:     func() bool { return ledger.MaySend(&last, s.now, s.now) },
		TraceParent: callTo("").TraceParent,
	})
	return ledger.Answer{Epoch: 7, Attempt: last.N, Class: got.Class, Evidence: got.Evidence}
}

// send dispatches and gives the ledger the answer.
func (s *story) send(b adaptertest.Behaviour) {
	s.t.Helper()
	s.dispatch()
	s.decide(s.attempt(b))
}

func (s *story) ask() {
	s.t.Helper()
	s.wantPlan(ledger.Ask)
	f, err := s.adapter.Query(s.t.Context(), adapter.Question{Key: s.record.Key, Scope: s.record.Request.Scope, Expect: s.record.Request.Expect})
	if err != nil {
		s.t.Fatal(err)
	}
	s.decide(ledger.Query{Found: f.Found, Evidence: f.Evidence, Adapter: s.caps})
}

func (s *story) giveUp() {
	s.t.Helper()
	s.wantPlan(ledger.GiveUp)
	s.decide(ledger.Escalate{Adapter: s.caps})
}

// ambiguities are what leaves an effect that ran unknown.
var ambiguities = []adaptertest.Behaviour{
	adaptertest.LoseAnswer, adaptertest.FailAfter, adaptertest.Redirect, adaptertest.HalfAnswer, adaptertest.NoEvidence, adaptertest.OtherKey, adaptertest.Accept,
}

func TestIdempotentAndQueryableEffectsAreAskedFor(t *testing.T) {
	for _, b := range ambiguities {
		s := begin(t, true, true)
		s.send(b)
		s.want(effect.Unknown, 1)
		s.ask()
		s.want(effect.Reconciled, 1)
	}
}

func TestIdempotentEffectsThatAreNotFoundAreResent(t *testing.T) {
	s := begin(t, true, true)
	s.Hide(s.record.Key, true)
	s.send(adaptertest.LoseAnswer)
	s.ask()
	s.want(effect.Unknown, 1)
	s.now = s.now.Add(minute) // the first attempt can have no answer any more
	s.wantPlan(ledger.Resend)
	s.send(adaptertest.Execute)
	s.want(effect.Acked, 1)
}

func TestIdempotentEffectsWithoutAQueryAreResent(t *testing.T) {
	for _, b := range ambiguities {
		s := begin(t, true, false)
		s.send(b)
		s.want(effect.Unknown, 1)
		s.wantPlan(ledger.Resend)
		s.send(adaptertest.Execute)
		s.want(effect.Acked, 1)
	}
}

func TestAfterTheRetentionNothingIsResent(t *testing.T) {
	s := begin(t, true, false)
	s.send(adaptertest.LoseAnswer)
	s.Forget(s.record.Key)
	s.now = s.now.Add(24*hour + 30*minute)
	s.giveUp()
	s.want(effect.Manual, 1)
}

func TestQueryableEffectsAreFoundLaterAndNeverResent(t *testing.T) {
	s := begin(t, false, true)
	s.Hide(s.record.Key, true)
	s.send(adaptertest.LoseAnswer)
	for range 2 { // not found for 90 s
		s.ask()
		s.want(effect.Unknown, 1)
		s.now = s.now.Add(45 * second)
	}
	s.Hide(s.record.Key, false)
	s.ask()
	s.want(effect.Reconciled, 1)
}

func TestQueryableEffectsThatDidNotRunAreRejectedWhenAbsenceProvesIt(t *testing.T) {
	s := begin(t, false, true)
	s.send(adaptertest.Unlisted)
	s.want(effect.Unknown, 0)
	for s.record.State == effect.Unknown && s.record.Absences < 50 {
		s.now = s.now.Add(minute)
		s.ask()
	}
	s.want(effect.Rejected, 0)
	if last := s.record.Attempts[0].QuietFrom().Add(10 * minute); s.record.Absences < 3 || s.record.LastAbsence <= last {
		t.Errorf("rejected after %d absences, the last at %s; want three, the last after %s", s.record.Absences, s.record.LastAbsence, last)
	}
}

func TestEffectsThatNobodyCanAskForGoToAPersonAtOnce(t *testing.T) {
	for _, b := range ambiguities {
		s := begin(t, false, false)
		s.want(effect.Held, 0)
		s.decide(ledger.Approve{Sequence: 9, Who: "ana", Reason: "checked", Digest: s.record.Request.PayloadDigest, Expires: s.now.Add(hour)})
		s.send(b)
		s.want(effect.Unknown, 1)
		at := s.now
		s.giveUp()
		s.want(effect.Manual, 1)
		if s.now != at && b != adaptertest.Accept {
			t.Errorf("%s: it took until %s", b, s.now)
		}
	}
}

func TestAResendThatFailsAtTheDialLeavesTheEffectUnknown(t *testing.T) {
	s := begin(t, true, false)
	s.send(adaptertest.LoseAnswer)
	payload := s.record.Request.Payload
	s.wantPlan(ledger.Resend)
	s.Vanish()
	s.send(adaptertest.Execute)
	s.want(effect.Unknown, 1)
	if s.record.Request.Payload != payload {
		t.Error("the payload changed")
	}
}

func TestAFirstSendThatFailsAtTheDialMayGoLater(t *testing.T) {
	s := begin(t, true, true)
	s.Vanish()
	s.send(adaptertest.Execute)
	s.want(effect.Prepared, 0)
}

func TestAnAttemptPastItsTimeSendsNothing(t *testing.T) {
	s := begin(t, true, true)
	s.dispatch()
	s.now = s.now.Add(s.caps.SendWithin + 1)
	s.decide(s.attempt(adaptertest.Execute))
	s.want(effect.Prepared, 0)
	if n := s.Requests(s.record.Key); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}

func TestAnAnswerAfterTheLeaseIsEvidence(t *testing.T) {
	s := begin(t, true, true)
	s.dispatch()
	late := s.attempt(adaptertest.Execute)
	s.now = s.now.Add(5 * minute)
	s.decide(ledger.Lose{By: effect.Effector, Claim: true})
	s.want(effect.Unknown, 1)
	s.decide(late)
	s.want(effect.Acked, 1)
}

func TestAnotherAmountIsAConflictAndNoProof(t *testing.T) {
	s := begin(t, true, false)
	s.send(adaptertest.OtherAmount)
	s.want(effect.Unknown, 1)
	if s.record.Conflict == "" {
		t.Error("no conflict is noted")
	}
	s.giveUp()
	s.want(effect.Manual, 1)
}

func TestAKeyWithOtherBytesGoesToAPerson(t *testing.T) {
	s := begin(t, true, false)
	s.send(adaptertest.OtherBytes)
	s.want(effect.Unknown, 0)
	s.giveUp()
	s.want(effect.Manual, 0)
}

func TestRefusedAndThrottledEffectsDidNotRun(t *testing.T) {
	for b, want := range map[adaptertest.Behaviour]effect.State{adaptertest.Refuse: effect.Rejected, adaptertest.Throttle: effect.Prepared, adaptertest.InFlight: effect.Unknown} {
		s := begin(t, true, true)
		s.send(b)
		s.want(want, 0)
	}
}

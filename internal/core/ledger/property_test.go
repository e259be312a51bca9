package ledger_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// life is an effect under random events, with what its past allows.
type life struct {
	t       *rapid.T
	adapter ledger.Adapter
	r       *effect.Record
	records []*effect.Record
	now     effect.Time
	newest  uint64 // revision
	worth   map[uint64]int
	command uint64 // sequence of the last approval
}

func newLife(t *rapid.T) *life {
	l := &life{t: t, now: t0, newest: 1, worth: map[uint64]int{1: 100}, command: 1}
	l.adapter = proven()
	l.adapter.Idempotent = rapid.IntRange(0, 3).Draw(t, "idempotent") > 0
	l.adapter.Query = rapid.Bool().Draw(t, "query")
	l.adapter.Authoritative = rapid.Bool().Draw(t, "authoritative")
	l.adapter.Receipts = rapid.Bool().Draw(t, "receipts")
	l.adapter.SendUnproven = rapid.Bool().Draw(t, "unproven")
	l.adapter.OnBodyMismatch = rapid.SampledFrom([]ledger.BodyRule{ledger.BodyError, ledger.BodyReplay, ledger.BodyExecute}).Draw(t, "mismatch")
	return l
}

func (l *life) judgement() ledger.Judgement {
	n := l.newest
	if n > 1 && rapid.IntRange(0, 9).Draw(l.t, "old") == 0 {
		n--
	}
	j := judged(n, l.worth[n])
	j.Adapter = l.adapter
	j.Canonical = rapid.IntRange(0, 19).Draw(l.t, "canonical") > 0
	j.Provenance = rapid.IntRange(0, 19).Draw(l.t, "provenance") > 0
	if rapid.IntRange(0, 5).Draw(l.t, "airlock") == 0 {
		j.Airlock = "amountAbove"
	}
	return j
}

func (l *life) attempt() uint32 {
	if l.r == nil || l.r.LastAttempt == 0 {
		return 1
	}
	return rapid.Uint32Range(max(1, l.r.LastAttempt-1), l.r.LastAttempt).Draw(l.t, "attempt")
}

func (l *life) evidence() effect.Evidence {
	e := proof()
	switch rapid.IntRange(0, 7).Draw(l.t, "evidence") {
	case 0:
		otherKey(&e)
	case 1:
		otherAmount(&e)
	}
	return e
}

// event draws what happens next; those that lead on are drawn more often.
func (l *life) event() ledger.Event {
	switch rapid.SampledFrom([]string{
		"revise", "judge", "judge", "judge", "dispatch", "dispatch", "dispatch", "dispatch", "answer", "answer", "answer",
		"approve", "approve", "hold", "lose", "receipt", "query", "query", "query", "person", "rarely",
	}).Draw(l.t, "event") {
	case "revise":
		l.newest++
		l.worth[l.newest] = rapid.SampledFrom([]int{100, 100, 100, 50, 0}).Draw(l.t, "worth")
		return judge(l.judgement())
	case "judge":
		return judge(l.judgement())
	case "dispatch":
		e := dispatch(l.judgement())
		e.Token = rapid.IntRange(0, 9).Draw(l.t, "token") > 0
		return e
	case "answer":
		return ledger.Answer{Epoch: 7, Attempt: l.attempt(), Class: rapid.SampledFrom(effect.Classes()).Draw(l.t, "class"), Evidence: l.evidence()}
	case "approve":
		return l.approval()
	case "hold":
		return ledger.Hold{By: effect.Effector, Rule: "windowOlderThan"}
	case "lose":
		return ledger.Lose{By: effect.Effector, Claim: true}
	case "receipt":
		return ledger.Receipt{Verified: rapid.Bool().Draw(l.t, "verified"), Evidence: l.evidence(), Adapter: l.adapter}
	case "query":
		return ledger.Query{Found: rapid.SampledFrom([]uint32{0, 0, 0, 0, 0, 0, 1, 2}).Draw(l.t, "found"), Evidence: l.evidence(), Adapter: l.adapter}
	case "rarely":
		return l.rarely()
	}
	return l.person()
}

// rarely draws what leads to states that little else comes from.
func (l *life) rarely() ledger.Event {
	switch rapid.IntRange(0, 3).Draw(l.t, "rarely") {
	case 0:
		return l.session()
	case 1:
		e := ledger.Recover{Key: rewardKey(), Identity: rewardOf(), Covered: &window, Attempt: l.attempt() + 1, Digest: digestOf("lost"), Adapter: l.adapter}
		if l.r != nil && l.r.Request != nil && rapid.Bool().Draw(l.t, "same bytes") {
			e.Digest = l.r.Request.PayloadDigest
		}
		return e
	}
	return judge(l.judgement())
}

func (l *life) approval() ledger.Event {
	e := ledger.Approve{Sequence: l.command, Who: "ana", Reason: "checked", Digest: digestOf("another"), Expires: l.now.Add(hour)}
	if rapid.Bool().Draw(l.t, "new command") {
		l.command++
		e.Sequence = l.command
	}
	if l.r != nil && l.r.Request != nil && rapid.IntRange(0, 5).Draw(l.t, "shown") > 0 {
		e.Digest = l.r.Request.PayloadDigest
	}
	return e
}

func (l *life) session() ledger.Event {
	return rapid.SampledFrom([]ledger.Event{
		ledger.Cover{Window: revision.Window{Start: window.Start - 1, End: window.End}},
		ledger.Clash{Sessions: []revision.Window{window, {Start: window.End, End: window.End + 1}}},
		ledger.Merge{Into: effect.EffectKey{4}},
	}).Draw(l.t, "session")
}

func (l *life) person() ledger.Event {
	return rapid.SampledFrom([]ledger.Event{
		ledger.Hold{By: effect.Operator, Who: "ana", Reason: "odd"},
		ledger.Escalate{Adapter: l.adapter},
		ledger.Resolve{Applied: true, Who: "ana", Reason: "seen", Evidence: digestOf("seen")},
		ledger.Resolve{Who: "ana", Reason: "not seen", Evidence: digestOf("list")},
		ledger.CompensatedOutside{Who: "ana", Reason: "undone"},
		ledger.Waive{Who: "ana", Reason: "small"},
	}).Draw(l.t, "person")
}

// begin answers the events of a way to where most is decided, after an ambiguous attempt,
// or none.
func (l *life) begin() []ledger.Event {
	j := judged(1, 100)
	j.Adapter = l.adapter
	send := []ledger.Event{dispatch(j), answer(effect.Ambiguous)}
	switch rapid.IntRange(0, 3).Draw(l.t, "begin") {
	case 0:
		return nil
	case 1:
		j.Airlock = "amountAbove"
		consent := ledger.Approve{
			Sequence: l.command, Who: "ana", Reason: "checked", Expires: l.now.Add(3 * hour),
			Digest: ledger.PayloadDigest("issue-reward", &j.Request),
		}
		return append([]ledger.Event{judge(j), consent}, send...)
	}
	return append([]ledger.Event{judge(j)}, send...)
}

// live draws events until the effect has a history, and checks what holds of every step.
func (l *life) live() {
	begin := l.begin()
	for i := range rapid.IntRange(1, 60).Draw(l.t, "steps") {
		l.now = l.now.Add(rapid.SampledFrom([]int64{second, minute, minute, hour}).Draw(l.t, "pause"))
		var e ledger.Event
		if i < len(begin) {
			e = begin[i]
		} else {
			e = l.event()
		}
		before := encoded(l.t, l.r)
		next, why := ledger.Decide(l.r, e, l.now)
		if again, whyAgain := ledger.Decide(l.r, e, l.now); why != whyAgain || !bytes.Equal(encoded(l.t, next), encoded(l.t, again)) {
			l.t.Fatalf("%T is decided in two ways: %q, %q", e, why, whyAgain)
		}
		if !bytes.Equal(before, encoded(l.t, l.r)) {
			l.t.Fatalf("%T changed the record that it was decided on", e)
		}
		if why != "" {
			if next != nil || why.Why() == "" || why == ledger.Malformed {
				l.t.Fatalf("%T is refused with %q, record %v", e, why, next)
			}
			continue
		}
		if err := ledger.Follow(l.r, next); err != nil {
			l.t.Fatalf("%T: %v", e, err)
		}
		l.check(e, next)
		l.r = next
		l.records = append(l.records, next)
	}
}

func encoded(t *rapid.T, r *effect.Record) []byte {
	if r == nil {
		return nil
	}
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func (l *life) check(e ledger.Event, next *effect.Record) {
	switch {
	case next.State == effect.Dispatching && stateOf(l.r) != effect.Dispatching:
		l.checkSend(e.(ledger.Dispatch).Judgement.Revision.Revision, next)
	case stateOf(l.r) == effect.Unknown && next.State != effect.Unknown:
		l.checkExit(next)
	}
}

// checkSend holds what may be sent, as revision n has it, against all that was sent before.
func (l *life) checkSend(n uint64, next *effect.Record) {
	open := &next.Attempts[len(next.Attempts)-1]
	for i := range next.Attempts[:len(next.Attempts)-1] {
		a := &next.Attempts[i]
		switch {
		case !l.adapter.Idempotent || l.adapter.OnBodyMismatch == ledger.BodyExecute:
			l.t.Fatal("sent again without an adapter that may")
		case a.Digest != open.Digest || a.Recovered:
			l.t.Fatal("other bytes went out under one key")
		case open.SendBy >= next.ResendDeadline || open.At < a.QuietFrom():
			l.t.Fatal("sent again beyond the deadline, or while an answer may come")
		case l.adapter.Query && l.r.Absences == 0:
			l.t.Fatal("sent again without a question")
		}
	}
	for _, r := range l.records {
		if r.State.Outcome() == effect.Applied || r.State == effect.Rejected {
			l.t.Fatalf("sent after %s", r.State)
		}
	}
	if l.worth[n] == 0 || l.worth[n] != l.worth[next.Bound.Revision] || n < l.r.Latest.Revision.Revision {
		l.t.Fatal("sent against the rule, or what an older revision gave")
	}
	if next.Airlock != "" {
		l.checkApproval(next, open)
	}
}

func (l *life) checkApproval(next *effect.Record, open *effect.Attempt) {
	a := next.Approval
	if a == nil || a.Digest != open.Digest || a.Attempt != open.N || a.Void {
		l.t.Fatalf("sent what was not approved: %+v", a)
	}
	for _, r := range l.records {
		if b := r.Approval; b != nil && b.Sequence == a.Sequence && (b.Attempt != 0 || b.Digest != a.Digest) {
			l.t.Fatal("one approval for two sends or payloads")
		}
	}
}

// checkExit holds that UNKNOWN is left by evidence, by a send of the same bytes, or to a
// person; never by time.
func (l *life) checkExit(next *effect.Record) {
	ev := next.Step.Evidence
	switch next.State {
	case effect.Acked, effect.Reconciled:
		if ev == nil || ev.Key != next.Key {
			l.t.Fatal("settled without evidence of its key")
		}
	case effect.Rejected:
		if ev == nil || ev.Source != effect.FromQuery || next.Absences < ledger.MinAbsences || !l.adapter.Authoritative {
			l.t.Fatal("rejected without authoritative absences")
		}
	case effect.Dispatching, effect.Manual:
	default:
		l.t.Fatalf("UNKNOWN became %s", next.State)
	}
}

func TestNoHistorySendsWhatMayRunTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { newLife(t).live() })
}

// A journal that is written and read again gives the state that was decided.
func TestAReplayedJournalGivesTheSameState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t)
		l.live()
		var read []*effect.Record
		for _, r := range l.records {
			r, err := effect.Decode(encoded(t, r))
			if err != nil {
				t.Fatal(err)
			}
			read = append(read, r)
		}
		last, err := ledger.Replay(read)
		if err != nil || !bytes.Equal(encoded(t, last), encoded(t, l.r)) {
			t.Fatalf("%v: the state is not the one that was decided", err)
		}
	})
}

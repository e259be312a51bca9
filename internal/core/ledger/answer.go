package ledger

import (
	"slices"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// Answer is how an attempt ended, as its own process saw it. An answer that it ran counts
// at any time and from any owner, since evidence is never dropped; every other one only
// ends the attempt that is open.
type Answer struct {
	Epoch    uint64 // of the owner that made the attempt
	Attempt  uint32
	Class    effect.Class
	Evidence effect.Evidence // Executed: what the answer names
}

func (Answer) actor() effect.Actor { return effect.Effector }

// Lose says that nobody waits for the open attempt any more.
type Lose struct {
	By      effect.Actor // effector at its claim, or sweeper
	Claim   bool         // a new owner claimed the partition: whoever had the attempt is gone
	Adapter Adapter      // sweeper: for its grace
}

func (e Lose) actor() effect.Actor { return e.By }

// What conflicts are called in records.
const (
	conflictBytes    = "the provider knows the key with other bytes"
	conflictEvidence = "evidence names our key with another amount or subject"
	conflictSeveral  = "the provider has several executions under our key"
	conflictFile     = "the dispatch file knows an attempt with other bytes"
)

var answering = []Transition{
	rule("ack", dispatched, effect.Acked, byEffector, ran, ofRecordedAttempt, ackAnswer),
	rule("not-sent", dispatched, effect.Prepared, byEffector, unsentAlone, ofOpenAttempt, endAttempt),
	rule("reject", dispatched, effect.Rejected, byEffector, refusedAlone, ofOpenAttempt, endAttempt),
	rule("lose-track", dispatched, effect.Unknown, byEffector, nil, ofOpenAttempt, endAttempt),
	rule("lost", dispatched, effect.Unknown, byOwner, nil, losable, lose),

	rule("late-ack", unknown, effect.Acked, byEffector, ran, ofRecordedAttempt, ackAnswer),
	rule("late-conflict", unknown, effect.None, byEffector, ranOtherwise, notable, noteConflict),
	rule("late-proof", closed, effect.Reconciled, byEffector, ran, ofRecordedAttempt, ackAnswer),
	rule("late-alarm", waiting, effect.Held, byEffector, saysRan, alarmable, alarmAnswer),
}

// proves answers why evidence does not prove that r ran; "" is that it does.
func proves(r *effect.Record, e *effect.Evidence) Refusal {
	if e.Key != r.Key {
		return EvidenceOfAnother
	}
	if r.Request == nil {
		return "" // what it should name is not known; the key is
	}
	want := &r.Request.Expect
	if want.Amount != "" && !equalAmount(want.Amount, e.Amount) || want.Subject != "" && want.Subject != e.Subject {
		return EvidenceDiffers
	}
	return ""
}

func ran(c *change, e Answer) bool {
	return e.Class == effect.Executed && proves(c.r, &e.Evidence) == ""
}

func ranOtherwise(c *change, e Answer) bool {
	return e.Class == effect.Executed && proves(c.r, &e.Evidence) == EvidenceDiffers
}

func saysRan(_ *change, e Answer) bool { return e.Class == effect.Executed }

// alone tells whether the open attempt is the only one that may have reached the
// provider: what became of it is what became of the effect.
func alone(r *effect.Record) bool { return len(r.Attempts) == 1 }

func unsentAlone(c *change, e Answer) bool { return e.Class.Unsent() && alone(c.r) }

func refusedAlone(c *change, e Answer) bool { return e.Class == effect.Refused && alone(c.r) }

func ofRecordedAttempt(c *change, e Answer) Refusal {
	if e.Attempt < 1 || e.Attempt > c.r.LastAttempt {
		return AttemptUnknown
	}
	return ""
}

// notable guards a contradiction that a late answer brings; it is noted once.
func notable(c *change, e Answer) Refusal {
	if c.r.Conflict != "" {
		return NothingNew
	}
	return ofRecordedAttempt(c, e)
}

func alarmable(c *change, e Answer) Refusal {
	if why := ofRecordedAttempt(c, e); why != "" {
		return why
	}
	return alarming(c.r, &e.Evidence)
}

func ofOpenAttempt(c *change, e Answer) Refusal {
	last := &c.r.Attempts[len(c.r.Attempts)-1]
	switch {
	case e.Attempt < 1 || e.Attempt > c.r.LastAttempt:
		return AttemptUnknown
	case e.Attempt != last.N:
		return AttemptClosed
	case e.Epoch != last.Epoch:
		return OtherOwner
	case !slices.Contains(effect.Classes(), e.Class):
		return Malformed
	}
	return ""
}

func (c *change) answered(e Answer) {
	ev := e.Evidence
	ev.Source, ev.Attempt, ev.Class = effect.FromAnswer, e.Attempt, e.Class
	c.next.Step.Evidence = &ev
}

func ackAnswer(c *change, e Answer) {
	c.answered(e)
	end(c.next, e.Attempt, effect.Executed, c.now)
	settle(c.next)
}

// settle notes that the effect's own request stands outside. Where only a lost attempt is
// known, what stands outside is not.
func settle(next *effect.Record) {
	next.Settled = next.State
	if next.Request != nil {
		net := made(next)
		next.Net = &net
	}
	next.CompensationPending = IsContradicted(next)
}

// end closes the open attempt as ambiguous, and the attempt n as class.
func end(next *effect.Record, n uint32, class effect.Class, now effect.Time) {
	for i := range next.Attempts {
		a := &next.Attempts[i]
		switch {
		case a.N == n:
			a.End, a.EndAt = class, now
		case a.Open():
			a.End, a.EndAt = effect.Ambiguous, now
		}
	}
}

// endAttempt closes the open attempt. One that was provably not sent is taken off the
// list: it is as if it had not been, but for its number.
func endAttempt(c *change, e Answer) {
	c.answered(e)
	class := e.Class
	switch {
	case class == effect.Executed:
		class = effect.Ambiguous // evidence that does not prove it
		if proves(c.r, &e.Evidence) == EvidenceDiffers {
			c.next.Conflict = conflictEvidence
		}
	case class == effect.OtherBytes:
		c.next.Conflict = conflictBytes
	}
	end(c.next, e.Attempt, class, c.now)
	if class.Unsent() {
		c.next.Attempts = c.next.Attempts[:len(c.next.Attempts)-1]
	}
}

func losable(c *change, e Lose) Refusal {
	last := &c.r.Attempts[len(c.r.Attempts)-1]
	if e.By == effect.Effector && e.Claim || c.now >= e.Adapter.LostFrom(last) {
		return ""
	}
	return SendWindowOpen
}

func lose(c *change, e Lose) {
	c.next.Step.Reason = "sendBy, timeout and grace passed"
	if e.By == effect.Effector && e.Claim {
		c.next.Step.Reason = "a new owner claimed the partition"
	}
	end(c.next, c.r.LastAttempt, effect.Ambiguous, c.now)
}

func noteConflict(c *change, e Answer) {
	c.answered(e)
	c.next.Conflict = conflictEvidence
}

// alarmAnswer holds what was thought not sent and now turns out to have run.
func alarmAnswer(c *change, e Answer) {
	c.answered(e)
	alarm(c.next)
}

func alarm(next *effect.Record) {
	next.Airlock = LockEvidence
	if next.Approval != nil {
		next.Approval.Void = true
	}
}

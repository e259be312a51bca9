package ledger

import "github.com/tidemark-mesh/tidemark/pkg/effect"

// Receipt is a provider's signed word that an effect ran.
type Receipt struct {
	Verified bool // the signature was verified
	Evidence effect.Evidence
	Adapter  Adapter
}

func (Receipt) actor() effect.Actor { return effect.Receipts }

// Query is the provider's answer to a question by our own reference.
type Query struct {
	Found    uint32 // how many it has under our key
	Evidence effect.Evidence
	Adapter  Adapter
}

func (Query) actor() effect.Actor { return effect.Querier }

// States in which an effect can still be proven to have run.
var provable = []effect.State{
	effect.Prepared, effect.Held, effect.Unknown, effect.Rejected, effect.Voided, effect.Manual,
}

var proving = []Transition{
	rule("receipt-conflict", []effect.State{effect.Dispatching, effect.Unknown}, effect.None, byReceipts, receiptDiffers, conflicting, noteReceipt),
	rule("ack-by-receipt", dispatched, effect.Acked, byReceipts, nil, receivable, ackReceipt),
	rule("reconcile-by-receipt", unknown, effect.Reconciled, byReceipts, nil, receivable, ackReceipt),
	rule("lock-by-receipt", voided, effect.None, byReceipts, neverTried[Receipt], alerting, alarmReceipt),
	rule("reopen-by-receipt", closed, effect.Reconciled, byReceipts, nil, receivable, ackReceipt),
	rule("alarm-by-receipt", waiting, effect.Held, byReceipts, nil, alerting, alarmReceipt),

	rule("reconcile-by-query", unknown, effect.Reconciled, byQuerier, foundOurs, askable, ackQuery),
	rule("query-conflict", unknown, effect.Manual, byQuerier, foundOther, contradicting, conflictQuery),
	rule("reject-by-absence", unknown, effect.Rejected, byQuerier, absentForGood, askable, noteAbsence),
	rule("note-absence", unknown, effect.None, byQuerier, absent, askable, noteAbsence),
	rule("lock-by-query", voided, effect.None, byQuerier, foundUntried, alertable, alarmQuery),
	rule("reopen-by-query", closed, effect.Reconciled, byQuerier, found, reopenable, ackQuery),
	rule("alarm-by-query", waiting, effect.Held, byQuerier, found, alertable, alarmQuery),
}

// authentic guards that a receipt may be believed.
func authentic(_ *change, e Receipt) Refusal {
	switch {
	case !e.Adapter.Receipts:
		return NoReceipts
	case !e.Verified:
		return Unverified
	}
	return ""
}

// genuine guards that it is about this effect.
func genuine(c *change, e Receipt) Refusal {
	if why := authentic(c, e); why != "" {
		return why
	}
	return proves(c.r, &e.Evidence)
}

// receivable guards that there is an attempt for it to prove.
func receivable(c *change, e Receipt) Refusal {
	if why := genuine(c, e); why != "" {
		return why
	}
	if c.r.LastAttempt == 0 {
		return NoAttempt
	}
	return ""
}

func receiptDiffers(c *change, e Receipt) bool { return proves(c.r, &e.Evidence) == EvidenceDiffers }

// neverTried tells whether no attempt is there that evidence could be of: then it is of
// something that we did not do, and the effect is not to go without a person.
func neverTried[E Event](c *change, _ E) bool { return c.r.LastAttempt == 0 }

func foundUntried(c *change, e Query) bool { return e.Found > 0 && c.r.LastAttempt == 0 }

// conflicting guards a contradiction that a receipt brings; it is noted once.
func conflicting(c *change, e Receipt) Refusal {
	if why := authentic(c, e); why != "" {
		return why
	}
	if c.r.Conflict != "" {
		return NothingNew
	}
	return ""
}

// alerting guards what shows that an effect thought unsent ran: our key is enough.
func alerting(c *change, e Receipt) Refusal {
	if why := authentic(c, e); why != "" {
		return why
	}
	return alarming(c.r, &e.Evidence)
}

func (c *change) shown(source effect.Source, found uint32, e effect.Evidence) {
	e.Source, e.Found = source, found
	c.next.Step.Evidence = &e
}

func ackReceipt(c *change, e Receipt) {
	c.shown(effect.FromReceipt, 1, e.Evidence)
	if c.r.State == effect.Dispatching {
		end(c.next, c.r.LastAttempt, effect.Executed, c.now)
	}
	settle(c.next)
}

func noteReceipt(c *change, e Receipt) {
	c.shown(effect.FromReceipt, 1, e.Evidence)
	c.next.Conflict = conflictEvidence
}

func alarmReceipt(c *change, e Receipt) {
	c.shown(effect.FromReceipt, 1, e.Evidence)
	alarm(c.next)
}

func askable(_ *change, e Query) Refusal {
	if !e.Adapter.Query {
		return NotQueryable
	}
	return ""
}

func found(_ *change, e Query) bool { return e.Found > 0 }

func absent(_ *change, e Query) bool { return e.Found == 0 }

func foundOurs(c *change, e Query) bool { return e.Found == 1 && proves(c.r, &e.Evidence) == "" }

func foundOther(_ *change, e Query) bool { return e.Found > 0 }

// absentForGood tells whether this absence proves that it did not run: the adapter vouches
// for absence and says how long a request may be under way, it is the third since the
// last attempt, and no attempt can arrive any more.
func absentForGood(c *change, e Query) bool {
	a := &e.Adapter
	return e.Found == 0 && a.Query && a.Authoritative && a.LateArrivalBound > 0 &&
		c.r.Absences+1 >= MinAbsences && c.now > quietFrom(c.r).Add(a.LateArrivalBound)
}

// contradicting guards what sends an effect to an operator: several of ours, or one that
// is not what we sent. One of another key says nothing about ours.
func contradicting(c *change, e Query) Refusal {
	if why := askable(c, e); why != "" {
		return why
	}
	if e.Found == 1 && e.Evidence.Key != c.r.Key {
		return EvidenceOfAnother
	}
	return ""
}

func reopenable(c *change, e Query) Refusal {
	if why := askable(c, e); why != "" {
		return why
	}
	switch why := proves(c.r, &e.Evidence); {
	case why == EvidenceOfAnother:
		return why
	case why != "" || e.Found > 1:
		return EvidenceContradicts
	case c.r.LastAttempt == 0:
		return NoAttempt
	}
	return ""
}

func alertable(c *change, e Query) Refusal {
	if why := askable(c, e); why != "" {
		return why
	}
	why := alarming(c.r, &e.Evidence)
	if e.Found > 1 && why == EvidenceOfAnother {
		return "" // several under our key, whichever of them is shown
	}
	return why
}

// alarming guards what holds an effect that was thought unsent: evidence that names its
// key, with whatever amount. It holds it once.
func alarming(r *effect.Record, e *effect.Evidence) Refusal {
	switch {
	case r.State != effect.Prepared && r.Airlock == LockEvidence:
		return NothingNew
	case e.Key != r.Key:
		return EvidenceOfAnother
	}
	return ""
}

func ackQuery(c *change, e Query) {
	c.shown(effect.FromQuery, e.Found, e.Evidence)
	settle(c.next)
}

func conflictQuery(c *change, e Query) {
	c.shown(effect.FromQuery, e.Found, e.Evidence)
	c.next.Conflict = conflictEvidence
	if e.Found > 1 {
		c.next.Conflict = conflictSeveral
	}
}

func noteAbsence(c *change, e Query) {
	c.shown(effect.FromQuery, 0, e.Evidence)
	c.next.Absences++
	c.next.LastAbsence = c.now
}

func alarmQuery(c *change, e Query) {
	c.shown(effect.FromQuery, e.Found, e.Evidence)
	alarm(c.next)
}

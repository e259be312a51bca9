package ledger

import "github.com/tidemark-mesh/tidemark/pkg/effect"

// Dispatch asks to open an attempt. Its facts are those of the commit that carries the
// DISPATCHING record: gates, active versions and alias come from CONTROL records before
// it in the same journal, so that the append fails if one lands in between.
type Dispatch struct {
	Epoch         uint64 // of the owner
	ClosedGate    string // a closed scope; "" if all are open
	Policy        string // active version
	Adapter       string // active version
	Judgement     Judgement
	RevisionsUpTo uint64 // every revision up to this sequence was judged
	BreakerOpen   bool
	Token         bool // a rate token is reserved
}

func (Dispatch) actor() effect.Actor { return effect.Effector }

var dispatching = []Transition{
	rule("dispatch", prepared, effect.Dispatching, byEffector, nil, firstSendable, open),
	rule("resend", unknown, effect.Dispatching, byEffector, nil, resendable, open),
}

func firstSendable(c *change, e Dispatch) Refusal {
	r, j := c.r, &e.Judgement
	if !NeverSent(r) {
		return Sent
	}
	if why := sendable(c, e); why != "" {
		return why
	}
	switch {
	case order(&j.Revision, &r.Latest.Revision) != 0:
		return RevisionUnjudged
	case desire(r, j) != made(r):
		return PayloadChanged
	}
	return consent(c, e)
}

// resendable guards a second send of what may have run. It asks for everything that a
// first send asks for, and that the provider will know the key.
func resendable(c *change, e Dispatch) Refusal {
	r, a := c.r, &e.Judgement.Adapter
	if why := resendableAtAll(r, a, c.now); why != "" {
		return why
	}
	if why := sendable(c, e); why != "" {
		return why
	}
	switch {
	case e.Judgement.Request.Scope != r.Request.Scope:
		return ScopeMoved
	case desire(r, &e.Judgement) != made(r):
		return Contradicted
	case a.Query && r.Absences == 0:
		return QueryFirst
	}
	return consent(c, e)
}

// resendableAtAll guards what no waiting and no query changes for the better, but for the
// last attempt's answer.
func resendableAtAll(r *effect.Record, a *Adapter, now effect.Time) Refusal {
	switch {
	case r.Request == nil || anyRecovered(r):
		return ScopeUnknown
	case !a.resendable() || r.ResendDeadline == 0:
		return NotIdempotent
	case r.Conflict != "":
		return InConflict
	case r.CompensationPending:
		return Contradicted
	case len(r.Clash) > 0:
		return TwoSessions
	case resends(r) >= MaxResends:
		return AttemptsSpent
	case a.SendBy(now) >= r.ResendDeadline:
		return DeadlinePassed
	case now < quietFrom(r):
		return StillAnswering
	}
	return ""
}

// sendable guards every first byte.
func sendable(c *change, e Dispatch) Refusal {
	r, j := c.r, &e.Judgement
	switch {
	case e.ClosedGate != "":
		return GateClosed
	case !j.Canonical:
		return NotCanonical
	case r.MergedInto != nil:
		return MergedAway
	case order(&j.Revision, &r.Latest.Revision) < 0:
		return OlderRevision
	case e.RevisionsUpTo < j.Revision.Sequence:
		return RevisionsUnread
	case !j.Holds:
		return RuleFalse
	case !j.Provenance:
		return ProvenanceUnmet
	case e.Policy != j.Request.Policy || NeverSent(r) && e.Policy != r.Request.Policy:
		return InactivePolicy
	case e.Adapter != r.Request.Adapter:
		return InactiveAdapter
	case PayloadDigest(r.Identity.EffectType, r.Request) != r.Request.PayloadDigest:
		return DigestBroken
	case len(r.Clash) > 0:
		return TwoSessions
	case j.Adapter.SendWithin <= 0 || j.Adapter.Timeout <= 0:
		return NoSendWindow
	case e.BreakerOpen:
		return BreakerOpen
	case !e.Token:
		return RateLimited
	}
	return ""
}

// consent guards what an airlock rule matches: it takes an unused approval of this payload.
func consent(c *change, e Dispatch) Refusal {
	if !locked(c.r, &e.Judgement) {
		return ""
	}
	switch a := c.r.Approval; {
	case a == nil || a.Void || a.Digest != c.r.Request.PayloadDigest:
		return ApprovalMissing
	case a.Attempt > 0:
		return ApprovalUsed
	case c.now > a.Expires:
		return ApprovalExpired
	}
	return ""
}

func locked(r *effect.Record, j *Judgement) bool { return r.Airlock != "" || j.lock() != "" }

// open writes the attempt. When the key could first have been sent never moves, and with
// it the deadline of resends.
func open(c *change, e Dispatch) {
	next, a := c.next, &e.Judgement.Adapter
	next.LastAttempt++
	if next.FirstPossibleSendAt == 0 {
		next.FirstPossibleSendAt = c.now
	}
	if c.r.State == effect.Prepared {
		next.ResendDeadline = a.ResendDeadline(next.FirstPossibleSendAt)
	}
	if locked(c.r, &e.Judgement) {
		next.Approval.Attempt = next.LastAttempt
	}
	if next.Airlock == "" {
		next.Airlock = e.Judgement.lock()
	}
	next.Absences, next.LastAbsence = 0, 0
	next.Attempts = append(next.Attempts, effect.Attempt{
		N: next.LastAttempt, Epoch: e.Epoch, Digest: next.Request.PayloadDigest, RevisionsUpTo: e.RevisionsUpTo,
		At: c.now, SendBy: a.SendBy(c.now), Timeout: a.Timeout, Resend: c.r.State == effect.Unknown,
	})
}

// resends counts the sends from UNKNOWN that may have reached the provider.
func resends(r *effect.Record) int {
	n := 0
	for i := range r.Attempts {
		if r.Attempts[i].Resend {
			n++
		}
	}
	return n
}

func anyRecovered(r *effect.Record) bool {
	for i := range r.Attempts {
		if r.Attempts[i].Recovered {
			return true
		}
	}
	return false
}

// quietFrom answers from when on no attempt can be answered any more.
func quietFrom(r *effect.Record) effect.Time {
	var last effect.Time
	for i := range r.Attempts {
		last = max(last, r.Attempts[i].QuietFrom())
	}
	return last
}

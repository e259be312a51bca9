package ledger

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Judgement is what an effect policy makes of one revision.
type Judgement struct {
	Revision   effect.Bound
	Canonical  bool           // of the generation that the job's alias names
	Holds      bool           // the rule is true
	Provenance bool           // the provenance that the policy requires is met
	Live       bool           // the revision's origin is live
	Switched   bool           // the key first appears through a switch of generations
	Airlock    string         // the airlock rule of the policy that matches; "" is none
	Request    effect.Request // PayloadDigest is computed here; without Holds only Policy is read
	Adapter    Adapter
}

// Airlock rules that are no policy's.
const (
	LockOrigin   = "origin"       // the revision does not come from live events
	LockSwitch   = "switch"       // first seen through a switch of generations
	LockUnproven = "unprovable"   // neither idempotent nor queryable
	LockOperator = "operator"     // an operator held it
	LockSessions = "two-sessions" // two current sessions share it
	LockEvidence = "evidence"     // the provider has it, though nothing was sent
	LockLinked   = "correction"   // a linked effect
)

// Judge asks to judge an effect by a canonical revision. Identity is read where the key
// is new; Covered too, and set for sessions only.
type Judge struct {
	Identity  effect.Identity
	Covered   *revision.Window
	Judgement Judgement
	Linked    *effect.Record // the effect that carries out the open correction, if there is one
	Makes     effect.Desire  // linked effects: what stands outside of the other once this one ran
}

func (Judge) actor() effect.Actor { return effect.Effector }

var judging = []Transition{
	rule("prepare", none, effect.Prepared, byEffector, first(false), creatable, create),
	rule("prepare-held", none, effect.Held, byEffector, first(true), creatable, create),

	rule("void", waiting, effect.Voided, byEffector, ruleFalse, voidable, noteJudged),
	rule("rebind", waiting, effect.None, byEffector, sameDigest, rebindable, rebind),
	rule("reprepare", waiting, effect.Prepared, byEffector, otherDigest(false), preparable, prepareAgain),
	rule("reprepare-held", waiting, effect.Held, byEffector, otherDigest(true), preparable, prepareAgain),
	rule("revive", voided, effect.Prepared, byEffector, otherDigest(false), preparable, prepareAgain),
	rule("revive-held", voided, effect.Held, byEffector, otherDigest(true), preparable, prepareAgain),

	rule("rejudge-in-doubt", inDoubt, effect.None, byEffector, nil, rejudgeable, rejudgeInDoubt),
	rule("require-compensation", settled, effect.CompensationRequired, byEffector, contradictsNet, correctable, openCorrection),
	rule("rejudge-settled", settled, effect.None, byEffector, nil, rejudgeable, noteJudged),
	rule("right-again-acked", corrected, effect.Acked, byEffector, rightAgain(effect.Acked), closable, noteJudged),
	rule("right-again-reconciled", corrected, effect.Reconciled, byEffector, rightAgain(effect.Reconciled), closable, noteJudged),
	rule("right-again-compensated", corrected, effect.Compensated, byEffector, rightAgain(effect.Compensated), closable, noteJudged),
	rule("rejudge-correction", corrected, effect.None, byEffector, nil, rejudgeable, noteJudged),
}

// order compares revisions: by alias epoch, then, of one projection, by number. Sessions
// come and go under one effect, so that of different projections the place in the stream
// decides; of one projection both orders agree.
func order(a, b *effect.Bound) int {
	if n := cmp.Compare(a.AliasEpoch, b.AliasEpoch); n != 0 {
		return n
	}
	if a.ProjectionID == b.ProjectionID {
		return cmp.Compare(a.Revision, b.Revision)
	}
	return cmp.Compare(a.Sequence, b.Sequence)
}

// desire answers what should be outside by j. What may have been sent is compared under
// the adapter and scope that it was sent with: a moved url does not make it wrong.
func desire(r *effect.Record, j *Judgement) effect.Desire {
	if !j.Holds {
		return effect.Desire{}
	}
	q := j.Request
	if r.Request != nil && !NeverSent(r) {
		q.Adapter, q.Scope = r.Request.Adapter, r.Request.Scope
	}
	return effect.Desire{Holds: true, Digest: PayloadDigest(r.Identity.EffectType, &q)}
}

// Wants answers what should be outside of r by j, in the terms of its Net and Latest.
func Wants(r *effect.Record, j *Judgement) effect.Desire { return desire(r, j) }

// made answers what the record's own request brings about.
func made(r *effect.Record) effect.Desire {
	return effect.Desire{Holds: true, Digest: r.Request.PayloadDigest}
}

// lock answers the airlock rule that matches; "" is none.
func (j *Judgement) lock() string {
	switch a := &j.Adapter; {
	case j.Airlock != "":
		return j.Airlock
	case !j.Live:
		return LockOrigin
	case j.Switched:
		return LockSwitch
	case !a.resendable() && !a.Query && !a.SendUnproven:
		return LockUnproven
	}
	return ""
}

// lockOf answers the airlock rule for a record that is judged again: what a person or
// evidence locked is not unlocked by another payload.
func lockOf(r *effect.Record, j *Judgement) string {
	if slices.Contains([]string{LockOperator, LockEvidence, LockLinked}, r.Airlock) {
		return r.Airlock
	}
	return j.lock()
}

func first(locked bool) func(*change, Judge) bool {
	return func(_ *change, e Judge) bool { return e.Judgement.Holds && (e.Judgement.lock() != "") == locked }
}

func ruleFalse(_ *change, e Judge) bool { return !e.Judgement.Holds }

func sameDigest(c *change, e Judge) bool {
	return desire(c.r, &e.Judgement) == made(c.r)
}

// otherDigest is asked after the rule was found true, with another digest than before or
// after it had been false.
func otherDigest(locked bool) func(*change, Judge) bool {
	return func(c *change, e Judge) bool {
		return e.Judgement.Holds && (lockOf(c.r, &e.Judgement) != "") == locked
	}
}

// current guards against revisions that say nothing about now.
func current(c *change, e Judge) Refusal {
	j, r := &e.Judgement, c.r
	switch {
	case !j.Canonical:
		return NotCanonical
	case r.MergedInto != nil:
		return MergedAway
	case r.Latest == nil:
		return PayloadUnknown
	}
	switch n := order(&j.Revision, &r.Latest.Revision); {
	case n < 0:
		return OlderRevision
	case n > 0 || desire(r, j) == r.Latest.Desire:
		return ""
	case j.Request.Policy == r.Request.Policy && j.Request.Adapter == r.Request.Adapter && j.Request.Scope == r.Request.Scope:
		return Nondeterministic
	case !NeverSent(r):
		return OtherPolicy
	}
	return ""
}

func creatable(_ *change, e Judge) Refusal {
	j := &e.Judgement
	switch {
	case !j.Canonical:
		return NotCanonical
	case !j.Provenance:
		return ProvenanceUnmet
	}
	return sound(Key(&e.Identity), &j.Request)
}

// sound guards the bytes: whatever is stored may be sent.
func sound(key effect.EffectKey, q *effect.Request) Refusal {
	switch {
	case q.Payload == "":
		return PayloadEmpty
	case len(q.Payload) > effect.MaxPayload:
		return PayloadTooLarge
	case !strings.Contains(q.Payload, key.String()):
		return PayloadNoKey
	}
	return ""
}

func create(c *change, e Judge) {
	c.next.Key = Key(&e.Identity)
	c.next.Identity = e.Identity
	c.next.Covered = copied(e.Covered)
	c.next.Airlock = e.Judgement.lock()
	bind(c.next, &e.Judgement)
}

// bind makes j the revision that r stands for, with its bytes.
func bind(r *effect.Record, j *Judgement) {
	q := j.Request
	q.PayloadDigest = PayloadDigest(r.Identity.EffectType, &q)
	r.Request = &q
	r.Bound = copied(&j.Revision)
	r.Latest = &effect.Judged{Revision: j.Revision, Desire: made(r)}
	r.CompensationPending, r.Clash = false, nil
}

func voidable(c *change, e Judge) Refusal {
	if !NeverSent(c.r) {
		return Sent
	}
	return current(c, e)
}

func rebindable(c *change, e Judge) Refusal {
	j, r := &e.Judgement, c.r
	if why := preparable(c, e); why != "" {
		return why
	}
	if order(&j.Revision, r.Bound) == 0 && j.Request.Policy == r.Request.Policy && len(r.Clash) == 0 {
		return NothingNew
	}
	return ""
}

// rebind moves the revision and leaves the bytes and approvals as they are.
func rebind(c *change, e Judge) {
	bind(c.next, &e.Judgement)
	aim(c.next, e.Makes)
}

// aim says anew what a linked effect makes: it was never sent.
func aim(r *effect.Record, makes effect.Desire) {
	if r.Correction != nil {
		r.Correction = copied(r.Correction)
		r.Correction.Makes = makes
	}
}

func preparable(c *change, e Judge) Refusal {
	if !NeverSent(c.r) {
		return Sent
	}
	if why := current(c, e); why != "" {
		return why
	}
	if !e.Judgement.Provenance {
		return ProvenanceUnmet
	}
	return sound(c.r.Key, &e.Judgement.Request)
}

func prepareAgain(c *change, e Judge) {
	c.next.Airlock = lockOf(c.r, &e.Judgement)
	before := c.r.Request.PayloadDigest
	bind(c.next, &e.Judgement)
	aim(c.next, e.Makes)
	if c.next.Approval != nil && (c.r.State == effect.Voided || c.next.Request.PayloadDigest != before) {
		c.next.Approval.Void = true
	}
}

// rejudgeable guards notes: a revision that changes nothing leaves no record.
func rejudgeable(c *change, e Judge) Refusal {
	if why := current(c, e); why != "" {
		return why
	}
	if desire(c.r, &e.Judgement) == c.r.Latest.Desire && len(c.r.Clash) == 0 {
		return NothingNew
	}
	return ""
}

func noteJudged(c *change, e Judge) {
	c.next.Latest = &effect.Judged{Revision: e.Judgement.Revision, Desire: desire(c.r, &e.Judgement)}
	c.next.CompensationPending = false
	c.next.Clash = nil
}

func rejudgeInDoubt(c *change, e Judge) {
	noteJudged(c, e)
	c.next.CompensationPending = c.next.Latest.Desire != made(c.r)
}

// contradictsNet tells whether j asks for something else than stands outside, and than an
// operator decided to leave.
func contradictsNet(c *change, e Judge) bool {
	if c.r.Net == nil {
		return false
	}
	d := desire(c.r, &e.Judgement)
	return d != *c.r.Net && (c.r.Waived == nil || d != *c.r.Waived)
}

// correctable guards that a correction is opened of the effect itself: what a linked
// effect did is judged by what became of the effect that it corrects.
func correctable(c *change, e Judge) Refusal {
	if c.r.Correction != nil {
		return IsCorrection
	}
	return current(c, e)
}

func openCorrection(c *change, e Judge) {
	noteJudged(c, e)
	c.next.Corrections++
}

// rightAgain is asked of a correction that j takes back: the effect goes to where it was
// before. While the linked effect may have run, the judgement is only noted: what comes of
// it is known when that is settled.
func rightAgain(to effect.State) func(*change, Judge) bool {
	return func(c *change, e Judge) bool {
		r, l := c.r, e.Linked
		if r.Net == nil || desire(r, &e.Judgement) != *r.Net || l != nil && carriesOut(l, r) && !NeverSent(l) {
			return false
		}
		if r.Request == nil || *r.Net != made(r) {
			return to == effect.Compensated
		}
		return to == r.Settled
	}
}

func closable(c *change, e Judge) Refusal {
	if why := current(c, e); why != "" {
		return why
	}
	if e.Linked != nil && !carriesOut(e.Linked, c.r) {
		return LinkOfAnother
	}
	return ""
}

// IsContradicted tells whether the newest judgement asks for something else than stands
// outside: the effector judges such an effect again as soon as it is settled.
func IsContradicted(r *effect.Record) bool {
	return r.Net != nil && r.Latest != nil && r.State != effect.CompensationRequired &&
		r.Latest.Desire != *r.Net && (r.Waived == nil || r.Latest.Desire != *r.Waived)
}

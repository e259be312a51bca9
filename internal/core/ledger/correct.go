package ledger

import "github.com/tidemark-mesh/tidemark/pkg/effect"

// Correct asks for the linked effect that carries out the open correction of another.
type Correct struct {
	Of        *effect.Record // COMPENSATION_REQUIRED
	Mode      effect.Mode
	Makes     effect.Desire // what stands outside of Of once it ran
	Judgement Judgement     // Holds while the correction is needed; Request is what undoes or adjusts
}

func (Correct) actor() effect.Actor { return effect.Effector }

// Compensated says that the linked effect of the open correction ran.
type Compensated struct {
	Linked *effect.Record
}

func (Compensated) actor() effect.Actor { return effect.Effector }

// CompensatedOutside says that an operator saw the correction carried out.
type CompensatedOutside struct {
	Who    string
	Reason string
	Linked *effect.Record // of the open correction, if there is one
}

func (CompensatedOutside) actor() effect.Actor { return effect.Operator }

// Waive says that an operator lets stand what a correction contradicts.
type Waive struct {
	Who    string
	Reason string
	Linked *effect.Record // of the open correction, if there is one
}

func (Waive) actor() effect.Actor { return effect.Operator }

var correcting = []Transition{
	rule("link-prepared", none, effect.Prepared, byEffector, unlocked, linkable, link),
	rule("link", none, effect.Held, byEffector, nil, linkable, link),
}

var compensating = []Transition{
	rule("compensate", corrected, effect.Compensated, byEffector, nil, compensable, compensate),
	rule("compensate-outside", corrected, effect.Compensated, byOperator, nil,
		func(_ *change, e CompensatedOutside) Refusal { return closes(e.Who, e.Reason, e.Linked) }, compensateOutside),
	rule("waive", corrected, effect.Waived, byOperator, nil,
		func(_ *change, e Waive) Refusal { return closes(e.Who, e.Reason, e.Linked) }, waive),
}

// unlocked tells whether a linked effect needs no approval: one that undoes always does.
func unlocked(_ *change, e Correct) bool {
	return e.Mode == effect.Adjust && e.Judgement.lock() == ""
}

// closes guards a person's word on a correction: what its linked effect did is known first.
func closes(who, reason string, l *effect.Record) Refusal {
	if l != nil && !NeverSent(l) && l.State != effect.Rejected {
		return LinkedSent
	}
	return person(who, reason)
}

func linkable(_ *change, e Correct) Refusal {
	switch {
	case e.Of == nil || e.Of.State != effect.CompensationRequired:
		return NoCorrectionOpen
	case !e.Judgement.Canonical:
		return NotCanonical
	case !e.Judgement.Holds:
		return RuleFalse
	}
	return sound(CorrectionKey(e.Mode, e.Of.Key, e.Of.Corrections), &e.Judgement.Request)
}

func link(c *change, e Correct) {
	c.next.Key = CorrectionKey(e.Mode, e.Of.Key, e.Of.Corrections)
	c.next.Identity = e.Of.Identity
	c.next.Correction = &effect.Correction{Of: e.Of.Key, Number: e.Of.Corrections, Mode: e.Mode, Makes: e.Makes}
	if c.next.Airlock = e.Judgement.lock(); e.Mode == effect.Compensate {
		c.next.Airlock = LockLinked
	}
	bind(c.next, &e.Judgement)
}

// carriesOut tells whether l is the linked effect of r's open correction.
func carriesOut(l, r *effect.Record) bool {
	return l.Correction != nil && l.Correction.Of == r.Key && l.Correction.Number == r.Corrections
}

func compensable(c *change, e Compensated) Refusal {
	switch {
	case e.Linked == nil || !carriesOut(e.Linked, c.r):
		return LinkOfAnother
	case e.Linked.State != effect.Acked && e.Linked.State != effect.Reconciled:
		return LinkNotApplied
	}
	return ""
}

func compensate(c *change, e Compensated) {
	c.next.Link = &e.Linked.Key
	c.next.Net = copied(&e.Linked.Correction.Makes)
	c.next.Waived = nil
}

// compensateOutside takes the operator's word that what should be outside is.
func compensateOutside(c *change, e CompensatedOutside) {
	c.signed(e.Who, e.Reason)
	c.next.Net = wanted(c.r)
	c.next.Waived = nil
}

func waive(c *change, e Waive) {
	c.signed(e.Who, e.Reason)
	c.next.Waived = wanted(c.r)
}

// wanted answers what should be outside: nothing, where no revision says more.
func wanted(r *effect.Record) *effect.Desire {
	if r.Latest == nil {
		return new(effect.Desire)
	}
	return copied(&r.Latest.Desire)
}

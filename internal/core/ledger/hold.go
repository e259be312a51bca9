package ledger

import (
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Hold asks to keep an effect from being dispatched until somebody approves it.
type Hold struct {
	By     effect.Actor // effector or operator
	Rule   string       // effector: the airlock rule
	Who    string       // operator
	Reason string       // operator
}

func (e Hold) actor() effect.Actor { return e.By }

// Approve is an approver's consent to the payload with the digest that was shown.
type Approve struct {
	Sequence uint64 // of the COMMAND in the effects journal: no two approvals share one
	Who      string
	Reason   string
	Digest   revision.Digest
	Expires  effect.Time
}

func (Approve) actor() effect.Actor { return effect.Approver }

// Void asks to withdraw an effect whose rule no longer holds.
type Void struct {
	Who       string
	Reason    string
	Judgement Judgement // of the newest canonical revision
}

func (Void) actor() effect.Actor { return effect.Operator }

var holding = []Transition{
	rule("hold", prepared, effect.Held, byAuthority, nil, holdable, hold),
	rule("approve", held, effect.Prepared, []effect.Actor{effect.Approver}, nil, approvable, approve),
	rule("void-by-operator", waiting, effect.Voided, byOperator, nil, withdrawable, withdraw),
}

func holdable(c *change, e Hold) Refusal {
	switch {
	case !NeverSent(c.r):
		return Sent
	case e.By == effect.Effector && e.Rule == "":
		return NoRule
	case e.By == effect.Operator:
		return person(e.Who, e.Reason)
	}
	return ""
}

// person guards what people do: it carries a name and a reason.
func person(who, reason string) Refusal {
	switch {
	case who == "":
		return NoPerson
	case reason == "":
		return NoReason
	}
	return ""
}

func hold(c *change, e Hold) {
	c.next.Airlock = e.Rule
	if e.By == effect.Operator {
		c.next.Airlock = LockOperator
	}
	c.signed(e.Who, e.Reason)
}

func (c *change) signed(who, reason string) { c.next.Step.Who, c.next.Step.Reason = who, reason }

func approvable(c *change, e Approve) Refusal {
	if why := person(e.Who, e.Reason); why != "" {
		return why
	}
	switch r := c.r; {
	case !NeverSent(r):
		return Sent
	case len(r.Clash) > 0:
		return TwoSessions
	case e.Digest != r.Request.PayloadDigest:
		return OtherDigest
	case c.now > e.Expires:
		return ApprovalExpired
	case r.Approval != nil && e.Sequence <= r.Approval.Sequence:
		return ApprovalUsed
	}
	return ""
}

func approve(c *change, e Approve) {
	c.next.Approval = &effect.Approval{Sequence: e.Sequence, By: e.Who, Digest: e.Digest, Expires: e.Expires}
	c.signed(e.Who, e.Reason)
}

func withdrawable(c *change, e Void) Refusal {
	if why := person(e.Who, e.Reason); why != "" {
		return why
	}
	switch {
	case !NeverSent(c.r):
		return Sent
	case e.Judgement.Holds:
		return RuleHolds
	}
	return current(c, Judge{Judgement: e.Judgement})
}

func withdraw(c *change, e Void) {
	noteJudged(c, Judge{Judgement: e.Judgement})
	c.signed(e.Who, e.Reason)
}

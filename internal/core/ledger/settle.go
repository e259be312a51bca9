package ledger

import (
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Escalate asks to hand an effect of unknown outcome to an operator.
type Escalate struct {
	Adapter Adapter
}

func (Escalate) actor() effect.Actor { return effect.Sweeper }

// Resolve is what an operator found out, with the evidence for it.
type Resolve struct {
	Applied  bool
	Who      string
	Reason   string
	Ref      string          // the provider's own id
	Evidence revision.Digest // of what the operator recorded
}

func (Resolve) actor() effect.Actor { return effect.Operator }

var settling = []Transition{
	rule("escalate", unknown, effect.Manual, bySweeper, nil, escalatable, escalate),
	rule("resolve-applied", manual, effect.Reconciled, byOperator, func(_ *change, e Resolve) bool { return e.Applied }, resolvable, resolveApplied),
	rule("resolve-not-applied", manual, effect.Rejected, byOperator, nil, resolvable, resolve),
}

func escalatable(c *change, e Escalate) Refusal {
	if action, _ := Plan(c.r, &e.Adapter, c.now); action != GiveUp {
		return ActionLeft
	}
	return ""
}

func escalate(c *change, e Escalate) {
	c.next.Step.Reason = "no automatic action is left"
	if c.r.Conflict != "" {
		c.next.Step.Reason = c.r.Conflict
	}
}

func resolvable(_ *change, e Resolve) Refusal {
	if why := person(e.Who, e.Reason); why != "" {
		return why
	}
	if e.Evidence.IsZero() {
		return NoEvidence
	}
	return ""
}

func resolve(c *change, e Resolve) {
	c.signed(e.Who, e.Reason)
	c.next.Step.Evidence = &effect.Evidence{Source: effect.FromOperator, Ref: e.Ref, Digest: e.Evidence}
}

func resolveApplied(c *change, e Resolve) {
	resolve(c, e)
	settle(c.next)
}

// Action is what may be done automatically about an unknown outcome.
type Action string

// Actions.
const (
	Nothing Action = "NOTHING" // the outcome is not unknown
	Wait    Action = "WAIT"    // until the time that comes with it
	Ask     Action = "ASK"     // query the provider
	Resend  Action = "RESEND"  // try Dispatch: its guards know gates, revisions and versions
	GiveUp  Action = "GIVE_UP" // escalate
)

// Plan answers what the sweeper may try now for an effect of unknown outcome, and until
// when there is nothing else to do where that is Wait. It never says Resend for what the
// provider could execute twice.
func Plan(r *effect.Record, a *Adapter, now effect.Time) (Action, effect.Time) {
	if r.State != effect.Unknown {
		return Nothing, 0
	}
	mayAsk := a.Query && now < quietFrom(r).Add(a.QueryFor)
	switch why := resendableAtAll(r, a, now); {
	case r.Conflict != "":
		return GiveUp, 0
	case why == "" && a.Query && r.Absences == 0:
		return Ask, 0 // also past QueryFor: what is sent again is asked for first
	case why == "":
		return Resend, 0
	case mayAsk:
		return Ask, 0
	case why == StillAnswering:
		return Wait, quietFrom(r)
	}
	return GiveUp, 0
}

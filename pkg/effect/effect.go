// Package effect answers what an outside action for one business window is to a reader:
// its key, its state, and the records of the effects journal that tell its history
// (schema effect.v1).
//
// A record is a whole: the last record of a key says all there is to know of the effect,
// and what happened last. Nothing in it is ever deleted; a record replaces the one before
// it by its step number. The rules by which one record may follow another are not here:
// a reader takes what the journal has.
package effect

import "slices"

// State is where an effect stands.
type State string

// States. None is no state: the key has no record.
const (
	None                 State = ""
	Prepared             State = "PREPARED"              // may be dispatched
	Held                 State = "HELD"                  // waits for an approval
	Dispatching          State = "DISPATCHING"           // an attempt is open; its bytes may be on their way
	Acked                State = "ACKED"                 // the provider answered that it ran
	Unknown              State = "UNKNOWN"               // an attempt may have run; only evidence settles it
	Reconciled           State = "RECONCILED"            // it ran, as a query, a receipt or an operator proved
	Rejected             State = "REJECTED"              // it did not run, and is never sent again
	Voided               State = "VOIDED"                // never sent, and the rule holds no more
	Manual               State = "MANUAL"                // an operator must find out
	CompensationRequired State = "COMPENSATION_REQUIRED" // it ran, and a correction contradicts it
	Compensated          State = "COMPENSATED"           // a linked effect put it right
	Waived               State = "WAIVED"                // an operator lets it stand
)

// States answers every state but None, in the order of the design.
func States() []State {
	return []State{
		Prepared, Held, Dispatching, Acked, Unknown, Reconciled,
		Rejected, Voided, Manual, CompensationRequired, Compensated, Waived,
	}
}

// Known tells whether s is one of States.
func (s State) Known() bool { return slices.Contains(States(), s) }

// Outcome says whether the action happened outside.
type Outcome string

// Outcomes.
const (
	Applied      Outcome = "APPLIED"
	NotApplied   Outcome = "NOT_APPLIED"
	Undetermined Outcome = "UNDETERMINED"
)

// Outcome answers what the state says of the action itself, so that reports need not
// decode states. A compensated action was applied: what undid it is an effect of its own.
func (s State) Outcome() Outcome {
	switch s {
	case None, Prepared, Held, Voided, Rejected:
		return NotApplied
	case Acked, Reconciled, CompensationRequired, Compensated, Waived:
		return Applied
	}
	return Undetermined
}

// Actor is the role in which a step was made.
type Actor string

// Actors.
const (
	Effector Actor = "effector" // the owner of the key partition
	Sweeper  Actor = "sweeper"  // the owner, looking for what is overdue
	Querier  Actor = "querier"  // the owner, asking the provider
	Receipts Actor = "receipts" // a signed receipt of the provider
	Approver Actor = "approver"
	Operator Actor = "operator"
)

// Actors answers every actor.
func Actors() []Actor {
	return []Actor{Effector, Sweeper, Querier, Receipts, Approver, Operator}
}

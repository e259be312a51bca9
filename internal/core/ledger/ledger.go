// Package ledger decides what happens to an effect (design: "Effects").
//
// Everything that may happen is a Transition: a value that names the states it leaves,
// the one it reaches, who may make it, and a guard. Decide looks up the one transition
// that an event asks for and answers the next record, or a Refusal by name. What no
// transition allows cannot happen: there is no other way to a new state.
//
// Time, gates, active versions and answers of the provider are facts of the event. The
// package reads no clock, so a journal that is replayed gives the same records.
package ledger

import (
	"slices"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// Event is something that happened to an effect, or that somebody asks for.
type Event interface {
	actor() effect.Actor
}

// Transition is one way from state to state.
type Transition struct {
	Name string
	From []effect.State
	To   effect.State // None: the state stays, and the record notes a fact
	By   []effect.Actor

	is    func(Event) bool
	when  func(*change) bool    // tells whether the event asks for this transition
	guard func(*change) Refusal // tells why it may not be made
	write func(*change)
}

// Moves tells whether the transition leads from one state to another.
func (t *Transition) Moves(from, to effect.State) bool {
	if !slices.Contains(t.From, from) {
		return false
	}
	return t.To == to || t.To == effect.None && from == to
}

// change is a step in the making.
type change struct {
	r    *effect.Record // before; a record without a state where there is none
	next *effect.Record // after; set for write only
	e    Event
	now  effect.Time
}

// Decide answers the record that follows r (nil = the key has none) after e at now, or
// why there is none. r stays as it is.
func Decide(r *effect.Record, e Event, now effect.Time) (*effect.Record, Refusal) {
	if r == nil {
		r = new(effect.Record)
	}
	c := &change{r: r, e: e, now: now}
	for i := range table {
		t := &table[i]
		if !t.is(e) || !slices.Contains(t.From, r.State) || !t.when(c) {
			continue
		}
		if !slices.Contains(t.By, e.actor()) {
			return nil, WrongActor
		}
		if why := t.guard(c); why != "" {
			return nil, why
		}
		return c.step(t)
	}
	return nil, c.impossible()
}

// step makes the record that t leads to.
func (c *change) step(t *Transition) (*effect.Record, Refusal) {
	c.next = clone(c.r)
	c.next.Schema = effect.Schema
	c.next.Step = effect.Step{N: c.r.Step.N + 1, Name: t.Name, From: c.r.State, By: c.e.actor(), At: c.now}
	if t.To != effect.None {
		c.next.State = t.To
	}
	t.write(c)
	if c.next.State == effect.Rejected {
		c.next.CompensationPending = false // nothing ran, nothing to compensate
	}
	c.next.Outcome = c.next.State.Outcome()
	if c.next.Validate() != nil {
		return nil, Malformed
	}
	return c.next, ""
}

// Transitions answers every transition, in the order in which they are looked up.
func Transitions() []Transition { return slices.Clone(table) }

// table is looked up from the top: where two transitions have one event and one state,
// the first whose when holds is meant.
var table = slices.Concat(
	judging, correcting, holding, dispatching, answering, proving, settling, compensating, sessions, recovering,
)

// rule builds a transition of events of one type. A nil when always holds, a nil guard
// never refuses, a nil write changes nothing but the state.
func rule[E Event](
	name string, from []effect.State, to effect.State, by []effect.Actor,
	when func(*change, E) bool, guard func(*change, E) Refusal, write func(*change, E),
) Transition {
	return Transition{
		Name: name, From: from, To: to, By: by,
		is:    func(e Event) bool { _, ok := e.(E); return ok },
		when:  func(c *change) bool { return when == nil || when(c, c.e.(E)) },
		guard: func(c *change) Refusal { return refuse(guard, c) },
		write: func(c *change) {
			if write != nil {
				write(c, c.e.(E))
			}
		},
	}
}

func refuse[E Event](guard func(*change, E) Refusal, c *change) Refusal {
	if guard == nil {
		return ""
	}
	return guard(c, c.e.(E))
}

// Sets of states that many transitions leave.
var (
	none     = []effect.State{effect.None}
	waiting  = []effect.State{effect.Prepared, effect.Held}
	neverRan = []effect.State{effect.Prepared, effect.Held, effect.Voided}
	inDoubt  = []effect.State{effect.Dispatching, effect.Unknown, effect.Manual}
	settled  = []effect.State{effect.Acked, effect.Reconciled, effect.Compensated, effect.Waived}
	closed   = []effect.State{effect.Rejected, effect.Manual, effect.Voided}

	prepared    = []effect.State{effect.Prepared}
	held        = []effect.State{effect.Held}
	dispatched  = []effect.State{effect.Dispatching}
	unknown     = []effect.State{effect.Unknown}
	manual      = []effect.State{effect.Manual}
	voided      = []effect.State{effect.Voided}
	corrected   = []effect.State{effect.CompensationRequired}
	byEffector  = []effect.Actor{effect.Effector}
	bySweeper   = []effect.Actor{effect.Sweeper}
	byOperator  = []effect.Actor{effect.Operator}
	byQuerier   = []effect.Actor{effect.Querier}
	byReceipts  = []effect.Actor{effect.Receipts}
	byOwner     = []effect.Actor{effect.Effector, effect.Sweeper}
	byAuthority = []effect.Actor{effect.Effector, effect.Operator}
)

// clone answers a copy that shares nothing that a step changes.
func clone(r *effect.Record) *effect.Record {
	next := *r
	next.Attempts = slices.Clone(r.Attempts)
	next.Latest = copied(r.Latest)
	next.Request = copied(r.Request)
	next.Approval = copied(r.Approval)
	next.Covered = copied(r.Covered)
	return &next
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// NeverSent tells whether r has no attempt, or only attempts that were provably not sent;
// false where there is no effect.
func NeverSent(r *effect.Record) bool {
	return len(r.Attempts) == 0 && slices.Contains(neverRan, r.State)
}

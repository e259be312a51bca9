package webhook

import (
	"time"
)

// State is where a delivery stands.
type State string

// States. The first two wait for an attempt, FAILED waits for an operator.
const (
	StateQueued    State = "QUEUED"
	StateAttempted State = "ATTEMPTED" // tried without success; it will be tried again
	StateFailed    State = "FAILED"    // the schedule is used up
	StateDelivered State = "DELIVERED" // the receiver has the bytes
	StateApplied   State = "APPLIED"   // the receiver says that it applied them
	StateRefused   State = "REFUSED"   // the receiver says that it will not
	StateCoalesced State = "COALESCED" // a newer revision of the projection took its place
	StateDropped   State = "DROPPED"   // readers see another generation now
	StateSkipped   State = "SKIPPED"   // an operator gave it up
)

// states in the order in which status lists them.
var states = []State{
	StateQueued, StateAttempted, StateFailed, StateDelivered, StateApplied, StateRefused, StateCoalesced, StateDropped, StateSkipped,
}

// Delivery is one message to the endpoint and where it stands (schema webhookDelivery.v1).
type Delivery struct {
	Sequence     uint64    `json:"sequence"` // in the order of the feed
	ID           string    `json:"webhookId"`
	Type         string    `json:"type"`
	ProjectionID string    `json:"projectionId,omitempty"`
	Revision     uint64    `json:"revision,omitempty"`
	Key          string    `json:"key,omitempty"`
	Generation   int       `json:"generation"`
	Digest       string    `json:"aggregateDigest,omitempty"`
	State        State     `json:"state"`
	Attempts     int       `json:"attempts"`         // made in all
	Failures     int       `json:"failures"`         // waits of the schedule that are used up
	Due          time.Time `json:"due,omitzero"`     // of the next attempt
	After        uint64    `json:"after,omitempty"`  // sequence of a delivery that must be through first
	Linked       bool      `json:"linked,omitempty"` // replaces or is replaced by another session
	QueuedAt     time.Time `json:"queuedAt"`         //
	DeliveredAt  time.Time `json:"deliveredAt,omitzero"`
	ClosedAt     time.Time `json:"closedAt,omitzero"` // nothing more is expected of it
	Status       int       `json:"status,omitempty"`  // HTTP status of the last attempt
	Problem      string    `json:"problem,omitempty"` // of the last attempt, or why the receiver refuses
	Overdue      bool      `json:"overdue,omitempty"` // DELIVERED for longer than agreed
	Resent       int       `json:"resent,omitempty"`  // redeliveries that operators asked for
	TraceParent  string    `json:"traceparent,omitempty"`
}

// waiting answers whether the delivery waits for an attempt.
func (d *Delivery) waiting() bool { return d.State == StateQueued || d.State == StateAttempted }

// open answers whether something is still to happen to the delivery.
func (d *Delivery) open() bool { return d.ClosedAt.IsZero() }

// through answers whether what comes after the delivery may go.
func (d *Delivery) through() bool { return !d.waiting() && d.State != StateFailed }

// barrier answers whether the delivery has the endpoint to itself: the word that another
// generation is read now.
func (d *Delivery) barrier() bool { return d.Type == TypeSwitched }

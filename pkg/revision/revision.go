// Package revision answers what a window's result is to a reader: a numbered revision
// with its predecessor, published as JSON (schema revision.v1).
package revision

import (
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// Digest is a SHA-256 digest; its text form is lowercase hex.
type Digest [32]byte

// Window is a half-open interval of event time [Start, End).
type Window struct {
	Start envelope.EventTime `json:"start"`
	End   envelope.EventTime `json:"end"`
}

// Op says what a revision does to the current row.
type Op string

// Ops. A window left empty is retracted.
const (
	Upsert  Op = "UPSERT"
	Retract Op = "RETRACT"
)

// OutputState is where a window's output stands.
type OutputState string

// Output states. Finalized is never stored: it follows from the committed watermark
// (W >= end + L) and means that the live path is done, not that reality cannot change.
const (
	Open          OutputState = "OPEN"
	OnTimeEmitted OutputState = "ON_TIME_EMITTED"
	Corrected     OutputState = "CORRECTED"
	Finalized     OutputState = "FINALIZED"
)

// Firing says why the revision was made.
type Firing string

// Firings.
const (
	FiringOnTime   Firing = "ON_TIME"  // first crossing of the window's end
	FiringLate     Firing = "LATE"     // a correction, or a window first created after its end
	FiringReopened Firing = "REOPENED" // handed back by the reconciler
)

// Field is one named aggregate in a revision's value or delta. Text is what stands in
// JSON; Quoted tells a decimal string or text ("12930.50") from an integer (412).
type Field struct {
	Name   string
	Text   string
	Quoted bool
}

// String answers name=text, as people read it.
func (f Field) String() string { return f.Name + "=" + f.Text }

// Predecessor names the revision that this one replaces.
type Predecessor struct {
	Revision uint64
	Digest   Digest
}

// OffsetRange is the range of source offsets that went into a window from one source partition.
type OffsetRange struct {
	Source    string
	Partition uint32
	First     uint64
	Last      uint64
}

// Inputs names what went into a window.
type Inputs struct {
	Partition int    // key partition of the events journal
	First     uint64 // journal sequences of the first and last frame with a member
	Last      uint64
	Events    uint64        // members counted now
	IDDigest  [16]byte      // sum of member id hashes, big-endian (design: identities)
	Offsets   []OffsetRange // sorted by source, partition; nil above the declared number of source partitions
}

// Watermark holds W and Wdata when the revision was made.
type Watermark struct {
	At   envelope.EventTime
	Data envelope.EventTime
}

// Supersession names a projection that a merge or split replaces.
type Supersession struct {
	ProjectionID string
	Revision     uint64
}

// Revision is the public contract (schema revision.v1). Its digest covers everything
// but Epoch, TraceParent and Watermark.
type Revision struct {
	Stream           string
	Job              string
	PolicyGeneration string
	PolicyDigest     string
	Key              string
	Window           Window
	LogicalWindowID  string
	ProjectionID     string
	ResultID         string // sessions only

	Op              Op
	Revision        uint64       // from 1
	Predecessor     *Predecessor // nil for revision 1
	State           OutputState
	Firing          Firing
	Origin          envelope.Origin
	ValueChanged    bool
	Value           []Field // sorted by name; empty for RETRACT
	Delta           []Field // sorted by name
	Inputs          Inputs
	AggregateDigest Digest // of Value
	Watermark       Watermark
	Cause           string // ON_TIME, LATE_EVENT, LATE_WINDOW, RETRACTION, REOPENED
	Supersedes      []Supersession
	SupersededBy    string

	Epoch       uint64 // of the projector that had it accepted: attempt.epoch
	TraceParent string
}

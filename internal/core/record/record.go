// Package record is the content of a windows journal: what the windower says about an
// events journal, in one deterministic encoding. The bytes of a record are a pure
// function of the events journal; epochs, commit times and message boundaries never
// enter them.
//
// A record is its kind in one byte and a protobuf message of pkg/schema/journal.proto.
// Fields stand in ascending order, zero values are left out, so one content has one
// encoding.
package record

import (
	"github.com/tidemark-mesh/tidemark/internal/core/identity"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Kind tells records apart; it is the first byte of an encoded record.
type Kind byte

// Kinds of records.
const (
	KindProposal Kind = 1 // a revision proposed for acceptance
	KindLate     Kind = 2 // an (event, window) pair that was TOO_LATE
	KindConflict Kind = 3 // an event whose id is taken by another payload
	KindRefused  Kind = 4 // answer to a REOPEN that changed nothing
)

// Place is where a record of the events journal stands.
type Place struct {
	Seq   uint64
	Index uint32
}

// EventRef names one event and where it stands.
type EventRef struct {
	Source          string
	ID              string
	Key             string
	SourcePartition uint32
	SourceOffset    uint64
	EventTime       envelope.EventTime
	Digest          [32]byte
	Op              envelope.Op
	Withdraws       string // retractions: the id of the target
	Place           Place
}

// Late is a refused (event, window) pair; the reconciler owes it a disposition.
type Late struct {
	Event  EventRef
	Window revision.Window
	W      envelope.EventTime // the watermark that made it too late
	None   bool               // no window took the event
}

// Conflict is an event that was refused because its id is taken.
type Conflict struct {
	Event EventRef
	Rule  string   // other-digest, second-retraction, retract-digest, withdrawn-id
	First [16]byte // first 16 bytes of the digest of the event that stays
}

// Why a REOPEN was refused.
const (
	RefusedEpoch    = "epoch"    // a reconciler of a higher epoch was seen
	RefusedReopened = "reopened" // the key had a REOPEN behind AsOf
	RefusedStale    = "stale"    // ingestNow moved 60 s or more since AsOf
	RefusedParts    = "parts"    // a part is missing, or not what follows
)

// Refused answers a REOPEN: it changed nothing, and its author starts again.
type Refused struct {
	Key   string
	Epoch uint64 // of the REOPEN
	AsOf  Place  // of the REOPEN
	Why   string
}

// Record is one decoded record: exactly one of the pointers is set.
type Record struct {
	// Proposal lacks what Static.Fill sets: stream, job, generation and its digest,
	// both ids and the aggregateDigest; and what only acceptance adds: epoch and traceparent.
	Proposal *revision.Revision
	Digest   revision.Digest // of the Proposal, as its author computed it
	Late     *Late
	Conflict *Conflict
	Refused  *Refused
}

// Static is what all proposals of one windows journal have in common; records leave it out.
type Static struct {
	Stream           string
	Job              string
	PolicyGeneration string // "<job>@<gen>"
	PolicyDigest     string
}

// Fill sets the fields of a decoded proposal that follow from s and from the proposal
// itself. Afterwards r.ComputeDigest must answer the digest carried by the record;
// anything else is damage.
func (s *Static) Fill(r *revision.Revision) {
	r.Stream, r.Job = s.Stream, s.Job
	r.PolicyGeneration, r.PolicyDigest = s.PolicyGeneration, s.PolicyDigest

	r.LogicalWindowID = identity.LogicalWindow(s.Stream, r.Key, r.Window.Start, r.Window.End)
	r.ProjectionID = identity.Projection(r.LogicalWindowID, s.PolicyGeneration)
	r.AggregateDigest = revision.ValueDigest(r.Value)
}

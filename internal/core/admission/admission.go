// Package admission decides what happens to one incoming event: accepted, or
// quarantined with one reason. Pure: arrival time is an argument.
package admission

import (
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// Reason is why an event is quarantined.
type Reason string

// Reasons (design: "Envelope").
const (
	MalformedJSON       Reason = "malformed-json"
	DuplicateField      Reason = "duplicate-field"
	TooLarge            Reason = "too-large"
	TooDeep             Reason = "too-deep"
	MissingID           Reason = "missing-id"
	MissingKey          Reason = "missing-key"
	KeyTooLong          Reason = "key-too-long"
	MissingEventTime    Reason = "missing-event-time"
	EventTimeFormat     Reason = "event-time-format"
	EventTimeOutOfRange Reason = "event-time-out-of-range"
	ValueFormat         Reason = "value-format"
	ValuePrecision      Reason = "value-precision"
	SchemaGeneration    Reason = "schema-generation"
	UnknownPartition    Reason = "unknown-partition"
	RetractNotAllowed   Reason = "retract-not-allowed"
	RetractTarget       Reason = "retract-target"
	IDConflict          Reason = "id-conflict" // given by the windower only
)

// Refusal is why one event was not accepted.
type Refusal struct {
	Reason Reason
	Rule   string // what exactly, in words: "value amount at /order/amount: 12.505 has more than 2 decimals"
}

// Item is one incoming event as the transport gives it.
type Item struct {
	Format Format
	Bytes  []byte            // the exact bytes
	Header map[string]string // CloudEvents attributes of a binary-mode request (names without ce-, lower case)
	Source string            // of the request; what stands in a CloudEvent must not differ from it
	IDPath string            // JSON Pointer to the id in plain records; "" = /id
}

// Format says how Item.Bytes are to be read.
type Format uint8

// Formats.
const (
	Plain      Format = 1 // the bytes are the event's data (JSON); id at IDPath, source from the request
	CloudEvent Format = 2 // structured mode: one CloudEvents 1.0 JSON object
	Binary     Format = 3 // binary mode: attributes in Header, data in Bytes
)

// Admitter decides events of one business stream. Not safe for concurrent use: it
// reuses buffers.
type Admitter struct{}

// New answers an Admitter for the stream. allowed answers whether a (source, partition)
// belongs to an applied policy.
func New(bs *policy.BusinessStream) *Admitter { panic("contract only") }

// Frame answers the extractor and value names that Times and Values of decided events
// are aligned with.
func (a *Admitter) Frame() (extractors, values []string) { panic("contract only") }

// Decide answers the event, or why it is refused. partition is the source partition of
// the request; now is the arrival time. Offset, generation and IngestTime are set by the
// caller. The event's strings and Data may alias it.Bytes and stay valid as long as that.
func (a *Admitter) Decide(it Item, partition uint32, now envelope.IngestTime, ev *envelope.Event) *Refusal {
	panic("contract only")
}

// KeyPartition answers FNV-1a-32(key) mod partitions.
func KeyPartition(key string, partitions int) int { panic("contract only") }

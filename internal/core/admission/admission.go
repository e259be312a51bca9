// Package admission decides what happens to one incoming event: accepted, or
// quarantined with one reason. Pure: arrival time is an argument.
//
// An event that has several faults is refused for the first of this list:
//
//  1. too-large: more bytes than the stream's maxEventBytes (exactly as many is fine).
//  2. too-deep, malformed-json: whichever the strict reader meets first. malformed-json
//     also covers CloudEvents whose attributes are not what the specification or this
//     design allows (specversion, source or type missing, an unknown op or origin, an
//     attribute of the wrong type), data that is declared not to be JSON, and an id or
//     another attribute longer than envelope.MaxAttribute bytes.
//  3. duplicate-field: a member name twice in an object, case set aside.
//  4. missing-id.
//  5. schema-generation: a dataschema that is not the stream's schemaGeneration.
//  6. unknown-partition: the event states another source or source partition than the
//     request it came in, or there is no source at all.
//  7. missing-key, key-too-long.
//  8. missing-event-time, event-time-format, event-time-out-of-range: extractor by
//     extractor, in order of their names.
//  9. value-format, value-precision: value by value, in order of their names.
//  10. retract-not-allowed, retract-target.
package admission

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

// Reasons answers every reason.
func Reasons() []Reason {
	return []Reason{
		MalformedJSON, DuplicateField, TooLarge, TooDeep, MissingID, MissingKey, KeyTooLong, MissingEventTime, EventTimeFormat,
		EventTimeOutOfRange, ValueFormat, ValuePrecision, SchemaGeneration, UnknownPartition, RetractNotAllowed, RetractTarget, IDConflict,
	}
}

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

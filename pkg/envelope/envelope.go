// Package envelope answers what an event is on the wire: CloudEvents 1.0 at the door,
// frames of many records in the events journal.
package envelope

// Op says whether an event asserts a fact or withdraws one.
type Op uint8

// The two operations; an event without an op asserts.
const (
	Assert  Op = 0
	Retract Op = 1
)

// Origin says how live the way was on which an event came in. A larger value is less
// live; a revision carries the largest among the events since its predecessor.
type Origin uint8

// Origins, from the most to the least live.
const (
	OriginLive     Origin = 0
	OriginReplay   Origin = 1
	OriginBackfill Origin = 2
	OriginRepair   Origin = 3
)

// Value is one declared value of an event. Int holds integers as they are and decimals
// scaled by the declared scale (12.50 at scale 2 is 1250); Text holds strings. Which
// of the two counts is declared by the business stream, not repeated here.
type Value struct {
	Int  int64
	Text string
}

// Event is one accepted event as it stands in the events journal.
//
// Strings and slices of a decoded Event alias the frame it was decoded from: keep a
// clone (strings.Clone) of what must outlive the frame.
type Event struct {
	ID      string // identity together with Source, as in CloudEvents
	Source  string
	Type    string // CloudEvents type, informational
	Subject string // CloudEvents subject, informational

	Key                 string // joined key, 1 to 256 bytes
	SourcePartition     uint32
	SourceOffset        uint64 // push and file sources: epoch<<32 | n, n from 1 without holes
	PartitionGeneration uint64

	Times  []EventTime // one per extractor of the frame, same order
	Values []Value     // one per value name of the frame, same order

	Digest      [32]byte // SHA-256 of the canonical form of Data
	Op          Op
	Origin      Origin
	Withdraws   string // id of the withdrawn event (same source), only with Op Retract
	IngestTime  IngestTime
	DataSchema  string
	TraceParent string
	Data        []byte // the event's data exactly as it came in (JSON)
}

// Mark is a fact about one source partition, written into every key partition's events
// journal after all events up to Offset are durable (design: "Source partitions and marks").
type Mark struct {
	Source     string
	Partition  uint32
	Epoch      uint64
	Generation uint64
	Offset     uint64 // all events up to here are durable; 0 = none yet

	// MaxEventTime holds, per extractor of the frame and in its order, the highest
	// event time among accepted events up to Offset; MinEventTime where there is none.
	MaxEventTime []EventTime

	Pending    uint64 // arrived, not yet accepted
	InFlight   uint64 // accepted, not yet acknowledged
	Paused     bool
	QuietForMs uint64 // monotonic milliseconds since the last arrival
	Finished   bool
	IngestNow  IngestTime
	Writer     string // the ingest process
	Frames     uint64 // every frame of Writer up to this number is acknowledged in this journal
}

// Gap is an operator's word that frames of a writer are lost for good.
type Gap struct {
	Writer string
	First  uint64
	Last   uint64 // inclusive
	Reason string
}

// Record is one record of a frame: exactly one field is set.
type Record struct {
	Event  *Event
	Mark   *Mark
	Gap    *Gap
	Reopen []byte // opaque here; written by the reconciler
}

// Frame is one message of an events journal: many records of one writer.
type Frame struct {
	Writer     string   // the ingest process that wrote it
	Number     uint64   // 1, 2, 3… per writer and key partition
	Extractors []string // names of the extractors that Times and MaxEventTime hold, sorted
	Values     []string // names of the declared values that Values holds, sorted
	Records    []Record
}

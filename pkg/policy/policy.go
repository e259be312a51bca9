// Package policy answers what a user asked for: the documents of Tidemark, parsed,
// checked and given a digest.
package policy

import "github.com/tidemark-mesh/tidemark/pkg/envelope"

// APIVersion is the version every document states.
const APIVersion = "tidemark/v1"

// ValueType is the declared type of a value.
type ValueType string

// Value types. Decimals are exact: an int64 scaled by 10^Scale.
const (
	Decimal ValueType = "decimal"
	Int     ValueType = "int"
	String  ValueType = "string"
)

// ValueSpec declares one value that aggregates may use.
type ValueSpec struct {
	Name  string
	Path  string // JSON Pointer into the event's data
	Type  ValueType
	Scale int // decimals only: digits after the point, 0 to 18
}

// TimeFormat says how an event time is written.
type TimeFormat string

// Time formats.
const (
	RFC3339 TimeFormat = "rfc3339"
	UnixS   TimeFormat = "unix-s"
	UnixMs  TimeFormat = "unix-ms"
	UnixUs  TimeFormat = "unix-us"
)

// Extractor says where the event time stands; Name carries its version (order.occurred_at@2).
type Extractor struct {
	Name   string
	Path   string // JSON Pointer into the event's data
	Format TimeFormat
}

// BusinessStream is one named flow of events.
type BusinessStream struct {
	Name             string
	Partitions       int         // key partitions, 1 to 99, fixed for life
	Key              []string    // JSON Pointers into the event's data; parts are joined by "/"
	Values           []ValueSpec // sorted by name
	Extractors       []Extractor // sorted by name
	MaxFuture        Duration    // an event time later than arrival + MaxFuture is quarantined
	NotBefore        envelope.EventTime
	SchemaGeneration int
	Retractions      bool
	MaxEventBytes    int64
}

// SourceRef names a source of a policy and its number of source partitions (0..Partitions-1).
type SourceRef struct {
	Name       string
	Partitions int
}

// WindowKind is the shape of windows.
type WindowKind string

// Window kinds.
const (
	Tumbling WindowKind = "tumbling"
	Hopping  WindowKind = "hopping"
	Session  WindowKind = "session"
	Calendar WindowKind = "calendar"
)

// WindowSpec describes the windows of a policy.
type WindowSpec struct {
	Kind     WindowKind
	Size     Duration // tumbling, hopping
	Every    Duration // hopping
	Offset   Duration // tumbling, hopping; may be negative, |Offset| < Size
	Gap      Duration // session
	Rule     string   // session: name of the rule version
	Calendar string   // calendar: day, week or month
	Zone     string   // IANA zone; UTC by default
}

// AggregateSpec is one named result of a window.
type AggregateSpec struct {
	Name  string // name in the result
	Func  string // sum, count, min, max, avg, first, last, distinct
	Arg   string // name of a declared value; empty for count
	Limit int64  // distinct: how many values a window may hold, 1 to MaxDistinct; else 0
}

// AllIdle says what happens to the watermark when every unfinished source partition is idle.
type AllIdle string

// Choices of AllIdle.
const (
	Hold    AllIdle = "hold"
	Advance AllIdle = "advance"
)

// StreamTimePolicy is one generation of a job: how time and windows are computed on a
// business stream. A generation is immutable.
type StreamTimePolicy struct {
	Stream          string
	Job             string
	Generation      int
	Sources         []SourceRef // in the order written
	Extractor       string      // name of an extractor of the stream
	OutOfOrderness  Duration    // D
	IdleAfter       Duration    // T; 0 = idleness is off
	AllIdle         AllIdle
	Window          WindowSpec
	Aggregates      []AggregateSpec // sorted by name
	Early           Duration        // 0 = no previews
	AllowedLateness Duration        // L
	Late            string          // rebuild, manual, deadLetter
	RetainIDs       Duration
	RetainRaw       Duration // 0 = unlimited
	CorrectionMode  string
	RebuildLimit    int64 // events that one rebuild may read before an operator is asked
	TopologyChange  bool  // source partition counts may differ from the previous generation's
}

// PolicyGeneration answers "<job>@<gen>".
func (p *StreamTimePolicy) PolicyGeneration() string { return PolicyGeneration(p.Job, p.Generation) }

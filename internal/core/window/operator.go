package window

import (
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Operator is the state machine of one (policy generation, key partition).
type Operator struct{}

// Config is what an Operator is a function of, beside the journal.
type Config struct {
	Stream       *policy.BusinessStream
	Policy       *policy.StreamTimePolicy
	PolicyDigest string // of the policy document
	Partition    int    // key partition
}

// New answers an empty Operator, or an error when the policy needs what this version
// of the core cannot do.
func New(cfg Config) (*Operator, error) { panic("contract only") }

// BeginFrame tells the operator which frame the next records stand in: seq is the
// journal sequence. It answers false when the frame must be skipped because its number
// was had before (a resend after a lost acknowledgement).
func (o *Operator) BeginFrame(seq uint64, f *envelope.Frame) (fresh bool) { panic("contract only") }

// Apply takes in record index of the current frame. An error halts the partition: it
// means damage or an overflow and carries what an operator needs to know.
func (o *Operator) Apply(index int, r *envelope.Record) error { panic("contract only") }

// ApplyEvent is Apply for an event, without a Record around it.
func (o *Operator) ApplyEvent(index int, ev *envelope.Event) error { panic("contract only") }

// Next appends the next output of the record applied last to buf, or answers false.
func (o *Operator) Next(buf []byte) (out []byte, more bool) { panic("contract only") }

// EndFrame closes the current frame: the position moves to the next journal message.
func (o *Operator) EndFrame() { panic("contract only") }

// Position answers how far the operator is: Stream and Created are left empty.
func (o *Operator) Position() revision.InputPosition { panic("contract only") }

// Totals answers the cumulative numbers for a COMMIT at the current position: W and
// Wdata are those of the last mark all of whose outputs were taken. Counts has the
// names of Count* below, sorted.
func (o *Operator) Totals() (w, wdata envelope.EventTime, counts []revision.Count, idDigest [16]byte) {
	panic("contract only")
}

// Names of counts in a COMMIT, over records of the events journal seen by this operator.
const (
	CountApplied   = "applied"   // events that at least one window took (withdrawn ones included)
	CountTooLate   = "tooLate"   // events that no window took
	CountRefused   = "refused"   // (event, window) pairs that were TOO_LATE
	CountDuplicate = "duplicate" // same id and digest again
	CountConflict  = "conflict"
	CountForeign   = "foreign" // source not in the policy
	CountOnTime    = "onTime"  // (event, window) pairs
	CountLate      = "lateAccepted"
	CountNoTime    = "noTime" // events older than the policy's extractor
	CountRevisions = "revisions"
)

// Snapshot support: Mark the state as it is now and answer what changed since the last
// Delta, as key-value pairs to be written in one transaction. A nil value deletes.
// The first Delta of a fresh operator holds everything.
func (o *Operator) Delta(put func(key, value []byte) error) error { panic("contract only") }

// Restore answers an Operator from all key-value pairs that Deltas left behind, in any order.
func Restore(cfg Config, each func(yield func(key, value []byte) error) error) (*Operator, error) {
	panic("contract only")
}

// PartitionStatus is what explain and metrics show of one source partition.
type PartitionStatus struct {
	Source       string             `json:"source"`
	Partition    uint32             `json:"partition"`
	Status       string             `json:"status"` // absent, active, idle, silent, catching-up, finished
	MaxEventTime envelope.EventTime `json:"maxEventTime"`
	Watermark    envelope.EventTime `json:"watermark"` // W_p
	Epoch        uint64             `json:"epoch"`
	Generation   uint64             `json:"generation"`
	Offset       uint64             `json:"offset"`
	QuietForMs   uint64             `json:"quietForMs"`
	Holds        bool               `json:"holds"` // W is what it is because of this partition
}

// Status answers W, Wdata and every source partition of the policy, in policy order.
func (o *Operator) Status() (w, wdata envelope.EventTime, partitions []PartitionStatus) {
	panic("contract only")
}

// OpenWindow is what explain shows of a window that the operator holds.
type OpenWindow struct {
	Key      string               `json:"key"`
	Window   revision.Window      `json:"window"`
	Events   uint64               `json:"events"`
	Revision uint64               `json:"revision"` // 0 = never fired
	Dirty    bool                 `json:"dirty"`    // a correction waits for the next mark
	State    revision.OutputState `json:"state"`
}

// Find answers the window of key that holds t, if the operator holds it.
func (o *Operator) Find(key string, t envelope.EventTime) (OpenWindow, bool) { panic("contract only") }

// Sizes answers the numbers of windows, ids and keys held.
func (o *Operator) Sizes() (windows, ids, keys int) { panic("contract only") }

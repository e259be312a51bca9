package window

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tidemark-mesh/tidemark/internal/core/aggregate"
	"github.com/tidemark-mesh/tidemark/internal/core/identity"
	"github.com/tidemark-mesh/tidemark/internal/core/watermark"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// CoreVersion is raised whenever the pure core could produce other records from the
// same journal. A generation pins it at its first apply.
const CoreVersion = 1

// maxRangedPartitions is the number of source partitions of a policy above which
// revisions carry no offset ranges.
const maxRangedPartitions = 16

// Operator is the state machine of one (policy generation, key partition).
type Operator struct {
	cfg      Config
	grid     assigner
	lateness int64 // L
	program  []aggregate.Compiled
	argument []int          // per result: place of its value in the open frame's Values, or -1
	sources  map[string]int // source to the place of its partition 0 in ranges, or 0
	counts   map[string]int // source to its number of partitions
	ranges   []revision.OffsetRange
	ranged   int // place in ranges of partition 0 of the source that was looked for last

	tracker *watermark.Tracker
	writers map[string]*writerFrames
	keys    *keyTable
	ids     idIndex
	panes   map[int64]*pane
	order   []*pane // by start, hence by end
	last    *pane   // of the last event
	dirty   int     // windows whose correction waits
	removed []removedPane

	epoch       uint64                 // the highest among the REOPENs
	reopens     map[string]*keyReopens // by key
	reopensGone []removedReopens

	sessions *sessions           // of a policy with session windows, else nil: there are no panes then
	now      envelope.IngestTime // the highest among the marks

	seq, nextIndex uint64 // the open frame (0 = none) and the record to come in it
	pos            revision.InputPosition
	frame          frameView
	source         string            // of the last event that was ours
	windows        []revision.Window // of the last event

	w, data  envelope.EventTime // of the last mark whose outputs were all taken
	totals   totals
	idDigest [16]byte

	in     aggregate.Input // of the event that is taken in or out
	out    outputs         // of an event or a REOPEN, not yet taken
	plan   firePlan
	early  early
	failed error

	trackerChanged bool
	scratch        revision.Revision // of fireNext: its slices are used again
}

// Config is what an Operator is a function of, beside the journal.
type Config struct {
	Stream       *policy.BusinessStream
	Policy       *policy.StreamTimePolicy
	PolicyDigest string // of the policy document
	Partition    int    // key partition
}

// frameView is what the open frame's header says for this policy.
type frameView struct {
	writer     string
	extractors []string
	values     []string
	time       int // place of the policy's extractor, or -1
}

// New answers an empty Operator, or an error when the policy needs what this version
// of the core cannot do.
func New(cfg Config) (*Operator, error) {
	p := cfg.Policy
	grid, err := newAssigner(p.Window)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", p.PolicyGeneration(), err)
	}
	program, err := aggregate.Compile(cfg.Stream, p)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", p.PolicyGeneration(), err)
	}
	keys := newKeyTable()
	o := &Operator{
		cfg: cfg, grid: grid, lateness: int64(p.AllowedLateness),
		program: program, tracker: watermark.New(p), writers: make(map[string]*writerFrames),
		keys: &keys, ids: newIDIndex(int64(p.RetainIDs), &keys), panes: make(map[int64]*pane),
		now: math.MinInt64, early: early{every: int64(p.Early)}, reopens: make(map[string]*keyReopens),
		pos: revision.InputPosition{Seq: 1}, w: envelope.MinEventTime, data: envelope.MinEventTime,
		argument: make([]int, len(program)), trackerChanged: true,
	}
	o.setSources(p.Sources)
	if p.Window.Kind == policy.Session {
		if o.sessions, err = newSessions(o); err != nil {
			return nil, fmt.Errorf("policy %s: %w", p.PolicyGeneration(), err)
		}
	}
	return o, nil
}

// setSources lays out the offset ranges: by source, then partition, as revisions show them.
func (o *Operator) setSources(refs []policy.SourceRef) {
	o.sources, o.counts = make(map[string]int, len(refs)), make(map[string]int, len(refs))
	refs = slices.Clone(refs)
	slices.SortFunc(refs, func(a, b policy.SourceRef) int { return strings.Compare(a.Name, b.Name) })
	total := 0
	for _, s := range refs {
		o.sources[s.Name], o.counts[s.Name] = total, s.Partitions
		total += s.Partitions
	}
	if total > maxRangedPartitions {
		return
	}
	for _, s := range refs {
		for n := range s.Partitions {
			o.ranges = append(o.ranges, revision.OffsetRange{Source: s.Name, Partition: uint32(n)})
		}
	}
}

// BeginFrame tells the operator which frame the next records stand in: seq is the
// journal sequence. It answers false when the frame must be skipped: its number was had
// before (a resend after a lost acknowledgement), or the position is past it. After
// Restore, BeginFrame of the frame in which the position stands answers true, and
// Apply goes on at Position().Index.
func (o *Operator) BeginFrame(seq uint64, f *envelope.Frame) (fresh bool) {
	if o.failed != nil {
		return true // Apply answers why
	}
	again := seq == o.seq && o.seq != 0
	switch {
	case again:
	case seq < o.pos.Seq:
		return false
	case o.seq != 0:
		o.failed = fmt.Errorf("frame at sequence %d begins before the frame at %d was ended", seq, o.seq)
		return true
	case f.Writer == "":
	case f.Number == 0:
		o.failed = fmt.Errorf("events journal %s/%02d, sequence %d: the frame of writer %s has no number: the journal is damaged", o.cfg.Policy.Stream, o.cfg.Partition, seq, f.Writer)
		return true
	default:
		w := o.writer(f.Writer)
		if w.had.has(f.Number) {
			o.pos = revision.InputPosition{Seq: seq + 1}
			return false
		}
		w.had, w.changed = w.had.with(span{f.Number, f.Number}), true
	}
	if !again {
		o.seq, o.nextIndex = seq, 0
		o.pos = revision.InputPosition{Seq: seq}
	}
	o.view(f)
	return true
}

// view finds the policy's names in the frame's header, unless it is the last header again.
func (o *Operator) view(f *envelope.Frame) {
	o.frame.writer = f.Writer
	if slices.Equal(o.frame.extractors, f.Extractors) && slices.Equal(o.frame.values, f.Values) && o.frame.extractors != nil {
		return
	}
	o.frame.extractors, o.frame.values = cloneStrings(f.Extractors), cloneStrings(f.Values)
	o.frame.time = slices.Index(f.Extractors, o.cfg.Policy.Extractor)
	for i := range o.program {
		o.argument[i] = slices.Index(o.frame.values, o.program[i].Arg)
	}
	if o.sessions != nil {
		o.sessions.view(o.frame.values)
	}
}

// Apply takes in record index of the current frame. An error halts the partition: it
// means damage or an overflow and carries what an operator needs to know. The record
// that failed is not taken in, and no later one will be, but for a *MissingFramesError.
func (o *Operator) Apply(index int, r *envelope.Record) error {
	switch {
	case r.Event != nil:
		return o.ApplyEvent(index, r.Event)
	case r.Mark != nil:
		return o.apply(index, func() error { return o.applyMark(r.Mark) })
	case r.Gap != nil:
		return o.apply(index, func() error { return o.applyGap(r.Gap) })
	case r.Reopen != nil:
		return o.apply(index, func() error { return o.applyReopen(r.Reopen) })
	}
	return o.apply(index, func() error {
		return fmt.Errorf("sequence %d, record %d holds nothing: the journal is damaged", o.seq, index)
	})
}

// ApplyEvent is Apply for an event, without a Record around it.
func (o *Operator) ApplyEvent(index int, ev *envelope.Event) error {
	if err := o.ready(index); err != nil {
		return err
	}
	if err := o.judge(ev); err != nil {
		o.failed = err
		return err
	}
	o.passed()
	return nil
}

func (o *Operator) apply(index int, take func() error) error {
	if err := o.ready(index); err != nil {
		return err
	}
	if err := take(); err != nil {
		if missing := new(MissingFramesError); !errors.As(err, &missing) {
			o.failed = err
		}
		return err
	}
	o.passed()
	return nil
}

// ready checks that the host keeps to the protocol.
func (o *Operator) ready(index int) error {
	switch {
	case o.failed != nil:
		return o.failed
	case o.seq == 0:
		return fmt.Errorf("record %d is applied outside a frame", index)
	case o.pending():
		return fmt.Errorf("sequence %d: record %d is applied before the outputs of the one before it were taken", o.seq, index)
	case uint64(index) != o.nextIndex:
		return fmt.Errorf("sequence %d: record %d is applied, but record %d is next", o.seq, index, o.nextIndex)
	}
	return nil
}

// passed moves the position past the record, unless outputs wait to be taken.
func (o *Operator) passed() {
	if !o.pending() {
		o.nextIndex++
		o.pos.Index, o.pos.Outputs = uint32(o.nextIndex), 0
	}
}

func (o *Operator) pending() bool { return o.out.wait() || o.plan.active }

// Next appends the next output of the record applied last to buf, or answers false.
func (o *Operator) Next(buf []byte) (out []byte, more bool) {
	switch {
	case o.out.wait():
		buf = o.out.take(buf)
	case o.plan.active && o.sessions != nil:
		if o.failed != nil { // the next group could not be made
			return buf, false
		}
		buf = o.sessions.next(buf)
	case o.plan.active:
		if buf = o.fireNext(buf); o.failed != nil {
			return buf, false
		}
	default:
		return buf, false
	}
	o.pos.Outputs++
	o.passed()
	return buf, true
}

// EndFrame closes the current frame: the position moves to the next journal message.
func (o *Operator) EndFrame() {
	if o.seq == 0 || o.failed != nil || o.pending() {
		return
	}
	o.pos = revision.InputPosition{Seq: o.seq + 1}
	o.seq, o.nextIndex = 0, 0
}

// Position answers how far the operator is: Stream and Created are left empty.
func (o *Operator) Position() revision.InputPosition { return o.pos }

// Totals answers the cumulative numbers for a COMMIT at the current position: W and
// Wdata are those of the last mark all of whose outputs were taken. Counts has the
// names of Count* below, sorted.
func (o *Operator) Totals() (w, wdata envelope.EventTime, counts []revision.Count, idDigest [16]byte) {
	return o.w, o.data, o.totals.list(), o.idDigest
}

// addID adds one applied event to the total.
func (o *Operator) addID(hash [16]byte) { o.idDigest = identity.Sum128(o.idDigest, hash) }

// outputs are encoded records that wait to be taken, one behind the other.
type outputs struct {
	bytes []byte
	ends  []int // where each ends
	taken int   // how many were taken
}

// put adds a record: bytes are those of before with the record appended.
func (o *outputs) put(bytes []byte) {
	o.bytes, o.ends = bytes, append(o.ends, len(bytes))
}

func (o *outputs) wait() bool { return len(o.ends) > 0 }

// take appends the first record that waits to buf.
func (o *outputs) take(buf []byte) []byte {
	from := 0
	if o.taken > 0 {
		from = o.ends[o.taken-1]
	}
	buf = append(buf, o.bytes[from:o.ends[o.taken]]...)
	if o.taken++; o.taken == len(o.ends) {
		o.bytes, o.ends, o.taken = o.bytes[:0], o.ends[:0], 0
	}
	return buf
}

func cloneString(s string) string { return strings.Clone(s) }

func cloneStrings(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strings.Clone(s)
	}
	return out
}

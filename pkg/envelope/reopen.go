package envelope

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Bounds of a Reopen on the wire.
const (
	MaxReopenBytes = 1 << 20 // of one part; reconcilers cut at 512 KiB of state
	MaxReopenParts = 1024
	maxReopenKey   = 256
)

// Reopen hands a stretch of one key back to the windower: what the reconciler writes into
// the body of a frame's reopen record.
//
// It may travel in numbered parts that stand in the journal one after another: they agree
// in all but the four lists, and JoinReopen answers what they mean together.
type Reopen struct {
	PolicyGeneration string // job@generation; the operators of others ignore it
	Key              string
	Epoch            uint64      // of the reconciler that wrote it
	AsOf             ReopenPlace // events position of the last windows COMMIT that the projector had covered
	AsOfNow          IngestTime  // the highest ingestNow among the marks before AsOf
	Part, Parts      uint32      // counted from 1; both 0 for a single one

	Restore   []ReopenWindow    // all published windows that Add and Withdraw touch; they were final at AsOf
	Retracted []ReopenRetracted // last numbers of retracted windows in the same stretch
	Add       []ReopenEvent     // events that were TOO_LATE
	Withdraw  []ReopenEvent     // retractions that were TOO_LATE, each with its own id
}

// ReopenPlace is a position in the events journal: the records before record Index of
// message Seq were taken in.
type ReopenPlace struct {
	Seq   uint64
	Index uint32
}

// Before tells whether the record at (seq, index) stands behind the position.
func (p ReopenPlace) Before(seq uint64, index uint32) bool {
	return p.Seq < seq || p.Seq == seq && p.Index <= index
}

// ReopenWindow is a window as it was last published by an UPSERT. One with Revision 0, at
// the head of a later part, continues the members of the last window of the part before
// it; it has bounds and members only.
type ReopenWindow struct {
	Start, End  EventTime
	Revision    uint64
	Digest      [32]byte // of that revision
	FirstLate   bool     // revision 1 had firing LATE
	Value       []ReopenField
	First, Last uint64 // sequences of the events journal, as in inputs
	Offsets     []ReopenOffsets
	Events      uint64
	IDDigest    [16]byte
	State       [][]byte // of each aggregate, in policy order; none for sessions

	// Members holds all members of a session. Of another window it holds those of the
	// events in Add, and of the targets in Withdraw, that the window has already.
	Members []ReopenEvent
}

// ReopenField is one named result.
type ReopenField struct {
	Name, Text string
	Quoted     bool // a JSON string, else an integer
}

// ReopenOffsets is the range of offsets of one source partition that went into a window.
type ReopenOffsets struct {
	Source      string
	Partition   uint32
	First, Last uint64
}

// ReopenRetracted is the last revision of a window that is retracted.
type ReopenRetracted struct {
	Start, End EventTime
	Revision   uint64
	Digest     [32]byte
}

// ReopenEvent is an event as it stood in the journal. Values are aligned with the value
// names of the frame that the Reopen stands in.
type ReopenEvent struct {
	Source, ID      string
	Time            EventTime
	Digest          [32]byte // of the data
	Withdraws       string   // id of the target, of a retraction
	SourcePartition uint32
	SourceOffset    uint64
	Values          []Value
	Origin          Origin
	Seq             uint64 // place in the events journal
	Index           uint32

	// Refused is how many of the event's windows, from the earliest, it was TOO_LATE for:
	// only those it is taken into or out of. 0 is all of them; only hopping windows have
	// more than one.
	Refused uint32
}

// Field numbers of pkg/schema/frame.proto. Values have those that they have in an Event.
const (
	reopenGeneration, reopenKey, reopenEpoch, reopenAsOfSeq, reopenAsOfIndex, reopenAsOfNow = 1, 2, 3, 4, 5, 6
	reopenPart, reopenParts, reopenRestore, reopenRetracted, reopenAdd, reopenWithdraw      = 7, 8, 9, 10, 11, 12

	rwinStart, rwinEnd, rwinRevision, rwinDigest, rwinFirstLate, rwinValue             = 1, 2, 3, 4, 5, 6
	rwinFirst, rwinLast, rwinOffsets, rwinEvents, rwinIDDigest, rwinState              = 7, 8, 9, 10, 11, 12
	rwinMembers                                                                        = 13
	rfieldName, rfieldText, rfieldQuoted                                               = 1, 2, 3
	roffSource, roffPartition, roffFirst, roffLast                                     = 1, 2, 3, 4
	rretStart, rretEnd, rretRevision, rretDigest                                       = 1, 2, 3, 4
	reventSource, reventID, reventTime, reventDigest, reventWithdraws                  = 1, 2, 3, 4, 5
	reventPartition, reventOffset, reventOrigin, reventSeq, reventIndex, reventRefused = 6, 7, 10, 11, 12, 13
)

// AppendReopen appends the body of a reopen record. It fails, and appends nothing, if r
// could not be read back.
func AppendReopen(dst []byte, r *Reopen) ([]byte, error) {
	if err := r.validate(); err != nil {
		return dst, fmt.Errorf("reopen of key %q: %w", r.Key, err)
	}
	out := appendReopen(dst, r)
	if size := len(out) - len(dst); size > MaxReopenBytes {
		return dst, fmt.Errorf("reopen of key %q has %d bytes, at most %d fit: write it in numbered parts", r.Key, size, MaxReopenBytes)
	}
	return out, nil
}

func appendReopen(dst []byte, r *Reopen) []byte {
	dst = appendString(dst, reopenGeneration, r.PolicyGeneration)
	dst = appendString(dst, reopenKey, r.Key)
	dst = appendNumber(dst, reopenEpoch, r.Epoch)
	dst = appendNumber(dst, reopenAsOfSeq, r.AsOf.Seq)
	dst = appendNumber(dst, reopenAsOfIndex, uint64(r.AsOf.Index))
	dst = appendNumber(dst, reopenAsOfNow, zigzag(int64(r.AsOfNow)))
	dst = appendNumber(dst, reopenPart, uint64(r.Part))
	dst = appendNumber(dst, reopenParts, uint64(r.Parts))
	for i := range r.Restore {
		dst = appendNested(dst, reopenRestore, r.Restore[i].append)
	}
	for i := range r.Retracted {
		dst = appendNested(dst, reopenRetracted, r.Retracted[i].append)
	}
	for i := range r.Add {
		dst = appendNested(dst, reopenAdd, r.Add[i].append)
	}
	for i := range r.Withdraw {
		dst = appendNested(dst, reopenWithdraw, r.Withdraw[i].append)
	}
	return dst
}

// appendNested appends a message with the shortest length there is.
func appendNested(dst []byte, number int, body func([]byte) []byte) []byte {
	dst = appendTag(dst, number, wireBytes)
	start := len(dst)
	dst = body(dst)
	size := len(dst) - start
	n := varintLen(uint64(size))
	for range n {
		dst = append(dst, 0)
	}
	copy(dst[start+n:], dst[start:start+size])
	appendVarint(dst[:start], uint64(size))
	return dst
}

func (w *ReopenWindow) append(dst []byte) []byte {
	dst = appendNumber(dst, rwinStart, zigzag(int64(w.Start)))
	dst = appendNumber(dst, rwinEnd, zigzag(int64(w.End)))
	dst = appendNumber(dst, rwinRevision, w.Revision)
	dst = appendDigest(dst, rwinDigest, w.Digest[:])
	dst = appendNumber(dst, rwinFirstLate, truth(w.FirstLate))
	for i := range w.Value {
		dst = appendNested(dst, rwinValue, w.Value[i].append)
	}
	dst = appendNumber(dst, rwinFirst, w.First)
	dst = appendNumber(dst, rwinLast, w.Last)
	for i := range w.Offsets {
		dst = appendNested(dst, rwinOffsets, w.Offsets[i].append)
	}
	dst = appendNumber(dst, rwinEvents, w.Events)
	dst = appendDigest(dst, rwinIDDigest, w.IDDigest[:])
	for _, state := range w.State {
		dst = appendText(dst, rwinState, alias(state))
	}
	for i := range w.Members {
		dst = appendNested(dst, rwinMembers, w.Members[i].append)
	}
	return dst
}

func (f *ReopenField) append(dst []byte) []byte {
	dst = appendString(dst, rfieldName, f.Name)
	dst = appendString(dst, rfieldText, f.Text)
	return appendNumber(dst, rfieldQuoted, truth(f.Quoted))
}

func (o *ReopenOffsets) append(dst []byte) []byte {
	dst = appendString(dst, roffSource, o.Source)
	dst = appendNumber(dst, roffPartition, uint64(o.Partition))
	dst = appendNumber(dst, roffFirst, o.First)
	return appendNumber(dst, roffLast, o.Last)
}

func (r *ReopenRetracted) append(dst []byte) []byte {
	dst = appendNumber(dst, rretStart, zigzag(int64(r.Start)))
	dst = appendNumber(dst, rretEnd, zigzag(int64(r.End)))
	dst = appendNumber(dst, rretRevision, r.Revision)
	return appendDigest(dst, rretDigest, r.Digest[:])
}

func (e *ReopenEvent) append(dst []byte) []byte {
	dst = appendString(dst, reventSource, e.Source)
	dst = appendString(dst, reventID, e.ID)
	dst = appendNumber(dst, reventTime, zigzag(int64(e.Time)))
	dst = appendDigest(dst, reventDigest, e.Digest[:])
	dst = appendString(dst, reventWithdraws, e.Withdraws)
	dst = appendNumber(dst, reventPartition, uint64(e.SourcePartition))
	dst = appendNumber(dst, reventOffset, e.SourceOffset)
	dst = appendValues(dst, e.Values)
	dst = appendNumber(dst, reventOrigin, uint64(e.Origin))
	dst = appendNumber(dst, reventSeq, e.Seq)
	dst = appendNumber(dst, reventIndex, uint64(e.Index))
	return appendNumber(dst, reventRefused, uint64(e.Refused))
}

// appendDigest appends a digest; nothing for one of zeros only.
func appendDigest(dst []byte, number int, digest []byte) []byte {
	for _, b := range digest {
		if b != 0 {
			return appendText(dst, number, alias(digest))
		}
	}
	return dst
}

// ParseReopen reads the body of a reopen record. It is strict: only the bytes that
// AppendReopen writes for its answer are taken, so an unknown field is an error too. The
// answer owns its memory.
func ParseReopen(body []byte) (*Reopen, error) {
	if len(body) > MaxReopenBytes {
		return nil, fmt.Errorf("reopen has %d bytes, at most %d are allowed", len(body), MaxReopenBytes)
	}
	body = bytes.Clone(body)
	r := new(Reopen)
	if err := eachField(body, r.read); err != nil {
		return nil, fmt.Errorf("reopen is damaged, or a newer version wrote it: %w", err)
	}
	if err := r.validate(); err != nil {
		return nil, fmt.Errorf("reopen of key %q: %w", r.Key, err)
	}
	if !bytes.Equal(appendReopen(make([]byte, 0, len(body)), r), body) {
		return nil, fmt.Errorf("reopen of key %q is damaged: its fields are not in order, or one is written twice or in a longer form", r.Key)
	}
	return r, nil
}

// eachField hands the fields of a message to read, which answers false for one it does
// not take.
func eachField(body []byte, read func(f *field) bool) error {
	for pos := 0; pos < len(body); {
		f, next := readField(body, pos)
		if next < 0 {
			return fmt.Errorf("cut or malformed field near byte %d of %d", pos, len(body))
		}
		if !read(&f) {
			return fmt.Errorf("field %d near byte %d has a content or a wire type that it cannot have, or is unknown", f.field, pos)
		}
		pos = next
	}
	return nil
}

func (r *Reopen) read(f *field) bool {
	switch f.tag() {
	case reopenGeneration<<3 | wireBytes:
		r.PolicyGeneration = alias(f.body)
	case reopenKey<<3 | wireBytes:
		r.Key = alias(f.body)
	case reopenEpoch<<3 | wireVarint:
		r.Epoch = f.number
	case reopenAsOfSeq<<3 | wireVarint:
		r.AsOf.Seq = f.number
	case reopenAsOfIndex<<3 | wireVarint:
		r.AsOf.Index = uint32(f.number)
	case reopenAsOfNow<<3 | wireVarint:
		r.AsOfNow = IngestTime(unzigzag(f.number))
	case reopenPart<<3 | wireVarint:
		r.Part = uint32(f.number)
	case reopenParts<<3 | wireVarint:
		r.Parts = uint32(f.number)
	case reopenRestore<<3 | wireBytes:
		r.Restore = append(r.Restore, ReopenWindow{})
		return eachField(f.body, r.Restore[len(r.Restore)-1].read) == nil
	case reopenRetracted<<3 | wireBytes:
		r.Retracted = append(r.Retracted, ReopenRetracted{})
		return eachField(f.body, r.Retracted[len(r.Retracted)-1].read) == nil
	case reopenAdd<<3 | wireBytes:
		return readReopenEvent(&r.Add, f)
	case reopenWithdraw<<3 | wireBytes:
		return readReopenEvent(&r.Withdraw, f)
	default:
		return false
	}
	return true
}

func readReopenEvent(list *[]ReopenEvent, f *field) bool {
	var e ReopenEvent
	texts := 0
	if eachField(f.body, func(f *field) bool { return e.read(f, &texts) }) != nil {
		return false
	}
	*list = append(*list, e)
	return texts == 0 || texts == len(e.Values)
}

func (w *ReopenWindow) read(f *field) bool {
	switch f.tag() {
	case rwinStart<<3 | wireVarint:
		w.Start = EventTime(unzigzag(f.number))
	case rwinEnd<<3 | wireVarint:
		w.End = EventTime(unzigzag(f.number))
	case rwinRevision<<3 | wireVarint:
		w.Revision = f.number
	case rwinDigest<<3 | wireBytes:
		return fill(w.Digest[:], f.body)
	case rwinFirstLate<<3 | wireVarint:
		w.FirstLate = f.number != 0
	case rwinValue<<3 | wireBytes:
		w.Value = append(w.Value, ReopenField{})
		return eachField(f.body, w.Value[len(w.Value)-1].read) == nil
	case rwinFirst<<3 | wireVarint:
		w.First = f.number
	case rwinLast<<3 | wireVarint:
		w.Last = f.number
	case rwinOffsets<<3 | wireBytes:
		w.Offsets = append(w.Offsets, ReopenOffsets{})
		return eachField(f.body, w.Offsets[len(w.Offsets)-1].read) == nil
	case rwinEvents<<3 | wireVarint:
		w.Events = f.number
	case rwinIDDigest<<3 | wireBytes:
		return fill(w.IDDigest[:], f.body)
	case rwinState<<3 | wireBytes:
		w.State = append(w.State, f.body)
	case rwinMembers<<3 | wireBytes:
		return readReopenEvent(&w.Members, f)
	default:
		return false
	}
	return true
}

func (o *ReopenField) read(f *field) bool {
	switch f.tag() {
	case rfieldName<<3 | wireBytes:
		o.Name = alias(f.body)
	case rfieldText<<3 | wireBytes:
		o.Text = alias(f.body)
	case rfieldQuoted<<3 | wireVarint:
		o.Quoted = f.number != 0
	default:
		return false
	}
	return true
}

func (o *ReopenOffsets) read(f *field) bool {
	switch f.tag() {
	case roffSource<<3 | wireBytes:
		o.Source = alias(f.body)
	case roffPartition<<3 | wireVarint:
		o.Partition = uint32(f.number)
	case roffFirst<<3 | wireVarint:
		o.First = f.number
	case roffLast<<3 | wireVarint:
		o.Last = f.number
	default:
		return false
	}
	return true
}

func (r *ReopenRetracted) read(f *field) bool {
	switch f.tag() {
	case rretStart<<3 | wireVarint:
		r.Start = EventTime(unzigzag(f.number))
	case rretEnd<<3 | wireVarint:
		r.End = EventTime(unzigzag(f.number))
	case rretRevision<<3 | wireVarint:
		r.Revision = f.number
	case rretDigest<<3 | wireBytes:
		return fill(r.Digest[:], f.body)
	default:
		return false
	}
	return true
}

func (e *ReopenEvent) read(f *field, texts *int) bool {
	ok := true
	switch f.tag() {
	case reventSource<<3 | wireBytes:
		e.Source = alias(f.body)
	case reventID<<3 | wireBytes:
		e.ID = alias(f.body)
	case reventTime<<3 | wireVarint:
		e.Time = EventTime(unzigzag(f.number))
	case reventDigest<<3 | wireBytes:
		return fill(e.Digest[:], f.body)
	case reventWithdraws<<3 | wireBytes:
		e.Withdraws = alias(f.body)
	case reventPartition<<3 | wireVarint:
		e.SourcePartition = uint32(f.number)
	case reventOffset<<3 | wireVarint:
		e.SourceOffset = f.number
	case eventInts<<3 | wireBytes:
		e.Values = readInts(e.Values, *f, len(f.body), &ok)
	case eventTexts<<3 | wireBytes:
		if *texts == len(e.Values) {
			return false
		}
		e.Values[*texts].Text = alias(f.body)
		*texts++
	case reventOrigin<<3 | wireVarint:
		e.Origin = Origin(f.number)
		ok = f.number <= uint64(OriginRepair)
	case reventSeq<<3 | wireVarint:
		e.Seq = f.number
	case reventIndex<<3 | wireVarint:
		e.Index = uint32(f.number)
	case reventRefused<<3 | wireVarint:
		e.Refused = uint32(f.number)
	default:
		return false
	}
	return ok
}

func fill(dst, body []byte) bool { return copy(dst, body) == len(body) && len(body) == len(dst) }

// validate answers why r cannot be, or nil.
func (r *Reopen) validate() error {
	switch {
	case r.PolicyGeneration == "" || !utf8.ValidString(r.PolicyGeneration):
		return errors.New("the policy generation is empty or not valid UTF-8")
	case r.Key == "" || len(r.Key) > maxReopenKey || !utf8.ValidString(r.Key):
		return fmt.Errorf("the key must have 1 to %d bytes of UTF-8", maxReopenKey)
	case r.Part > r.Parts || r.Parts > MaxReopenParts || r.Part == 0 && r.Parts > 0:
		return fmt.Errorf("part %d of %d cannot be: parts count from 1 to at most %d", r.Part, r.Parts, MaxReopenParts)
	}
	for i := range r.Restore {
		if err := r.Restore[i].validate(i == 0 && r.Part > 1); err != nil {
			return fmt.Errorf("window [%s, %s): %w", r.Restore[i].Start, r.Restore[i].End, err)
		}
	}
	for _, t := range r.Retracted {
		if t.Start >= t.End || t.Revision == 0 {
			return fmt.Errorf("retracted window [%s, %s) with revision %d cannot be", t.Start, t.End, t.Revision)
		}
	}
	return errors.Join(validEvents(r.Add, false), validEvents(r.Withdraw, true))
}

func (w *ReopenWindow) validate(mayContinue bool) error {
	switch {
	case w.Start >= w.End:
		return errors.New("it ends before it starts")
	case w.Revision == 0 && !mayContinue:
		return errors.New("it has no revision number, and there is no part before that it could continue")
	case w.Revision == 0 && (w.Events != 0 || len(w.Value)+len(w.Offsets)+len(w.State) > 0):
		return errors.New("it continues a window of the part before, but has more than members")
	case w.Revision != 0 && (w.Events == 0 || w.First > w.Last):
		return fmt.Errorf("%d events from the sequences %d to %d cannot be", w.Events, w.First, w.Last)
	}
	for i := range w.Value {
		if !utf8.ValidString(w.Value[i].Name) || !utf8.ValidString(w.Value[i].Text) {
			return errors.New("a value is not valid UTF-8")
		}
	}
	for i := range w.Offsets {
		if !utf8.ValidString(w.Offsets[i].Source) {
			return errors.New("a source is not valid UTF-8")
		}
	}
	return validEvents(w.Members, false)
}

func validEvents(events []ReopenEvent, retractions bool) error {
	for i := range events {
		e := &events[i]
		switch {
		case e.Source == "" || e.ID == "":
			return fmt.Errorf("event %q of source %q: both names are needed", e.ID, e.Source)
		case (e.Withdraws != "") != retractions:
			return fmt.Errorf("event %q of source %q withdraws %q: exactly the events under withdraw must name a target", e.ID, e.Source, e.Withdraws)
		case e.Origin > OriginRepair:
			return fmt.Errorf("event %q of source %q has origin %d, which does not exist", e.ID, e.Source, e.Origin)
		case !validText(e.Source) || !validText(e.ID) || !validText(e.Withdraws):
			return fmt.Errorf("event %q holds a text that is not valid UTF-8", e.ID)
		}
		for j := range e.Values {
			if !validText(e.Values[j].Text) {
				return fmt.Errorf("event %q holds a text that is not valid UTF-8", e.ID)
			}
		}
	}
	return nil
}

// SameReopen tells whether b is a part of the reopen that a is a part of.
func SameReopen(a, b *Reopen) bool {
	return a.PolicyGeneration == b.PolicyGeneration && a.Key == b.Key && a.Epoch == b.Epoch &&
		a.AsOf == b.AsOf && a.AsOfNow == b.AsOfNow && a.Parts == b.Parts
}

// JoinReopen answers what all parts mean together, as a single one. parts must be all
// parts of one reopen, in order.
func JoinReopen(parts []*Reopen) (*Reopen, error) {
	if len(parts) == 0 {
		return nil, errors.New("a reopen without parts")
	}
	out := *parts[0]
	out.Part, out.Parts = 0, 0
	out.Restore, out.Retracted, out.Add, out.Withdraw = nil, nil, nil, nil
	for i, p := range parts {
		if !SameReopen(parts[0], p) || p.Parts > 0 && (int(p.Part) != i+1 || int(p.Parts) != len(parts)) {
			return nil, fmt.Errorf("reopen of key %q: part %d of %d is not what follows", p.Key, p.Part, p.Parts)
		}
		restore := p.Restore
		if len(restore) > 0 && restore[0].Revision == 0 {
			last := len(out.Restore) - 1
			if last < 0 || out.Restore[last].Start != restore[0].Start || out.Restore[last].End != restore[0].End {
				return nil, fmt.Errorf("reopen of key %q: part %d continues a window that part %d does not end with", p.Key, p.Part, i)
			}
			w := &out.Restore[last]
			w.Members = append(w.Members[:len(w.Members):len(w.Members)], restore[0].Members...)
			restore = restore[1:]
		}
		out.Restore = append(out.Restore, restore...)
		out.Retracted = append(out.Retracted, p.Retracted...)
		out.Add = append(out.Add, p.Add...)
		out.Withdraw = append(out.Withdraw, p.Withdraw...)
	}
	return &out, nil
}

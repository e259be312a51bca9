package envelope

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// FrameReader reads frames record by record without allocating: header, record, event
// and mark are reused, and their strings and slices alias the frame. Keep a clone of
// what must outlive the next call. It is not safe for concurrent use.
type FrameReader struct {
	// Header of the frame, valid after Reset.
	Writer     string
	Number     uint64
	Extractors []string
	Values     []string

	data   []byte
	pos    int
	names  []string
	record Record
	event  Event
	mark   Mark
	gap    Gap
}

// FrameError says why bytes are no frame and where.
type FrameError struct {
	Offset int // near the fault, from 0
	What   string
}

// Error answers one sentence with the byte offset.
func (e *FrameError) Error() string {
	return fmt.Sprintf("damaged frame: %s near byte %d", e.What, e.Offset)
}

// Reset reads the header of data, which must stay unchanged while it is read. A frame
// cannot be told from random bytes in general: integrity is the journal's business.
func (r *FrameReader) Reset(data []byte) error {
	r.data, r.pos = data, 0
	r.Writer, r.Number = "", 0
	r.Extractors, r.Values, r.names = r.Extractors[:0], r.Values[:0], r.names[:0]
	for r.pos < len(data) {
		f, next := readField(data, r.pos)
		switch {
		case next < 0:
			return &FrameError{r.pos, "cut or malformed field"}
		case f.is(frameNames, wireBytes), f.is(frameRecords, wireBytes):
			return nil
		case f.is(frameWriter, wireBytes):
			r.Writer = alias(f.body)
		case f.is(frameNumber, wireFixed64):
			r.Number = f.number
		case f.is(frameExtractors, wireBytes):
			r.Extractors = append(r.Extractors, alias(f.body))
		case f.is(frameValues, wireBytes):
			r.Values = append(r.Values, alias(f.body))
		case f.field <= frameRecords:
			return &FrameError{r.pos, "field of the wrong wire type"}
		}
		r.pos = next
	}
	return nil
}

// Next answers the next record, or false at the end of the frame.
func (r *FrameReader) Next() (*Record, bool, error) {
	for r.pos < len(r.data) {
		f, next := readField(r.data, r.pos)
		if next < 0 {
			return nil, false, &FrameError{r.pos, "cut or malformed field"}
		}
		at := r.pos
		r.pos = next
		switch {
		case f.is(frameRecords, wireBytes):
			if what := r.readRecord(f.body); what != "" {
				return nil, false, &FrameError{at, what}
			}
			return &r.record, true, nil
		case f.is(frameNames, wireBytes):
			r.names = append(r.names, alias(f.body))
		case f.field <= frameRecords:
			return nil, false, &FrameError{at, "header field behind the first name or record"}
		}
	}
	return nil, false, nil
}

func (r *FrameReader) readRecord(body []byte) string {
	r.record = Record{}
	set := 0
	for pos := 0; pos < len(body); {
		f, next := readField(body, pos)
		if next < 0 {
			return "cut or malformed field in a record"
		}
		pos = next
		what := ""
		switch {
		case f.is(recordEvent, wireBytes):
			r.record.Event = &r.event
			what = r.readEvent(f.body)
		case f.is(recordMark, wireBytes):
			r.record.Mark = &r.mark
			what = r.readMark(f.body)
		case f.is(recordGap, wireBytes):
			r.record.Gap = &r.gap
			what = r.readGap(f.body)
		case f.is(recordReopen, wireBytes):
			r.record.Reopen = f.body
		case f.field <= recordReopen:
			what = "record field of the wrong wire type"
		default:
			continue
		}
		if what != "" {
			return what
		}
		set++
	}
	if set != 1 {
		return "record that does not hold exactly one event, mark, gap or reopen"
	}
	return ""
}

func (r *FrameReader) readEvent(body []byte) string {
	ev := &r.event
	*ev = Event{Times: ev.Times[:0], Values: ev.Values[:0]}
	texts, ok := 0, true
	pos, digest := r.readUsual(ev, body, &ok)
	for pos < len(body) && ok {
		f, next := readField(body, pos)
		if next < 0 {
			return "cut or malformed field in an event"
		}
		pos = next
		switch f.tag() {
		case eventID<<3 | wireBytes:
			ev.ID = alias(f.body)
		case eventSource<<3 | wireVarint:
			ev.Source = r.name(f.number, &ok)
		case eventSourcePartition<<3 | wireVarint:
			ev.SourcePartition = uint32(f.number)
		case eventSourceOffset<<3 | wireVarint:
			ev.SourceOffset = f.number
		case eventGeneration<<3 | wireVarint:
			ev.PartitionGeneration = f.number
		case eventKey<<3 | wireBytes:
			ev.Key = alias(f.body)
		case eventTimes<<3 | wireBytes, eventTimes<<3 | wireVarint:
			ev.Times = readTimes(ev.Times, f, len(r.Extractors), &ok)
		case eventInts<<3 | wireBytes, eventInts<<3 | wireVarint:
			ev.Values = readInts(ev.Values, f, len(r.Values), &ok)
		case eventTexts<<3 | wireBytes:
			if ok = texts < len(ev.Values); ok {
				ev.Values[texts].Text = alias(f.body)
				texts++
			}
		case eventDigest<<3 | wireBytes:
			digest = len(f.body) == len(ev.Digest)
			copy(ev.Digest[:], f.body)
		case eventIngestTime<<3 | wireVarint:
			ev.IngestTime = IngestTime(unzigzag(f.number))
		case eventData<<3 | wireBytes:
			ev.Data = f.body
		default:
			ok = r.readEventRest(ev, f)
		}
	}
	switch {
	case !ok:
		return "event with a name, a number or a wire type that cannot be"
	case len(ev.Times) != len(r.Extractors) || len(ev.Values) != len(r.Values) || texts != 0 && texts != len(ev.Values):
		return "event whose times or values are not those the frame declares"
	case !digest:
		return "event without a digest of 32 bytes"
	}
	return ""
}

// readUsual reads the fields of an event as long as they stand as a FrameBuilder writes
// them: by number, each at most once. It answers where the first one stands that does not.
// What it does with a field is what readEvent does with it.
func (r *FrameReader) readUsual(ev *Event, body []byte, ok *bool) (pos int, digest bool) {
	var text []byte
	var n uint64
	if text, pos = textAt(body, pos, eventID<<3|wireBytes); text != nil {
		ev.ID = alias(text)
	}
	if n, pos = numberAt(body, pos, eventSource<<3|wireVarint); n != 0 {
		ev.Source = r.name(n, ok)
	}
	n, pos = numberAt(body, pos, eventSourcePartition<<3|wireVarint)
	ev.SourcePartition = uint32(n)
	ev.SourceOffset, pos = numberAt(body, pos, eventSourceOffset<<3|wireVarint)
	ev.PartitionGeneration, pos = numberAt(body, pos, eventGeneration<<3|wireVarint)
	if text, pos = textAt(body, pos, eventKey<<3|wireBytes); text != nil {
		ev.Key = alias(text)
	}
	if text, pos = textAt(body, pos, eventTimes<<3|wireBytes); text != nil {
		ev.Times = readTimes(ev.Times, field{wire: wireBytes, body: text}, len(r.Extractors), ok)
	}
	if text, pos = textAt(body, pos, eventInts<<3|wireBytes); text != nil {
		ev.Values = readInts(ev.Values, field{wire: wireBytes, body: text}, len(r.Values), ok)
	}
	if text, pos = textAt(body, pos, eventDigest<<3|wireBytes); text != nil {
		digest = len(text) == len(ev.Digest)
		copy(ev.Digest[:], text)
	}
	n, pos = numberAt(body, pos, eventIngestTime<<3|wireVarint)
	ev.IngestTime = IngestTime(unzigzag(n))
	if text, pos = textAt(body, pos, eventData<<3|wireBytes); text != nil {
		ev.Data = text
	}
	return pos, digest
}

// textAt reads a field of bytes if that tag stands at pos; else, and for a malformed one,
// it answers nil and pos itself.
func textAt(body []byte, pos int, tag byte) (text []byte, next int) {
	if pos >= len(body) || body[pos] != tag {
		return nil, pos
	}
	size, at := readVarint(body, pos+1)
	if at < 0 || size > uint64(len(body)-at) {
		return nil, pos
	}
	end := at + int(size)
	return body[at:end:end], end
}

// numberAt is textAt for a number; it answers 0 where none stands.
func numberAt(body []byte, pos int, tag byte) (n uint64, next int) {
	if pos >= len(body) || body[pos] != tag {
		return 0, pos
	}
	n, at := readVarint(body, pos+1)
	if at < 0 {
		return 0, pos
	}
	return n, at
}

// readEventRest reads the fields that few events have.
func (r *FrameReader) readEventRest(ev *Event, f field) bool {
	ok := true
	switch f.tag() {
	case eventOp<<3 | wireVarint:
		ev.Op = Op(f.number)
		ok = f.number <= uint64(Retract)
	case eventOrigin<<3 | wireVarint:
		ev.Origin = Origin(f.number)
		ok = f.number <= uint64(OriginRepair)
	case eventType<<3 | wireVarint:
		ev.Type = r.name(f.number, &ok)
	case eventDataSchema<<3 | wireVarint:
		ev.DataSchema = r.name(f.number, &ok)
	case eventWithdraws<<3 | wireBytes:
		ev.Withdraws = alias(f.body)
	case eventSubject<<3 | wireBytes:
		ev.Subject = alias(f.body)
	case eventTraceParent<<3 | wireBytes:
		ev.TraceParent = alias(f.body)
	default:
		ok = f.field > eventTraceParent
	}
	return ok
}

func (r *FrameReader) readMark(body []byte) string {
	m := &r.mark
	*m = Mark{MaxEventTime: m.MaxEventTime[:0]}
	ok := true
	for pos := 0; pos < len(body); {
		f, next := readField(body, pos)
		if next < 0 {
			return "cut or malformed field in a mark"
		}
		pos = next
		switch f.tag() {
		case markSource<<3 | wireVarint:
			m.Source = r.name(f.number, &ok)
		case markPartition<<3 | wireVarint:
			m.Partition = uint32(f.number)
		case markEpoch<<3 | wireVarint:
			m.Epoch = f.number
		case markGeneration<<3 | wireVarint:
			m.Generation = f.number
		case markOffset<<3 | wireVarint:
			m.Offset = f.number
		case markMaxEventTime<<3 | wireBytes, markMaxEventTime<<3 | wireVarint:
			m.MaxEventTime = readTimes(m.MaxEventTime, f, len(r.Extractors), &ok)
		case markPending<<3 | wireVarint:
			m.Pending = f.number
		case markInFlight<<3 | wireVarint:
			m.InFlight = f.number
		case markPaused<<3 | wireVarint:
			m.Paused = f.number != 0
		case markQuietForMs<<3 | wireVarint:
			m.QuietForMs = f.number
		case markFinished<<3 | wireVarint:
			m.Finished = f.number != 0
		case markIngestNow<<3 | wireVarint:
			m.IngestNow = IngestTime(unzigzag(f.number))
		case markWriter<<3 | wireVarint:
			m.Writer = r.name(f.number, &ok)
		case markFrames<<3 | wireVarint:
			m.Frames = f.number
		default:
			ok = ok && f.field > markFrames
		}
		if !ok {
			return "mark with a name, a number or a wire type that cannot be"
		}
	}
	if len(m.MaxEventTime) != len(r.Extractors) {
		return "mark whose event times are not those the frame declares"
	}
	return ""
}

func (r *FrameReader) readGap(body []byte) string {
	r.gap = Gap{}
	for pos := 0; pos < len(body); {
		f, next := readField(body, pos)
		if next < 0 {
			return "cut or malformed field in a gap"
		}
		pos = next
		switch f.tag() {
		case gapWriter<<3 | wireBytes:
			r.gap.Writer = alias(f.body)
		case gapFirst<<3 | wireVarint:
			r.gap.First = f.number
		case gapLast<<3 | wireVarint:
			r.gap.Last = f.number
		case gapReason<<3 | wireBytes:
			r.gap.Reason = alias(f.body)
		default:
			if f.field <= gapReason {
				return "gap field of the wrong wire type"
			}
		}
	}
	return ""
}

// name answers the dictionary's entry at place; 0 is the empty string.
func (r *FrameReader) name(place uint64, ok *bool) string {
	if place == 0 {
		return ""
	}
	if place > uint64(len(r.names)) {
		*ok = false
		return ""
	}
	return r.names[place-1]
}

// field is one field of a message: number for numeric wire types, body for bytes.
type field struct {
	field  int
	wire   int
	number uint64
	body   []byte
}

func (f *field) is(number, wire int) bool { return f.field == number && f.wire == wire }
func (f *field) tag() int                 { return f.field<<3 | f.wire }

// readField reads the field at pos and answers where the next one starts, or -1 if the
// bytes are cut or no field.
func readField(data []byte, pos int) (f field, next int) {
	tag, pos := readVarint(data, pos)
	if pos < 0 || tag>>3 == 0 || tag>>3 >= 1<<29 {
		return f, -1
	}
	f.field, f.wire = int(tag>>3), int(tag&7)
	switch f.wire {
	case wireVarint:
		f.number, pos = readVarint(data, pos)
		return f, pos
	case wireBytes:
		size, pos := readVarint(data, pos)
		if pos < 0 || size > uint64(len(data)-pos) {
			return f, -1
		}
		end := pos + int(size)
		f.body = data[pos:end:end]
		return f, end
	case wireFixed64:
		if len(data)-pos < 8 {
			return f, -1
		}
		f.number = binary.LittleEndian.Uint64(data[pos:])
		return f, pos + 8
	case wireFixed32:
		if len(data)-pos < 4 {
			return f, -1
		}
		return f, pos + 4
	}
	return f, -1 // groups are no part of proto3
}

func readVarint(data []byte, pos int) (value uint64, next int) {
	if pos < len(data) && data[pos] < 0x80 {
		return uint64(data[pos]), pos + 1
	}
	for shift := 0; shift < 70 && pos < len(data); shift += 7 {
		c := data[pos]
		pos++
		if shift == 63 && c > 1 {
			return 0, -1
		}
		value |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return value, pos
		}
	}
	return 0, -1
}

// readTimes appends a list of zigzag numbers, packed or one by one, but never more than limit.
func readTimes(times []EventTime, f field, limit int, ok *bool) []EventTime {
	if f.wire == wireVarint {
		*ok = *ok && len(times) < limit
		return append(times, EventTime(unzigzag(f.number)))
	}
	for pos := 0; pos < len(f.body); {
		var u uint64
		if u, pos = readVarint(f.body, pos); pos < 0 || len(times) == limit {
			*ok = false
			return times
		}
		times = append(times, EventTime(unzigzag(u)))
	}
	return times
}

func readInts(values []Value, f field, limit int, ok *bool) []Value {
	if f.wire == wireVarint {
		*ok = *ok && len(values) < limit
		return append(values, Value{Int: unzigzag(f.number)})
	}
	for pos := 0; pos < len(f.body); {
		var u uint64
		if u, pos = readVarint(f.body, pos); pos < 0 || len(values) == limit {
			*ok = false
			return values
		}
		values = append(values, Value{Int: unzigzag(u)})
	}
	return values
}

// DecodeFrame reads a whole frame. Its strings and slices alias data.
func DecodeFrame(data []byte) (*Frame, error) {
	var r FrameReader
	if err := r.Reset(data); err != nil {
		return nil, err
	}
	f := &Frame{Writer: r.Writer, Number: r.Number, Extractors: r.Extractors, Values: r.Values}
	for {
		rec, more, err := r.Next()
		if err != nil {
			return nil, err
		}
		if !more {
			return f, nil
		}
		f.Records = append(f.Records, rec.shallowCopy())
	}
}

// shallowCopy detaches a record from the reader that reuses it; strings still alias the frame.
func (r *Record) shallowCopy() Record {
	out := Record{Reopen: r.Reopen}
	switch {
	case r.Event != nil:
		ev := *r.Event
		ev.Times = append([]EventTime(nil), ev.Times...)
		ev.Values = append([]Value(nil), ev.Values...)
		out.Event = &ev
	case r.Mark != nil:
		m := *r.Mark
		m.MaxEventTime = append([]EventTime(nil), m.MaxEventTime...)
		out.Mark = &m
	case r.Gap != nil:
		g := *r.Gap
		out.Gap = &g
	}
	return out
}

// Clone answers a deep copy of ev that outlives the frame or the request it aliases.
func (ev *Event) Clone() *Event {
	out := *ev
	out.Times = append([]EventTime(nil), ev.Times...)
	out.Values = append([]Value(nil), ev.Values...)
	out.Data = append([]byte(nil), ev.Data...)
	for _, s := range []*string{
		&out.ID, &out.Source, &out.Type, &out.Subject, &out.Key,
		&out.Withdraws, &out.DataSchema, &out.TraceParent,
	} {
		*s = strings.Clone(*s)
	}
	for i := range out.Values {
		out.Values[i].Text = strings.Clone(out.Values[i].Text)
	}
	return &out
}

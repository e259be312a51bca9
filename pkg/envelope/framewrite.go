package envelope

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Field numbers of pkg/schema/frame.proto.
const (
	frameWriter, frameNumber, frameExtractors, frameValues, frameNames, frameRecords = 1, 2, 3, 4, 5, 6

	recordEvent, recordMark, recordGap, recordReopen = 1, 2, 3, 4

	eventID, eventSource, eventSourcePartition, eventSourceOffset, eventGeneration = 1, 2, 3, 4, 5
	eventKey, eventTimes, eventInts, eventTexts, eventDigest, eventIngestTime      = 6, 7, 8, 9, 10, 11
	eventData, eventOp, eventOrigin, eventType, eventDataSchema, eventWithdraws    = 12, 13, 14, 15, 16, 17
	eventSubject, eventTraceParent                                                 = 18, 19

	markSource, markPartition, markEpoch, markGeneration, markOffset = 1, 2, 3, 4, 5
	markMaxEventTime, markPending, markInFlight, markPaused          = 6, 7, 8, 9
	markQuietForMs, markFinished, markIngestNow                      = 10, 11, 12
	markWriter, markFrames                                           = 13, 14

	gapWriter, gapFirst, gapLast, gapReason = 1, 2, 3, 4
)

// Wire types of protobuf.
const (
	wireVarint, wireFixed64, wireBytes, wireFixed32 = 0, 1, 2, 5
)

// maxKnownNames bounds the strings that a builder remembers between frames.
const maxKnownNames = 4096

// FrameBuilder writes one frame after another, record by record, in one reused buffer.
// It is not safe for concurrent use.
type FrameBuilder struct {
	buf      []byte
	base     int // where this frame starts in buf
	number   int // where the frame number stands
	empty    int // length of a frame without records
	events   int
	records  int
	nExtract int
	nValues  int

	frame uint64 // counts Resets; tells names of this frame from older ones
	names uint32 // names in this frame
	known map[string]*frameName
	last  [4]*frameName // source, type, schema, writer of the record before
}

// frameName is a string of the dictionary, remembered over frames so that the usual
// frame allocates nothing.
type frameName struct {
	text  string
	frame uint64
	place uint32
}

// NewFrameBuilder answers a builder of frames of writer whose events carry a time for
// each extractor and a value for each name of values, in that order.
func NewFrameBuilder(writer string, extractors, values []string) *FrameBuilder {
	b := &FrameBuilder{}
	b.open(nil, writer, extractors, values)
	return b
}

func (b *FrameBuilder) open(dst []byte, writer string, extractors, values []string) {
	b.buf, b.base, b.known = dst, len(dst), make(map[string]*frameName)
	b.nExtract, b.nValues = len(extractors), len(values)
	b.buf = appendString(b.buf, frameWriter, writer)
	b.buf = append(b.buf, frameNumber<<3|wireFixed64)
	b.number = len(b.buf)
	b.buf = binary.LittleEndian.AppendUint64(b.buf, 0)
	for _, name := range extractors {
		b.buf = appendText(b.buf, frameExtractors, name)
	}
	for _, name := range values {
		b.buf = appendText(b.buf, frameValues, name)
	}
	b.empty = len(b.buf)
	b.frame = 1
}

// Reset throws the records away and starts the next frame. What Finish answered is
// overwritten.
func (b *FrameBuilder) Reset() {
	b.buf = b.buf[:b.empty]
	b.events, b.records, b.names = 0, 0, 0
	b.frame++
	if len(b.known) > maxKnownNames {
		clear(b.known)
		b.last = [4]*frameName{}
	}
}

// Len answers the bytes of the frame so far.
func (b *FrameBuilder) Len() int { return len(b.buf) - b.base }

// Events answers how many events the frame holds.
func (b *FrameBuilder) Events() int { return b.events }

// Records answers how many records the frame holds, marks and the rest included.
func (b *FrameBuilder) Records() int { return b.records }

// Finish sets the frame number and answers the frame, which stays valid until Reset.
func (b *FrameBuilder) Finish(number uint64) []byte {
	binary.LittleEndian.PutUint64(b.buf[b.number:], number)
	return b.buf[b.base:]
}

// AddEvent appends one event. After an error the frame holds the records it held before.
func (b *FrameBuilder) AddEvent(ev *Event) error {
	if len(ev.Times) != b.nExtract || len(ev.Values) != b.nValues {
		return fmt.Errorf("event %q has %d times and %d values, the frame declares %d and %d",
			ev.ID, len(ev.Times), len(ev.Values), b.nExtract, b.nValues)
	}
	if ev.Op > Retract || ev.Origin > OriginRepair {
		return fmt.Errorf("event %q has op %d and origin %d, which do not exist", ev.ID, ev.Op, ev.Origin)
	}
	if !eventUTF8(ev) {
		return fmt.Errorf("event %q holds a text that is not valid UTF-8", ev.ID)
	}
	source, ok1 := b.name(0, ev.Source)
	kind, ok2 := b.name(1, ev.Type)
	schema, ok3 := b.name(2, ev.DataSchema)
	if !ok1 || !ok2 || !ok3 {
		return fmt.Errorf("event %q holds a text that is not valid UTF-8", ev.ID)
	}
	buf, outer := openMessage(b.buf, frameRecords)
	buf, inner := openMessage(buf, recordEvent)
	buf = appendString(buf, eventID, ev.ID)
	buf = appendNumber(buf, eventSource, uint64(source))
	buf = appendNumber(buf, eventSourcePartition, uint64(ev.SourcePartition))
	buf = appendNumber(buf, eventSourceOffset, ev.SourceOffset)
	buf = appendNumber(buf, eventGeneration, ev.PartitionGeneration)
	buf = appendString(buf, eventKey, ev.Key)
	buf = appendTimes(buf, eventTimes, ev.Times)
	buf = appendValues(buf, ev.Values)
	buf = append(buf, eventDigest<<3|wireBytes, byte(len(ev.Digest)))
	buf = append(buf, ev.Digest[:]...)
	buf = appendNumber(buf, eventIngestTime, zigzag(int64(ev.IngestTime)))
	if len(ev.Data) > 0 {
		buf = appendVarint(append(buf, eventData<<3|wireBytes), uint64(len(ev.Data)))
		buf = append(buf, ev.Data...)
	}
	buf = appendNumber(buf, eventOp, uint64(ev.Op))
	buf = appendNumber(buf, eventOrigin, uint64(ev.Origin))
	buf = appendNumber(buf, eventType, uint64(kind))
	buf = appendNumber(buf, eventDataSchema, uint64(schema))
	buf = appendString(buf, eventWithdraws, ev.Withdraws)
	buf = appendString(buf, eventSubject, ev.Subject)
	buf = appendString(buf, eventTraceParent, ev.TraceParent)
	b.buf = closeMessage(closeMessage(buf, inner), outer)
	b.events++
	b.records++
	return nil
}

// AddMark appends one mark. After an error the frame holds the records it held before.
func (b *FrameBuilder) AddMark(m *Mark) error {
	if len(m.MaxEventTime) != b.nExtract {
		return fmt.Errorf("mark of source %q partition %d has %d event times, the frame declares %d extractors",
			m.Source, m.Partition, len(m.MaxEventTime), b.nExtract)
	}
	source, ok1 := b.name(0, m.Source)
	writer, ok2 := b.name(3, m.Writer)
	if !ok1 || !ok2 {
		return fmt.Errorf("mark of source %q holds a text that is not valid UTF-8", m.Source)
	}
	buf, outer := openMessage(b.buf, frameRecords)
	buf, inner := openMessage(buf, recordMark)
	buf = appendNumber(buf, markSource, uint64(source))
	buf = appendNumber(buf, markPartition, uint64(m.Partition))
	buf = appendNumber(buf, markEpoch, m.Epoch)
	buf = appendNumber(buf, markGeneration, m.Generation)
	buf = appendNumber(buf, markOffset, m.Offset)
	buf = appendTimes(buf, markMaxEventTime, m.MaxEventTime)
	buf = appendNumber(buf, markPending, m.Pending)
	buf = appendNumber(buf, markInFlight, m.InFlight)
	buf = appendNumber(buf, markPaused, truth(m.Paused))
	buf = appendNumber(buf, markQuietForMs, m.QuietForMs)
	buf = appendNumber(buf, markFinished, truth(m.Finished))
	buf = appendNumber(buf, markIngestNow, zigzag(int64(m.IngestNow)))
	buf = appendNumber(buf, markWriter, uint64(writer))
	buf = appendNumber(buf, markFrames, m.Frames)
	b.buf = closeMessage(closeMessage(buf, inner), outer)
	b.records++
	return nil
}

// AddGap appends an operator's gap. After an error the frame holds the records it held before.
func (b *FrameBuilder) AddGap(g *Gap) error {
	if !utf8.ValidString(g.Writer) || !utf8.ValidString(g.Reason) {
		return errors.New("gap holds a text that is not valid UTF-8")
	}
	buf, outer := openMessage(b.buf, frameRecords)
	buf, inner := openMessage(buf, recordGap)
	buf = appendString(buf, gapWriter, g.Writer)
	buf = appendNumber(buf, gapFirst, g.First)
	buf = appendNumber(buf, gapLast, g.Last)
	buf = appendString(buf, gapReason, g.Reason)
	b.buf = closeMessage(closeMessage(buf, inner), outer)
	b.records++
	return nil
}

// AddReopen appends a reconciler's reopen, opaque here.
func (b *FrameBuilder) AddReopen(body []byte) {
	buf, outer := openMessage(b.buf, frameRecords)
	buf = appendVarint(append(buf, recordReopen<<3|wireBytes), uint64(len(body)))
	b.buf = closeMessage(append(buf, body...), outer)
	b.records++
}

// name answers the place of text in the frame's dictionary and enters it where it is
// new. kind picks the record before whose name is most likely the same.
func (b *FrameBuilder) name(kind int, text string) (uint32, bool) {
	if text == "" {
		return 0, true
	}
	n := b.last[kind]
	if n == nil || n.text != text {
		if n = b.known[text]; n == nil {
			if !utf8.ValidString(text) {
				return 0, false
			}
			n = &frameName{text: string(append([]byte(nil), text...))}
			b.known[n.text] = n
		}
		b.last[kind] = n
	}
	if n.frame != b.frame {
		b.names++
		n.frame, n.place = b.frame, b.names
		b.buf = appendText(b.buf, frameNames, text)
	}
	return n.place, true
}

func eventUTF8(ev *Event) bool {
	for i := range ev.Values {
		if !validText(ev.Values[i].Text) {
			return false
		}
	}
	return validText(ev.ID) && validText(ev.Key) && validText(ev.Withdraws) && validText(ev.Subject) && validText(ev.TraceParent)
}

// validText spares the call for the many texts that are empty.
func validText(text string) bool { return text == "" || utf8.ValidString(text) }

// AppendFrame appends the frame to dst. It fails, and appends nothing, if a record has
// other numbers of times and values than the frame declares, does not set exactly one
// field, or holds text that is not UTF-8.
func AppendFrame(dst []byte, f *Frame) ([]byte, error) {
	for _, name := range append(append([]string{f.Writer}, f.Extractors...), f.Values...) {
		if !utf8.ValidString(name) {
			return dst, fmt.Errorf("frame header: %q is not valid UTF-8", name)
		}
	}
	var b FrameBuilder
	b.open(dst, f.Writer, f.Extractors, f.Values)
	for i := range f.Records {
		if err := b.add(&f.Records[i]); err != nil {
			return dst, fmt.Errorf("record %d: %w", i, err)
		}
	}
	b.Finish(f.Number)
	return b.buf, nil
}

func (b *FrameBuilder) add(r *Record) error {
	var err error
	set := 0
	if r.Event != nil {
		set++
		err = b.AddEvent(r.Event)
	}
	if r.Mark != nil {
		set++
		err = errors.Join(err, b.AddMark(r.Mark))
	}
	if r.Gap != nil {
		set++
		err = errors.Join(err, b.AddGap(r.Gap))
	}
	if r.Reopen != nil {
		set++
		b.AddReopen(r.Reopen)
	}
	if set != 1 {
		return fmt.Errorf("%d of event, mark, gap and reopen are set, exactly one must be", set)
	}
	return err
}

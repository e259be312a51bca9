package windower

import (
	"crypto/sha256"
	"errors"
	"hash"
	"sync"

	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// fold drives one operator over frames and keeps what a COMMIT says beside it: the number
// of records and the chain over them. Records wait here until cut or drop takes them.
//
// One goroutine drives it; mu lets others look at the operator between two advances.
type fold struct {
	part    partition
	mu      sync.Mutex
	op      *window.Operator
	digest  revision.Digest
	records uint64

	frame    envelope.FrameReader
	header   envelope.Frame // what BeginFrame is told
	seq      uint64         // of the open frame
	index    int            // of the record applied next
	open     bool
	draining bool             // the record applied last may have more outputs
	held     *envelope.Record // a mark that waits for a GAP; alive until the frame is read on

	chain hash.Hash
	arena []byte // encoded records, one behind the other
	ends  []int  // where each ends
	list  [][]byte
	late  lateness
}

func newFold(p partition, extractor string, op *window.Operator) *fold {
	return &fold{part: p, op: op, chain: sha256.New(), late: lateness{extractor: extractor, time: -1}}
}

// load opens the frame in message seq. data must stay unchanged until it was taken in.
func (f *fold) load(seq uint64, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.frame.Reset(data); err != nil {
		return f.damaged(seq, err)
	}
	f.header.Writer, f.header.Number = f.frame.Writer, f.frame.Number
	f.header.Extractors, f.header.Values = f.frame.Extractors, f.frame.Values
	f.seq, f.index, f.held = seq, 0, nil
	if f.open = f.op.BeginFrame(seq, &f.header); !f.open {
		return nil
	}
	f.late.begin(f.header.Extractors)
	// A restored operator may stand inside the frame.
	for from := f.op.Position(); from.Seq == seq && f.index < int(from.Index); f.index++ {
		if _, more, err := f.frame.Next(); err != nil || !more {
			return damagef("stream %s: position %d/%d lies behind the end of the frame at sequence %d: the stream is not the one that was read before",
				f.part.eventsStream(), from.Seq, from.Index, seq)
		}
	}
	return nil
}

// advance takes in the open frame up to its end, or until stop answers true; stop is
// asked after every output and every record, but not inside a group of outputs.
func (f *fold) advance(stop func() bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.open {
		if f.draining {
			f.draining = f.take()
			if !f.op.InGroup() && stop() {
				return nil
			}
			continue
		}
		rec, more, err := f.next()
		switch {
		case err != nil:
			return f.damaged(f.seq, err)
		case !more:
			f.op.EndFrame()
			f.open = false
			return nil
		case rec.Event != nil:
			f.late.note(rec.Event)
			err = f.op.ApplyEvent(f.index, rec.Event)
		default:
			err = f.op.Apply(f.index, rec)
			f.late.w, _, _, _ = f.op.Totals()
		}
		if missing := new(window.MissingFramesError); errors.As(err, &missing) {
			f.held = rec
			return err
		}
		if err != nil {
			return damagef("%s, events sequence %d, record %d: %w", f.part, f.seq, f.index, err)
		}
		f.index++
		f.draining = true
		if stop() {
			return nil
		}
	}
	return nil
}

// next answers the record that waits, or the next one of the frame.
func (f *fold) next() (rec *envelope.Record, more bool, err error) {
	if f.held != nil {
		rec, f.held = f.held, nil
		return rec, true, nil
	}
	return f.frame.Next()
}

// declare hands the operator GAP records that stand behind the mark it stopped at.
func (f *fold) declare(gaps []*envelope.Gap) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range gaps {
		if err := f.op.Declare(g); err != nil {
			return damagef("%s: %w", f.part, err)
		}
	}
	return nil
}

// take adds the next output to those that wait, and answers whether there was one.
func (f *fold) take() bool {
	from := len(f.arena)
	out, more := f.op.Next(f.arena)
	f.arena = out
	if !more {
		f.arena = f.arena[:from]
		return false
	}
	f.chain.Reset()
	f.chain.Write(f.digest[:])
	f.chain.Write(f.arena[from:])
	f.chain.Sum(f.digest[:0])
	f.records++
	f.ends = append(f.ends, len(f.arena))
	return true
}

// waiting answers how many bytes of records wait, as they count in a message.
func (f *fold) waiting() int { return len(f.arena) + recordOverhead*len(f.ends) }

// overflows tells whether the group that comes next does not fit beside the records that
// wait: a group stands in one commit.
func (f *fold) overflows() bool {
	bytes, records := f.op.GroupBytes()
	return bytes > 0 && len(f.ends) > 0 && f.waiting()+bytes+recordOverhead*records > groupRoom
}

// cut answers the records that wait and forgets them; they stay valid until the next advance.
func (f *fold) cut() [][]byte {
	f.list = f.list[:0]
	from := 0
	for _, end := range f.ends {
		f.list = append(f.list, f.arena[from:end])
		from = end
	}
	f.arena, f.ends = f.arena[:0], f.ends[:0]
	return f.list
}

// whole tells whether nothing is pending in the operator: only then it may be checkpointed.
func (f *fold) whole() bool {
	_, records := f.op.GroupBytes()
	return f.op.Position().Outputs == 0 && records == 0
}

// commit answers the COMMIT of all that was taken so far; created is the creation time
// of the events stream.
func (f *fold) commit(created int64) revision.Commit {
	c := revision.NewCommit()
	position := f.op.Position()
	position.Stream, position.Created = f.part.eventsStream(), created
	c.Inputs = []revision.InputPosition{position}
	c.W, c.Wdata, c.Counts, c.IDDigest = f.op.Totals()
	c.OpenFrom = f.op.OpenFrom()
	c.Records, c.RecordsDigest = f.records, f.digest
	return c
}

// chainOver answers the chain with one record more.
func chainOver(before revision.Digest, record []byte) revision.Digest {
	h := sha256.New()
	h.Write(before[:])
	h.Write(record)
	return revision.Digest(h.Sum(nil))
}

func (f *fold) damaged(seq uint64, err error) error {
	return damagef("%s: the frame at sequence %d of stream %s cannot be read: %w; restore the stream from a backup or start a new generation",
		f.part, seq, f.part.eventsStream(), err)
}

// lateness gathers how far behind the watermark late events are.
type lateness struct {
	extractor string
	time      int // place of the extractor in the open frame, or -1
	w         envelope.EventTime
	behind    []int64 // microseconds, since the last look
}

// behindRoom bounds what is gathered between two looks: a sample is enough.
const behindRoom = 1024

func (l *lateness) begin(extractors []string) {
	if l.time >= 0 && l.time < len(extractors) && extractors[l.time] == l.extractor {
		return
	}
	l.time = -1
	for i, name := range extractors {
		if name == l.extractor {
			l.time = i
		}
	}
}

func (l *lateness) note(ev *envelope.Event) {
	if l.time < 0 || l.time >= len(ev.Times) || ev.Times[l.time] >= l.w || l.w == envelope.MaxEventTime || len(l.behind) == behindRoom {
		return
	}
	l.behind = append(l.behind, int64(l.w-ev.Times[l.time]))
}

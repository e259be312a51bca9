package window

import (
	"fmt"
	"slices"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// span is the frame numbers first..last.
type span struct{ first, last uint64 }

// spans are sorted, do not touch each other, and hold no zero.
type spans []span

// has tells whether n is in one of the spans.
func (s spans) has(n uint64) bool {
	at := s.at(n)
	return at < len(s) && s[at].first <= n
}

// at answers the place of the first span that ends at n or later.
func (s spans) at(n uint64) int {
	at, _ := slices.BinarySearchFunc(s, n, func(p span, n uint64) int {
		if p.last < n {
			return -1
		}
		return 1
	})
	return at
}

// with answers the spans and add together.
func (s spans) with(add span) spans {
	from := s.at(add.first - 1) // one that ends right before joins
	to := from
	for to < len(s) && s[to].first-1 <= add.last {
		add = span{min(add.first, s[to].first), max(add.last, s[to].last)}
		to++
	}
	return slices.Replace(s, from, to, add)
}

// writerFrames is which frames of one writer were had in this journal, and which an
// operator declared lost. Resends come out of order, so there may be holes.
type writerFrames struct {
	had, lost spans
	changed   bool // since the last Delta
}

// missing answers the first hole in 1..upTo that is neither had nor declared lost.
func (f *writerFrames) missing(upTo uint64) (hole span, found bool) {
	for n := uint64(1); n <= upTo; {
		switch h, l := f.had.at(n), f.lost.at(n); {
		case h < len(f.had) && f.had[h].first <= n:
			n = f.had[h].last
		case l < len(f.lost) && f.lost[l].first <= n:
			n = f.lost[l].last
		default:
			hole = span{n, upTo}
			if h < len(f.had) {
				hole.last = min(hole.last, f.had[h].first-1)
			}
			if l < len(f.lost) {
				hole.last = min(hole.last, f.lost[l].first-1)
			}
			return hole, true
		}
		if n++; n == 0 {
			break // the highest number there is was covered
		}
	}
	return span{}, false
}

func (o *Operator) writer(name string) *writerFrames {
	f := o.writers[name]
	if f == nil {
		f = &writerFrames{changed: true}
		o.writers[cloneString(name)] = f
	}
	return f
}

// MissingFramesError tells that a mark promises frames that were not had before it. The
// mark is not taken in, but the operator is not halted: Declare may cover the frames with
// GAP records that stand behind the mark, and then Apply takes the same record.
type MissingFramesError struct {
	Stream      string
	Partition   int    // key partition
	Seq         uint64 // of the mark
	Writer      string
	First, Last uint64 // the first hole
	Promised    uint64 // frames that the mark says are stored
}

// Error says what is missing, why the partition stops, and both ways out.
func (e *MissingFramesError) Error() string {
	return fmt.Sprintf("events journal %s/%02d, sequence %d: frames %d to %d of writer %s are missing, although its mark says that frames up to %d are stored: "+
		"events are lost or the journal is damaged; restore the journal, or, once it is certain that they are gone: tidemark source gap %s --partition %02d --writer %s --frames %d-%d --reason …",
		e.Stream, e.Partition, e.Seq, e.First, e.Last, e.Writer, e.Promised, e.Stream, e.Partition, e.Writer, e.First, e.Last)
}

// checkFrames stops at a mark whose frames were not all had.
func (o *Operator) checkFrames(m *envelope.Mark) error {
	if m.Writer == "" || m.Frames == 0 {
		return nil
	}
	hole, found := o.writer(m.Writer).missing(m.Frames)
	if !found {
		return nil
	}
	return &MissingFramesError{
		Stream: o.cfg.Policy.Stream, Partition: o.cfg.Partition, Seq: o.seq,
		Writer: cloneString(m.Writer), First: hole.first, Last: hole.last, Promised: m.Frames,
	}
}

// Declare notes frames that a GAP record further on in the journal declares lost. Taking
// such a record in early and again at its place changes no output: it only lets marks pass.
func (o *Operator) Declare(g *envelope.Gap) error {
	if o.failed != nil {
		return o.failed
	}
	return o.applyGap(g)
}

// applyGap notes frames declared lost. One that turns up all the same is still taken in.
func (o *Operator) applyGap(g *envelope.Gap) error {
	if g.First == 0 || g.Last < g.First {
		return fmt.Errorf("events journal %s/%02d, sequence %d: GAP of writer %q names the frames %d to %d: want 1 <= first <= last",
			o.cfg.Policy.Stream, o.cfg.Partition, o.seq, g.Writer, g.First, g.Last)
	}
	f := o.writer(g.Writer)
	f.lost, f.changed = f.lost.with(span{g.First, g.Last}), true
	return nil
}

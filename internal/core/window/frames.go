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

// checkFrames halts at a mark whose frames were not all had.
func (o *Operator) checkFrames(m *envelope.Mark) error {
	if m.Writer == "" || m.Frames == 0 {
		return nil
	}
	hole, found := o.writer(m.Writer).missing(m.Frames)
	if !found {
		return nil
	}
	return fmt.Errorf("events journal %s/%02d, sequence %d: frames %d to %d of writer %s are missing, although its mark says that frames up to %d are stored: "+
		"events are lost or the journal is damaged; restore the journal, or append a GAP record for these frames once it is certain that they are gone",
		o.cfg.Policy.Stream, o.cfg.Partition, o.seq, hole.first, hole.last, m.Writer, m.Frames)
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

package window

import (
	"fmt"
	"slices"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// writerFrames is which frames of one writer were had in this journal: all up to
// contiguous, and those above that came out of order.
type writerFrames struct {
	contiguous uint64
	above      []uint64 // sorted, each > contiguous+1
	changed    bool     // since the last Delta
}

// had tells whether the frame was had.
func (f *writerFrames) had(number uint64) bool {
	if number <= f.contiguous {
		return true
	}
	_, found := slices.BinarySearch(f.above, number)
	return found
}

// take notes a frame that was not had.
func (f *writerFrames) take(number uint64) {
	f.changed = true
	if number != f.contiguous+1 {
		at, _ := slices.BinarySearch(f.above, number)
		f.above = slices.Insert(f.above, at, number)
		return
	}
	f.contiguous = number
	f.join()
}

// join moves contiguous over what stands right above it.
func (f *writerFrames) join() {
	n := 0
	for n < len(f.above) && f.above[n] <= f.contiguous+1 {
		f.contiguous = max(f.contiguous, f.above[n])
		n++
	}
	f.above = slices.Delete(f.above, 0, n)
}

// cover notes that the frames first..last are lost for good. Only those that are missing
// up to the highest number that matters are kept one by one.
func (f *writerFrames) cover(first, last uint64) {
	f.changed = true
	if first <= f.contiguous+1 {
		f.contiguous = max(f.contiguous, last)
		f.join()
		return
	}
	for n := first; n <= last; n++ {
		if !f.had(n) {
			f.take(n)
		}
		if n == last { // last may be the highest number there is
			break
		}
	}
}

// missing answers the first frame up to upTo that was not had, or 0, and the last of
// that hole.
func (f *writerFrames) missing(upTo uint64) (first, last uint64) {
	if f.contiguous >= upTo {
		return 0, 0
	}
	first, last = f.contiguous+1, upTo
	if len(f.above) > 0 {
		last = min(last, f.above[0]-1)
	}
	return first, last
}

// maxGap bounds how many frames above the contiguous ones one GAP may cover: more is a
// typing error, not a loss.
const maxGap = 1 << 20

func (o *Operator) writer(name string) *writerFrames {
	f := o.writers[name]
	if f == nil {
		f = &writerFrames{}
		o.writers[cloneString(name)] = f
	}
	return f
}

// checkFrames halts at a mark whose frames were not all had.
func (o *Operator) checkFrames(m *envelope.Mark) error {
	if m.Writer == "" || m.Frames == 0 {
		return nil
	}
	first, last := o.writer(m.Writer).missing(m.Frames)
	if first == 0 {
		return nil
	}
	return fmt.Errorf("events journal %s/%02d, sequence %d: frames %d to %d of writer %s are missing, although its mark says that frames up to %d are stored: "+
		"events are lost or the journal is damaged; restore the journal, or append a GAP record for these frames once it is certain that they are gone",
		o.cfg.Policy.Stream, o.cfg.Partition, o.seq, first, last, m.Writer, m.Frames)
}

func (o *Operator) applyGap(g *envelope.Gap) error {
	if g.First == 0 || g.Last < g.First {
		return fmt.Errorf("GAP of writer %q names the frames %d to %d: want 1 <= first <= last", g.Writer, g.First, g.Last)
	}
	f := o.writer(g.Writer)
	if g.First > f.contiguous+1 && g.Last-g.First >= maxGap {
		return fmt.Errorf("GAP of writer %q covers %d frames, at most %d are believed at once", g.Writer, g.Last-g.First+1, maxGap)
	}
	f.cover(g.First, g.Last)
	return nil
}

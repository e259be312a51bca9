package bench

import (
	"fmt"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// grid expects windows of fixed bounds: one number pair a (key, start), whatever the
// length of the input.
type grid struct {
	every int64 // microseconds
	spans int   // windows that hold one event
	back  int   // starts before Begin: late events, and windows that reach over it
	slots int   // starts in all
	cells []cell
}

type cell struct {
	sum      int64 // cents
	shown    int64 // what readers have seen last
	count    uint32
	counted  uint32
	revision uint32
}

func newGrid(s Spec) *grid {
	every := s.Window.every()
	g := &grid{every: every.Microseconds(), spans: int(windowSize / every)}
	g.back = int(Lateness/every) + g.spans - 1
	g.slots = g.back + int(s.span()/every) + 1
	if s.Window != Session {
		g.cells = make([]cell, s.Keys*g.slots)
	}
	return g
}

// at answers the place of the window of a key that starts last at or before t; false
// outside the span.
func (g *grid) at(key int, t envelope.EventTime) (int, bool) {
	slot := int64(t) - int64(Begin()) + int64(g.back)*g.every
	if slot < 0 || slot/g.every >= int64(g.slots) {
		return 0, false
	}
	at := key*g.slots + int(slot/g.every)
	return at, at < len(g.cells)
}

func (g *grid) put(ev *Event) {
	last, _ := g.at(ev.Key, ev.Time)
	for at := last; at > last-g.spans; at-- {
		g.cells[at].sum += ev.Cents
		g.cells[at].count++
	}
}

func (g *grid) settle() {}

func (g *grid) count() (n int) {
	for i := range g.cells {
		if g.cells[i].count > 0 {
			n++
		}
	}
	return n
}

func (g *grid) note(key int, r *revision.Revision, now shown) error {
	at, inside := g.at(key, r.Window.Start)
	length := time.Duration(r.Window.End-r.Window.Start) * time.Microsecond
	if !inside || length != windowSize || (int64(r.Window.Start)-int64(Begin()))%g.every != 0 {
		return fmt.Errorf("key %q, window %s to %s: no event belongs there", r.Key, r.Window.Start, r.Window.End)
	}
	c := &g.cells[at]
	if r.Revision != uint64(c.revision)+1 {
		return fmt.Errorf("key %q, window %s: revision %d comes after revision %d", r.Key, r.Window.Start, r.Revision, c.revision)
	}
	c.revision++
	c.shown, c.counted = now.sum, now.count
	return nil
}

func (g *grid) judge(c *Check) {
	for i := range g.cells {
		w := &g.cells[i]
		if w.count == 0 && w.revision == 0 {
			continue
		}
		c.Checked++
		if w.count != w.counted || w.sum != w.shown {
			c.Fail(fmt.Sprintf("key %d, window %d: readers see %d orders and %d cents, the batch has %d and %d",
				i/g.slots, i%g.slots-g.back, w.counted, w.shown, w.count, w.sum))
		}
	}
}

package bench

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// hoursBack is how many windows before Begin late events may fall into.
const hoursBack = int(Lateness / time.Hour)

// Expected is what every window must show in the end, by a batch over the generated
// events in which no engine has a part. One number pair a (key, hour), whatever the
// length of the input.
type Expected struct {
	hours   int
	cells   []cell // by key, then hour
	Applied uint64 // events that a window takes
	TooLate uint64
	Twins   uint64
	Refused uint64 // quarantined
}

type cell struct {
	sum      int64 // cents
	shown    int64 // what readers have seen last
	count    uint32
	counted  uint32
	revision uint32
}

// Expect computes it.
func Expect(s Spec) *Expected {
	e := &Expected{hours: hoursBack + s.Hours + 1}
	e.cells = make([]cell, s.Keys*e.hours)
	for g := NewGenerator(s); ; {
		ev, more := g.Next()
		if !more {
			return e
		}
		switch ev.Class {
		case Twin:
			e.Twins++
		case TooLate:
			e.TooLate++
		case Future, NoTime:
			e.Refused++
		default:
			e.Applied++
			at, _ := e.at(ev.Key, ev.Time)
			e.cells[at].sum += ev.Cents
			e.cells[at].count++
		}
	}
}

// at answers the place of a key's hour; false outside the span.
func (e *Expected) at(key int, t envelope.EventTime) (int, bool) {
	const hour = int64(time.Hour / time.Microsecond)
	back := int64(t) - int64(Begin()) + int64(hoursBack)*hour
	if back < 0 || back/hour >= int64(e.hours) {
		return 0, false
	}
	at := key*e.hours + int(back/hour)
	return at, at < len(e.cells)
}

// Windows answers how many windows hold something.
func (e *Expected) Windows() (n int) {
	for i := range e.cells {
		if e.cells[i].count > 0 {
			n++
		}
	}
	return n
}

// Note takes one accepted revision of a window, in order. An error says that no reader
// should have seen it.
func (e *Expected) Note(r *revision.Revision) error {
	key, err := strconv.Atoi(trimKey(r.Key))
	at, inside := e.at(key, r.Window.Start)
	if err != nil || !inside {
		return fmt.Errorf("key %q, window %s: no event belongs there", r.Key, r.Window.Start)
	}
	c := &e.cells[at]
	if r.Revision != uint64(c.revision)+1 {
		return fmt.Errorf("key %q, window %s: revision %d comes after revision %d", r.Key, r.Window.Start, r.Revision, c.revision)
	}
	c.revision++
	c.shown, c.counted = 0, 0
	for _, f := range r.Value {
		if f.Name == SumName {
			c.shown, err = strconv.ParseInt(strings.Replace(f.Text, ".", "", 1), 10, 64)
		} else {
			var n uint64
			n, err = strconv.ParseUint(f.Text, 10, 32)
			c.counted = uint32(n)
		}
		if err != nil {
			return fmt.Errorf("key %q, window %s: %s is %q", r.Key, r.Window.Start, f.Name, f.Text)
		}
	}
	return nil
}

func trimKey(key string) string {
	if len(key) < 2 {
		return ""
	}
	return key[2:]
}

// Judge compares every window with what was noted last.
func (e *Expected) Judge(c *Check) {
	for i := range e.cells {
		w := &e.cells[i]
		if w.count == 0 && w.revision == 0 {
			continue
		}
		c.Checked++
		if w.count != w.counted || w.sum != w.shown {
			c.Fail(fmt.Sprintf("key %d, hour %d: readers see %d orders and %d cents, the batch has %d and %d",
				i/e.hours, i%e.hours-hoursBack, w.counted, w.shown, w.count, w.sum))
		}
	}
}

package bench

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Expected is what every window must show in the end, by a batch over the generated
// events in which no engine has a part.
type Expected struct {
	Applied uint64 // events that a window takes
	TooLate uint64
	Twins   uint64
	Refused uint64 // quarantined
	windows windows
}

// windows are those of one kind: what the batch puts into them, and what readers see.
type windows interface {
	put(ev *Event)
	settle() // every event was put
	count() int
	note(key int, r *revision.Revision, now shown) error
	judge(c *Check)
}

// shown is the value of a window as readers see it.
type shown struct {
	sum   int64 // cents
	count uint32
}

// Expect computes it.
func Expect(s Spec) *Expected {
	e := &Expected{windows: newGrid(s)}
	if s.Window == Session {
		e.windows = newVisits(s)
	}
	for g := NewGenerator(s); ; {
		ev, more := g.Next()
		if !more {
			e.windows.settle()
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
			e.windows.put(&ev)
		}
	}
}

// Windows answers how many windows hold something.
func (e *Expected) Windows() int { return e.windows.count() }

// Note takes one accepted revision of a window, in order. An error says that no reader
// should have seen it.
func (e *Expected) Note(r *revision.Revision) error {
	key, err := strconv.Atoi(trimKey(r.Key))
	if err != nil {
		return fmt.Errorf("key %q: no event has it", r.Key)
	}
	var now shown
	for _, f := range r.Value {
		if f.Name == SumName {
			now.sum, err = strconv.ParseInt(strings.Replace(f.Text, ".", "", 1), 10, 64)
		} else {
			var n uint64
			n, err = strconv.ParseUint(f.Text, 10, 32)
			now.count = uint32(n)
		}
		if err != nil {
			return fmt.Errorf("key %q, window %s: %s is %q", r.Key, r.Window.Start, f.Name, f.Text)
		}
	}
	return e.windows.note(key, r, now)
}

func trimKey(key string) string {
	if len(key) < 2 {
		return ""
	}
	return key[2:]
}

// Judge compares every window with what was noted last.
func (e *Expected) Judge(c *Check) { e.windows.judge(c) }

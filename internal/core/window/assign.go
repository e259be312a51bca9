package window

import (
	"fmt"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// assigner answers which windows hold an instant. Windows of one assigner that start
// earlier end no later, and no two start together.
type assigner struct {
	size, every, offset int64 // microseconds; tumbling windows start every size
	calendar            *calendar
}

func newAssigner(w policy.WindowSpec) (assigner, error) {
	a := assigner{size: int64(w.Size), every: int64(w.Size), offset: int64(w.Offset)}
	switch w.Kind {
	case policy.Tumbling:
	case policy.Hopping:
		a.every = int64(w.Every)
		if a.every <= 0 || a.every > a.size {
			return a, fmt.Errorf("windows of %s cannot start every %s", w.Size, w.Every)
		}
	case policy.Calendar:
		var err error
		a.calendar, err = newCalendar(w.Calendar, w.Zone)
		return a, err
	case policy.Session: // an event's own stretch, see sessions
		a.size, a.every = int64(w.Gap), int64(w.Gap)
	default:
		return a, fmt.Errorf("this version does not compute %s windows", w.Kind)
	}
	if a.size <= 0 {
		return a, fmt.Errorf("the window size must be above 0")
	}
	return a, nil
}

// single tells that every instant lies in exactly one window.
func (a *assigner) single() bool { return a.every == a.size }

// last answers the window that starts last among those that hold t.
func (a *assigner) last(t envelope.EventTime) revision.Window {
	if a.calendar != nil {
		return a.calendar.window(t)
	}
	start, end := assign(t, a.every, a.offset)
	if a.single() {
		return revision.Window{Start: start, End: end}
	}
	return revision.Window{Start: start, End: a.endOf(start, end)}
}

// endOf answers the end of the hopping window that starts at start; next is the start of
// the one after it, which counts when start was cut.
func (a *assigner) endOf(start, next envelope.EventTime) envelope.EventTime {
	if start == envelope.MinEventTime {
		return next.Add(a.size - a.every)
	}
	return start.Add(a.size)
}

// appendAll appends the windows that hold t, the one that starts first before the others.
// A hopping window that would reach over the beginning of time is left out, unless it is
// the only one: there is no event that early.
func (a *assigner) appendAll(windows []revision.Window, t envelope.EventTime) []revision.Window {
	last := a.last(t)
	if a.single() {
		return append(windows, last)
	}
	first, more := last.Start, envelope.EventTime(0)
	for {
		earlier := first.Add(-a.every)
		if earlier == envelope.MinEventTime || earlier.Add(a.size) <= t {
			break
		}
		first = earlier
		more++
	}
	for ; more > 0; more-- {
		windows = append(windows, revision.Window{Start: first, End: first.Add(a.size)})
		first = first.Add(a.every)
	}
	return append(windows, last)
}

// assign answers the interval [start, end) of a grid that holds t: it is aligned to the
// epoch plus offset, with floor for times before it. One that would reach over an end of
// time is cut there; it never wraps.
func assign(t envelope.EventTime, size, offset int64) (start, end envelope.EventTime) {
	// Both remainders are below size, so their difference cannot overflow; t-offset could.
	into := floorMod(int64(t), size) - floorMod(offset, size)
	if into < 0 {
		into += size
	}
	start, end = t-envelope.EventTime(into), t+envelope.EventTime(size-into)
	if start > t {
		start = envelope.MinEventTime
	}
	if end < t {
		end = envelope.MaxEventTime
	}
	return start, end
}

// floorMod answers the remainder of a/b in [0, b); b > 0.
func floorMod(a, b int64) int64 {
	r := a % b
	if r < 0 {
		r += b
	}
	return r
}

// floorDiv answers a/b rounded down; b > 0.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

package oracle

import (
	"fmt"
	"math/big"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// bounds are those of a window, half-open.
type bounds struct{ start, end envelope.EventTime }

// before orders bounds by (end, start).
func (b bounds) before(c bounds) bool {
	if b.end != c.end {
		return b.end < c.end
	}
	return b.start < c.start
}

// assigner answers the windows that an event time falls into.
type assigner struct {
	window policy.WindowSpec
	zone   *time.Location
	days   map[date]*big.Int // the first microsecond of local days
}

type date struct {
	year  int
	month time.Month
	day   int
}

func newAssigner(w policy.WindowSpec) (*assigner, error) {
	a := &assigner{window: w, days: map[date]*big.Int{}}
	switch w.Kind {
	case policy.Tumbling, policy.Hopping, policy.Session:
		return a, nil
	case policy.Calendar:
		var err error
		a.zone, err = policy.Location(w.Zone)
		return a, err
	}
	return nil, fmt.Errorf("the oracle does not know %s windows", w.Kind)
}

// windows answers every window that holds t, by (end, start); for sessions the stretch
// that an event at t covers by itself.
func (a *assigner) windows(t envelope.EventTime) []bounds {
	switch a.window.Kind {
	case policy.Session:
		return []bounds{{t, t.Add(int64(a.window.Gap))}}
	case policy.Calendar:
		return []bounds{a.calendar(t)}
	case policy.Hopping:
		return a.aligned(t, int64(a.window.Every))
	}
	return a.aligned(t, int64(a.window.Size))
}

// aligned answers the windows [k*every+offset, +size) that hold t, cut at the ends of time.
func (a *assigner) aligned(t envelope.EventTime, every int64) (out []bounds) {
	size, step, offset := big.NewInt(int64(a.window.Size)), big.NewInt(every), big.NewInt(int64(a.window.Offset))
	at := big.NewInt(int64(t))
	k := new(big.Int).Sub(at, offset)
	k.Div(k, step) // Euclidean: floor for a positive step
	for start := k.Mul(k, step).Add(k, offset); ; start = new(big.Int).Sub(start, step) {
		end := new(big.Int).Add(start, size)
		if end.Cmp(at) <= 0 {
			break
		}
		out = append([]bounds{{clamp(start), clamp(end)}}, out...)
	}
	return out
}

// calendar answers the local day, week or month that holds t.
func (a *assigner) calendar(t envelope.EventTime) bounds {
	at := big.NewInt(int64(t))
	year, month, day := time.UnixMicro(int64(t)).In(a.zone).Date()
	from := a.first(date{year, month, day})
	for a.midnight(from).Cmp(at) > 0 {
		from = a.next(from, -1)
	}
	for a.midnight(a.next(from, 1)).Cmp(at) <= 0 { // an hour of the day before may come twice
		from = a.next(from, 1)
	}
	return bounds{clamp(a.midnight(from)), clamp(a.midnight(a.next(from, 1)))}
}

// first answers the first day of the day, week or month that holds d. Weeks start on Monday.
func (a *assigner) first(d date) date {
	switch a.window.Calendar {
	case policy.CalendarWeek:
		weekday := time.Date(d.year, d.month, d.day, 0, 0, 0, 0, time.UTC).Weekday()
		return normal(date{d.year, d.month, d.day - (int(weekday)+6)%7})
	case policy.CalendarMonth:
		return date{d.year, d.month, 1}
	}
	return d
}

// next answers the first day of the window n windows after the one that starts at d.
func (a *assigner) next(d date, n int) date {
	switch a.window.Calendar {
	case policy.CalendarWeek:
		return normal(date{d.year, d.month, d.day + 7*n})
	case policy.CalendarMonth:
		return normal(date{d.year, d.month + time.Month(n), 1})
	}
	return normal(date{d.year, d.month, d.day + n})
}

func normal(d date) date {
	year, month, day := time.Date(d.year, d.month, d.day, 0, 0, 0, 0, time.UTC).Date()
	return date{year, month, day}
}

// midnight answers the first instant whose local date is d or later: local midnight, or
// what follows where the clocks were put forward over it. It is looked for second by
// second within the minute that is found minute by minute.
func (a *assigner) midnight(d date) *big.Int {
	if known := a.days[d]; known != nil {
		return known
	}
	const dayAndMore = 26 * 3600 // no zone is further from UTC
	utc := time.Date(d.year, d.month, d.day, 0, 0, 0, 0, time.UTC).Unix()
	second := utc - dayAndMore
	for !a.reached(second, d) {
		second += 60
	}
	for a.reached(second-1, d) {
		second--
	}
	a.days[d] = new(big.Int).Mul(big.NewInt(second), big.NewInt(1_000_000))
	return a.days[d]
}

func (a *assigner) reached(second int64, d date) bool {
	year, month, day := time.Unix(second, 0).In(a.zone).Date()
	switch {
	case year != d.year:
		return year > d.year
	case month != d.month:
		return month > d.month
	}
	return day >= d.day
}

func clamp(n *big.Int) envelope.EventTime {
	switch {
	case n.Cmp(big.NewInt(int64(envelope.MinEventTime))) <= 0:
		return envelope.MinEventTime
	case n.Cmp(big.NewInt(int64(envelope.MaxEventTime))) >= 0:
		return envelope.MaxEventTime
	}
	return envelope.EventTime(n.Int64())
}

// Windows answers the windows that an event time falls into, by (end, start); for sessions
// the stretch that an event covers by itself.
func (o *Oracle) Windows(t envelope.EventTime) (out []revision.Window) {
	for _, b := range o.assign.windows(t) {
		out = append(out, revision.Window{Start: b.start, End: b.end})
	}
	return out
}

package window

import (
	"math"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// calendar answers the local day, week (from Monday) or month that holds an instant. A
// window starts at the first instant whose local date is its first day or later: local
// midnight, or what follows where the clocks were put forward over it.
type calendar struct {
	unit string
	zone *time.Location
}

func newCalendar(unit, zone string) (*calendar, error) {
	at, err := policy.Location(zone)
	return &calendar{unit: unit, zone: at}, err
}

// window answers the window that holds t, cut at the ends of time.
func (c *calendar) window(t envelope.EventTime) revision.Window {
	year, month, day := t.Time().In(c.zone).Date()
	first := c.first(time.Date(year, month, day, 0, 0, 0, 0, time.UTC))
	start, end := c.begin(first), c.begin(c.next(first))
	// Where the clocks are put back over midnight, an hour of the day before comes again.
	for end <= t && end != envelope.MaxEventTime {
		first = c.next(first)
		start, end = end, c.begin(c.next(first))
	}
	return revision.Window{Start: start, End: end}
}

// first answers the first day of the window that the day belongs to. Days are instants at
// midnight UTC, whatever the zone.
func (c *calendar) first(day time.Time) time.Time {
	switch c.unit {
	case policy.CalendarWeek:
		return day.AddDate(0, 0, -(int(day.Weekday())+6)%7)
	case policy.CalendarMonth:
		return day.AddDate(0, 0, 1-day.Day())
	}
	return day
}

// next answers the first day of the window after the one that starts with day.
func (c *calendar) next(day time.Time) time.Time {
	switch c.unit {
	case policy.CalendarWeek:
		return day.AddDate(0, 0, 7)
	case policy.CalendarMonth:
		return day.AddDate(0, 1, 0)
	}
	return day.AddDate(0, 0, 1)
}

// begin answers the first instant whose local date is day or later.
func (c *calendar) begin(day time.Time) envelope.EventTime {
	midnight := day.Unix() // in a zone that is off seconds ahead: off seconds too late
	at := time.Unix(midnight-24*3600, 0).In(c.zone)
	for { // the stretches between two changes of the clocks
		_, off := at.Zone()
		begin := max(midnight-int64(off), at.Unix())
		_, end := at.ZoneBounds()
		// On the last day of a leap year beyond the table of a zone, ZoneBounds answers an
		// end that is behind it; the clocks do not change there.
		if !end.After(at) || begin < end.Unix() {
			return micros(begin)
		}
		at = end.In(c.zone)
	}
}

// micros answers seconds as an event time, cut at the ends of time.
func micros(seconds int64) envelope.EventTime {
	switch {
	case seconds > math.MaxInt64/1_000_000:
		return envelope.MaxEventTime
	case seconds < math.MinInt64/1_000_000:
		return envelope.MinEventTime
	}
	return envelope.EventTime(seconds * 1_000_000)
}

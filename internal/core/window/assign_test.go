package window

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"pgregory.net/rapid"
)

func gridOf(t testing.TB, w policy.WindowSpec) *assigner {
	t.Helper()
	a, err := newAssigner(w)
	if err != nil {
		t.Fatal(err)
	}
	return &a
}

func spansOf(windows []revision.Window) string {
	var out []string
	for _, w := range windows {
		out = append(out, fmt.Sprintf("[%d,%d)", int64(w.Start), int64(w.End)))
	}
	return strings.Join(out, " ")
}

func TestWindowsOfAnInstant(t *testing.T) {
	tumbling := func(size, offset policy.Duration) policy.WindowSpec {
		return policy.WindowSpec{Kind: policy.Tumbling, Size: size, Offset: offset}
	}
	hopping := func(size, every, offset policy.Duration) policy.WindowSpec {
		return policy.WindowSpec{Kind: policy.Hopping, Size: size, Every: every, Offset: offset}
	}
	for _, c := range []struct {
		name   string
		window policy.WindowSpec
		at     envelope.EventTime
		want   string
	}{
		{"the first instant", tumbling(5000, 0), 0, "[0,5000)"},
		{"the last instant", tumbling(5000, 0), 4999, "[0,5000)"},
		{"the end belongs to the next", tumbling(5000, 0), 5000, "[5000,10000)"},
		{"offset", tumbling(5000, 100), 5099, "[100,5100)"},
		{"offset, next", tumbling(5000, 100), 5100, "[5100,10100)"},
		{"negative offset", tumbling(5000, -100), 0, "[-100,4900)"},
		{"negative offset, next", tumbling(5000, -100), 4900, "[4900,9900)"},
		{"before the epoch", tumbling(7, 0), -1, "[-7,0)"},
		{"before the epoch, start", tumbling(7, 0), -7, "[-7,0)"},
		{"before the epoch, earlier", tumbling(7, 0), -8, "[-14,-7)"},
		{"the end of time cuts", tumbling(10, 0), envelope.MaxEventTime - 1, "[9223372036854775800,9223372036854775807)"},
		{"hopping", hopping(10, 5, 0), 1, "[-5,5) [0,10)"},
		{"hopping, on a start", hopping(10, 5, 0), 5, "[0,10) [5,15)"},
		{"hopping, on the next", hopping(10, 5, 0), 10, "[5,15) [10,20)"},
		{"hopping that does not divide", hopping(12, 5, 0), 21, "[10,22) [15,27) [20,32)"},
		{"hopping, one window only", hopping(6, 5, 0), 7, "[5,11)"},
		{"hopping every size", hopping(10, 10, 0), 7, "[0,10)"},
		{"hopping with offset", hopping(10, 5, 2), 1, "[-8,2) [-3,7)"},
		{"hopping at the beginning of time", hopping(10, 5, 0), envelope.MinEventTime, "[-9223372036854775808,-9223372036854775800)"},
		{"hopping at the end of time", hopping(10, 5, 0), envelope.MaxEventTime - 1, "[9223372036854775800,9223372036854775807) [9223372036854775805,9223372036854775807)"},
	} {
		if got := spansOf(gridOf(t, c.window).appendAll(nil, c.at)); got != c.want {
			t.Errorf("%s: %d falls into %s, want %s", c.name, c.at, got, c.want)
		}
	}
}

func TestCalendarWindows(t *testing.T) {
	for _, c := range []struct{ unit, zone, at, start, end string }{
		{"day", "UTC", "2026-11-30T23:59:59.999999Z", "2026-11-30T00:00:00Z", "2026-12-01T00:00:00Z"},
		{"day", "Europe/Paris", "2026-11-30T23:00:00Z", "2026-11-30T23:00:00Z", "2026-12-01T23:00:00Z"},
		{"week", "UTC", "2026-11-30T00:00:00Z", "2026-11-30T00:00:00Z", "2026-12-07T00:00:00Z"},
		{"week", "UTC", "2026-11-29T23:59:59Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"},
		{"week", "UTC", "1969-12-31T00:00:00Z", "1969-12-29T00:00:00Z", "1970-01-05T00:00:00Z"},
		{"month", "UTC", "2024-02-29T12:00:00Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"},
		{"month", "Europe/Paris", "2026-12-31T23:30:00Z", "2026-12-31T23:00:00Z", "2027-01-31T23:00:00Z"},
		// 23 hours: the clocks are put forward; 25 hours: they are put back.
		{"day", "Europe/Paris", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"day", "Europe/Paris", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"day", "America/Los_Angeles", "2021-03-14T10:00:00Z", "2021-03-14T08:00:00Z", "2021-03-15T07:00:00Z"},
		{"day", "America/Los_Angeles", "2021-11-07T09:00:00Z", "2021-11-07T07:00:00Z", "2021-11-08T08:00:00Z"},
		{"week", "Europe/Paris", "2026-03-29T12:00:00Z", "2026-03-22T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"month", "Europe/Paris", "2026-10-15T00:00:00Z", "2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z"},
		// Midnight does not exist: the day starts at 01:00.
		{"day", "America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		{"day", "America/Sao_Paulo", "2018-11-04T02:59:59Z", "2018-11-03T03:00:00Z", "2018-11-04T03:00:00Z"},
		// Put back from 00:01 to 23:01: the day starts at the first midnight.
		{"day", "America/St_Johns", "2006-10-29T02:45:00Z", "2006-10-29T02:30:00Z", "2006-10-30T03:30:00Z"},
		{"day", "America/St_Johns", "2006-10-29T02:29:59Z", "2006-10-28T02:30:00Z", "2006-10-29T02:30:00Z"},
		// A day that the islands left out: the one before it ends where the one after it starts.
		{"day", "Pacific/Apia", "2011-12-31T00:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
	} {
		at, err := envelope.ParseEventTime(c.at)
		if err != nil {
			t.Fatal(err)
		}
		w := gridOf(t, policy.WindowSpec{Kind: policy.Calendar, Calendar: c.unit, Zone: c.zone}).last(at)
		if w.Start.String() != c.start || w.End.String() != c.end {
			t.Errorf("%s of %s in %s is [%s, %s), want [%s, %s)", c.unit, c.at, c.zone, w.Start, w.End, c.start, c.end)
		}
	}
}

// Every instant lies in its windows, and a window answers itself for its own start: what a
// restored state relies on.
func TestWindowsHoldTheirInstants(t *testing.T) {
	zones := []string{"UTC", "Europe/Paris", "America/Sao_Paulo", "America/St_Johns", "Pacific/Apia", "Asia/Kathmandu", "Africa/Monrovia"}
	rapid.Check(t, func(rt *rapid.T) {
		spec := policy.WindowSpec{Kind: policy.Hopping, Size: policy.Duration(rapid.Int64Range(1, 1000).Draw(rt, "size"))}
		spec.Every = policy.Duration(rapid.Int64Range(1, int64(spec.Size)).Draw(rt, "every"))
		spec.Offset = policy.Duration(rapid.Int64Range(1-int64(spec.Size), int64(spec.Size)-1).Draw(rt, "offset"))
		at := envelope.EventTime(rapid.Int64().Draw(rt, "at"))
		if rapid.Bool().Draw(rt, "calendar") {
			spec = policy.WindowSpec{Kind: policy.Calendar, Calendar: rapid.SampledFrom([]string{"day", "week", "month"}).Draw(rt, "unit"), Zone: rapid.SampledFrom(zones).Draw(rt, "zone")}
			at = envelope.EventTime(rapid.OneOf(rapid.Int64(), rapid.Int64Range(-5e15, 5e15)).Draw(rt, "instant"))
		}
		if at == envelope.MaxEventTime {
			return // no event has that time
		}
		grid := gridOf(t, spec)
		windows := grid.appendAll(nil, at)
		for i, w := range windows {
			if at < w.Start || at >= w.End || i > 0 && windows[i-1].Start >= w.Start || i > 0 && windows[i-1].End > w.End {
				rt.Fatalf("%d falls into %s", at, spansOf(windows))
			}
			if again := grid.last(w.Start); again != w {
				rt.Fatalf("the start of %s lies in %s", spansOf([]revision.Window{w}), spansOf([]revision.Window{again}))
			}
			if w.End < envelope.MaxEventTime && slices.Contains(grid.appendAll(nil, w.End), w) {
				rt.Fatalf("%s holds its end", spansOf([]revision.Window{w}))
			}
		}
	})
}

func BenchmarkCalendarDay(b *testing.B) {
	grid := gridOf(b, policy.WindowSpec{Kind: policy.Calendar, Calendar: policy.CalendarDay, Zone: "Europe/Paris"})
	at := envelope.EventTime(time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC).UnixMicro())
	for b.Loop() {
		grid.last(at)
		at++
	}
}

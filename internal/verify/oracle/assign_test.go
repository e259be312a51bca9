package oracle

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// Windows of a calendar follow one another without holes, hold their instant, and start
// at the first instant of a local day.
func TestCalendarWindowsTileTime(t *testing.T) {
	zones := []string{"UTC", "Europe/Paris", "America/St_Johns", "America/Sao_Paulo", "Pacific/Apia", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Monrovia"}
	rapid.Check(t, func(t *rapid.T) {
		spec := policy.WindowSpec{
			Kind: policy.Calendar, Zone: rapid.SampledFrom(zones).Draw(t, "zone"),
			Calendar: rapid.SampledFrom([]string{policy.CalendarDay, policy.CalendarWeek, policy.CalendarMonth}).Draw(t, "calendar"),
		}
		a, err := newAssigner(spec)
		if err != nil {
			t.Fatal(err)
		}
		at := envelope.EventTime(rapid.Int64Range(-3_000_000_000, 4_000_000_000).Draw(t, "second") * 1_000_000)
		w := a.windows(at)[0]
		if at < w.start || at >= w.end {
			t.Fatalf("%s is not in [%s, %s)", at, w.start, w.end)
		}
		if next := a.windows(w.end)[0]; next.start != w.end {
			t.Fatalf("[%s, %s) is followed by one from %s", w.start, w.end, next.start)
		}
		if last := a.windows(w.end - 1)[0]; last != w {
			t.Fatalf("the last microsecond of [%s, %s) is in [%s, %s)", w.start, w.end, last.start, last.end)
		}
		first, before := time.UnixMicro(int64(w.start)).In(a.zone), time.UnixMicro(int64(w.start)-1).In(a.zone)
		if first.YearDay() == before.YearDay() && first.Year() == before.Year() {
			t.Fatalf("%s is not the first instant of a day", first)
		}
		if spec.Calendar == policy.CalendarWeek && first.Weekday() != time.Monday || spec.Calendar == policy.CalendarMonth && first.Day() != 1 {
			t.Fatalf("a %s starts on %s", spec.Calendar, first.Format(time.RFC1123))
		}
	})
}

// Every hopping window that holds an instant is answered, and no other, also at the ends of time.
func TestHoppingWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(1, 30).Draw(t, "size")
		every := rapid.Int64Range(1, size).Draw(t, "every")
		offset := rapid.Int64Range(-size+1, size-1).Draw(t, "offset")
		a, err := newAssigner(policy.WindowSpec{Kind: policy.Hopping, Size: policy.Duration(size), Every: policy.Duration(every), Offset: policy.Duration(offset)})
		if err != nil {
			t.Fatal(err)
		}
		at := rapid.Int64Range(-100, 100).Draw(t, "at")
		var want []bounds
		for k := int64(-200); k <= 200; k++ {
			if start := k*every + offset; start <= at && at < start+size {
				want = append(want, bounds{envelope.EventTime(start), envelope.EventTime(start + size)})
			}
		}
		got := a.windows(envelope.EventTime(at))
		if len(got) != len(want) {
			t.Fatalf("%d is in %v, want %v", at, got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%d is in %v, want %v", at, got, want)
			}
		}
		for _, end := range []envelope.EventTime{envelope.MinEventTime, envelope.MaxEventTime} {
			for _, w := range a.windows(end) {
				if w.start > end || w.end < end {
					t.Fatalf("%s is in [%s, %s)", end, w.start, w.end)
				}
			}
		}
	})
}

func TestOracleSaysWhatItDoesNotKnow(t *testing.T) {
	stream := &policy.BusinessStream{Name: "s", Extractors: []policy.Extractor{{Name: "at@1", Path: "/t", Format: policy.UnixUs}}}
	good := policy.StreamTimePolicy{Stream: "s", Extractor: "at@1", Window: policy.WindowSpec{Kind: policy.Tumbling, Size: policy.Hour}}
	if _, err := New(stream, &good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*policy.StreamTimePolicy){
		"windows":   func(p *policy.StreamTimePolicy) { p.Window.Kind = "spiral" },
		"aggregate": func(p *policy.StreamTimePolicy) { p.Aggregates = []policy.AggregateSpec{{Name: "x", Func: "median"}} },
		"extractor": func(p *policy.StreamTimePolicy) { p.Extractor = "other@1" },
		"zone": func(p *policy.StreamTimePolicy) {
			p.Window = policy.WindowSpec{Kind: policy.Calendar, Calendar: "day", Zone: "Moon/Base"}
		},
	} {
		p := good
		change(&p)
		if _, err := New(stream, &p); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

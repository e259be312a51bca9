package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/watermark"
	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

func explained() (*policy.BusinessStream, *policy.StreamTimePolicy) {
	return &policy.BusinessStream{Name: "s", Partitions: 1, Key: []string{"/k"}, Extractors: []policy.Extractor{{Name: "at@1", Path: "/t", Format: policy.UnixUs}}},
		&policy.StreamTimePolicy{
			Stream: "s", Job: "j", Generation: 1, Extractor: "at@1", Sources: []policy.SourceRef{{Name: "src", Partitions: 2}},
			Window: policy.WindowSpec{Kind: policy.Tumbling, Size: policy.Hour, Zone: "UTC"}, AllowedLateness: policy.Day, RetainIDs: 40 * policy.Day,
			Aggregates: []policy.AggregateSpec{{Name: "sum", Func: "sum", Arg: "amount"}},
		}
}

func TestWindowsThatHoldATime(t *testing.T) {
	for name, c := range map[string]struct {
		window policy.WindowSpec
		at     string
		want   string
	}{
		"tumbling": {policy.WindowSpec{Kind: policy.Tumbling, Size: policy.Hour}, "11:00:00", "2025-06-02T11:00:00Z to 2025-06-02T12:00:00Z"},
		"hopping": {
			policy.WindowSpec{Kind: policy.Hopping, Size: policy.Hour, Every: 20 * policy.Minute, Offset: 5 * policy.Minute},
			"10:30:00",
			"2025-06-02T09:45:00Z to 2025-06-02T10:45:00Z, 2025-06-02T10:05:00Z to 2025-06-02T11:05:00Z, 2025-06-02T10:25:00Z to 2025-06-02T11:25:00Z",
		},
		"calendar": {policy.WindowSpec{Kind: policy.Calendar, Calendar: policy.CalendarWeek, Zone: "Europe/Paris"}, "10:30:00", "2025-06-01T22:00:00Z to 2025-06-08T22:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			bs, p := explained()
			p.Window = c.window
			windows, err := windowsAt(bs, p, at(c.at))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, w := range windows {
				got = append(got, span(w))
			}
			if text := strings.Join(got, ", "); text != c.want {
				t.Errorf("%s, want %s", text, c.want)
			}
		})
	}
}

// sessionRow is a row of a session of the demo's day as queries answer it.
func sessionRow(from, to string, number uint64, op revision.Op, state revision.OutputState, by string) windowRow {
	return windowRow{
		Start: at(from), End: at(to), Revision: number, Op: string(op), State: string(state), SupersededBy: by,
		ProjectionID: "id of " + from + " to " + to,
	}
}

func TestExplanationsOfSessions(t *testing.T) {
	_, p := explained()
	p.Window = policy.WindowSpec{Kind: policy.Session, Gap: 10 * policy.Minute, Rule: "gap-10"}
	live := func(from, to string, dirty bool) *window.OpenWindow {
		return &window.OpenWindow{Window: revision.Window{Start: at(from), End: at(to)}, Events: 2, Dirty: dirty}
	}
	current := func(from, to string, state revision.OutputState) *windowRow {
		r := sessionRow(from, to, 1, revision.Upsert, state, "")
		return &r
	}
	merged := sessionRow("10:00:00", "10:40:00", 1, revision.Upsert, revision.Corrected, "")
	for name, c := range map[string]struct {
		w     string
		held  *window.OpenWindow
		shown *windowRow
		past  []windowRow
		state revision.OutputState
		want  []string
	}{
		"nothing": {w: "12:00:00", state: revision.Open, want: []string{"no session of the key holds this time"}},
		"open": {
			w: "10:15:00", held: live("10:00:00", "10:20:00", false), state: revision.Open,
			want: []string{
				"must reach the session's end 2025-06-02T10:20:00Z, which is its last event plus the gap 10m",
				"an event after 2025-06-02T09:50:00Z and before 2025-06-02T10:20:00Z joins it",
				"it closes when the watermark reaches 2025-06-02T10:20:00Z, no earlier",
				"source src partition 0 holds it: its highest event time 2025-06-02T10:20:00Z, less the out-of-orderness, gives 2025-06-02T10:15:00Z, which is 5m short",
				"source src partition 1 is idle, quiet for 7s: the watermark does not wait for it",
			},
		},
		"published": {
			w: "10:20:00", held: live("10:00:00", "10:20:00", false), shown: current("10:00:00", "10:20:00", revision.OnTimeEmitted), state: revision.OnTimeEmitted,
			want: []string{"an event after 2025-06-02T09:50:00Z and before 2025-06-02T10:20:00Z that is not too late joins it", "until the watermark 2025-06-02T10:20:00Z reaches 2025-06-03T10:30:00Z"},
		},
		"grown, not fired": {
			w: "10:20:00", held: live("10:00:00", "10:25:00", true), shown: current("10:00:00", "10:20:00", revision.OnTimeEmitted), state: revision.Open,
			want: []string{"it has not fired", "until it fires, readers see what it will replace: 2025-06-02T10:00:00Z to 2025-06-02T10:20:00Z, revision 1"},
		},
		"replaced": {
			w: "12:00:00", held: live("10:00:00", "10:40:00", false), shown: &merged, state: revision.Corrected,
			past: []windowRow{
				sessionRow("10:00:00", "10:20:00", 1, revision.Upsert, revision.OnTimeEmitted, ""),
				sessionRow("10:00:00", "10:20:00", 2, revision.Retract, revision.Corrected, merged.ProjectionID), merged,
			},
			want: []string{"the session 2025-06-02T10:00:00Z to 2025-06-02T10:20:00Z was replaced by 2025-06-02T10:00:00Z to 2025-06-02T10:40:00Z: its revision 2 retracts it"},
		},
		"withdrawn": {
			w: "12:00:00", state: revision.Open,
			past: []windowRow{sessionRow("10:00:00", "10:20:00", 1, revision.Upsert, revision.OnTimeEmitted, ""), sessionRow("10:00:00", "10:20:00", 2, revision.Retract, revision.Corrected, "")},
			want: []string{"no session of the key holds this time", "2025-06-02T10:00:00Z to 2025-06-02T10:20:00Z was taken back by its revision 2: an event of it was withdrawn"},
		},
		"final": {
			w: "12:00:00", shown: current("10:00:00", "10:20:00", revision.Finalized), state: revision.Finalized,
			want: []string{"it is final: the watermark 2025-06-02T12:00:00Z has reached end + allowed lateness + gap 2025-06-03T10:30:00Z"},
		},
		"a change behind its end": {
			w: "12:00:00", held: live("10:00:00", "10:20:00", true), shown: current("10:00:00", "10:20:00", revision.OnTimeEmitted), state: revision.OnTimeEmitted,
			want: []string{"a change waits for the next mark"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := &explanation{Watermark: at(c.w), WatermarkData: at(c.w), State: revision.Open, Revisions: c.past, Partitions: []window.PartitionStatus{
				{Source: "src", Status: watermark.Active, Holds: true, MaxEventTime: at(c.w).Add(int64(5 * policy.Minute)), Watermark: at(c.w)},
				{Source: "src", Partition: 1, Status: watermark.Idle, QuietForMs: 7000, MaxEventTime: envelope.MinEventTime, Watermark: envelope.MinEventTime},
			}}
			x.names = windowNames{}
			for i := range c.past {
				x.names.note(&c.past[i])
			}
			x.reasonSession(p, c.held, c.shown)
			why := strings.Join(x.Why, "\n")
			for _, want := range c.want {
				if !strings.Contains(why, want) {
					t.Errorf("it says\n%s\nwant %q", why, want)
				}
			}
			if x.State != c.state {
				t.Errorf("state %s, want %s", x.State, c.state)
			}
		})
	}
}

func TestWhoHoldsTheWatermark(t *testing.T) {
	_, p := explained()
	end, far := at("11:00:00"), at("10:30:00")
	for status, want := range map[string]string{
		watermark.Absent:     "has never been marked",
		watermark.Active:     "which is 30m short",
		watermark.Silent:     "is silent: its ingest stopped marking",
		watermark.CatchingUp: "it was idle and is catching up",
		watermark.Idle:       "is idle for 9s, as all are: the watermark waits for events (allIdle: hold)",
	} {
		s := &window.PartitionStatus{Status: status, MaxEventTime: far, Watermark: far, QuietForMs: 9000, Holds: true}
		if got := holds(s, p, end); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", status, got, want)
		}
	}
	p.AllIdle = policy.Advance
	if got := holds(&window.PartitionStatus{Status: watermark.Idle, QuietForMs: 9000}, p, end); !strings.Contains(got, "moves on with that time") {
		t.Errorf("all idle, advance: %q", got)
	}
	for status, want := range map[string]string{
		watermark.Active: "", watermark.Idle: "quiet for 9s: the watermark does not wait", watermark.Finished: "nothing more comes from it", watermark.CatchingUp: "counts again when it reaches the watermark",
	} {
		s := &window.PartitionStatus{Status: status, MaxEventTime: far, Watermark: far, QuietForMs: 9000}
		if got := stands(s, end); got == "" != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", status, got, want)
		}
	}
}

// The lines of a group name each other, whichever comes first.
func TestLinesOfAGroupNameEachOther(t *testing.T) {
	var out bytes.Buffer
	lines := lineGroup{cli: &cli{out: &out, output: "table"}}
	merged := sessionRow("10:00:00", "10:40:00", 1, revision.Upsert, revision.Corrected, "")
	for _, r := range []windowRow{
		sessionRow("10:00:00", "10:20:00", 2, revision.Retract, revision.Corrected, merged.ProjectionID),
		sessionRow("10:30:00", "10:40:00", 2, revision.Retract, revision.Corrected, merged.ProjectionID),
	} {
		merged.Supersedes = append(merged.Supersedes, supersededRow{r.ProjectionID, r.Revision})
		if err := lines.add(&r); err != nil || out.Len() > 0 {
			t.Fatalf("printed early: %q, %v", &out, err)
		}
	}
	if err := lines.add(&merged); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"(retracted), became 2025-06-02T10:00:00Z to 2025-06-02T10:40:00Z\n",
		", was 2025-06-02T10:00:00Z to 2025-06-02T10:20:00Z and 2025-06-02T10:30:00Z to 2025-06-02T10:40:00Z\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("printed\n%s\nwant %q", &out, want)
		}
	}
}

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/core/watermark"
	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// reason says in words why a window of fixed bounds is where it is.
func (x *explanation) reason(p *policy.StreamTimePolicy, held *window.OpenWindow) {
	final := x.Window.End.Add(int64(p.AllowedLateness))
	switch {
	case x.Watermark < x.Window.End:
		if held == nil {
			x.say("no event of this window has arrived yet")
		}
		x.say("it has not fired: the watermark stands at %s and must reach the window's end %s", x.Watermark, x.Window.End)
		x.holders(p, x.Window.End)
		return
	case len(x.Revisions) == 0 && held == nil:
		x.say("no event was accepted into it, and an empty window is never published")
	case held != nil && held.Dirty:
		x.say("a correction waits for the next mark")
	case len(x.Revisions) > 0 && x.Revisions[len(x.Revisions)-1].Op == string(revision.Retract):
		x.say("every event of it was withdrawn, so the result is taken back")
	}
	if x.Watermark >= final {
		x.State = revision.Finalized
		x.say("it is final: the watermark %s has reached end + allowed lateness %s; a later event becomes a late record", x.Watermark, final)
		return
	}
	x.say("late events are accepted until the watermark %s reaches %s", x.Watermark, final)
	if len(x.Revisions) > 0 {
		x.firedWithout(x.Window.End)
	}
}

// firedWithout says that a window which has fired did not wait for everybody.
func (x *explanation) firedWithout(end envelope.EventTime) {
	switch {
	case x.WatermarkData >= end:
	case x.WatermarkData == envelope.MinEventTime:
		x.say("it fired without waiting for an idle source partition from which no event has come")
	default:
		x.say("it fired without waiting for an idle source partition: the data itself has only reached %s", x.WatermarkData)
	}
}

// holders says of every source partition what it does to a watermark that has not reached
// end: the ones that hold it first.
func (x *explanation) holders(p *policy.StreamTimePolicy, end envelope.EventTime) {
	for i := range x.Partitions {
		if s := &x.Partitions[i]; s.Holds {
			x.say("%s %s", partitionOf(s), holds(s, p, end))
		}
	}
	for i := range x.Partitions {
		if s := &x.Partitions[i]; !s.Holds {
			if why := stands(s, x.Watermark); why != "" {
				x.say("%s %s", partitionOf(s), why)
			}
		}
	}
}

func partitionOf(s *window.PartitionStatus) string {
	return fmt.Sprintf("source %s partition %d", s.Source, s.Partition)
}

// holds says why a source partition keeps the watermark where it is.
func holds(s *window.PartitionStatus, p *policy.StreamTimePolicy, end envelope.EventTime) string {
	switch s.Status {
	case watermark.Absent:
		return "has never been marked: no ingest owns it"
	case watermark.Silent:
		return "is silent: its ingest stopped marking; the watermark waits until it marks again or is retired"
	case watermark.Idle:
		if p.AllIdle == policy.Advance {
			return fmt.Sprintf("is idle, as all are, and was quiet for the shortest time, %s: the watermark moves on with that time (allIdle: advance)", quiet(s))
		}
		return fmt.Sprintf("is idle for %s, as all are: the watermark waits for events (allIdle: hold)", quiet(s))
	}
	if s.MaxEventTime == envelope.MinEventTime {
		return "holds it: no event has come from it"
	}
	text := fmt.Sprintf("holds it: its highest event time %s, less the out-of-orderness, gives %s", s.MaxEventTime, s.Watermark)
	if s.Watermark < end {
		text += fmt.Sprintf(", which is %s short", between(s.Watermark, end))
	}
	if s.Status == watermark.CatchingUp {
		text += "; it was idle and is catching up"
	}
	return text
}

// stands says why a source partition does not hold the watermark, "" when it is simply
// further.
func stands(s *window.PartitionStatus, w envelope.EventTime) string {
	switch s.Status {
	case watermark.Idle:
		return fmt.Sprintf("is idle, quiet for %s: the watermark does not wait for it", quiet(s))
	case watermark.Finished:
		return "is finished: nothing more comes from it"
	case watermark.CatchingUp:
		return fmt.Sprintf("is catching up after it was idle: it stands at %s and counts again when it reaches the watermark %s", s.Watermark, w)
	}
	return ""
}

func quiet(s *window.PartitionStatus) time.Duration {
	return time.Duration(s.QuietForMs) * time.Millisecond
}

// between answers the time from one event time to a later one, exactly.
func between(from, to envelope.EventTime) policy.Duration {
	return policy.Duration(int64(to) - int64(from))
}

func (x *explanation) say(format string, args ...any) {
	x.Why = append(x.Why, fmt.Sprintf(format, args...))
}

// span writes a window's bounds.
func span(w revision.Window) string { return w.Start.String() + " to " + w.End.String() }

// windowNames knows the bounds behind projection ids, as far as rows were seen.
type windowNames map[string]revision.Window

func (n windowNames) note(w *windowRow) {
	n[w.ProjectionID] = revision.Window{Start: w.Start, End: w.End}
}

// name answers the bounds of a projection, or its id when no row of it was seen.
func (n windowNames) name(id string) string {
	if w, known := n[id]; known {
		return span(w)
	}
	return fmt.Sprintf("projection %.12s…", id)
}

// succession says what a row took the place of, and what took its place; "" for nothing.
func (n windowNames) succession(w *windowRow) string {
	if w.SupersededBy != "" {
		return ", became " + n.name(w.SupersededBy)
	}
	if len(w.Supersedes) == 0 {
		return ""
	}
	const shown = 3
	var old []string
	for _, s := range w.Supersedes[:min(shown, len(w.Supersedes))] {
		old = append(old, n.name(s.ProjectionID))
	}
	if more := len(w.Supersedes) - shown; more > 0 {
		old = append(old, fmt.Sprintf("%d more", more))
	}
	return ", was " + strings.Join(old, " and ")
}

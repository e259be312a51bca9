package main

import (
	"context"

	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// session explains what holds the time now, and what held it before.
func (q *inquiry) session(ctx context.Context) (explanation, error) {
	x, held, err := q.ask(ctx, q.at)
	if err != nil {
		return x, err
	}
	current, err := q.rows(ctx, q.at, q.at+1, false)
	if err != nil {
		return x, err
	}
	past, err := q.rows(ctx, q.at, q.at+1, true)
	if err != nil {
		return x, err
	}
	x.names = windowNames{}
	if len(past) > 0 {
		if err := q.successors(ctx, past, x.names); err != nil {
			return x, err
		}
	}
	var shown *windowRow
	if len(current) > 0 {
		shown = &current[0]
		if held == nil {
			if x.Events, err = membersOf(shown.Record); err != nil {
				return x, err
			}
		}
	}
	for i := range past {
		past[i].Record = nil
	}
	x.Revisions = append(x.Revisions, past...)
	x.reasonSession(q.policy, held, shown)
	return x, nil
}

// successors learns the bounds of what took the place of past sessions: it lies where
// they lay, but need not hold the time that is asked about.
func (q *inquiry) successors(ctx context.Context, past []windowRow, names windowNames) error {
	from, to := past[0].Start, past[0].End
	for i := range past {
		names.note(&past[i])
		from, to = min(from, past[i].Start), max(to, past[i].End)
	}
	all, err := q.rows(ctx, from, to, true)
	for i := range all {
		names.note(&all[i])
	}
	return err
}

// reasonSession says in words why the session that holds the time is where it is, and what
// others became that held it. held is what the windower has, shown what readers see.
func (x *explanation) reasonSession(p *policy.StreamTimePolicy, held *window.OpenWindow, shown *windowRow) {
	gap := int64(p.Window.Gap)
	if shown != nil {
		x.Window, x.State = &revision.Window{Start: shown.Start, End: shown.End}, revision.OutputState(shown.State)
	}
	if held != nil {
		changed := x.Window == nil || *x.Window != held.Window
		x.Window = &held.Window
		if changed {
			x.State = revision.Open
		}
	}
	switch {
	case x.Window == nil:
		x.say("no session of the key holds this time: none has an event less than the gap %s before it", p.Window.Gap)
	case x.Watermark < x.Window.End:
		x.say("it has not fired: the watermark stands at %s and must reach the session's end %s, which is its last event plus the gap %s", x.Watermark, x.Window.End, p.Window.Gap)
		x.say("an event after %s and before %s joins it and may move its bounds; without one it closes when the watermark reaches %s, no earlier", x.Window.Start.Add(-gap), x.Window.End, x.Window.End)
		x.holders(p, x.Window.End)
	case held != nil && held.Dirty || shown == nil:
		x.say("a change waits for the next mark")
	}
	if shown != nil {
		x.readersSee(p, shown)
	}
	x.became()
}

// readersSee says how far the session that readers see may still change.
func (x *explanation) readersSee(p *policy.StreamTimePolicy, shown *windowRow) {
	end, gap := shown.End, int64(p.Window.Gap)
	if w := (revision.Window{Start: shown.Start, End: end}); *x.Window != w {
		x.say("until it fires, readers see what it will replace: %s, revision %d", span(w), shown.Revision)
		return
	}
	final := end.Add(int64(p.AllowedLateness)).Add(gap)
	switch {
	case shown.State == string(revision.Finalized):
		x.say("it is final: the watermark %s has reached end + allowed lateness + gap %s, and no session that has not fired begins before its end", x.Watermark, final)
		return
	case x.Watermark >= final:
		x.say("it is final as soon as no session of its key partition that has not fired begins before its end %s", end)
	default:
		x.say("an event after %s and before %s that is not too late joins it, as its next revision or as a longer session in its place; one can come until the watermark %s reaches %s", x.Window.Start.Add(-gap), end, x.Watermark, final)
	}
	x.firedWithout(end)
}

// became says of every session that held the time and was retracted what it became.
func (x *explanation) became() {
	last := map[string]int{}
	for i := range x.Revisions {
		last[x.Revisions[i].ProjectionID] = i
	}
	for i := range x.Revisions {
		w := &x.Revisions[i]
		switch {
		case w.Op != string(revision.Retract) || last[w.ProjectionID] != i:
		case w.SupersededBy == "":
			x.say("the session %s was taken back by its revision %d: an event of it was withdrawn", span(revision.Window{Start: w.Start, End: w.End}), w.Revision)
		default:
			x.say("the session %s was replaced by %s: its revision %d retracts it in the batch that brings the other", span(revision.Window{Start: w.Start, End: w.End}), x.names.name(w.SupersededBy), w.Revision)
		}
	}
}

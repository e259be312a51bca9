package main

import (
	"fmt"
	"slices"

	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// windowsAt answers the windows of fixed bounds that hold t, the one that starts first
// before the others. The core says which: an operator that has had nothing gets one event
// at t.
func windowsAt(bs *policy.BusinessStream, p *policy.StreamTimePolicy, t envelope.EventTime) ([]revision.Window, error) {
	counting := *p
	counting.Aggregates = []policy.AggregateSpec{{Name: "n", Func: "count"}}
	op, err := window.New(window.Config{Stream: bs, Policy: &counting})
	if err != nil {
		return nil, err
	}
	const key = "k"
	ev := &envelope.Event{ID: "1", Source: p.Sources[0].Name, Key: key, Times: []envelope.EventTime{t}}
	op.BeginFrame(1, &envelope.Frame{Extractors: []string{p.Extractor}})
	if err := op.ApplyEvent(0, ev); err != nil {
		return nil, err
	}
	last, found := op.Find(key, t)
	if !found {
		return nil, fmt.Errorf("policy %s has no window that holds %s", p.PolicyGeneration(), t)
	}
	windows := []revision.Window{last.Window}
	if p.Window.Kind != policy.Hopping {
		return windows, nil
	}
	for w := last.Window; ; {
		w.Start, w.End = w.Start.Add(-int64(p.Window.Every)), w.End.Add(-int64(p.Window.Every))
		if w.End <= t || w.Start == envelope.MinEventTime {
			slices.Reverse(windows)
			return windows, nil
		}
		windows = append(windows, w)
	}
}

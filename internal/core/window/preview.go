package window

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/tidemark-mesh/tidemark/internal/core/aggregate"
	"github.com/tidemark-mesh/tidemark/internal/core/identity"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// early is what previews need. They are no records: they have no position, and after a
// restore one may come again.
type early struct {
	every int64               // of ingestNow between previews, microseconds; 0 = none
	last  envelope.IngestTime // ingestNow at the last ones
	shown bool                // there were some
}

// PreviewsDue tells whether trigger.early has passed, by the marks' ingestNow, since the
// last previews.
func (o *Operator) PreviewsDue() bool {
	e := &o.early
	if e.every == 0 || o.failed != nil || o.pending() || o.now == math.MinInt64 || e.shown && o.now <= e.last {
		return false
	}
	return !e.shown || uint64(o.now)-uint64(e.last) >= uint64(e.every)
}

// Previews hands show every window that has events, has not reached its end and changed
// since it was shown last, by (end, start, key). What is handed over is valid until show
// returns. Call it between frames, when PreviewsDue answers true.
func (o *Operator) Previews(show func(*revision.Preview)) {
	o.early.last, o.early.shown = o.now, true
	if o.sessions != nil {
		o.sessions.previews(show)
		return
	}
	w := o.tracker.W()
	for _, p := range o.order {
		if w < p.end && p.unseen {
			o.previewPane(p, show)
		}
	}
}

func (o *Operator) previewPane(p *pane, show func(*revision.Preview)) {
	p.unseen = false
	var places []int
	for place := range p.wins {
		if p.wins[place].flags&winUnseen != 0 {
			p.wins[place].flags &^= winUnseen
			places = append(places, place)
		}
	}
	slices.SortFunc(places, func(a, b int) int {
		return strings.Compare(o.keys.name(p.wins[a].key), o.keys.name(p.wins[b].key))
	})
	for _, place := range places {
		if w := &p.wins[place]; w.events > 0 {
			o.preview(w.key, revision.Window{Start: p.start, End: p.end}, w.events, o.cellsOf(p, place), show)
		}
	}
}

func (o *Operator) preview(key uint32, w revision.Window, events uint64, cells []aggregate.Cell, show func(*revision.Preview)) {
	p := revision.Preview{
		Stream: o.cfg.Policy.Stream, Job: o.cfg.Policy.Job, PolicyGeneration: o.cfg.Policy.PolicyGeneration(),
		Key: o.keys.name(key), Window: w, Value: aggregate.Results(o.program, cells), Events: events,
		Watermark: o.tracker.W(), IngestNow: o.now,
	}
	p.LogicalWindowID = identity.LogicalWindow(p.Stream, p.Key, w.Start, w.End)
	p.ProjectionID = identity.Projection(p.LogicalWindowID, p.PolicyGeneration)
	show(&p)
}

// previews is Operator.Previews for sessions.
func (s *sessions) previews(show func(*revision.Preview)) {
	var refs []uint32
	for ref := range s.table {
		x := &s.table[ref]
		if x.flags&sessionHeld == 0 || x.flags&sessionUnseen == 0 || s.o.tracker.W() >= x.end {
			continue
		}
		x.flags &^= sessionUnseen
		if x.count > 0 {
			refs = append(refs, uint32(ref))
		}
	}
	slices.SortFunc(refs, func(a, b uint32) int {
		x, y := &s.table[a], &s.table[b]
		return cmp.Or(cmp.Compare(x.end, y.end), cmp.Compare(x.start, y.start), strings.Compare(s.o.keys.name(x.key), s.o.keys.name(y.key)))
	})
	for _, ref := range refs {
		x := &s.table[ref]
		if s.foldAll(x) == nil { // an overflow halts when the session fires, and says where
			s.o.preview(x.key, revision.Window{Start: x.start, End: x.end}, uint64(x.count), s.scratch.cells, show)
		}
	}
}

// foldAll computes the results over all members and changes nothing.
func (s *sessions) foldAll(x *session) error {
	c := &s.scratch
	c.cells = append(c.cells[:0], make([]aggregate.Cell, len(s.program))...)
	if len(c.values) < len(s.args) {
		c.values = make([]envelope.Value, len(s.args))
	}
	for rest := s.store.bytes(x.members); len(rest) > 0; {
		var m member
		m, rest = firstMember(rest)
		if err := s.foldMember(m); err != nil {
			return err
		}
	}
	return nil
}

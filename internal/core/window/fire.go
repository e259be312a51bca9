package window

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-mesh/tidemark/internal/core/aggregate"
	"github.com/tidemark-mesh/tidemark/internal/core/identity"
	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// firePlan is what one mark or REOPEN makes due: panes by end, in each the windows by key.
// Only the pane at hand is laid out, so a mark that closes a million windows costs no more.
type firePlan struct {
	active bool
	reopen bool // of a REOPEN
	panes  []*pane
	pane   *pane    // whose windows are in places
	first  bool     // the pane crosses its end now
	places []uint32 // what is left of it, by key
}

// applyMark moves the watermark and lays out what is due: windows whose end it crossed,
// and corrections. Every mark fires corrections, also one whose word on its own source
// partition is ignored.
func (o *Operator) applyMark(m *envelope.Mark) error {
	if err := o.checkFrames(m); err != nil {
		return err
	}
	o.trackerChanged = true
	o.tracker.Take(m, o.frame.time)
	o.now = max(o.now, m.IngestNow)
	w := o.tracker.W()
	if o.sessions != nil {
		o.sessions.mark(o.w)
		return nil
	}
	if w == o.w && o.dirty == 0 {
		o.settleMark()
		return nil
	}
	for _, p := range o.order {
		if p.end > w {
			break
		}
		if !p.fired || len(p.corrections) > 0 {
			o.plan.panes = append(o.plan.panes, p)
		}
	}
	o.plan.active = true
	o.seek()
	return nil
}

// seek finds the next window to be published; when there is none the mark is done.
func (o *Operator) seek() {
	f := &o.plan
	for {
		for len(f.places) > 0 {
			if o.due(f.pane, int(f.places[0])) {
				return
			}
			f.places = f.places[1:]
		}
		if len(f.panes) == 0 {
			mark := !f.reopen
			o.plan = firePlan{panes: f.panes[:0]}
			if mark {
				o.settleMark()
			}
			return
		}
		f.pane, f.panes = f.panes[0], f.panes[1:]
		o.layOut()
	}
}

// layOut sorts the windows of the plan's pane by key and takes the corrections as done.
func (o *Operator) layOut() {
	f, p := &o.plan, o.plan.pane
	f.first = !p.fired
	if p.fired {
		f.places = p.corrections
	} else {
		f.places = make([]uint32, len(p.wins))
		for i := range f.places {
			f.places[i] = uint32(i)
		}
	}
	o.dirty -= len(p.corrections)
	p.fired, p.corrections = true, nil
	slices.SortFunc(f.places, func(a, b uint32) int {
		return strings.Compare(o.keys.name(p.wins[a].key), o.keys.name(p.wins[b].key))
	})
}

// due tells whether a window has something to publish. An empty one has only if it is
// current: it is retracted then.
func (o *Operator) due(p *pane, place int) bool {
	w := &p.wins[place]
	if w.flags&winDirty != 0 {
		w.flags &^= winDirty
		p.touch(place)
	}
	return w.events > 0 || w.flags&winLive != 0
}

// settleMark ends a mark: W counts for commits now, and what is over is given back.
func (o *Operator) settleMark() {
	o.w, o.data = o.tracker.W(), o.tracker.Data()
	o.retire()
	if o.sessions != nil {
		o.sessions.settle()
	}
	o.sweepReopens()
	o.ids.sweep(o.w)
}

// retire gives final windows back once the grace is over: until then a REOPEN may need
// them, while events find them closed.
func (o *Operator) retire() {
	stay, at := 0, 0
	for ; at < len(o.order) && o.w >= o.order[at].end.Add(o.lateness); at++ {
		p := o.order[at]
		if !p.final {
			p.final, p.finalNow = true, o.now
		}
		if graceOver(p.finalNow, o.now) {
			o.release(p)
			continue
		}
		o.order[stay] = p
		stay++
	}
	o.order = slices.Delete(o.order, stay, at)
}

func (o *Operator) release(p *pane) {
	for i := range p.wins {
		o.keys.release(p.wins[i].key)
	}
	if p.stored > 0 {
		o.removed = append(o.removed, removedPane{start: p.start, blocks: p.stored, reopened: p.reopenedStored})
	}
	delete(o.panes, int64(p.start))
	if o.last == p {
		o.last = nil
	}
}

// fireNext appends the revision of the window that seek found.
func (o *Operator) fireNext(buf []byte) []byte {
	f := &o.plan
	p, place := f.pane, int(f.places[0])
	w := &p.wins[place]
	r, digest, err := o.revise(p, place, f.first)
	if err != nil {
		// Differences of exact numbers that fit always fit; if not, the state is damaged.
		o.failed = err
		return buf
	}
	buf = record.AppendProposal(buf, r, digest)
	p.keepValue(w, r.Value)
	o.advance(w, r, digest)
	p.touch(place)
	o.totals[classRevisions]++
	f.places = f.places[1:]
	o.seek()
	return buf
}

// advance makes r the window's last revision.
func (o *Operator) advance(w *win, r *revision.Revision, digest revision.Digest) {
	w.revision, w.digest, w.origin = uint32(r.Revision), digest, 0
	w.flags &^= winAsserted | winLive
	if r.Op == revision.Upsert {
		w.flags |= winLive
	}
	if r.Revision == 1 && r.Firing != revision.FiringOnTime {
		w.flags |= winFirstLate
	}
}

// revise answers the next revision of a window. It is valid until the next call.
func (o *Operator) revise(p *pane, place int, first bool) (*revision.Revision, revision.Digest, error) {
	w, pol := &p.wins[place], o.cfg.Policy
	r := &o.scratch
	offsets := r.Inputs.Offsets[:0]
	*r = revision.Revision{
		Stream: pol.Stream, Job: pol.Job, PolicyGeneration: pol.PolicyGeneration(), PolicyDigest: o.cfg.PolicyDigest,
		Key: o.keys.name(w.key), Window: revision.Window{Start: p.start, End: p.end},
		Op: revision.Upsert, Revision: uint64(w.revision) + 1, Origin: envelope.Origin(w.origin),
		Watermark: revision.Watermark{At: o.tracker.W(), Data: o.tracker.Data()},
	}
	r.LogicalWindowID = identity.LogicalWindow(r.Stream, r.Key, p.start, p.end)
	r.ProjectionID = identity.Projection(r.LogicalWindowID, r.PolicyGeneration)
	if w.revision > 0 {
		r.Predecessor = &revision.Predecessor{Revision: uint64(w.revision), Digest: w.digest}
	}
	r.State, r.Firing, r.Cause = why(w, first, o.plan.reopen)
	if w.events == 0 {
		r.Op = revision.Retract
	} else {
		r.Value = aggregate.Results(o.program, o.cellsOf(p, place))
	}
	old := o.lastValue(p, w)
	r.ValueChanged = !sameFields(old, r.Value)
	delta, err := aggregate.Deltas(o.program, old, r.Value)
	if err != nil {
		return nil, revision.Digest{}, fmt.Errorf("policy %s, key %q, window [%s, %s), revision %d: %w", r.PolicyGeneration, r.Key, p.start, p.end, r.Revision, err)
	}
	r.Delta = delta
	r.AggregateDigest = revision.ValueDigest(r.Value)
	r.Inputs = o.inputs(p, place, offsets)
	return r, r.ComputeDigest(), nil
}

// why answers state, firing and cause. The state is ON_TIME_EMITTED as long as the
// window's only revision is that of its first crossing, and CORRECTED ever after.
func why(w *win, first, reopen bool) (revision.OutputState, revision.Firing, string) {
	switch {
	case reopen:
		return revision.Corrected, revision.FiringReopened, revision.CauseReopened
	case first:
		return revision.OnTimeEmitted, revision.FiringOnTime, revision.CauseOnTime
	case w.revision == 0:
		return revision.Corrected, revision.FiringLate, revision.CauseLateWindow
	case w.flags&winAsserted != 0:
		return revision.Corrected, revision.FiringLate, revision.CauseLateEvent
	}
	return revision.Corrected, revision.FiringLate, revision.CauseRetraction
}

// inputs answers what went into the window; retractions stretch the ranges like members.
func (o *Operator) inputs(p *pane, place int, offsets []revision.OffsetRange) revision.Inputs {
	w := &p.wins[place]
	for at, r := range o.rangesOf(p, place) {
		if w.mask&(1<<at) != 0 {
			named := o.ranges[at]
			named.First, named.Last = r.first, r.last
			offsets = append(offsets, named)
		}
	}
	return revision.Inputs{
		Partition: o.cfg.Partition, First: w.first, Last: w.last,
		Events: w.events, IDDigest: w.idDigest, Offsets: offsets,
	}
}

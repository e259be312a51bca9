package window

import (
	"fmt"
	"slices"

	"github.com/tidemark-mesh/tidemark/internal/core/aggregate"
	"github.com/tidemark-mesh/tidemark/internal/core/identity"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// include takes an event into those of its windows that do not refuse it; they are made
// if they do not exist.
func (o *Operator) include(a *arrival) error {
	if !a.keyKnown {
		a.key, a.keyKnown = o.keys.intern(a.ev.Key), true
	}
	if o.sessions != nil {
		return o.sessions.include(a)
	}
	in := o.input(a, a.ev.ID)
	for _, window := range a.windows[a.refused:] {
		p := o.paneFor(window)
		place := o.placeFor(p, a.key)
		if err := o.add(a, p, place, in); err != nil {
			return err
		}
	}
	return nil
}

// placeFor answers the place of the key's window, which is made if it does not exist.
func (o *Operator) placeFor(p *pane, key uint32) int {
	if place, ok := p.find(key); ok {
		return place
	}
	o.keys.retain(key)
	return p.add(key, len(o.program), len(o.ranges))
}

// add takes an event into one window.
func (o *Operator) add(a *arrival, p *pane, place int, in *aggregate.Input) error {
	cells := o.cellsOf(p, place)
	for i := range o.program {
		err := o.pick(a, i)
		if err == nil {
			err = o.program[i].Add(&cells[i], in)
		}
		if err != nil {
			return o.refused(a, p, i, err)
		}
	}
	w := &p.wins[place]
	w.events++
	w.idDigest = identity.Sum128(w.idDigest, a.hash)
	w.flags |= winAsserted
	o.changed(a, p, place)
	return nil
}

// exclude takes the target of a retraction out of those of its windows that do not refuse
// the retraction: they took the target, which came before. The retraction repeats the
// target's data, so its values are the target's.
func (o *Operator) exclude(a *arrival, target [16]byte) error {
	if o.sessions != nil {
		return o.sessions.exclude(a, target)
	}
	in := o.input(a, a.ev.Withdraws)
	for _, window := range a.windows[a.refused:] {
		p := o.paneFor(window)
		place, ok := p.find(a.key)
		if !ok {
			return o.broken(a.ev, "its target was applied, but its window is not held")
		}
		if err := o.remove(a, p, place, target, in); err != nil {
			return err
		}
	}
	return nil
}

// remove takes the target of a retraction out of one window.
func (o *Operator) remove(a *arrival, p *pane, place int, target [16]byte, in *aggregate.Input) error {
	cells := o.cellsOf(p, place)
	for i := range o.program {
		err := o.pick(a, i)
		if err == nil {
			err = o.program[i].Remove(&cells[i], in)
		}
		if err != nil {
			return o.refused(a, p, i, err)
		}
	}
	w := &p.wins[place]
	w.events--
	w.idDigest = identity.Sub128(w.idDigest, target)
	o.changed(a, p, place)
	return nil
}

// input answers what the event with that id brings to the aggregates: all but the value,
// which pick fills in. It is valid until the next call.
func (o *Operator) input(a *arrival, id string) *aggregate.Input {
	o.in.Time, o.in.Source, o.in.ID = a.time, a.ev.Source, id
	return &o.in
}

// pick makes the value that result i takes from the event that of the input.
func (o *Operator) pick(a *arrival, i int) error {
	at := o.argument[i]
	switch {
	case at >= 0:
		o.in.Value = a.ev.Values[at]
	case o.program[i].Value < 0:
		o.in.Value = envelope.Value{}
	default:
		return fmt.Errorf("its frame was written before the business stream declared the value %q; start a generation whose aggregates do not use it", o.program[i].Arg)
	}
	return nil
}

// refused says which window, key and event could not be computed.
func (o *Operator) refused(a *arrival, p *pane, result int, err error) error {
	return fmt.Errorf("events journal %s/%02d, sequence %d, record %d: policy %s, result %s of key %q, window [%s, %s) cannot take event %q of source %s: %w",
		o.cfg.Policy.Stream, o.cfg.Partition, o.seq, o.nextIndex, o.cfg.Policy.PolicyGeneration(),
		o.program[result].Result, a.ev.Key, p.start, p.end, a.ev.ID, a.ev.Source, err)
}

// changed notes where the event stood and that its window needs a revision.
func (o *Operator) changed(a *arrival, p *pane, place int) {
	w := &p.wins[place]
	if w.first == 0 || a.seq < w.first {
		w.first = a.seq
	}
	w.last = max(w.last, a.seq)
	w.origin = max(w.origin, uint8(a.ev.Origin))
	o.extendRange(a.ev, p, place)
	if p.fired && w.flags&winDirty == 0 {
		w.flags |= winDirty
		p.corrections = append(p.corrections, uint32(place))
		o.dirty++
	}
	if o.early.every > 0 {
		w.flags |= winUnseen
		p.unseen = true
	}
	p.touch(place)
}

// rangeOf answers the place of a source partition in the offset ranges, or -1: partitions
// outside the policy (replayed events) have none. Most events have the source of the one
// before them.
func (o *Operator) rangeOf(source string, partition uint32) int {
	if len(o.ranges) == 0 {
		return -1
	}
	if o.ranges[o.ranged].Source != source {
		if o.counts[source] == 0 {
			return -1
		}
		o.ranged = o.sources[source]
	}
	at := o.ranged + int(partition)
	if at >= len(o.ranges) || o.ranges[at].Source != source {
		return -1
	}
	return at
}

// extendRange stretches the offsets of the event's source partition.
func (o *Operator) extendRange(ev *envelope.Event, p *pane, place int) {
	at := o.rangeOf(ev.Source, ev.SourcePartition)
	if at < 0 {
		return
	}
	r, w := &o.rangesOf(p, place)[at], &p.wins[place]
	if w.mask&(1<<at) == 0 {
		w.mask |= 1 << at
		*r = offsetRange{first: ev.SourceOffset, last: ev.SourceOffset}
		return
	}
	r.first, r.last = min(r.first, ev.SourceOffset), max(r.last, ev.SourceOffset)
}

// paneFor answers the pane of a window, and makes it if there is none.
func (o *Operator) paneFor(window revision.Window) *pane {
	if o.last != nil && o.last.start == window.Start {
		return o.last
	}
	p := o.panes[int64(window.Start)]
	if p == nil {
		p = o.addPane(window.Start, window.End)
	}
	o.last = p
	return p
}

func (o *Operator) addPane(start, end envelope.EventTime) *pane {
	p := &pane{start: start, end: end, fired: o.tracker.W() >= end}
	o.panes[int64(start)] = p
	at, _ := slices.BinarySearchFunc(o.order, start, comparePane)
	if at > 0 && !p.fired { // it will hold about as much as the one before it
		p.reserve(len(o.order[at-1].wins), len(o.program), len(o.ranges))
	}
	o.order = slices.Insert(o.order, at, p)
	return p
}

func comparePane(p *pane, start envelope.EventTime) int {
	switch {
	case p.start < start:
		return -1
	case p.start > start:
		return 1
	}
	return 0
}

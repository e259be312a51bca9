package window

import (
	"fmt"
	"math"
	"slices"

	"github.com/tidemark-mesh/tidemark/internal/core/aggregate"
	"github.com/tidemark-mesh/tidemark/internal/core/identity"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// reopening is one REOPEN being acted on. It touches final windows only: what the live
// path still decides is not the reconciler's.
type reopening struct {
	o       *Operator
	key     string
	touched []*pane
	told    map[*pane]bool // the REOPEN says which of the events it names the key's window has
	windows []revision.Window
}

// reopened names an event that is known to be in a window, or to have been taken out.
type reopened struct {
	place uint32 // of the window in its pane
	hash  [16]byte
}

// act puts windows back, takes events in and out, and lays out what is to be published.
func (o *Operator) act(r *envelope.Reopen) error {
	if o.sessions != nil {
		return o.sessions.reopen(r)
	}
	a := reopening{o: o, key: r.Key, told: make(map[*pane]bool)}
	for i := range r.Retracted {
		if err := a.bury(&r.Retracted[i]); err != nil {
			return err
		}
	}
	for i := range r.Restore {
		if err := a.restore(&r.Restore[i]); err != nil {
			return err
		}
	}
	for i := range r.Add {
		if err := a.take(&r.Add[i], (*reopening).add); err != nil {
			return err
		}
	}
	for i := range r.Withdraw {
		if err := a.take(&r.Withdraw[i], (*reopening).withdraw); err != nil {
			return err
		}
	}
	a.layOut()
	return nil
}

// layOut makes due what changed. A final window has no correction but those of REOPENs.
func (a *reopening) layOut() {
	plan := &a.o.plan
	slices.SortFunc(a.touched, func(p, q *pane) int { return comparePane(p, q.start) })
	for _, p := range a.touched {
		p.final = false // the next mark starts the grace again
		if len(p.corrections) > 0 {
			plan.panes = append(plan.panes, p)
		}
	}
	plan.active, plan.reopen = true, true
	a.o.seek()
}

// place answers where the key's window stands, if it is held.
func (a *reopening) place(w revision.Window) (p *pane, place int, held bool) {
	p = a.o.panes[int64(w.Start)]
	number, known := a.o.keys.find(a.key)
	if p == nil || !known {
		return p, 0, false
	}
	place, held = p.find(number)
	return p, place, held
}

// final tells whether the live path is done with a window.
func (a *reopening) final(w revision.Window) bool { return a.o.tracker.W() >= w.End.Add(a.o.lateness) }

// open answers the place of the key's window, which is made if it is not held.
func (a *reopening) open(w revision.Window) (p *pane, place int) {
	p = a.o.paneFor(w)
	if !slices.Contains(a.touched, p) {
		a.touched = append(a.touched, p)
	}
	return p, a.o.placeFor(p, a.o.keys.intern(a.key))
}

// check answers whether a window is final: only then it is the reconciler's. Bounds that
// the policy does not make are damage.
func (a *reopening) check(w revision.Window, number uint64) (final bool, err error) {
	if a.o.grid.last(w.Start) != w || number > math.MaxUint32 {
		return false, a.broken(w, fmt.Sprintf("with revision %d is no window of the policy", number))
	}
	return a.final(w), nil
}

// bury puts the number of a retracted window back, unless the window is held.
func (a *reopening) bury(r *envelope.ReopenRetracted) error {
	w := revision.Window{Start: r.Start, End: r.End}
	final, err := a.check(w, r.Revision)
	if !final {
		return err
	}
	p, place, held := a.place(w)
	if !held {
		p, place = a.open(w)
		p.wins[place].revision, p.wins[place].digest = uint32(r.Revision), r.Digest
		p.wins[place].flags |= winFirstLate
		p.touch(place)
	}
	a.tell(p, place, nil)
	return nil
}

// restore puts a published window back, unless it is held. What the REOPEN says of its
// members holds all the same: it was final already at AsOf, and had no REOPEN since.
func (a *reopening) restore(r *envelope.ReopenWindow) error {
	window := revision.Window{Start: r.Start, End: r.End}
	final, err := a.check(window, r.Revision)
	if !final {
		return err
	}
	p, place, held := a.place(window)
	if !held {
		p, place = a.open(window)
		if !a.fill(p, place, r) {
			return a.broken(window, "does not have the results of the policy")
		}
	}
	a.tell(p, place, r.Members)
	return nil
}

// tell notes which of the events that the REOPEN names are in a window.
func (a *reopening) tell(p *pane, place int, members []envelope.ReopenEvent) {
	a.told[p] = true
	for i := range members {
		hash := identity.EventHash(members[i].Source, members[i].ID)
		if _, known := p.reopened[reopened{uint32(place), hash}]; !known {
			p.know(place, hash, true)
		}
	}
}

// fill makes a new window what it was when it was published; false means damage.
func (a *reopening) fill(p *pane, place int, r *envelope.ReopenWindow) bool {
	w := &p.wins[place]
	w.revision, w.digest, w.events, w.idDigest = uint32(r.Revision), r.Digest, r.Events, r.IDDigest
	w.first, w.last, w.flags = r.First, r.Last, winLive
	if r.FirstLate {
		w.flags |= winFirstLate
	}
	a.readOffsets(p, place, r.Offsets)
	p.touch(place)
	return a.readState(p, place, r.State) && a.readValue(p, w, r.Value)
}

func (a *reopening) readState(p *pane, place int, states [][]byte) bool {
	cells := a.o.cellsOf(p, place)
	if len(states) != len(cells) {
		return false
	}
	for i, state := range states {
		cells[i] = aggregate.Cell{}
		if rest, err := a.o.program[i].DecodeState(state, &cells[i]); err != nil || len(rest) > 0 {
			return false
		}
	}
	return true
}

func (a *reopening) readValue(p *pane, w *win, value []envelope.ReopenField) bool {
	if len(value) != len(a.o.program) {
		return false
	}
	fields := make([]revision.Field, len(value))
	for i, f := range value {
		if f.Name != a.o.program[i].Result {
			return false
		}
		fields[i] = revision.Field{Name: f.Name, Text: f.Text, Quoted: f.Quoted}
	}
	p.keepValue(w, fields)
	return true
}

func (a *reopening) readOffsets(p *pane, place int, offsets []envelope.ReopenOffsets) {
	for _, named := range offsets {
		for at, r := range a.o.ranges {
			if r.Source == named.Source && r.Partition == named.Partition {
				p.wins[place].mask |= 1 << at
				a.o.rangesOf(p, place)[at] = offsetRange{first: named.First, last: named.Last}
			}
		}
	}
}

// take hands the event to each of its windows that refused it. It counts as reopened if
// one took it and the live path had not: then it counts as applied already.
func (a *reopening) take(e *envelope.ReopenEvent, into func(*reopening, *arrival, revision.Window) (bool, error)) error {
	if len(e.Values) != len(a.o.frame.values) {
		return a.o.reopenBroken(fmt.Errorf("reopened event %q of source %s has %d values, its frame names %d", e.ID, e.Source, len(e.Values), len(a.o.frame.values)))
	}
	ev := envelope.Event{
		ID: e.ID, Source: e.Source, Key: a.key, Withdraws: e.Withdraws, Origin: envelope.OriginRepair,
		SourcePartition: e.SourcePartition, SourceOffset: e.SourceOffset, Values: e.Values,
	}
	in := arrival{ev: &ev, time: e.Time, seq: e.Seq, hash: identity.EventHash(e.Source, e.ID)}
	a.windows = a.o.grid.appendAll(a.windows[:0], e.Time)
	refused := len(a.windows)
	if e.Refused > 0 {
		refused = min(refused, int(e.Refused))
	}
	taken := false
	for _, w := range a.windows[:refused] {
		if !a.final(w) {
			continue
		}
		took, err := into(a, &in, w)
		if err != nil {
			return err
		}
		taken = taken || took
	}
	if taken && refused == len(a.windows) {
		a.o.totals[classReopened]++
		a.o.addID(in.hash)
	}
	return nil
}

// add takes an event into a window, unless it is known to be there, or withdrawn.
func (a *reopening) add(in *arrival, w revision.Window) (took bool, err error) {
	p, place := a.open(w)
	if p.wins[place].events == 0 {
		a.told[p] = true // nothing is in it
	}
	if _, known := p.reopened[reopened{uint32(place), in.hash}]; known {
		return false, nil
	}
	p.know(place, in.hash, true)
	return true, a.o.add(in, p, place, a.o.input(in, in.ev.ID))
}

// withdraw takes the target of a retraction out of a window. A REOPEN that says nothing of
// the window vouches that the target is there.
func (a *reopening) withdraw(in *arrival, w revision.Window) (took bool, err error) {
	p, place, held := a.place(w)
	if !held || p.wins[place].events == 0 {
		return false, nil
	}
	target := identity.EventHash(in.ev.Source, in.ev.Withdraws)
	there, known := p.reopened[reopened{uint32(place), target}]
	if known && !there || !known && a.told[p] {
		return false, nil
	}
	a.open(w)
	p.know(place, target, false)
	return true, a.o.remove(in, p, place, target, a.o.input(in, in.ev.Withdraws))
}

// know notes that an event is in a window, or was taken out.
func (p *pane) know(place int, hash [16]byte, there bool) {
	if p.reopened == nil {
		p.reopened = make(map[reopened]bool)
	}
	p.reopened[reopened{uint32(place), hash}] = there
	p.reopenedChanged = true
}

func (a *reopening) broken(w revision.Window, what string) error {
	return a.o.reopenBroken(fmt.Errorf("REOPEN of key %q: [%s, %s) %s", a.key, w.Start, w.End, what))
}

package window

import (
	"slices"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// rest sets the timer of a session that has fired.
func (s *sessions) rest(ref uint32) {
	x := &s.table[ref]
	at := x.end.Add(s.keep)
	if s.o.tracker.W() >= at {
		s.finish(ref)
		return
	}
	x.due = s.timers.add(at, ref)
}

// finish notes that the live path is done with a session: it takes events no more and is
// kept for the reconciler only.
func (s *sessions) finish(ref uint32) {
	x := &s.table[ref]
	x.due, x.final = noTimer, int64(s.o.now)
	s.finals.add(x.final, ref)
	s.touch(ref)
}

// settle gives back what nobody may ask for any more. It is called when all outputs of a
// mark were taken.
func (s *sessions) settle() {
	for {
		e, ok := s.finals.next(s.o.now)
		if !ok {
			break
		}
		if x := &s.table[e.n]; x.flags&sessionHeld != 0 && x.final == e.at {
			s.forget(e.n)
		}
	}
	if w := s.o.tracker.W(); w > s.plan.before {
		s.graves.reach(w, func(_ int64, key uint32) bool { return s.closeGraves(key) })
	}
	for {
		e, ok := s.forgets.next(s.o.now)
		if !ok {
			break
		}
		s.clearGraves(e.n)
	}
	s.openFrom()
	if len(s.open.list) > 4*s.live+1024 {
		s.reopenHeap()
	}
}

// forget gives a session back, with what was published of it.
func (s *sessions) forget(ref uint32) {
	x := &s.table[ref]
	key := x.key
	k := &s.keys[key]
	for _, at := range x.rows {
		if r := &s.rows[at]; r.owners > 1 {
			r.owners--
		} else {
			s.dropRow(at)
		}
	}
	at, _ := s.touching(k.list, x.start, x.end)
	k.list = slices.Delete(k.list, at, at+1)
	s.tails[key].known = false
	s.drop(ref)
	s.settleKey(key)
}

// closeGraves notes which numbers of the key are final now. It answers false while one of
// the same bucket is not.
func (s *sessions) closeGraves(key uint32) (done bool) {
	w, k := s.o.tracker.W(), s.keyOf(key)
	done = true
	for i := range k.graves {
		g := &k.graves[i]
		switch at := g.end.Add(s.keep); {
		case g.final != noFinal:
		case w >= at:
			g.final = int64(s.o.now)
			s.forgets.add(g.final, key)
			s.touchKey(key)
		case s.graves.bucket(at) <= s.graves.bucket(w):
			done = false
		}
	}
	return done
}

// clearGraves forgets the numbers whose grace is over.
func (s *sessions) clearGraves(key uint32) {
	k := s.keyOf(key)
	n := len(k.graves)
	k.graves = slices.DeleteFunc(k.graves, func(g grave) bool { return g.final != noFinal && graceOver(envelope.IngestTime(g.final), s.o.now) })
	if len(k.graves) < n {
		s.touchKey(key)
		s.settleKey(key)
	}
}

// openFrom answers the least start of the sessions that wait to fire, or MaxEventTime.
func (s *sessions) openFrom() envelope.EventTime {
	least := s.plan.opened
	for len(s.open.list) > 0 {
		e := s.open.list[0]
		x := &s.table[e.ref]
		switch {
		case x.flags&sessionDirty == 0 || x.opened != e.start:
			s.open.pop()
		case x.start != e.start:
			s.open.pop()
			x.opened = x.start
			s.open.add(x.start, e.ref)
		default:
			return min(least, e.start)
		}
	}
	return least
}

// reopenHeap makes the heap anew without entries that are out of date.
func (s *sessions) reopenHeap() {
	s.open.list = s.open.list[:0]
	for ref := range s.table {
		if x := &s.table[ref]; x.flags&sessionDirty != 0 {
			x.opened = x.start
			s.open.add(x.start, uint32(ref))
		}
	}
}

// OpenFrom answers the least start of a session whose present content was not published
// yet; MaxEventTime when there is none, and for other windows than sessions.
func (o *Operator) OpenFrom() envelope.EventTime {
	if o.sessions == nil {
		return envelope.MaxEventTime
	}
	return o.sessions.openFrom()
}

// InGroup tells whether records of a begun group are still to be taken: no commit may end
// there.
func (o *Operator) InGroup() bool {
	return o.sessions != nil && o.sessions.plan.taken > 0 && o.sessions.plan.taken < len(o.sessions.plan.ends)
}

// GroupBytes answers the bytes and the number of records of the group that Next begins: a
// commit that they do not fit into must end before it. Between other records both are 0.
func (o *Operator) GroupBytes() (bytes, records int) {
	if o.sessions == nil || o.sessions.plan.taken > 0 {
		return 0, 0
	}
	return len(o.sessions.plan.out), len(o.sessions.plan.ends)
}

package window

import (
	"fmt"
	"slices"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// include takes an event of the journal into its session.
func (s *sessions) include(a *arrival) error {
	if err := s.missing(); err != nil {
		return fmt.Errorf("events journal %s/%02d, sequence %d, record %d: policy %s, key %q, session cannot take event %q of source %s: %w",
			s.o.cfg.Policy.Stream, s.o.cfg.Partition, s.o.seq, s.o.nextIndex, s.generation, a.ev.Key, a.ev.ID, a.ev.Source, err)
	}
	s.insert(a.key, &sessionEvent{
		id: a.ev.ID, source: a.ev.Source, time: a.time, hash: a.hash, seq: s.o.seq,
		partition: a.ev.SourcePartition, offset: a.ev.SourceOffset, origin: a.ev.Origin,
	}, a.ev.Values)
	return nil
}

// insert puts an event into the session that it touches, bridges those that it touches,
// or begins one.
func (s *sessions) insert(key uint32, ev *sessionEvent, values []envelope.Value) {
	end := ev.time.Add(s.gap)
	if int(key) < len(s.tails) && s.tails[key].takes(ev.time) {
		t := &s.tails[key]
		t.end = max(t.end, end)
		s.join(t.ref, end, ev, values)
		return
	}
	k := s.retain(key)
	lo, hi := s.touching(k.list, ev.time, end)
	var ref uint32
	switch hi - lo {
	case 0:
		ref = s.add(key, ev.time, end)
		k.list = slices.Insert(k.list, lo, ref)
	case 1:
		ref = k.list[lo]
	default:
		ref = s.merge(k, lo, hi)
	}
	s.join(ref, end, ev, values)
	if x := &s.table[ref]; k.list[len(k.list)-1] == ref {
		s.tails[key] = sessionTail{start: x.start, end: x.end, ref: ref, known: true}
	}
}

// join makes an event a member of the session that it touches.
func (s *sessions) join(ref uint32, end envelope.EventTime, ev *sessionEvent, values []envelope.Value) {
	x := &s.table[ref]
	x.start, x.end = min(x.start, ev.time), max(x.end, end)
	s.appendMember(x, ev, values)
	x.flags |= sessionAsserted
	s.stir(ref, ev.origin, ev.reopened)
}

// merge makes one session of those at places lo to hi-1 of the key's list: the largest
// takes the members of the others.
func (s *sessions) merge(k *sessionKey, lo, hi int) uint32 {
	parts := k.list[lo:hi]
	whole := parts[0]
	for _, ref := range parts[1:] {
		if s.table[ref].members.size > s.table[whole].members.size {
			whole = ref
		}
	}
	x := &s.table[whole]
	for _, ref := range parts {
		if ref == whole {
			continue
		}
		y := &s.table[ref]
		x.start, x.end = min(x.start, y.start), max(x.end, y.end)
		copy(s.store.extend(&x.members, int(y.members.size)), s.store.bytes(y.members))
		x.count += y.count
		x.flags |= y.flags & (sessionAsserted | sessionReopened)
		x.origin = max(x.origin, y.origin)
		s.inherit(x, y)
		s.drop(ref)
	}
	k.list[lo] = whole
	k.list = slices.Delete(k.list, lo+1, hi)
	return whole
}

// stir notes that a session changed: it fires at the next mark that finds its end behind
// the watermark. Its bounds may have moved too.
func (s *sessions) stir(ref uint32, origin envelope.Origin, reopened bool) {
	x := &s.table[ref]
	fresh := x.flags&sessionDirty == 0
	x.flags |= sessionDirty | sessionUnseen
	if reopened {
		x.flags |= sessionReopened
	}
	x.origin, x.final = max(x.origin, uint8(origin)), noFinal
	s.touch(ref)
	if s.o.tracker.W() >= x.end {
		if x.due != stirredTimer {
			x.due = stirredTimer
			s.stirred = append(s.stirred, ref)
		}
	} else if x.due == noTimer || fresh && x.due != stirredTimer && x.due > s.timers.bucket(x.end) {
		x.due = s.timers.add(x.end, ref) // a timer that is set comes too early at worst: ends grow
	}
	if fresh || x.start < x.opened {
		x.opened = x.start
		s.open.add(x.start, ref)
	}
}

// exclude takes the target of a retraction out of its session.
func (s *sessions) exclude(a *arrival, target [16]byte) error {
	if !s.remove(a.key, a.time, target, a.ev.Origin, false) {
		return s.o.broken(a.ev, "its target was applied, but its session is not held")
	}
	return nil
}

// remove takes a member out, and answers whether it was there. What is left falls apart
// where the distance is G or more; every part changed, and each may be the one that takes
// over what was published of the whole.
func (s *sessions) remove(key uint32, at envelope.EventTime, hash [16]byte, origin envelope.Origin, reopened bool) bool {
	k := s.keyOf(key)
	lo, hi := s.touching(k.list, at, at+1)
	if lo == hi {
		return false
	}
	ref := k.list[lo]
	x := &s.table[ref]
	from, size, found := s.findMember(x, at, hash)
	if !found {
		return false
	}
	s.tails[key].known = false
	row := member(s.store.bytes(x.members)[from:]).row()
	x.origin = max(x.origin, uint8(origin))
	if reopened {
		x.flags |= sessionReopened
	}
	s.lose(x, row)
	s.store.cut(&x.members, from, size)
	x.count--
	if x.count == 0 {
		s.abandon(k, lo)
		s.settleKey(key)
		return true
	}
	s.part(k, lo, at, origin, reopened)
	return true
}

// part sets the bounds of a session that lost a member at a time, and cuts it in two when
// its neighbours do not reach each other.
func (s *sessions) part(k *sessionKey, place int, at envelope.EventTime, origin envelope.Origin, reopened bool) {
	ref := k.list[place]
	x := &s.table[ref]
	x.due = noTimer // it may be due earlier now
	before, after := s.neighbours(x, at)
	switch {
	case before == nil:
		x.start = *after
	case after == nil:
		x.end = before.Add(s.gap)
	case before.Add(s.gap) <= *after:
		right := s.split(ref, *after)
		s.table[ref].end = before.Add(s.gap)
		k.list = slices.Insert(k.list, place+1, right)
		s.stir(right, origin, reopened)
	}
	s.stir(ref, origin, reopened)
}

// neighbours answers the last time at or before t and the first at or after it.
func (s *sessions) neighbours(x *session, t envelope.EventTime) (before, after *envelope.EventTime) {
	for rest := s.store.bytes(x.members); len(rest) > 0; {
		var m member
		m, rest = firstMember(rest)
		at := m.time()
		if at <= t && (before == nil || at > *before) {
			before = &at
		}
		if at >= t && (after == nil || at < *after) {
			after = &at
		}
	}
	return before, after
}

// split moves the members from a time on into a session of their own. Both parts succeed
// every published row.
func (s *sessions) split(ref uint32, from envelope.EventTime) (right uint32) {
	right = s.add(s.table[ref].key, from, s.table[ref].end)
	x, y := &s.table[ref], &s.table[right]
	y.flags |= x.flags & (sessionAsserted | sessionReopened)
	y.origin = x.origin
	left, stay := blob{}, uint32(0)
	for rest := s.store.bytes(x.members); len(rest) > 0; {
		var m member
		m, rest = firstMember(rest)
		if m.time() >= from {
			copy(s.store.extend(&y.members, len(m)), m)
			continue
		}
		copy(s.store.extend(&left, len(m)), m)
		stay++
	}
	y.count, x.count = x.count-stay, stay
	s.store.release(&x.members)
	x.members = left
	for _, row := range x.rows {
		s.rows[row].owners++
		y.rows = append(y.rows, row)
	}
	return right
}

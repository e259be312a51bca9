package window

import (
	"encoding/binary"
	"slices"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// publishedRow is a session as readers see it now: its last revision is an UPSERT.
type publishedRow struct {
	start, end  envelope.EventTime
	digest      revision.Digest // of that revision
	revision    uint64
	first, last uint64 // journal sequences of its inputs
	values      blob   // texts of its value, then its offset ranges
	key         uint32
	number      uint32 // of its key: members say by it which row holds them
	owners      uint32 // sessions that succeed it
	mask        uint16 // ranges that are set
	origin      uint8  // least live of the retractions that took a member
	flags       uint8
}

// Flags of a row.
const (
	rowHeld      = 1 << iota // the slot is taken
	rowLost                  // a member was withdrawn
	rowReopened              // and by a REOPEN
	rowFirstLate             // revision 1 fired LATE
	rowListed                // stands in sessions.lost
)

// grave keeps the number of bounds that were retracted: a session that has them again
// goes on counting.
type grave struct {
	start, end envelope.EventTime
	digest     revision.Digest // of the RETRACT
	revision   uint64
	final      int64 // ingestNow of the mark that made it final; noFinal before
}

func compareGrave(g grave, b revision.Window) int {
	return compareBounds(g.start, g.end, b.Start, b.End)
}

// compareBounds orders by start, then end.
func compareBounds(start, end, otherStart, otherEnd envelope.EventTime) int {
	switch {
	case start < otherStart || start == otherStart && end < otherEnd:
		return -1
	case start == otherStart && end == otherEnd:
		return 0
	}
	return 1
}

// addRow makes an empty row of a key.
func (s *sessions) addRow(key uint32, b revision.Window) uint32 {
	var at uint32
	if last := len(s.spare) - 1; last >= 0 {
		at, s.spare = s.spare[last], s.spare[:last]
	} else {
		at = uint32(len(s.rows))
		s.rows = append(s.rows, publishedRow{})
	}
	k := s.keyOf(key)
	k.number++
	listed := s.rows[at].flags & rowListed
	s.rows[at] = publishedRow{start: b.Start, end: b.End, key: key, number: k.number, flags: rowHeld | listed}
	return at
}

func (s *sessions) dropRow(at uint32) {
	r := &s.rows[at]
	s.store.release(&r.values)
	r.flags &= rowListed
	r.owners = 0
	s.spare = append(s.spare, at)
}

// lose notes that the session's row of that number lost a member.
func (s *sessions) lose(x *session, number uint32) {
	if number == 0 {
		return
	}
	for _, at := range x.rows {
		r := &s.rows[at]
		if r.number != number {
			continue
		}
		r.flags |= rowLost
		if x.flags&sessionReopened != 0 {
			r.flags |= rowReopened
		}
		r.origin = max(r.origin, x.origin)
		if r.flags&rowListed == 0 {
			r.flags |= rowListed
			s.lost = append(s.lost, at)
		}
		if r.owners > 1 {
			s.touchOwners(at)
		}
		return
	}
}

// touchOwners makes a Delta write every session that succeeds the row.
func (s *sessions) touchOwners(at uint32) {
	for _, ref := range s.keys[s.rows[at].key].list {
		if slices.Contains(s.table[ref].rows, at) {
			s.touch(ref)
		}
	}
}

// inherit makes x succeed what y does.
func (s *sessions) inherit(x, y *session) {
	if len(y.rows) > len(x.rows) {
		x.rows, y.rows = y.rows, x.rows
	}
	for _, at := range y.rows {
		if r := &s.rows[at]; r.owners > 1 && slices.Contains(x.rows, at) {
			r.owners--
			continue
		}
		x.rows = append(x.rows, at)
	}
	y.rows = y.rows[:0]
}

// abandon gives up the session at a place of its key's list, which has no members any
// more. Rows that no other session succeeds wait to be retracted.
func (s *sessions) abandon(k *sessionKey, place int) {
	ref := k.list[place]
	x := &s.table[ref]
	for _, at := range x.rows {
		r := &s.rows[at]
		if r.owners--; r.owners == 0 {
			k.orphans = append(k.orphans, at)
			s.touchKey(x.key)
		}
	}
	k.list = slices.Delete(k.list, place, place+1)
	s.drop(ref)
}

// detach takes a row from every session that succeeds it; x is one of them, or nil.
func (s *sessions) detach(at uint32, x *session) {
	r := &s.rows[at]
	k := &s.keys[r.key]
	switch {
	case r.owners == 0:
		k.orphans = slices.DeleteFunc(k.orphans, func(other uint32) bool { return other == at })
		s.touchKey(r.key)
	case r.owners == 1 && x != nil:
		x.rows = without(x.rows, at)
	default:
		for _, ref := range k.list {
			y := &s.table[ref]
			if n := len(y.rows); n > 0 {
				if y.rows = without(y.rows, at); len(y.rows) < n {
					s.touch(ref)
				}
			}
		}
	}
	r.owners = 0
}

// without takes one element out of a list whose order does not matter.
func without(list []uint32, n uint32) []uint32 {
	at := slices.Index(list, n)
	if at < 0 {
		return list
	}
	last := len(list) - 1
	list[at] = list[last]
	return list[:last]
}

// bury keeps the number of a retracted row.
func (s *sessions) bury(key uint32, g grave) {
	k := s.retain(key)
	if over := g.end.Add(s.keep); s.o.tracker.W() >= over {
		g.final = int64(s.o.now)
		s.forgets.add(g.final, key)
	} else {
		s.graves.add(over, key)
	}
	at, _ := slices.BinarySearchFunc(k.graves, revision.Window{Start: g.start, End: g.end}, compareGrave)
	k.graves = slices.Insert(k.graves, at, g)
	s.touchKey(key)
}

// exhume answers and forgets the number of retracted bounds, 0 when they never were.
func (s *sessions) exhume(key uint32, b revision.Window) (g grave) {
	k := s.keyOf(key)
	at, found := slices.BinarySearchFunc(k.graves, b, compareGrave)
	if !found {
		return g
	}
	g = k.graves[at]
	k.graves = slices.Delete(k.graves, at, at+1)
	s.touchKey(key)
	return g
}

// keepValues makes the row hold a revision's value and offset ranges.
func (s *sessions) keepValues(r *publishedRow, value []revision.Field, mask uint16, ranges []offsetRange) {
	b := s.scratch.bytes[:0]
	b = appendFields(b, value)
	for at := range ranges {
		if mask&(1<<at) != 0 {
			b = binary.AppendUvarint(binary.AppendUvarint(b, ranges[at].first), ranges[at].last)
		}
	}
	r.mask, r.values.size = mask, 0
	copy(s.store.extend(&r.values, len(b)), b)
	s.scratch.bytes = b
}

// rowValue answers the value of a row, and its offset ranges.
func (s *sessions) rowValue(r *publishedRow, offsets []revision.OffsetRange) ([]revision.Field, []revision.OffsetRange) {
	d := decoder{rest: s.store.bytes(r.values)}
	fields := make([]revision.Field, len(s.program))
	for i := range s.program {
		head := d.uvarint()
		text := d.rest[:head>>1]
		d.rest = d.rest[head>>1:]
		fields[i] = revision.Field{Name: s.program[i].Result, Text: string(text), Quoted: head&1 == 1}
	}
	for at := range s.o.ranges {
		if r.mask&(1<<at) != 0 {
			named := s.o.ranges[at]
			named.First, named.Last = d.uvarint(), d.uvarint()
			offsets = append(offsets, named)
		}
	}
	return fields, offsets
}

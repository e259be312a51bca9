package window

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// A checkpoint holds a pair for every session, with the rows that it succeeds and its
// members, and one for every key of which more is held.

// putSessions writes the sessions that changed, and deletes those that are gone.
func (s *sessions) putSessions(put func(key, value []byte) error) error {
	for _, ref := range s.moved {
		if err := put(sessionPair(pairSession, ref), nil); err != nil {
			return err
		}
	}
	slices.Sort(s.touched)
	for _, ref := range s.touched {
		x := &s.table[ref]
		var value []byte
		switch {
		case x.flags&sessionHeld != 0:
			value = s.appendSession(nil, x)
		case x.flags&sessionStored == 0:
			continue
		}
		if err := put(sessionPair(pairSession, ref), value); err != nil {
			return err
		}
	}
	return s.putSessionKeys(put)
}

func (s *sessions) putSessionKeys(put func(key, value []byte) error) error {
	slices.Sort(s.changed)
	for _, n := range s.changed {
		k := &s.keys[n]
		var value []byte
		switch {
		case k.own():
			value = s.appendKey(nil, k)
		case !k.stored:
			continue
		}
		if err := put(sessionPair(pairSessionKey, n), value); err != nil {
			return err
		}
	}
	return nil
}

// own tells whether the key has a pair of its own.
func (k *sessionKey) own() bool { return len(k.orphans) > 0 || len(k.graves) > 0 }

// settleDelta notes that everything is written.
func (s *sessions) settleDelta() {
	for _, ref := range s.touched {
		x := &s.table[ref]
		x.flags &^= sessionChanged | sessionStored
		if x.flags&sessionHeld != 0 {
			x.flags |= sessionStored
		}
	}
	for _, n := range s.changed {
		k := &s.keys[n]
		k.changed, k.stored = false, k.own()
	}
	s.touched, s.changed, s.moved = s.touched[:0], s.changed[:0], nil
}

func sessionPair(kind byte, n uint32) []byte { return binary.BigEndian.AppendUint32([]byte{kind}, n) }

func (s *sessions) appendSession(b []byte, x *session) []byte {
	b = append(b, x.flags&(sessionDirty|sessionAsserted|sessionReopened), x.origin)
	b = binary.AppendUvarint(b, uint64(x.key))
	for _, n := range [...]int64{int64(x.start), int64(x.end), x.final} {
		b = binary.AppendVarint(b, n)
	}
	b = s.appendRows(b, x.rows)
	b = binary.AppendUvarint(b, uint64(x.count))
	return appendText(b, s.store.bytes(x.members))
}

func (s *sessions) appendRows(b []byte, rows []uint32) []byte {
	b = binary.AppendUvarint(b, uint64(len(rows)))
	for _, at := range rows {
		r := &s.rows[at]
		b = append(b, r.flags&(rowLost|rowReopened|rowFirstLate), r.origin)
		b = binary.AppendVarint(binary.AppendVarint(b, int64(r.start)), int64(r.end))
		for _, n := range [...]uint64{uint64(r.number), r.revision, r.first, r.last, uint64(r.mask)} {
			b = binary.AppendUvarint(b, n)
		}
		b = append(b, r.digest[:]...)
		b = appendText(b, s.store.bytes(r.values))
	}
	return b
}

func (s *sessions) appendKey(b []byte, k *sessionKey) []byte {
	b = s.appendRows(b, k.orphans)
	b = binary.AppendUvarint(b, uint64(len(k.graves)))
	for i := range k.graves {
		g := &k.graves[i]
		for _, n := range [...]int64{int64(g.start), int64(g.end), g.final} {
			b = binary.AppendVarint(b, n)
		}
		b = append(binary.AppendUvarint(b, g.revision), g.digest[:]...)
	}
	return b
}

// sessionReader puts pairs back. Numbers of slots and keys are believed only when all
// pairs are there: memory for them must not depend on what one damaged pair says.
type sessionReader struct {
	s     *sessions
	rows  map[uint64]uint32 // key and number to the row: several sessions may succeed it
	slots []sessionSlot
	keys  []sessionKeyPair
}

type sessionSlot struct {
	ref uint32
	session
}

type sessionKeyPair struct {
	n uint32
	sessionKey
}

func (r *sessionReader) session(ref uint32, value []byte) error {
	x, d := session{due: noTimer}, decoder{rest: value}
	x.flags = d.byte()&(sessionDirty|sessionAsserted|sessionReopened) | sessionHeld | sessionStored
	x.origin, x.key = d.byte(), d.uint32()
	x.start, x.end, x.final = envelope.EventTime(d.varint()), envelope.EventTime(d.varint()), d.varint()
	x.rows = r.readRows(&d, x.key, 1)
	x.count = d.uint32()
	members := d.bytes()
	if d.end() != nil || x.origin > uint8(envelope.OriginRepair) || !r.s.whole(&x, members) {
		return errShape
	}
	copy(r.s.store.extend(&x.members, len(members)), members)
	r.slots = append(r.slots, sessionSlot{ref, x})
	return nil
}

// whole tells whether the bytes are the members of the session.
func (s *sessions) whole(x *session, members []byte) bool {
	first, last, n := envelope.MaxEventTime, envelope.MinEventTime, uint32(0)
	for ; len(members) > 0; n++ {
		if len(members) < memberHead {
			return false
		}
		size := memberHead + uint64(binary.LittleEndian.Uint32(members[memberID:])) + uint64(binary.LittleEndian.Uint32(members[memberTail:]))
		if size > uint64(len(members)) {
			return false
		}
		var m member
		m, members = firstMember(members)
		if m.source() >= len(s.sources) || m.span() >= len(s.o.ranges) || !s.wholeValues(m.values()) {
			return false
		}
		first, last = min(first, m.time()), max(last, m.time())
	}
	return n > 0 && n == x.count && first == x.start && last.Add(s.gap) == x.end
}

func (s *sessions) wholeValues(b []byte) bool {
	for i := range s.args {
		n := 8
		if s.args[i].text {
			if len(b) < 4 {
				return false
			}
			n = 4 + int(binary.LittleEndian.Uint32(b))
		}
		if n > len(b) {
			return false
		}
		b = b[n:]
	}
	return len(b) == 0
}

func (r *sessionReader) readRows(d *decoder, key, owners uint32) (rows []uint32) {
	s := r.s
	for n := d.uvarint(); n > 0 && d.err == nil; n-- {
		row := publishedRow{key: key, owners: owners, flags: d.byte()&(rowLost|rowReopened|rowFirstLate) | rowHeld, origin: d.byte()}
		row.start, row.end = envelope.EventTime(d.varint()), envelope.EventTime(d.varint())
		row.number, row.revision, row.first, row.last = d.uint32(), d.uvarint(), d.uvarint(), d.uvarint()
		row.mask = uint16(d.uvarint())
		d.fill(row.digest[:])
		values := d.bytes()
		if d.err != nil || !s.wholeRow(&row, values) {
			d.fail()
			return nil
		}
		name := uint64(key)<<32 | uint64(row.number)
		at, had := r.rows[name]
		if had {
			s.rows[at].owners += owners
		} else {
			at = uint32(len(s.rows))
			copy(s.store.extend(&row.values, len(values)), values)
			s.rows = append(s.rows, row)
			r.rows[name] = at
		}
		rows = append(rows, at)
	}
	return rows
}

// wholeRow tells whether the bytes are what keepValues wrote for the row.
func (s *sessions) wholeRow(r *publishedRow, values []byte) bool {
	d := decoder{rest: values}
	for range s.program {
		head := d.uvarint()
		if head>>1 > uint64(len(d.rest)) {
			return false
		}
		d.rest = d.rest[head>>1:]
	}
	for at := range s.o.ranges {
		if r.mask&(1<<at) != 0 {
			d.uvarint()
			d.uvarint()
		}
	}
	return d.end() == nil && int(r.mask)>>len(s.o.ranges) == 0 && r.number > 0 && r.revision > 0
}

func (r *sessionReader) key(n uint32, value []byte) error {
	var k sessionKey
	d := decoder{rest: value}
	k.orphans = r.readRows(&d, n, 0)
	for left := d.uvarint(); left > 0 && d.err == nil; left-- {
		g := grave{start: envelope.EventTime(d.varint()), end: envelope.EventTime(d.varint()), final: d.varint(), revision: d.uvarint()}
		d.fill(g.digest[:])
		if last := len(k.graves) - 1; last >= 0 && compareBounds(k.graves[last].start, k.graves[last].end, g.start, g.end) >= 0 {
			return errShape
		}
		k.graves = append(k.graves, g)
	}
	k.stored = true
	r.keys = append(r.keys, sessionKeyPair{n, k})
	return d.end()
}

// finish makes what follows from the pairs: slots, lists of keys, timers, what waits.
func (r *sessionReader) finish() error {
	for _, step := range []func() error{r.placeKeys, r.placeSessions, r.settleKeys} {
		if err := step(); err != nil {
			return err
		}
	}
	s := r.s
	s.plan.before = s.o.w
	r.setTimers()
	for at := range s.rows {
		if x := &s.rows[at]; x.flags&rowLost != 0 {
			x.flags |= rowListed
			s.lost = append(s.lost, uint32(at))
		}
	}
	return nil
}

func (r *sessionReader) placeKeys() error {
	for i := range r.keys {
		p := &r.keys[i]
		if int(p.n) >= len(r.s.o.keys.entries) || p.empty() || r.s.keyOf(p.n).stored {
			return errors.New("a pair of a key is damaged")
		}
		*r.s.keyOf(p.n) = p.sessionKey
	}
	return nil
}

// sparse is how many slots there may be for a session before they are numbered anew.
const sparse = 64

// placeSessions puts the sessions into their slots. When most slots would be free, as
// after a peak, the sessions move together, and the next Delta moves their pairs.
func (r *sessionReader) placeSessions() error {
	s := r.s
	slices.SortFunc(r.slots, func(a, b sessionSlot) int { return cmp.Compare(a.ref, b.ref) })
	n := len(r.slots)
	if n == 0 {
		return nil
	}
	size := uint64(r.slots[n-1].ref) + 1
	move := size > 4096+sparse*uint64(n)
	if move {
		size = uint64(n)
	}
	s.table = make([]session, size)
	for i := range r.slots {
		p := &r.slots[i]
		if i > 0 && r.slots[i-1].ref == p.ref || int(p.key) >= len(s.o.keys.entries) {
			return errors.New("a pair of a session is damaged")
		}
		ref := p.ref
		if move {
			ref = uint32(i)
			p.flags &^= sessionStored
			s.moved = append(s.moved, p.ref)
		}
		s.table[ref] = p.session
		if move {
			s.touch(ref)
		}
		k := s.keyOf(p.key)
		k.list = append(k.list, ref)
		s.live++
	}
	for ref := len(s.table) - 1; ref >= 0; ref-- {
		if s.table[ref].flags == 0 {
			s.free = append(s.free, uint32(ref))
		}
	}
	return nil
}

// settleKeys orders the sessions of each key and takes its reference.
func (r *sessionReader) settleKeys() error {
	s := r.s
	for n := range s.keys {
		k := &s.keys[n]
		if k.empty() {
			continue
		}
		if err := s.o.hold(uint32(n)); err != nil {
			return err
		}
		k.retained = true
		slices.SortFunc(k.list, func(a, b uint32) int { return cmp.Compare(s.table[a].start, s.table[b].start) })
		for i, ref := range k.list {
			if i > 0 && s.table[k.list[i-1]].end > s.table[ref].start {
				return errors.New("sessions of a key overlap: the checkpoint is damaged")
			}
			for rest := s.store.bytes(s.table[ref].members); len(rest) > 0; {
				var m member
				m, rest = firstMember(rest)
				k.number = max(k.number, m.row())
			}
		}
	}
	for at := range s.rows {
		k := s.keyOf(s.rows[at].key)
		k.number = max(k.number, s.rows[at].number)
	}
	return nil
}

func (r *sessionReader) setTimers() {
	s, w := r.s, r.s.o.tracker.W()
	for ref := range s.table {
		x := &s.table[ref]
		switch {
		case x.flags == 0:
		case x.flags&sessionDirty == 0 && x.final != noFinal:
			s.finals.add(x.final, uint32(ref))
		case x.flags&sessionDirty == 0:
			x.due = s.timers.add(x.end.Add(s.keep), uint32(ref))
		case w >= x.end:
			x.due = stirredTimer
			s.stirred = append(s.stirred, uint32(ref))
		default:
			x.due = s.timers.add(x.end, uint32(ref))
		}
	}
	for n := range s.keys {
		for i := range s.keys[n].graves {
			if g := &s.keys[n].graves[i]; g.final != noFinal {
				s.forgets.add(g.final, uint32(n))
			} else {
				s.graves.add(g.end.Add(s.keep), uint32(n))
			}
		}
	}
	for _, f := range []*fifo{&s.finals, &s.forgets} {
		slices.SortFunc(f.list, func(a, b fifoEntry) int { return cmp.Compare(a.at, b.at) })
	}
	s.reopenHeap()
}

package window

import (
	"fmt"
	"slices"

	"github.com/tidemark-mesh/tidemark/internal/core/identity"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// reopen takes in a REOPEN that is not refused, and lays out what it changed and what
// already has W >= end.
func (s *sessions) reopen(r *envelope.Reopen) error {
	if len(r.Restore)+len(r.Add) > 0 {
		if err := s.missing(); err != nil {
			return s.unfit(r, err)
		}
	}
	key := s.o.keys.intern(r.Key)
	s.o.keys.retain(key) // the number stays while the last session of the key may go
	defer s.o.keys.release(key)
	s.retain(key)
	for i := range r.Restore {
		if err := s.restore(key, &r.Restore[i]); err != nil {
			return s.unfit(r, err)
		}
	}
	for i := range r.Retracted {
		s.restoreGrave(key, &r.Retracted[i])
	}
	for i := range r.Add {
		e := &r.Add[i]
		hash := identity.EventHash(e.Source, e.ID)
		if err := s.takes(e); err != nil {
			return s.unfit(r, err)
		}
		if !s.has(key, e.Time, hash) {
			s.insert(key, s.reopenedEvent(e, hash), e.Values)
			s.countReopened(hash)
		}
	}
	for i := range r.Withdraw {
		e := &r.Withdraw[i]
		if s.remove(key, e.Time, identity.EventHash(e.Source, e.Withdraws), envelope.OriginRepair, true) {
			s.countReopened(identity.EventHash(e.Source, e.ID))
		}
	}
	s.planReopened(key)
	s.settleKey(key)
	return nil
}

func (s *sessions) countReopened(hash [16]byte) {
	s.o.totals[classReopened]++
	s.o.addID(hash)
}

func (s *sessions) unfit(r *envelope.Reopen, err error) error {
	return fmt.Errorf("events journal %s/%02d, sequence %d, record %d: the REOPEN of key %q by epoch %d cannot be taken in: %w; start a new generation",
		s.o.cfg.Policy.Stream, s.o.cfg.Partition, s.o.seq, s.o.nextIndex, r.Key, r.Epoch, err)
}

// takes answers why an event cannot be a member, or nil.
func (s *sessions) takes(e *envelope.ReopenEvent) error {
	if _, ours := s.o.sources[e.Source]; !ours {
		return fmt.Errorf("event %q is of source %q, which the policy does not have", e.ID, e.Source)
	}
	if len(e.Values) != len(s.o.frame.values) {
		return fmt.Errorf("event %q of source %s has %d values, its frame names %d", e.ID, e.Source, len(e.Values), len(s.o.frame.values))
	}
	return nil
}

func (s *sessions) reopenedEvent(e *envelope.ReopenEvent, hash [16]byte) *sessionEvent {
	return &sessionEvent{
		id: e.ID, source: e.Source, time: e.Time, hash: hash, seq: e.Seq,
		partition: e.SourcePartition, offset: e.SourceOffset, origin: envelope.OriginRepair, reopened: true,
	}
}

// has tells whether a session of the key that is held has the member.
func (s *sessions) has(key uint32, at envelope.EventTime, hash [16]byte) bool {
	list := s.keyOf(key).list
	lo, hi := s.touching(list, at, at.Add(1))
	if lo == hi {
		return false
	}
	_, _, found := s.findMember(&s.table[list[lo]], at, hash)
	return found
}

// restore puts a published session back that is not held any more. One that touches a
// session that is held is dropped: what is held is newer.
func (s *sessions) restore(key uint32, w *envelope.ReopenWindow) error {
	k := s.keyOf(key)
	lo, hi := s.touching(k.list, w.Start, w.End)
	if lo < hi {
		return nil
	}
	if err := s.fits(w); err != nil {
		return fmt.Errorf("session [%s, %s) to be restored: %w", w.Start, w.End, err)
	}
	ref := s.add(key, w.Start, w.End)
	k.list = slices.Insert(k.list, lo, ref)
	s.tails[key].known = false
	row := s.restoreRow(key, w)
	x := &s.table[ref]
	x.rows = append(x.rows, row)
	for i := range w.Members {
		e := &w.Members[i]
		s.appendMember(x, s.reopenedEvent(e, identity.EventHash(e.Source, e.ID)), e.Values)
	}
	for rest := s.store.bytes(x.members); len(rest) > 0; {
		var m member
		m, rest = firstMember(rest)
		m.setRow(s.rows[row].number)
	}
	s.rest(ref)
	return nil
}

// fits answers why the session is none that this policy can have published, or nil.
func (s *sessions) fits(w *envelope.ReopenWindow) error {
	if uint64(len(w.Members)) != w.Events {
		return fmt.Errorf("it has %d members, but counts %d", len(w.Members), w.Events)
	}
	if len(w.Value) != len(s.program) {
		return fmt.Errorf("it has %d results, the policy has %d", len(w.Value), len(s.program))
	}
	for i := range w.Value {
		if w.Value[i].Name != s.program[i].Result {
			return fmt.Errorf("result %d is %q, the policy's is %q", i+1, w.Value[i].Name, s.program[i].Result)
		}
	}
	first, last := envelope.MaxEventTime, envelope.MinEventTime
	for i := range w.Members {
		if err := s.takes(&w.Members[i]); err != nil {
			return err
		}
		first, last = min(first, w.Members[i].Time), max(last, w.Members[i].Time)
	}
	if first != w.Start || last.Add(s.gap) != w.End {
		return fmt.Errorf("its members reach from %s to %s", first, last.Add(s.gap))
	}
	return nil
}

func (s *sessions) restoreRow(key uint32, w *envelope.ReopenWindow) uint32 {
	value := make([]revision.Field, len(w.Value))
	for i, f := range w.Value {
		value[i] = revision.Field{Name: f.Name, Text: f.Text, Quoted: f.Quoted}
	}
	ranges, mask := make([]offsetRange, len(s.o.ranges)), uint16(0)
	for _, offsets := range w.Offsets {
		if at := s.o.rangeOf(offsets.Source, offsets.Partition); at >= 0 {
			ranges[at], mask = offsetRange{offsets.First, offsets.Last}, mask|1<<at
		}
	}
	at := s.addRow(key, revision.Window{Start: w.Start, End: w.End})
	r := &s.rows[at]
	r.revision, r.digest, r.first, r.last, r.owners = w.Revision, w.Digest, w.First, w.Last, 1
	if w.FirstLate {
		r.flags |= rowFirstLate
	}
	s.keepValues(r, value, mask, ranges)
	return at
}

// restoreGrave puts the number of retracted bounds back, unless something newer of the
// bounds is held.
func (s *sessions) restoreGrave(key uint32, w *envelope.ReopenRetracted) {
	k, b := s.keyOf(key), revision.Window{Start: w.Start, End: w.End}
	if _, found := slices.BinarySearchFunc(k.graves, b, compareGrave); found {
		return
	}
	same := func(at uint32) bool { return s.rows[at].start == b.Start && s.rows[at].end == b.End }
	for _, ref := range k.list {
		if slices.ContainsFunc(s.table[ref].rows, same) {
			return
		}
	}
	if !slices.ContainsFunc(k.orphans, same) {
		s.bury(key, grave{start: w.Start, end: w.End, digest: w.Digest, revision: w.Revision, final: noFinal})
	}
}

// planReopened lays out what the REOPEN changed: what else waits fires by its own rule.
func (s *sessions) planReopened(key uint32) {
	w := s.o.tracker.W()
	s.plan.before, s.plan.reopened = w, true
	const changed = sessionDirty | sessionReopened
	for _, ref := range s.keys[key].list {
		if x := &s.table[ref]; x.flags&changed == changed && w >= x.end {
			s.planSession(ref)
		}
	}
	for _, at := range s.lost {
		const lost = rowLost | rowReopened
		if r := &s.rows[at]; r.key == key && r.flags&lost == lost {
			s.planLoss(at)
		}
	}
	s.begin()
}

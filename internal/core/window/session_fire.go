package window

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-mesh/tidemark/internal/core/aggregate"
	"github.com/tidemark-mesh/tidemark/internal/core/identity"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// sessionPlan is what one mark or REOPEN makes due. Groups are made one at a time: what a
// group changed in the state counts as published when its last record was taken.
type sessionPlan struct {
	items    []planItem // what is left, by (end, start, key)
	before   envelope.EventTime
	reopened bool

	out    []byte // the group at hand: its records
	ends   []int  // where each ends
	taken  int    // records of it that were taken
	opened envelope.EventTime
}

// planItem is a session that fires, or a row that is retracted by itself.
type planItem struct {
	start, end envelope.EventTime
	key        uint32
	n          uint32 // session or row
	alone      bool
}

// mark lays out what the mark makes due. before is W as it was.
func (s *sessions) mark(before envelope.EventTime) {
	w := s.o.tracker.W()
	s.plan.before, s.plan.reopened = before, false
	for _, ref := range s.stirred {
		x := &s.table[ref]
		if x.due == stirredTimer {
			x.due = noTimer
			s.wake(ref, w, noTimer)
		}
	}
	s.stirred = s.stirred[:0]
	if w > before {
		s.timers.reach(w, func(bucket int64, ref uint32) bool {
			x := &s.table[ref]
			if x.due != bucket {
				return true
			}
			x.due = noTimer
			return s.wake(ref, w, bucket)
		})
	}
	for _, at := range s.lost {
		r := &s.rows[at]
		r.flags &^= rowListed
		if r.flags&rowLost != 0 {
			s.planLoss(at)
		}
	}
	s.lost = s.lost[:0]
	s.begin()
}

// wake looks at a session whose time has come: it fires, or is final, or its timer is set
// again. It answers false when the timer stays in the bucket that it came from.
func (s *sessions) wake(ref uint32, w envelope.EventTime, from int64) bool {
	x := &s.table[ref]
	at := x.end
	switch {
	case x.flags&sessionDirty == 0:
		if at = at.Add(s.keep); w >= at {
			s.finish(ref)
			return true
		}
	case w >= at:
		s.planSession(ref)
		return true
	}
	if x.due = s.timers.bucket(at); x.due == from {
		return false
	}
	s.timers.add(at, ref)
	return true
}

func (s *sessions) planSession(ref uint32) {
	x := &s.table[ref]
	x.flags |= sessionPlanned
	s.plan.items = append(s.plan.items, planItem{start: x.start, end: x.end, key: x.key, n: ref})
}

// planLoss retracts a row that lost a member, unless a session that succeeds it fires now.
func (s *sessions) planLoss(at uint32) {
	r := &s.rows[at]
	if r.owners > 0 {
		for _, ref := range s.keys[r.key].list {
			if x := &s.table[ref]; x.flags&sessionPlanned != 0 && slices.Contains(x.rows, at) {
				return
			}
		}
	}
	s.plan.items = append(s.plan.items, planItem{start: r.start, end: r.end, key: r.key, n: at, alone: true})
}

// begin orders the plan and makes its first group.
func (s *sessions) begin() {
	slices.SortFunc(s.plan.items, func(a, b planItem) int {
		if a.end != b.end || a.start != b.start {
			return compareBounds(a.end, a.start, b.end, b.start)
		}
		if a.key != b.key {
			return strings.Compare(s.o.keys.name(a.key), s.o.keys.name(b.key))
		}
		if a.alone && !b.alone {
			return -1
		}
		return 1
	})
	s.o.plan.active = true
	s.nextGroup()
}

// next appends the next record of the plan.
func (s *sessions) next(buf []byte) []byte {
	p := &s.plan
	from := 0
	if p.taken > 0 {
		from = p.ends[p.taken-1]
	}
	buf = append(buf, p.out[from:p.ends[p.taken]]...)
	p.taken++
	s.o.totals[classRevisions]++
	if p.taken == len(p.ends) {
		s.nextGroup()
	}
	return buf
}

// nextGroup makes the records of the next group; when there is none the mark is done.
func (s *sessions) nextGroup() {
	p := &s.plan
	p.out, p.ends, p.taken, p.opened = p.out[:0], p.ends[:0], 0, envelope.MaxEventTime
	if len(p.items) == 0 {
		s.o.plan.active = false
		if !p.reopened {
			s.o.settleMark()
		}
		return
	}
	item := p.items[0]
	done := true
	var err error
	if item.alone {
		err = s.publishLoss(item.n)
	} else {
		p.opened = item.start
		done, err = s.publish(item.n)
	}
	if err != nil {
		s.o.failed = err
		return
	}
	if done {
		p.items = p.items[1:]
		if len(p.items) == 0 {
			p.items = nil
		}
	}
}

// publish makes the session's group, or the next of the chain that leads to it, and
// answers whether it was the last.
func (s *sessions) publish(ref uint32) (done bool, err error) {
	x := &s.table[ref]
	b := revision.Window{Start: x.start, End: x.end}
	gone := s.goneRows(x, b)
	w := s.whyOf(x, b)
	if len(gone) > s.limit {
		gone = gone[:s.limit]
		b = revision.Window{Start: s.rows[gone[0]].start, End: s.rows[gone[s.limit-1]].end}
		return false, s.supersede(ref, b, gone, w, true)
	}
	if err := s.supersede(ref, b, gone, w, false); err != nil {
		return false, err
	}
	x = &s.table[ref]
	x.flags &^= sessionDirty | sessionAsserted | sessionReopened | sessionPlanned
	x.origin = 0
	s.rest(ref)
	return true, nil
}

// goneRows answers the rows that the session supersedes, left to right.
func (s *sessions) goneRows(x *session, b revision.Window) []uint32 {
	gone := s.scratch.gone[:0]
	for _, at := range x.rows {
		if r := &s.rows[at]; r.start != b.Start || r.end != b.End {
			gone = append(gone, at)
		}
	}
	slices.SortFunc(gone, func(i, j uint32) int {
		a, b := &s.rows[i], &s.rows[j]
		return compareBounds(a.start, a.end, b.start, b.end)
	})
	s.scratch.gone = gone
	return gone
}

// reason is why a group is published.
type reason struct {
	state  revision.OutputState
	firing revision.Firing
	cause  string
	origin envelope.Origin
}

func (s *sessions) whyOf(x *session, b revision.Window) reason {
	if s.plan.reopened {
		return repaired()
	}
	w := reason{revision.Corrected, revision.FiringLate, revision.CauseRetraction, envelope.Origin(x.origin)}
	_, was := slices.BinarySearchFunc(s.keys[x.key].graves, b, compareGrave)
	switch successor := was || len(x.rows) > 0; {
	case !successor && s.plan.before < x.end:
		w.state, w.firing, w.cause = revision.OnTimeEmitted, revision.FiringOnTime, revision.CauseOnTime
	case !successor:
		w.cause = revision.CauseLateWindow
	case x.flags&sessionAsserted != 0:
		w.cause = revision.CauseLateEvent
	}
	return w
}

// repaired is the reason of everything that a REOPEN publishes.
func repaired() reason {
	return reason{revision.Corrected, revision.FiringReopened, revision.CauseReopened, envelope.OriginRepair}
}

// publishLoss retracts a row that no session takes over now.
func (s *sessions) publishLoss(at uint32) error {
	w := repaired()
	if !s.plan.reopened {
		w = reason{revision.Corrected, revision.FiringLate, revision.CauseRetraction, envelope.Origin(s.rows[at].origin)}
	}
	key := s.rows[at].key
	_, err := s.retract(at, nil, "", w)
	s.settleKey(key)
	return err
}

// supersede makes one group: rows that go, and the row that comes with bounds b. A merged
// row in a chain holds what the rows before it held, any other all of the session.
func (s *sessions) supersede(ref uint32, b revision.Window, gone []uint32, w reason, merged bool) error {
	x := &s.table[ref]
	by := ""
	if len(gone) > 0 {
		by = s.projection(x.key, b)
	}
	numbers := s.scratch.numbers[:0]
	list := s.scratch.supersedes[:0]
	for _, at := range gone {
		numbers = append(numbers, s.rows[at].number)
		name, err := s.retract(at, x, by, w)
		if err != nil {
			return err
		}
		list = append(list, name)
	}
	slices.Sort(numbers)
	s.scratch.numbers, s.scratch.supersedes = numbers, list
	if !merged {
		numbers = nil
	}
	before := s.before(x, b)
	r, row, err := s.upsert(x, b, before, w, numbers)
	if err != nil {
		return err
	}
	r.Supersedes = list
	digest := r.ComputeDigest()
	s.put(r, digest)
	at := &s.rows[row]
	at.revision, at.digest, at.owners = r.Revision, digest, 1
	if before.flags&rowFirstLate != 0 || r.Revision == 1 && r.Firing != revision.FiringOnTime {
		at.flags |= rowFirstLate
	}
	x.rows = append(x.rows, row)
	s.touch(ref)
	return nil
}

// predecessor is what was last published under some bounds.
type predecessor struct {
	revision uint64
	digest   revision.Digest
	value    []revision.Field
	flags    uint8
}

// before answers and takes what was published under bounds: a row of the session, or a
// number that was kept of a retracted one.
func (s *sessions) before(x *session, b revision.Window) (p predecessor) {
	for _, at := range x.rows {
		r := &s.rows[at]
		if r.start != b.Start || r.end != b.End {
			continue
		}
		p = predecessor{revision: r.revision, digest: r.digest, flags: r.flags}
		p.value, _ = s.rowValue(r, nil)
		s.detach(at, x)
		s.dropRow(at)
		return p
	}
	g := s.exhume(x.key, b)
	return predecessor{revision: g.revision, digest: g.digest}
}

// retract makes the RETRACT of a row; its number is kept. x is the session that takes its
// members over, if one does.
func (s *sessions) retract(at uint32, x *session, by string, w reason) (revision.Supersession, error) {
	row := &s.rows[at]
	r := s.revise(row.key, revision.Window{Start: row.start, End: row.end}, w)
	r.Op, r.SupersededBy = revision.Retract, by
	r.Revision, r.Predecessor = row.revision+1, &revision.Predecessor{Revision: row.revision, Digest: row.digest}
	old, offsets := s.rowValue(row, r.Inputs.Offsets)
	r.ValueChanged = true
	r.Inputs.First, r.Inputs.Last, r.Inputs.Offsets = row.first, row.last, offsets
	var err error
	if r.Delta, err = aggregate.Deltas(s.program, old, nil); err != nil {
		return revision.Supersession{}, s.uncomputable(r, err)
	}
	r.AggregateDigest = revision.ValueDigest(nil)
	digest := r.ComputeDigest()
	s.put(r, digest)
	s.detach(at, x)
	s.bury(row.key, grave{start: row.start, end: row.end, digest: digest, revision: r.Revision, final: noFinal})
	s.dropRow(at)
	return revision.Supersession{ProjectionID: r.ProjectionID, Revision: r.Revision}, nil
}

// revise begins a revision. It is valid until the next call.
func (s *sessions) revise(key uint32, b revision.Window, w reason) *revision.Revision {
	o, r := s.o, &s.o.scratch
	pol, offsets := o.cfg.Policy, r.Inputs.Offsets[:0]
	*r = revision.Revision{
		Stream: pol.Stream, Job: pol.Job, PolicyGeneration: s.generation, PolicyDigest: o.cfg.PolicyDigest,
		Key: o.keys.name(key), Window: b, State: w.state, Firing: w.firing, Cause: w.cause, Origin: w.origin,
		Watermark: revision.Watermark{At: o.tracker.W(), Data: o.tracker.Data()},
		Inputs:    revision.Inputs{Partition: o.cfg.Partition, Offsets: offsets},
	}
	r.LogicalWindowID = identity.LogicalWindow(r.Stream, r.Key, b.Start, b.End)
	r.ProjectionID = identity.Projection(r.LogicalWindowID, r.PolicyGeneration)
	return r
}

func (s *sessions) projection(key uint32, b revision.Window) string {
	logical := identity.LogicalWindow(s.o.cfg.Policy.Stream, s.o.keys.name(key), b.Start, b.End)
	return identity.Projection(logical, s.generation)
}

func (s *sessions) uncomputable(r *revision.Revision, err error) error {
	return fmt.Errorf("policy %s, key %q, session [%s, %s), revision %d: %w", r.PolicyGeneration, r.Key, r.Window.Start, r.Window.End, r.Revision, err)
}

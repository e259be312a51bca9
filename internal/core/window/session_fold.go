package window

import (
	"fmt"
	"slices"

	"github.com/tidemark-mesh/tidemark/internal/core/aggregate"
	"github.com/tidemark-mesh/tidemark/internal/core/identity"
	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// sessionScratch is memory that firing uses again and again.
type sessionScratch struct {
	cells      []aggregate.Cell
	values     []envelope.Value
	names      []string // of members
	ranges     []offsetRange
	text, room []byte
	bytes      []byte
	gone       []uint32
	numbers    []uint32
	supersedes []revision.Supersession
	in         aggregate.Input
}

// folded is what the members of a row come to.
type folded struct {
	events      uint64
	first, last uint64
	mask        uint16
	idDigest    [16]byte
}

// upsert answers the revision of the session, or of the members that the rows of those
// numbers held, and the row that holds them from now on.
func (s *sessions) upsert(x *session, b revision.Window, before predecessor, w reason, numbers []uint32) (*revision.Revision, uint32, error) {
	key := x.key
	row := s.addRow(key, b)
	r := s.revise(key, b, w)
	r.Op, r.Revision = revision.Upsert, before.revision+1
	if before.revision > 0 {
		r.Predecessor = &revision.Predecessor{Revision: before.revision, Digest: before.digest}
	}
	f, err := s.fold(x, numbers, s.rows[row].number)
	if err != nil {
		return nil, 0, s.uncomputable(r, err)
	}
	r.Value = aggregate.Results(s.program, s.scratch.cells)
	r.ValueChanged = !sameFields(before.value, r.Value)
	if r.Delta, err = aggregate.Deltas(s.program, before.value, r.Value); err != nil {
		return nil, 0, s.uncomputable(r, err)
	}
	r.AggregateDigest = revision.ValueDigest(r.Value)
	r.ResultID = s.resultID(r.Key)
	r.Inputs.First, r.Inputs.Last, r.Inputs.Events, r.Inputs.IDDigest = f.first, f.last, f.events, f.idDigest
	for at, span := range s.scratch.ranges {
		if f.mask&(1<<at) != 0 {
			named := s.o.ranges[at]
			named.First, named.Last = span.first, span.last
			r.Inputs.Offsets = append(r.Inputs.Offsets, named)
		}
	}
	p := &s.rows[row]
	p.first, p.last = f.first, f.last
	s.keepValues(p, r.Value, f.mask, s.scratch.ranges)
	return r, row, nil
}

// fold computes the results over members, notes their names, and gives them the number of
// the row that holds them now. numbers, sorted, picks those of some rows; nil takes all.
func (s *sessions) fold(x *session, numbers []uint32, number uint32) (f folded, err error) {
	c := &s.scratch
	c.cells = append(c.cells[:0], make([]aggregate.Cell, len(s.program))...)
	c.names, c.text = c.names[:0], c.text[:0]
	if len(c.values) < len(s.args) {
		c.values = make([]envelope.Value, len(s.args))
	}
	if len(c.ranges) < len(s.o.ranges) {
		c.ranges = make([]offsetRange, len(s.o.ranges))
	}
	for rest := s.store.bytes(x.members); len(rest) > 0; {
		var m member
		m, rest = firstMember(rest)
		if numbers != nil {
			if _, in := slices.BinarySearch(numbers, m.row()); !in {
				continue
			}
		}
		m.setRow(number)
		if err := s.foldMember(m); err != nil {
			return f, err
		}
		f.take(m, c.ranges)
		c.names = append(c.names, s.name(m))
	}
	return f, nil
}

func (f *folded) take(m member, ranges []offsetRange) {
	seq := m.seq()
	if f.events == 0 {
		f.first, f.last = seq, seq
	}
	f.events++
	f.first, f.last = min(f.first, seq), max(f.last, seq)
	f.idDigest = identity.Sum128(f.idDigest, m.hash())
	at := m.span()
	if at < 0 {
		return
	}
	offset, span := m.offset(), &ranges[at]
	if f.mask&(1<<at) == 0 {
		f.mask |= 1 << at
		*span = offsetRange{offset, offset}
		return
	}
	span.first, span.last = min(span.first, offset), max(span.last, offset)
}

func (s *sessions) foldMember(m member) error {
	c := &s.scratch
	s.readValues(m.values(), c.values)
	c.in.Time, c.in.Source, c.in.ID = m.time(), s.sources[m.source()], m.id()
	for i, slot := range s.slots {
		if c.in.Value = (envelope.Value{}); slot >= 0 {
			c.in.Value = c.values[slot]
		}
		if err := s.program[i].Add(&c.cells[i], &c.in); err != nil {
			return fmt.Errorf("result %s cannot take event %q of source %s: %w", s.program[i].Result, c.in.ID, c.in.Source, err)
		}
	}
	return nil
}

// name answers what a member is called in the result id.
func (s *sessions) name(m member) string {
	if len(s.sources) == 1 {
		return m.id()
	}
	c := &s.scratch
	from := len(c.text)
	c.text = append(append(append(c.text, s.sources[m.source()]...), '#'), m.idBytes()...)
	return aliasText(c.text[from:])
}

// resultID answers the result id of the members that were folded last.
func (s *sessions) resultID(key string) string {
	c := &s.scratch
	if !slices.IsSorted(c.names) {
		slices.Sort(c.names)
	}
	var id string
	id, c.room = identity.SortedSessionResult(c.room[:0], key, s.o.cfg.Policy.Window.Rule, slices.Compact(c.names))
	return id
}

// put adds a record to the group at hand.
func (s *sessions) put(r *revision.Revision, digest revision.Digest) {
	p := &s.plan
	p.out = record.AppendProposal(p.out, r, digest)
	p.ends = append(p.ends, len(p.out))
}

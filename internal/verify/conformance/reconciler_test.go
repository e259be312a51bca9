package conformance

import (
	"fmt"
	"slices"

	"github.com/tidemark-mesh/tidemark/internal/core/aggregate"
	"github.com/tidemark-mesh/tidemark/internal/verify/oracle"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// journalPlace is where an event stands in the journal.
type journalPlace struct {
	seq   uint64
	index uint32
}

// entry is an event of the journal as a reconciler finds it again.
type entry struct {
	key   string
	event envelope.ReopenEvent
	late  []revision.Window // windows that it was TOO_LATE for
}

// snapshot is what a reconciler knows at one position: what was published, and W.
type snapshot struct {
	at   envelope.ReopenPlace
	w    envelope.EventTime
	now  envelope.IngestTime
	rows map[rowID]snapshotRow
}

type snapshotRow struct {
	revision *revision.Revision
	digest   revision.Digest
	late     bool // revision 1 had firing LATE
	members  []oracle.Member
}

// enter notes the events of a frame that is about to be taken in, and the highest ingestNow.
func (p *pair) enter(seq uint64, f *envelope.Frame) {
	at := slices.Index(f.Extractors, p.policy.Extractor)
	for i := range f.Records {
		if m := f.Records[i].Mark; m != nil {
			p.now = max(p.now, m.IngestNow)
		}
		ev := f.Records[i].Event
		if ev == nil || at < 0 {
			continue
		}
		p.events[journalPlace{seq, uint32(i)}] = &entry{key: ev.Key, event: envelope.ReopenEvent{
			Source: ev.Source, ID: ev.ID, Time: ev.Times[at], Digest: ev.Digest, Withdraws: ev.Withdraws,
			SourcePartition: ev.SourcePartition, SourceOffset: ev.SourceOffset, Values: ev.Values, Origin: ev.Origin, Seq: seq, Index: uint32(i),
		}}
	}
}

// snapshot answers what is published before the frame that comes next.
func (p *pair) snapshot() *snapshot {
	w, _ := p.oracle.Watermark()
	s := &snapshot{at: envelope.ReopenPlace{Seq: p.seq + 1}, w: w, now: p.now, rows: map[rowID]snapshotRow{}}
	for at, r := range p.rows {
		row := snapshotRow{revision: r, digest: p.heads[at].Digest, late: p.firstLate[at]}
		if r.Op == revision.Upsert {
			row.members = p.oracle.Members(at.key, at.Start, at.End)
		}
		s.rows[at] = row
	}
	return s
}

// reopen answers the REOPEN that a reconciler writes who knows of s.
func (p *pair) reopen(s *snapshot, epoch uint64, key string, add, withdraw []journalPlace) *envelope.Reopen {
	r := &envelope.Reopen{PolicyGeneration: p.policy.PolicyGeneration(), Key: key, Epoch: epoch, AsOf: s.at, AsOfNow: s.now}
	for _, at := range add {
		r.Add = append(r.Add, p.refused(at))
	}
	for _, at := range withdraw {
		r.Withdraw = append(r.Withdraw, p.refused(at))
	}
	for _, at := range sortedRows(s.rows) {
		row := s.rows[at]
		switch {
		case at.key != key:
		case row.revision.Op == revision.Retract:
			r.Retracted = append(r.Retracted, envelope.ReopenRetracted{Start: at.Start, End: at.End, Revision: row.revision.Revision, Digest: row.digest})
		case p.final(s, at.End) && uint64(len(row.members)) == row.revision.Inputs.Events && p.touches(at.Window, add, withdraw):
			r.Restore = append(r.Restore, p.restore(&row, add, withdraw))
		}
	}
	return r
}

// refused answers a late event as a REOPEN names it.
func (p *pair) refused(at journalPlace) envelope.ReopenEvent {
	e := p.events[at].event
	if p.policy.Window.Kind == policy.Hopping {
		e.Refused = uint32(len(p.events[at].late))
	}
	return e
}

// final tells whether the live path is done with a window that ends there.
func (p *pair) final(s *snapshot, end envelope.EventTime) bool {
	keep := end.Add(int64(p.policy.AllowedLateness))
	if p.policy.Window.Kind == policy.Session {
		keep = keep.Add(int64(p.policy.Window.Gap))
	}
	return s.w >= keep
}

// touches tells whether one of the late events changes the window.
func (p *pair) touches(w revision.Window, lists ...[]journalPlace) bool {
	for _, at := range slices.Concat(lists...) {
		for _, refused := range p.events[at].late {
			if p.policy.Window.Kind != policy.Session && refused == w ||
				p.policy.Window.Kind == policy.Session && refused.Start < w.End && w.Start < refused.End {
				return true
			}
		}
	}
	return false
}

// restore answers a published window with the state that its members give.
func (p *pair) restore(row *snapshotRow, add, withdraw []journalPlace) envelope.ReopenWindow {
	r := row.revision
	w := envelope.ReopenWindow{
		Start: r.Window.Start, End: r.Window.End, Revision: r.Revision, Digest: row.digest, FirstLate: row.late,
		First: r.Inputs.First, Last: r.Inputs.Last, Events: r.Inputs.Events, IDDigest: r.Inputs.IDDigest,
	}
	for _, f := range r.Value {
		w.Value = append(w.Value, envelope.ReopenField{Name: f.Name, Text: f.Text, Quoted: f.Quoted})
	}
	for _, o := range r.Inputs.Offsets {
		w.Offsets = append(w.Offsets, envelope.ReopenOffsets{Source: o.Source, Partition: o.Partition, First: o.First, Last: o.Last})
	}
	session := p.policy.Window.Kind == policy.Session
	for _, m := range row.members {
		if session || p.named(m, add, withdraw) {
			w.Members = append(w.Members, p.events[journalPlace{m.Seq, m.Index}].event)
		}
	}
	if !session {
		w.State = p.state(row.members)
	}
	return w
}

// named tells whether a member is one of the events, or withdrawn by one.
func (p *pair) named(m oracle.Member, add, withdraw []journalPlace) bool {
	for _, at := range add {
		if e := p.events[at].event; e.Source == m.Source && e.ID == m.ID {
			return true
		}
	}
	for _, at := range withdraw {
		if e := p.events[at].event; e.Source == m.Source && e.Withdraws == m.ID {
			return true
		}
	}
	return false
}

// state answers the aggregates of members as a checkpoint holds them.
func (p *pair) state(members []oracle.Member) (out [][]byte) {
	program, err := aggregate.Compile(p.stream, p.policy)
	if err != nil {
		p.tb.Fatal(err)
	}
	for i := range program {
		var cell aggregate.Cell
		for _, m := range members {
			e := p.events[journalPlace{m.Seq, m.Index}].event
			in := aggregate.Input{Time: e.Time, Source: e.Source, ID: e.ID}
			if program[i].Value >= 0 {
				in.Value = e.Values[program[i].Value]
			}
			if err := program[i].Add(&cell, &in); err != nil {
				p.tb.Fatal(err)
			}
		}
		out = append(out, program[i].AppendState(nil, &cell))
	}
	return out
}

// parts cuts a REOPEN into n numbered parts; the members of its first window are cut too.
func parts(r *envelope.Reopen, n int) []*envelope.Reopen {
	if n < 2 {
		return []*envelope.Reopen{r}
	}
	out := make([]*envelope.Reopen, n)
	for i := range out {
		head := *r
		head.Part, head.Parts = uint32(i+1), uint32(n)
		head.Restore, head.Retracted, head.Add, head.Withdraw = nil, nil, nil, nil
		out[i] = &head
	}
	if len(r.Restore) > 0 {
		first := r.Restore[0]
		half := len(first.Members) / 2
		rest := envelope.ReopenWindow{Start: first.Start, End: first.End, Members: first.Members[half:]}
		first.Members = first.Members[:half]
		out[0].Restore = []envelope.ReopenWindow{first}
		out[1].Restore = append([]envelope.ReopenWindow{rest}, r.Restore[1:]...)
	}
	out[0].Retracted, out[n-1].Add, out[n/2].Withdraw = r.Retracted, r.Add, r.Withdraw
	return out
}

// body answers the record of a REOPEN.
func body(tb tester, r *envelope.Reopen) envelope.Record {
	tb.Helper()
	data, err := envelope.AppendReopen(nil, r)
	if err != nil {
		tb.Fatal(err)
	}
	return envelope.Record{Reopen: data}
}

func sortedRows[T any](rows map[rowID]T) []rowID {
	out := make([]rowID, 0, len(rows))
	for at := range rows {
		out = append(out, at)
	}
	slices.SortFunc(out, func(a, b rowID) int {
		switch {
		case a.Start < b.Start || a.Start == b.Start && a.End < b.End:
			return -1
		case a.Window == b.Window && a.key == b.key:
			return 0
		case a.Window == b.Window && a.key < b.key:
			return -1
		}
		return 1
	})
	return out
}

// find answers the last event of a source and id among those of the key, or fails.
func (p *pair) find(key, source, id string) journalPlace {
	p.tb.Helper()
	var found journalPlace
	for at, e := range p.events {
		if e.key == key && e.event.Source == source && e.event.ID == id && len(e.late) > 0 {
			found = at
		}
	}
	if found == (journalPlace{}) {
		p.tb.Fatal(fmt.Sprintf("no event %s of source %s and key %s was TOO_LATE so far", id, source, key))
	}
	return found
}

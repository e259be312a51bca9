package window

import (
	"maps"
	"slices"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"pgregory.net/rapid"
)

// moment is what a reconciler may know: the state after one record of the journal.
type moment struct {
	seq  uint64
	w    envelope.EventTime
	now  int64
	rows map[revision.Window]labRow
	had  map[int]labEvent // events that stand in the journal
}

// reconciler hands late events back. It lags behind the journal, races with it and
// repeats itself.
type reconciler struct {
	*lab
	moments  []moment
	had      map[int]labEvent
	disposed map[string]bool // own ids
	gone     map[int]bool    // events that were withdrawn in the journal
	pending  *envelope.Reopen
	todo     []labLate
	adds     []labEvent // that pending takes in
	applied  int
}

func (r *reconciler) remember() {
	r.moments = append(r.moments, moment{seq: r.seq, w: r.w, now: r.now, rows: maps.Clone(r.rows), had: maps.Clone(r.had)})
}

func (r *reconciler) final(w, end envelope.EventTime) bool {
	return w >= end.Add(int64(r.cfg.Policy.AllowedLateness)+r.gap())
}

// prepare makes a REOPEN of the first late events, as of a record that lies lag records back.
func (r *reconciler) prepare(lag int) {
	var todo []labLate
	for _, late := range r.late {
		if !r.disposed[late.own] && len(todo) < 3 {
			todo = append(todo, late)
		}
	}
	if r.pending != nil || len(todo) == 0 {
		return
	}
	at := max(len(r.moments)-1-lag, 0)
	for _, late := range todo {
		at = max(at, int(late.seq)-1)
	}
	m := &r.moments[at]
	out := &envelope.Reopen{PolicyGeneration: "job@1", Key: "k", Epoch: 2, AsOf: envelope.ReopenPlace{Seq: m.seq + 1}, AsOfNow: envelope.IngestTime(m.now * 1_000_000)}
	raw := maps.Clone(m.had)
	var adds []labEvent
	for _, late := range todo {
		raw[late.event.n] = late.event
		switch {
		case late.withdraw:
			e := r.reopened(late.event)
			e.ID, e.Withdraws = late.own, late.event.id()
			out.Withdraw = append(out.Withdraw, e)
		case !r.gone[late.event.n]:
			out.Add = append(out.Add, r.reopened(late.event))
			adds = append(adds, late.event)
		}
	}
	touches := func(b revision.Window) bool {
		return slices.ContainsFunc(todo, func(l labLate) bool {
			return l.event.at < b.End && b.Start < l.event.at.Add(r.gap())
		})
	}
	extents := batch(raw, r.gap())
	for _, b := range sortedBounds(m.rows) {
		row := m.rows[b]
		if row.revision.Op == revision.Upsert {
			if r.final(m.w, b.End) && touches(b) {
				out.Restore = append(out.Restore, r.restored(row))
			}
			continue
		}
		if slices.ContainsFunc(extents, func(x labSession) bool {
			return x.Start <= b.Start && b.End <= x.End && slices.ContainsFunc(todo, func(l labLate) bool { _, in := x.members[l.event.n]; return in })
		}) {
			out.Retracted = append(out.Retracted, envelope.ReopenRetracted{Start: b.Start, End: b.End, Revision: row.revision.Revision, Digest: row.digest})
		}
	}
	r.pending, r.todo, r.adds = out, todo, adds
}

func sortedBounds(rows map[revision.Window]labRow) []revision.Window {
	return slices.SortedFunc(maps.Keys(rows), func(a, b revision.Window) int { return compareBounds(a.Start, a.End, b.Start, b.End) })
}

func (r *reconciler) reopened(e labEvent) envelope.ReopenEvent {
	ev := r.event(e, envelope.Assert)
	return envelope.ReopenEvent{Source: "shop", ID: ev.ID, Time: e.at, Digest: ev.Digest, Values: ev.Values, Seq: 1}
}

func (r *reconciler) restored(row labRow) envelope.ReopenWindow {
	rev := row.revision
	w := envelope.ReopenWindow{
		Start: rev.Window.Start, End: rev.Window.End, Revision: rev.Revision, Digest: row.digest,
		First: rev.Inputs.First, Last: rev.Inputs.Last, Events: rev.Inputs.Events, IDDigest: rev.Inputs.IDDigest,
	}
	for _, f := range rev.Value {
		w.Value = append(w.Value, envelope.ReopenField{Name: f.Name, Text: f.Text, Quoted: f.Quoted})
	}
	for _, o := range rev.Inputs.Offsets {
		w.Offsets = append(w.Offsets, envelope.ReopenOffsets{Source: o.Source, Partition: o.Partition, First: o.First, Last: o.Last})
	}
	for _, n := range slices.Sorted(maps.Keys(row.members)) {
		w.Members = append(w.Members, r.reopened(row.members[n]))
	}
	return w
}

// send writes the REOPEN that was prepared; answers whether it was not refused.
func (r *reconciler) send() bool {
	r.Helper()
	body, err := envelope.AppendReopen(nil, r.pending)
	if err != nil {
		r.Fatalf("%v", err)
	}
	// What it changes in the set of members depends on whether it is refused, which the
	// first record tells.
	before, refused := maps.Clone(r.live), r.refused
	for _, e := range r.adds {
		r.enter(e)
	}
	for _, late := range r.todo {
		if late.withdraw {
			delete(r.live, late.event.n)
		}
	}
	r.step(envelope.Record{Reopen: body}, nil, labLate{})
	if r.refused > refused {
		r.live = before
		return false
	}
	r.applied++
	return true
}

func (r *reconciler) dispose() {
	for _, late := range r.todo {
		r.disposed[late.own] = true
	}
}

// TestReopenedSessionsEqualABatch is the executable model of the design against the operator:
// after the last mark the rows are those of a batch, at no moment is an event in two, and
// every restore between two records changes nothing.
func TestReopenedSessionsEqualABatch(t *testing.T) {
	for name, withdraw := range map[string]bool{"additions": false, "withdrawals": true} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) { reopening1(rt, withdraw) })
		})
	}
}

func reopening1(rt *rapid.T, withdrawals bool) {
	unit := rapid.SampledFrom([]int64{1, 1_000_000}).Draw(rt, "unit")
	gap := rapid.SampledFrom([]int64{3, 5, 10}).Draw(rt, "G") * unit
	lateness := rapid.SampledFrom([]int64{0, 0, 5, 20}).Draw(rt, "L") * unit
	r := &reconciler{
		lab: newLab(rt, policy.Duration(gap), policy.Duration(lateness)).restoring(),
		had: map[int]labEvent{}, disposed: map[string]bool{}, gone: map[int]bool{},
	}
	r.chains(rapid.SampledFrom([]int{2, 3, 400}).Draw(rt, "limit"))
	var sent []labEvent
	var base, now int64
	flip := func(name string, percent int) bool { return rapid.IntRange(0, 99).Draw(rt, name) < percent }
	for range rapid.IntRange(30, 120).Draw(rt, "records") {
		switch kind := rapid.IntRange(0, 99).Draw(rt, "kind"); {
		case kind < 50:
			e := labEvent{n: len(r.had) + 1, at: envelope.EventTime((base + rapid.Int64Range(-40, 5).Draw(rt, "t")) * unit)}
			r.had[e.n] = e
			sent = append(sent, e)
			r.add(e)
		case kind < 58 && withdrawals && len(sent) > 0:
			i := rapid.IntRange(0, len(sent)-1).Draw(rt, "which")
			e := sent[i]
			sent = slices.Delete(sent, i, i+1)
			r.gone[e.n] = true
			r.withdraw(e)
		default:
			base += rapid.Int64Range(0, 8).Draw(rt, "step")
			now += rapid.SampledFrom([]int64{1, 5, 20, 70}).Draw(rt, "now")
			r.mark(envelope.EventTime((base-3)*unit), now)
		}
		r.remember()
		if flip("prepare", 40) {
			r.prepare(rapid.IntRange(0, 6).Draw(rt, "lag"))
		}
		if r.pending != nil && flip("send", 50) {
			done := r.send()
			r.remember()
			if flip("repeat", 20) {
				r.send()
				r.remember()
			}
			if done {
				r.dispose()
			}
			r.pending = nil
		}
	}
	end := envelope.EventTime((base + 100_000) * unit)
	r.mark(end, now+1)
	r.remember()
	for range 400 {
		if r.prepare(0); r.pending == nil {
			break
		}
		if r.send() {
			r.dispose()
		}
		r.remember()
		r.pending = nil
		now += 5
		r.mark(end, now)
		r.remember()
	}
	for n := range r.gone {
		delete(r.had, n)
	}
	r.equalsBatch(r.had)
}

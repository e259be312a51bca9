package window

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/aggregate"
	"github.com/tidemark-mesh/tidemark/internal/core/identity"
	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"pgregory.net/rapid"
)

// reopenModel drives one operator with events, retractions, marks, and a reconciler that
// lags, races, repeats itself and has a rival. One frame holds one record.
type reopenModel struct {
	t     *rapid.T
	cfg   Config
	op    *Operator
	pairs map[string][]byte // of its checkpoint

	events  map[string]*modelEvent // by id; retractions too
	order   []string
	lates   []modelLate // pairs, as they were refused
	done    map[string]int
	rows    []modelRow  // proposals, as they came
	history []modelMark // after each record
	joined  []modelJoin // REOPENs that were acted on

	epoch    uint64
	acted    int
	refusals map[string]int
}

type modelEvent struct {
	id, withdraws string
	at            envelope.EventTime
	value         int64
	seq           uint64
	refused       int // windows
}

type modelLate struct {
	seq    uint64
	id     string
	window revision.Window
}

type modelRow struct {
	seq    uint64
	rev    *revision.Revision
	digest revision.Digest
}

type modelMark struct {
	w   envelope.EventTime
	now envelope.IngestTime
}

type modelJoin struct {
	seq uint64
	r   *envelope.Reopen
}

func newReopenModel(t *rapid.T, window policy.WindowSpec, lateness policy.Duration) *reopenModel {
	cfg := benchConfig()
	cfg.Stream.Partitions, cfg.Stream.Retractions = 1, true
	cfg.Policy.Window, cfg.Policy.AllowedLateness, cfg.Policy.OutOfOrderness = window, lateness, 0
	cfg.Policy.Sources[0].Partitions = 1
	cfg.Policy.Aggregates = append(cfg.Policy.Aggregates, policy.AggregateSpec{Name: "top", Func: "max", Arg: "amount"})
	op, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &reopenModel{
		t: t, cfg: cfg, op: op, events: map[string]*modelEvent{}, done: map[string]int{}, pairs: map[string][]byte{},
		history: []modelMark{{w: envelope.MinEventTime}}, refusals: map[string]int{},
	}
}

// apply hands one record to the operator, restored from a checkpoint now and then.
func (m *reopenModel) apply(rec *envelope.Record) {
	if rapid.IntRange(0, 3).Draw(m.t, "restore") == 0 {
		m.restore()
	}
	seq := uint64(len(m.history))
	m.op.BeginFrame(seq, &envelope.Frame{Extractors: []string{"at@1"}, Values: []string{"amount"}})
	if err := m.op.Apply(0, rec); err != nil {
		m.t.Fatal(err)
	}
	for buf, more := m.op.Next(nil); more; buf, more = m.op.Next(nil) {
		m.output(seq, buf)
	}
	m.op.EndFrame()
	w, _, _ := m.op.Status()
	m.history = append(m.history, modelMark{w: w, now: m.op.now})
}

// restore writes what changed and goes on with an operator that read all of it.
func (m *reopenModel) restore() {
	if err := m.op.Delta(func(key, value []byte) error {
		if m.pairs[string(key)] = value; value == nil {
			delete(m.pairs, string(key))
		}
		return nil
	}); err != nil {
		m.t.Fatal(err)
	}
	op, err := Restore(m.cfg, func(yield func(key, value []byte) error) error {
		for key, value := range m.pairs {
			if err := yield([]byte(key), value); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.op = op
}

// output checks that revisions follow one another, and keeps what the reconciler reads.
func (m *reopenModel) output(seq uint64, raw []byte) {
	rec, err := record.Decode(raw)
	if err != nil {
		m.t.Fatal(err)
	}
	switch {
	case rec.Late != nil:
		m.lates = append(m.lates, modelLate{seq: seq, id: rec.Late.Event.ID, window: rec.Late.Window})
		m.events[rec.Late.Event.ID].refused++
	case rec.Refused != nil:
		m.refusals[rec.Refused.Why]++
	case rec.Conflict != nil:
		m.t.Fatalf("conflict %+v", rec.Conflict)
	default:
		last, ok := m.row(rec.Proposal.Window, seq)
		if want := last.number() + 1; rec.Proposal.Revision != want {
			m.t.Fatalf("record %d: %s has revision %d, want %d", seq, spansOf([]revision.Window{rec.Proposal.Window}), rec.Proposal.Revision, want)
		}
		if ok && rec.Proposal.Predecessor.Digest != last.digest {
			m.t.Fatalf("record %d: the predecessor of %s has another digest", seq, spansOf([]revision.Window{rec.Proposal.Window}))
		}
		m.rows = append(m.rows, modelRow{seq: seq, rev: rec.Proposal, digest: rec.Digest})
	}
}

func (r modelRow) number() uint64 {
	if r.rev == nil {
		return 0
	}
	return r.rev.Revision
}

// row answers the last revision of a window among the outputs of records up to seq.
func (m *reopenModel) row(w revision.Window, seq uint64) (last modelRow, ok bool) {
	for _, r := range m.rows {
		if r.rev.Window == w && r.seq <= seq {
			last, ok = r, true
		}
	}
	return last, ok
}

// members answers the ids in a window after the record at seq, as the raw events say.
func (m *reopenModel) members(w revision.Window, seq uint64) map[string]bool {
	in, refused := map[string]bool{}, map[string]bool{}
	for _, l := range m.lates {
		refused[l.id] = refused[l.id] || l.window == w && l.seq <= seq
	}
	for _, id := range m.order {
		e := m.events[id]
		if e.seq > seq || refused[id] || e.at < w.Start || e.at >= w.End {
			continue
		}
		if e.withdraws == "" {
			in[id] = true
		} else {
			delete(in, e.withdraws)
		}
	}
	for _, j := range m.joined {
		if j.seq > seq {
			continue
		}
		for _, e := range j.r.Add {
			if m.takes(e, w) {
				in[e.ID] = true
			}
		}
		for _, e := range j.r.Withdraw {
			if m.takes(e, w) {
				delete(in, e.Withdraws)
			}
		}
	}
	return in
}

// takes tells whether a REOPEN means the event for a window.
func (m *reopenModel) takes(e envelope.ReopenEvent, w revision.Window) bool {
	windows := m.op.grid.appendAll(nil, e.Time)
	return slices.Contains(windows[:e.Refused], w)
}

// reconcile answers a REOPEN for some pairs that nobody took up yet, as a reconciler that
// lags by some records writes it, and the ids it disposes of.
func (m *reopenModel) reconcile(lag int) (*envelope.Reopen, []string) {
	var todo []string
	for _, l := range m.lates {
		if m.done[l.id] == 0 && !slices.Contains(todo, l.id) && len(todo) < 3 {
			todo = append(todo, l.id)
		}
	}
	if len(todo) == 0 {
		return nil, nil
	}
	for _, id := range todo { // the assertion that a retraction needs goes with it
		if target := m.events[id].withdraws; target != "" && m.events[target].refused > 0 && m.done[target] == 0 && !slices.Contains(todo, target) {
			todo = append(todo, target)
		}
	}
	asOf := max(1, len(m.history)-1-lag)
	for _, id := range todo {
		asOf = max(asOf, int(m.events[id].seq))
	}
	r := &envelope.Reopen{
		PolicyGeneration: m.cfg.Policy.PolicyGeneration(), Key: "k", Epoch: m.epoch,
		AsOf: envelope.ReopenPlace{Seq: uint64(asOf) + 1}, AsOfNow: m.history[asOf].now,
	}
	// An event and its retraction may both be handed in, or the retraction alone, of which
	// nothing is there: the two come to the same.
	alone := rapid.Bool().Draw(m.t, "retractions alone")
	touched := map[revision.Window]bool{}
	for _, id := range todo {
		e := m.events[id]
		windows := m.op.grid.appendAll(nil, e.at)[:e.refused]
		for _, w := range windows {
			touched[w] = true
		}
		in := envelope.ReopenEvent{
			Source: "shop", ID: id, Time: e.at, Withdraws: e.withdraws, SourceOffset: e.seq,
			Values: []envelope.Value{{Int: e.value}}, Seq: e.seq, Refused: uint32(e.refused),
		}
		switch {
		case e.withdraws == "" && alone && slices.Contains(todo, "x"+id):
		case e.withdraws == "":
			r.Add = append(r.Add, in)
		default:
			r.Withdraw = append(r.Withdraw, in)
		}
	}
	for _, w := range slices.SortedFunc(maps.Keys(touched), func(a, b revision.Window) int { return cmp.Compare(a.Start, b.Start) }) {
		m.restoreRow(r, w, uint64(asOf), todo)
	}
	return r, todo
}

// restoreRow adds a published window to a REOPEN, as it was after the record at asOf.
func (m *reopenModel) restoreRow(r *envelope.Reopen, w revision.Window, asOf uint64, todo []string) {
	last, ok := m.row(w, asOf)
	if !ok {
		return
	}
	if last.rev.Op == revision.Retract {
		r.Retracted = append(r.Retracted, envelope.ReopenRetracted{Start: w.Start, End: w.End, Revision: last.rev.Revision, Digest: last.digest})
		return
	}
	out := envelope.ReopenWindow{
		Start: w.Start, End: w.End, Revision: last.rev.Revision, Digest: last.digest, FirstLate: true,
		First: last.rev.Inputs.First, Last: last.rev.Inputs.Last, Events: last.rev.Inputs.Events, IDDigest: last.rev.Inputs.IDDigest,
	}
	for _, f := range last.rev.Value {
		out.Value = append(out.Value, envelope.ReopenField{Name: f.Name, Text: f.Text, Quoted: f.Quoted})
	}
	for _, o := range last.rev.Inputs.Offsets {
		out.Offsets = append(out.Offsets, envelope.ReopenOffsets{Source: o.Source, Partition: o.Partition, First: o.First, Last: o.Last})
	}
	cells, members := make([]aggregate.Cell, len(m.op.program)), m.members(w, asOf)
	for _, id := range m.order {
		if !members[id] {
			continue
		}
		e := m.events[id]
		for i := range cells {
			in := &aggregate.Input{Value: envelope.Value{Int: e.value}, Time: e.at, Source: "shop", ID: id}
			if m.op.program[i].Value < 0 {
				in.Value = envelope.Value{}
			}
			if err := m.op.program[i].Add(&cells[i], in); err != nil {
				m.t.Fatal(err)
			}
		}
		if m.named(id, todo) {
			out.Members = append(out.Members, envelope.ReopenEvent{Source: "shop", ID: id, Time: e.at})
		}
	}
	for i := range cells {
		out.State = append(out.State, m.op.program[i].AppendState(nil, &cells[i]))
	}
	r.Restore = append(r.Restore, out)
}

// named tells whether an id, or a retraction of it, is taken up.
func (m *reopenModel) named(id string, todo []string) bool {
	return slices.ContainsFunc(todo, func(other string) bool { return other == id || m.events[other].withdraws == id })
}

// hand writes a REOPEN, in two parts now and then, and tells whether it was acted on.
func (m *reopenModel) hand(r *envelope.Reopen) bool {
	total := func() (n int) {
		for _, c := range m.refusals {
			n += c
		}
		return n
	}
	before := total()
	parts := []*envelope.Reopen{r}
	if rapid.Bool().Draw(m.t, "parts") {
		first, second := *r, *r
		first.Part, first.Parts, first.Add, first.Withdraw = 1, 2, nil, nil
		second.Part, second.Parts, second.Restore, second.Retracted = 2, 2, nil, nil
		parts = []*envelope.Reopen{&first, &second}
	}
	for _, part := range parts {
		body, err := envelope.AppendReopen(nil, part)
		if err != nil {
			m.t.Fatal(err)
		}
		m.apply(&envelope.Record{Reopen: body})
	}
	acted := total() == before
	if acted {
		m.acted++
		m.joined = append(m.joined, modelJoin{seq: uint64(len(m.history) - 1), r: r})
	}
	return acted
}

func (m *reopenModel) event(id, withdraws string, at envelope.EventTime, value int64) {
	seq := uint64(len(m.history))
	m.events[id] = &modelEvent{id: id, withdraws: withdraws, at: at, value: value, seq: seq}
	m.order = append(m.order, id)
	ev := &envelope.Event{
		ID: id, Source: "shop", Key: "k", Withdraws: withdraws, Times: []envelope.EventTime{at}, Values: []envelope.Value{{Int: value}},
		SourceOffset: seq, Digest: [32]byte{byte(value), byte(value >> 8)},
	}
	if withdraws != "" {
		ev.Op = envelope.Retract
	}
	m.apply(&envelope.Record{Event: ev})
}

func (m *reopenModel) mark(w envelope.EventTime, now envelope.IngestTime) {
	m.apply(&envelope.Record{Mark: &envelope.Mark{Source: "shop", Epoch: 1, Generation: 1, Pending: 1, MaxEventTime: []envelope.EventTime{w}, IngestNow: now}})
}

// check compares what is current with a batch over everything that was ever sent.
func (m *reopenModel) check() {
	want := map[revision.Window][]*modelEvent{}
	gone := map[string]bool{}
	for _, e := range m.events {
		gone[e.withdraws] = true
	}
	for _, id := range m.order {
		if e := m.events[id]; e.withdraws == "" && !gone[id] {
			for _, w := range m.op.grid.appendAll(nil, e.at) {
				want[w] = append(want[w], e)
			}
		}
	}
	seen := map[revision.Window]bool{}
	for _, r := range m.rows {
		if w := r.rev.Window; !seen[w] {
			seen[w] = true
			m.checkRow(w, want[w])
		}
	}
	for w := range want {
		if !seen[w] {
			m.t.Fatalf("%s was never published", spansOf([]revision.Window{w}))
		}
	}
}

func (m *reopenModel) checkRow(w revision.Window, want []*modelEvent) {
	last, _ := m.row(w, uint64(len(m.history)))
	if len(want) == 0 {
		if last.rev.Op != revision.Retract {
			m.t.Fatalf("%s is current, but empty: %+v", spansOf([]revision.Window{w}), last.rev)
		}
		return
	}
	sum, top := int64(0), int64(-1)
	var ids [16]byte
	for _, e := range want {
		sum, top = sum+e.value, max(top, e.value)
		ids = identity.Sum128(ids, identity.EventHash("shop", e.id))
	}
	got := map[string]string{}
	for _, f := range last.rev.Value {
		got[f.Name] = f.Text
	}
	cents := func(n int64) string { return fmt.Sprintf("%d.%02d", n/100, n%100) }
	if got["orders"] != fmt.Sprint(len(want)) || got["revenue"] != cents(sum) || got["top"] != cents(top) || last.rev.Inputs.IDDigest != ids {
		m.t.Fatalf("%s has %v, want %d events, %s, top %s", spansOf([]revision.Window{w}), got, len(want), cents(sum), cents(top))
	}
	m.checkDigest(last)
}

func (m *reopenModel) checkDigest(r modelRow) {
	static := record.Static{Stream: "orders", Job: "hourly-revenue", PolicyGeneration: m.cfg.Policy.PolicyGeneration(), PolicyDigest: m.cfg.PolicyDigest}
	static.Fill(r.rev)
	if err := r.rev.Validate(); err != nil || r.rev.ComputeDigest() != r.digest {
		m.t.Fatalf("revision %+v: %v", r.rev, err)
	}
}

// step sends one event, retraction or mark; base is how far event time has come.
func (m *reopenModel) step(base *envelope.EventTime, now *envelope.IngestTime) {
	switch n := rapid.IntRange(0, 11).Draw(m.t, "step"); {
	case n < 6:
		at := *base + envelope.EventTime(rapid.IntRange(-40, 5).Draw(m.t, "at"))
		m.event(fmt.Sprintf("e%d", len(m.order)), "", at, int64(rapid.IntRange(0, 900).Draw(m.t, "value")))
	case n < 8:
		open := slices.DeleteFunc(slices.Clone(m.order), func(id string) bool {
			return m.events[id].withdraws != "" || m.events["x"+id] != nil
		})
		if len(open) > 0 {
			id := rapid.SampledFrom(open).Draw(m.t, "withdraws")
			m.event("x"+id, id, m.events[id].at, m.events[id].value)
		}
	default:
		*base += envelope.EventTime(rapid.IntRange(0, 8).Draw(m.t, "event time"))
		*now += envelope.IngestTime(rapid.SampledFrom([]int64{1, 5, 20, 70}).Draw(m.t, "ingest time") * 1_000_000)
		m.mark(*base-3, *now)
	}
}

// run is reopen_model.py of the design, for windows on a grid.
func (m *reopenModel) run() {
	base, now := envelope.EventTime(0), envelope.IngestTime(0)
	var pending *envelope.Reopen
	var disposes []string
	for range rapid.IntRange(20, 90).Draw(m.t, "steps") {
		m.step(&base, &now)
		if pending == nil && rapid.IntRange(0, 2).Draw(m.t, "reconcile") == 0 {
			pending, disposes = m.reconcile(rapid.IntRange(0, 6).Draw(m.t, "lag"))
		}
		if pending == nil || rapid.Bool().Draw(m.t, "wait") {
			continue
		}
		if m.hand(pending) {
			for _, id := range disposes {
				m.done[id]++
			}
			if rapid.IntRange(0, 4).Draw(m.t, "repeat") == 0 && m.hand(pending) {
				m.t.Fatal("a REOPEN was acted on twice")
			}
		}
		if rapid.IntRange(0, 5).Draw(m.t, "rival") == 0 {
			m.epoch++ // the next one knows more
		}
		pending = nil
	}
	m.mark(1_000_000, now+1)
	for n := 0; ; n++ {
		r, disposes := m.reconcile(0)
		if r == nil {
			break
		}
		if !m.hand(r) {
			m.t.Fatalf("a REOPEN without lag was refused: %v", m.refusals)
		}
		for _, id := range disposes {
			m.done[id]++
		}
		m.mark(1_000_000, now+envelope.IngestTime(n)*7_000_000)
	}
	m.check()
}

// After everything late was handed back, what is current equals a batch over all events,
// revisions are whole, and REOPENs that lag, race or repeat change nothing.
func TestReopeningEqualsABatch(t *testing.T) {
	acted, refusals := 0, map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		spec := policy.WindowSpec{Kind: policy.Tumbling, Size: policy.Duration(rapid.SampledFrom([]int64{3, 5, 10}).Draw(rt, "size"))}
		if rapid.Bool().Draw(rt, "hopping") {
			spec.Kind, spec.Every = policy.Hopping, max(1, spec.Size/policy.Duration(rapid.IntRange(1, 3).Draw(rt, "hops")))
		}
		m := newReopenModel(rt, spec, policy.Duration(rapid.SampledFrom([]int64{0, 0, 5, 20}).Draw(rt, "lateness")))
		m.run()
		acted += m.acted
		for why, n := range m.refusals {
			refusals[why] += n
		}
	})
	if acted == 0 || refusals[record.RefusedReopened] == 0 || refusals[record.RefusedStale] == 0 {
		t.Errorf("%d REOPENs were acted on, refused were %v: the traces do not meet every rule", acted, refusals)
	}
}

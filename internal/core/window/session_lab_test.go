package window

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"github.com/tidemark-mesh/tidemark/internal/core/identity"
	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// tester is what both testing.TB and *rapid.T are.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// labEvent is an event of key k, or the retraction of one.
type labEvent struct {
	n  int
	at envelope.EventTime
}

func (e labEvent) id() string { return fmt.Sprintf("e%d", e.n) }

func (e labEvent) value() int64 { return int64(e.n%17) - 5 }

// labRow is a row as readers see it.
type labRow struct {
	revision *revision.Revision
	digest   revision.Digest
	members  map[int]labEvent // none of a RETRACT
}

// lab drives an operator with session windows over one key, a record a frame, and checks
// every record: revisions follow one another, groups are whole, no event is in two rows.
type lab struct {
	tester
	cfg     Config
	op      *Operator
	shadow  *Operator // restored from a checkpoint after every record; nil = none
	pairs   map[string][]byte
	seq     uint64
	w       envelope.EventTime
	now     int64 // seconds
	live    map[int]labEvent
	order   []labEvent                 // of live, by time; events that are gone may still stand there
	rows    map[revision.Window]labRow // last revisions
	where   map[int]revision.Window    // the row that took an event last
	late    []labLate
	refused int  // REFUSED so far
	limit   int  // rows that a group retracts at most
	gapless bool // nothing is withdrawn: what was in a row is in a row whenever a group is whole
	group   []*revision.Revision
	gone    []labEvent // members of the rows that the group retracts
	largest int        // records of the largest group
	groups  int
	changed func() // called when a group is whole
}

type labLate struct {
	seq      uint64
	withdraw bool
	event    labEvent
	own      string
}

func sessionConfig(gap, lateness policy.Duration) Config {
	return Config{
		PolicyDigest: "digest",
		Stream: &policy.BusinessStream{
			Name: "orders", Partitions: 1, Key: []string{"/k"}, Retractions: true,
			Values:     []policy.ValueSpec{{Name: "v", Path: "/v", Type: policy.Int}},
			Extractors: []policy.Extractor{{Name: "at@1", Path: "/t", Format: policy.UnixUs}},
		},
		Policy: &policy.StreamTimePolicy{
			Stream: "orders", Job: "job", Generation: 1, Extractor: "at@1", AllIdle: policy.Hold,
			Sources:         []policy.SourceRef{{Name: "shop", Partitions: 1}},
			Window:          policy.WindowSpec{Kind: policy.Session, Gap: gap, Rule: "rule"},
			Aggregates:      []policy.AggregateSpec{{Name: "n", Func: "count"}, {Name: "sum", Func: "sum", Arg: "v"}, {Name: "top", Func: "max", Arg: "v"}},
			AllowedLateness: lateness, RetainIDs: 1000 * policy.Day,
		},
	}
}

func newLab(t tester, gap, lateness policy.Duration) *lab {
	l := &lab{
		tester: t, cfg: sessionConfig(gap, lateness), w: envelope.MinEventTime,
		limit: 400,
		live:  map[int]labEvent{}, rows: map[revision.Window]labRow{}, where: map[int]revision.Window{}, changed: func() {},
	}
	l.op = l.fresh()
	return l
}

func (l *lab) fresh() *Operator {
	op, err := New(l.cfg)
	if err != nil {
		l.Fatalf("%v", err)
	}
	return op
}

// chains makes a group retract no more than so many rows.
func (l *lab) chains(limit int) *lab {
	l.limit, l.op.sessions.limit = limit, limit
	if l.shadow != nil {
		l.shadow.sessions.limit = limit
	}
	return l
}

// enter makes an event one that rows may hold.
func (l *lab) enter(e labEvent) {
	l.live[e.n] = e
	at, had := slices.BinarySearchFunc(l.order, e, compareLabEvents)
	if !had {
		l.order = slices.Insert(l.order, at, e)
	}
}

func compareLabEvents(a, b labEvent) int {
	return compareBounds(a.at, envelope.EventTime(a.n), b.at, envelope.EventTime(b.n))
}

// restoring makes every record be followed by a restore in a second operator, whose
// records must be the same.
func (l *lab) restoring() *lab {
	l.shadow, l.pairs = l.fresh(), map[string][]byte{}
	return l
}

func (l *lab) gap() int64 { return int64(l.cfg.Policy.Window.Gap) }

func (l *lab) frame() *envelope.Frame {
	return &envelope.Frame{Extractors: []string{"at@1"}, Values: []string{"v"}}
}

func (l *lab) event(e labEvent, op envelope.Op) *envelope.Event {
	ev := &envelope.Event{
		ID: e.id(), Source: "shop", Key: "k", SourceOffset: l.seq, Op: op,
		Times: []envelope.EventTime{e.at}, Values: []envelope.Value{{Int: e.value()}}, Digest: sha256.Sum256([]byte(e.id())),
	}
	if op == envelope.Retract {
		ev.ID, ev.Withdraws = "r-"+e.id(), e.id()
	}
	return ev
}

// add sends an event, and answers whether it was taken in.
func (l *lab) add(e labEvent) bool {
	late := len(l.late)
	l.step(envelope.Record{Event: l.event(e, envelope.Assert)}, func() { l.enter(e) }, labLate{event: e, own: e.id()})
	return len(l.late) == late
}

func (l *lab) withdraw(e labEvent) {
	l.step(envelope.Record{Event: l.event(e, envelope.Retract)}, func() { delete(l.live, e.n) }, labLate{event: e, own: "r-" + e.id(), withdraw: true})
}

// mark raises W to w and ingestNow to now seconds.
func (l *lab) mark(w envelope.EventTime, now int64) {
	l.w, l.now = max(l.w, w), max(l.now, now)
	l.step(envelope.Record{Mark: &envelope.Mark{
		Source: "shop", Epoch: 1, Generation: 1, MaxEventTime: []envelope.EventTime{w}, IngestNow: envelope.IngestTime(now * 1_000_000), Pending: 1,
	}}, nil, labLate{})
}

// step applies one record; taken is called before outputs are looked at unless the event
// was too late.
func (l *lab) step(r envelope.Record, taken func(), late labLate) {
	l.Helper()
	l.seq++
	mine := l.apply(l.op, r)
	if len(mine) == 1 && record.KindOf(mine[0]) == record.KindLate {
		late.seq = l.seq
		l.late = append(l.late, late)
		taken = nil
	}
	if taken != nil {
		taken()
	}
	for _, data := range mine {
		l.take(data)
	}
	if l.shadow == nil {
		return
	}
	again := l.apply(l.shadow, r)
	if !slices.EqualFunc(mine, again, bytes.Equal) {
		l.Fatalf("record %d: with restores there are %d other records than the %d without", l.seq, len(again), len(mine))
	}
	l.shadow = l.restore(l.shadow)
}

// apply answers the records that one record of the journal makes.
func (l *lab) apply(op *Operator, r envelope.Record) (out [][]byte) {
	l.Helper()
	op.BeginFrame(l.seq, l.frame())
	if err := op.Apply(0, &r); err != nil {
		l.Fatalf("record %d: %v", l.seq, err)
	}
	for {
		bytes, records := op.GroupBytes()
		data, more := op.Next(nil)
		if !more {
			break
		}
		out = append(out, data)
		for n := 1; n < records; n++ {
			if !op.InGroup() {
				l.Fatalf("record %d: a group of %d ends after %d", l.seq, records, n)
			}
			data, _ := op.Next(nil)
			out = append(out, data)
			bytes -= len(data)
		}
		if records > 0 && (op.InGroup() || bytes != len(data)) {
			l.Fatalf("record %d: a group of %d records does not end after them, or has other bytes than was said", l.seq, records)
		}
		l.largest = max(l.largest, records)
	}
	op.EndFrame()
	return out
}

func (l *lab) restore(op *Operator) *Operator {
	l.Helper()
	err := op.Delta(func(key, value []byte) error {
		if value == nil {
			delete(l.pairs, string(key))
		} else {
			l.pairs[string(key)] = value
		}
		return nil
	})
	if err != nil {
		l.Fatalf("%v", err)
	}
	again, err := Restore(l.cfg, func(yield func(key, value []byte) error) error {
		for _, key := range slices.Sorted(maps.Keys(l.pairs)) {
			if err := yield([]byte(key), l.pairs[key]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		l.Fatalf("record %d: %v", l.seq, err)
	}
	if was, is := op.OpenFrom(), again.OpenFrom(); was != is {
		l.Fatalf("record %d: openFrom is %s, after a restore %s", l.seq, was, is)
	}
	again.sessions.limit = l.limit
	return again
}

// take checks one record and makes it current.
func (l *lab) take(data []byte) {
	l.Helper()
	rec, err := record.Decode(data)
	if err != nil {
		l.Fatalf("%v", err)
	}
	switch {
	case rec.Refused != nil:
		l.refused++
		return
	case rec.Proposal == nil:
		return
	}
	r := rec.Proposal
	static := record.Static{Stream: "orders", Job: "job", PolicyGeneration: "job@1", PolicyDigest: "digest"}
	static.Fill(r)
	if r.ComputeDigest() != rec.Digest {
		l.Fatalf("record %d: revision %d of %v carries another digest", l.seq, r.Revision, r.Window)
	}
	r.Epoch = 1
	if err := r.Validate(); err != nil {
		l.Fatalf("record %d: %v", l.seq, err)
	}
	before := l.rows[r.Window]
	var number uint64
	if before.revision != nil {
		number = before.revision.Revision
	}
	if r.Revision != number+1 || number > 0 && r.Predecessor.Digest != before.digest {
		l.Fatalf("record %d: revision %d of %v follows %d", l.seq, r.Revision, r.Window, number)
	}
	row := labRow{revision: r, digest: rec.Digest}
	if r.Op == revision.Upsert {
		row.members = l.members(r)
	} else {
		l.gone = slices.AppendSeq(l.gone, maps.Values(before.members))
	}
	l.rows[r.Window] = row
	if l.group = append(l.group, r); r.Op == revision.Upsert || r.SupersededBy == "" {
		l.checkGroup(row.members)
		l.group, l.gone = l.group[:0], l.gone[:0]
	}
}

// members answers the events of an UPSERT: all of its stretch, or, on the way of a chain,
// those of the rows that it takes the place of.
func (l *lab) members(r *revision.Revision) map[int]labEvent {
	l.Helper()
	in := l.within(r.Window)
	if sumOf(in) != r.Inputs.IDDigest && len(l.gone) > 0 {
		clear(in)
		for _, e := range l.gone {
			if _, still := l.live[e.n]; still {
				in[e.n] = e
			}
		}
	}
	var total int64
	var names []string
	for _, e := range in {
		total += e.value()
		names = append(names, e.id())
	}
	if r.Inputs.IDDigest != sumOf(in) || r.Inputs.Events != uint64(len(in)) {
		l.Fatalf("record %d: %v has %d members, %d lie in it", l.seq, r.Window, r.Inputs.Events, len(in))
	}
	if r.ResultID != identity.SessionResult("k", "rule", names) {
		l.Fatalf("record %d: %v has the result id of other members", l.seq, r.Window)
	}
	if r.Value[0].Text != fmt.Sprint(len(in)) || r.Value[1].Text != fmt.Sprint(total) {
		l.Fatalf("record %d: %v is %v, want n=%d sum=%d", l.seq, r.Window, r.Value, len(in), total)
	}
	return in
}

func (l *lab) within(b revision.Window) map[int]labEvent {
	in := map[int]labEvent{}
	at, _ := slices.BinarySearchFunc(l.order, labEvent{at: b.Start}, compareLabEvents)
	for ; at < len(l.order) && l.order[at].at < b.End; at++ {
		if e, still := l.live[l.order[at].n]; still {
			in[e.n] = e
		}
	}
	return in
}

func sumOf(events map[int]labEvent) (sum [16]byte) {
	for _, e := range events {
		sum = identity.Sum128(sum, identity.EventHash("shop", e.id()))
	}
	return sum
}

// checkGroup checks what readers see once a group is whole.
func (l *lab) checkGroup(members map[int]labEvent) {
	l.Helper()
	l.groups++
	last := l.group[len(l.group)-1]
	gone := l.group[:len(l.group)-1]
	if len(gone) > l.limit || len(gone) != len(last.Supersedes) {
		l.Fatalf("record %d: a group retracts %d and supersedes %d", l.seq, len(gone), len(last.Supersedes))
	}
	for i, r := range gone {
		named := revision.Supersession{ProjectionID: r.ProjectionID, Revision: r.Revision}
		if r.SupersededBy != last.ProjectionID || last.Supersedes[i] != named {
			l.Fatalf("record %d: %v is not superseded by %v", l.seq, r.Window, last.Window)
		}
	}
	for n := range members {
		if at, had := l.where[n]; had && at != last.Window && l.current(at) {
			if _, twice := l.rows[at].members[n]; twice {
				l.Fatalf("record %d: event %d is in %v and in %v", l.seq, n, at, last.Window)
			}
		}
		l.where[n] = last.Window
	}
	for _, e := range l.gone {
		if l.gapless && !l.current(l.where[e.n]) {
			l.Fatalf("record %d: event %d is in no row any more", l.seq, e.n)
		}
	}
	l.changed()
}

func (l *lab) current(b revision.Window) bool {
	r := l.rows[b].revision
	return r != nil && r.Op == revision.Upsert
}

// batch answers the sessions of events, computed at once.
func batch(events map[int]labEvent, gap int64) (out []labSession) {
	sorted := slices.SortedFunc(maps.Values(events), compareLabEvents)
	for _, e := range sorted {
		end := e.at.Add(gap)
		if len(out) == 0 || e.at >= out[len(out)-1].End {
			out = append(out, labSession{Window: revision.Window{Start: e.at, End: end}, members: map[int]labEvent{}})
		}
		s := &out[len(out)-1]
		s.End, s.members[e.n] = max(s.End, end), e
	}
	return out
}

type labSession struct {
	revision.Window
	members map[int]labEvent
}

// equalsBatch checks that the current rows are the sessions of events.
func (l *lab) equalsBatch(events map[int]labEvent) {
	l.Helper()
	want := batch(events, l.gap())
	current := 0
	for b := range l.rows {
		if l.current(b) {
			current++
		}
	}
	if current != len(want) {
		l.Fatalf("%d rows are current, a batch has %d sessions", current, len(want))
	}
	for _, s := range want {
		if row := l.rows[s.Window]; row.revision == nil || row.revision.Op != revision.Upsert || !maps.Equal(row.members, s.members) {
			l.Fatalf("the batch has %v with %d events; there is no such row", s.Window, len(s.members))
		}
	}
}

package conformance

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/internal/verify/oracle"
	"github.com/tidemark-mesh/tidemark/internal/verify/trace"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// pair runs the core and the oracle side by side and compares them after every frame.
type pair struct {
	tb     tester
	stream *policy.BusinessStream
	policy *policy.StreamTimePolicy
	op     *window.Operator
	oracle *oracle.Oracle
	static record.Static
	seq    uint64

	told     []string // outputs of the core since the last comparison
	expected []string // and of the oracle

	rows      map[rowID]*revision.Revision
	heads     map[rowID]revision.Predecessor // last revision of every projection
	firstLate map[rowID]bool
	names     names // of projections
	events    map[journalPlace]*entry
	conflicts map[journalPlace]bool
	now       envelope.IngestTime // the highest of all marks
	w, wdata  envelope.EventTime  // at the last comparison
}

// tester is what testing.T and rapid.T have in common.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

type rowID struct {
	key string
	revision.Window
}

func newPair(tb tester, stream *policy.BusinessStream, p *policy.StreamTimePolicy) *pair {
	tb.Helper()
	op, err := window.New(window.Config{Stream: stream, Policy: p, PolicyDigest: "digest"})
	if err != nil {
		tb.Fatal(err)
	}
	o, err := oracle.New(stream, p)
	if err != nil {
		tb.Fatal(err)
	}
	pr := &pair{
		tb: tb, stream: stream, policy: p, op: op, oracle: o, rows: map[rowID]*revision.Revision{}, heads: map[rowID]revision.Predecessor{},
		firstLate: map[rowID]bool{}, names: names{}, events: map[journalPlace]*entry{}, conflicts: map[journalPlace]bool{}, now: math.MinInt64,
		w: envelope.MinEventTime, wdata: envelope.MinEventTime,
	}
	pr.static = record.Static{Stream: p.Stream, Job: p.Job, PolicyGeneration: p.PolicyGeneration(), PolicyDigest: "digest"}
	o.Watch(func(out oracle.Output) { pr.expected = append(pr.expected, describeOutput(out)) })
	return pr
}

// frame feeds one frame to both, record by record.
func (p *pair) frame(f *envelope.Frame, what string) {
	p.tb.Helper()
	p.seq++
	if !p.op.BeginFrame(p.seq, f) {
		return
	}
	p.enter(p.seq, f)
	for i := range f.Records {
		if err := p.op.Apply(i, &f.Records[i]); err != nil {
			p.tb.Fatalf("%s: %v", what, err)
		}
		p.take()
	}
	if err := p.oracle.Frame(p.seq, f, -1); err != nil {
		p.tb.Fatalf("%s: oracle: %v", what, err)
	}
	p.op.EndFrame()
	p.compare(what)
}

// take takes every output of the record applied last.
func (p *pair) take() (out [][]byte) {
	p.tb.Helper()
	for {
		raw, more := p.op.Next(nil)
		if !more {
			return out
		}
		out = append(out, raw)
		r, err := record.Decode(raw)
		if err != nil {
			p.tb.Fatal(err)
		}
		if r.Proposal != nil {
			p.proposal(&r)
			continue
		}
		if l := r.Late; l != nil {
			e := p.events[journalPlace{l.Event.Place.Seq, l.Event.Place.Index}]
			e.late = append(e.late, l.Window)
		}
		if c := r.Conflict; c != nil {
			p.conflicts[journalPlace{c.Event.Place.Seq, c.Event.Place.Index}] = true
		}
		p.told = append(p.told, describeRecord(&r))
	}
}

// describeRecord answers what the oracle says too of a record that is no revision.
func describeRecord(r *record.Record) string {
	switch {
	case r.Late != nil:
		e := r.Late.Event
		return fmt.Sprintf("late %d/%d %s/%s %s %s none %v", e.Place.Seq, e.Place.Index, e.Source, e.ID, e.Key, interval(r.Late.Window), r.Late.None)
	case r.Conflict != nil:
		e := r.Conflict.Event
		return fmt.Sprintf("conflict %d/%d %s/%s %s", e.Place.Seq, e.Place.Index, e.Source, e.ID, e.Key)
	}
	f := r.Refused
	return fmt.Sprintf("refused %s epoch %d asOf %d/%d %s", f.Key, f.Epoch, f.AsOf.Seq, f.AsOf.Index, f.Why)
}

// describeOutput is describe and describeRecord for what the oracle tells.
func describeOutput(out oracle.Output) string {
	switch {
	case out.Row != nil:
		return describeRow(out.Row)
	case out.Late != nil:
		l := out.Late
		return fmt.Sprintf("late %d/%d %s/%s %s %s none %v", l.Seq, l.Index, l.Source, l.ID, l.Key, interval(revision.Window{Start: l.Start, End: l.End}), l.None)
	case out.Conflict != nil:
		c := out.Conflict
		return fmt.Sprintf("conflict %d/%d %s/%s %s", c.Seq, c.Index, c.Source, c.ID, c.Key)
	}
	r := out.Refused
	return fmt.Sprintf("refused %s epoch %d asOf %d/%d %s", r.Key, r.Epoch, r.AsOf.Seq, r.AsOf.Index, r.Why)
}

// proposal takes in a revision of the core: it must be valid, carry its digest and follow
// the one before it.
func (p *pair) proposal(r *record.Record) {
	p.tb.Helper()
	rev, at := r.Proposal, rowID{r.Proposal.Key, r.Proposal.Window}
	p.static.Fill(rev)
	if err := rev.Validate(); err != nil {
		p.tb.Fatal(err)
	}
	if rev.ComputeDigest() != r.Digest {
		p.tb.Fatalf("revision %d of %s %s carries another digest than its own", rev.Revision, rev.Key, interval(rev.Window))
	}
	head := p.heads[at]
	if rev.Revision != head.Revision+1 || rev.Predecessor != nil && *rev.Predecessor != head {
		p.tb.Fatalf("revision %d of %s %s does not follow revision %d", rev.Revision, rev.Key, interval(rev.Window), head.Revision)
	}
	p.names[rev.ProjectionID] = rev.Window
	if rev.Revision == 1 {
		p.firstLate[at] = rev.Firing == revision.FiringLate
	}
	p.heads[at] = revision.Predecessor{Revision: rev.Revision, Digest: r.Digest}
	p.rows[at] = rev
	p.told = append(p.told, describe(rev))
}

// describe answers everything of a revision that the oracle answers too.
func describe(r *revision.Revision) string {
	return fmt.Sprintf("%s %s revision %d %s state %s firing %s cause %s origin %d changed %v value %s delta %s events %d ids %x result %s supersedes %v by %s",
		r.Key, interval(r.Window), r.Revision, r.Op, r.State, r.Firing, r.Cause, r.Origin, r.ValueChanged, fieldText(r.Value), fieldText(r.Delta),
		r.Inputs.Events, r.Inputs.IDDigest, r.ResultID, r.Supersedes, r.SupersededBy)
}

// describeRow is describe for a row of the oracle.
func describeRow(r *oracle.Row) string {
	op := revision.Upsert
	if r.Retracted {
		op = revision.Retract
	}
	return fmt.Sprintf("%s %s revision %d %s state %s firing %s cause %s origin %d changed %v value %s delta %s events %d ids %s result %s supersedes %v by %s",
		r.Key, interval(revision.Window{Start: r.Start, End: r.End}), r.Revision, op, r.State, r.Firing, r.Cause, r.Origin, r.ValueChanged, mapText(r.Value), mapText(r.Delta),
		r.Events, r.IDDigest, r.ResultID, r.Supersedes, r.SupersededBy)
}

func mapText(m map[string]string) string {
	var fields []revision.Field
	for _, name := range slices.Sorted(maps.Keys(m)) {
		fields = append(fields, revision.Field{Name: name, Text: m[name]})
	}
	return fieldText(fields)
}

func (p *pair) compare(what string) {
	p.tb.Helper()
	w, wdata, counts, digest := p.op.Totals()
	if w < p.w || wdata < p.wdata {
		p.tb.Fatalf("%s: W and Wdata fell from %s and %s to %s and %s", what, p.w, p.wdata, w, wdata)
	}
	p.w, p.wdata = w, wdata
	ow, odata := p.oracle.Watermark()
	if w != ow || wdata != odata {
		p.tb.Fatalf("%s: W %s data %s, the oracle has %s and %s", what, w, wdata, ow, odata)
	}
	c := p.oracle.Counts()
	want := map[string]uint64{
		window.CountApplied: c.Applied, window.CountTooLate: c.TooLate, window.CountDuplicate: c.Duplicate,
		window.CountConflict: c.Conflict, window.CountForeign: c.Foreign, window.CountNoTime: c.NoTime,
		window.CountOnTime: c.OnTime, window.CountLate: c.LateAccepted, window.CountRefused: c.Refused, window.CountRevisions: c.Revisions,
		window.CountReopened: c.Reopened,
	}
	got := map[string]uint64{} // one that is left out is 0
	for _, n := range counts {
		got[n.Name] = n.N
	}
	for name, n := range want {
		if got[name] != n {
			p.tb.Fatalf("%s: %d %s, the oracle has %d", what, got[name], name, n)
		}
	}
	if got := fmt.Sprintf("%x", digest); got != fmt.Sprintf("%032x", c.IDDigest) {
		p.tb.Fatalf("%s: idDigest %s, the oracle has %032x", what, got, c.IDDigest)
	}
	if len(p.told)+len(p.expected) == 0 {
		return
	}
	p.compareTold(what)
	p.compareRows(what)
	p.compareSessions(what)
}

// compareTold holds the outputs since the last time against the oracle's, in order.
func (p *pair) compareTold(what string) {
	p.tb.Helper()
	for i := range max(len(p.told), len(p.expected)) {
		got, want := "nothing", "nothing"
		if i < len(p.told) {
			got = p.told[i]
		}
		if i < len(p.expected) {
			want = p.expected[i]
		}
		if got != want {
			p.tb.Fatalf("%s, output %d:\n  core   %s\n  oracle %s", what, i+1, got, want)
		}
	}
	p.told, p.expected = p.told[:0], p.expected[:0]
}

// compareSessions checks that no event is in two current sessions of its key.
func (p *pair) compareSessions(what string) {
	p.tb.Helper()
	if p.policy.Window.Kind != policy.Session {
		return
	}
	in := map[[3]string]revision.Window{}
	for at, row := range p.rows {
		if row.Op == revision.Retract {
			continue
		}
		members := p.oracle.Members(at.key, at.Start, at.End)
		if uint64(len(members)) != row.Inputs.Events {
			p.tb.Fatalf("%s: session %s of %s has %d members, its row counts %d", what, interval(at.Window), at.key, len(members), row.Inputs.Events)
		}
		for _, m := range members {
			id := [3]string{at.key, m.Source, m.ID}
			if other, twice := in[id]; twice {
				p.tb.Fatalf("%s: event %v is in the current sessions %s and %s", what, id, interval(other), interval(at.Window))
			}
			in[id] = at.Window
		}
	}
}

// compareRows holds what readers see against the oracle's rows.
func (p *pair) compareRows(what string) {
	p.tb.Helper()
	rows := p.oracle.Rows()
	if len(rows) != len(p.rows) {
		p.tb.Fatalf("%s: %d windows published, the oracle has %d", what, len(p.rows), len(rows))
	}
	for _, r := range rows {
		got := p.rows[rowID{r.Key, revision.Window{Start: r.Start, End: r.End}}]
		if got == nil {
			p.tb.Fatalf("%s: window %s of %s is not published", what, r.Start, r.Key)
		}
		if g, w := describe(got), describeRow(&r); g != w {
			p.tb.Fatalf("%s:\n  core   %s\n  oracle %s", what, g, w)
		}
	}
}

// TestOracleMeetsEveryTrace: what the traces state is what the oracle says, without a look
// at the core.
func TestOracleMeetsEveryTrace(t *testing.T) {
	for _, tr := range traces(t) {
		if tr.Lint != "" {
			continue
		}
		t.Run(tr.Name, func(t *testing.T) {
			o, err := oracle.New(tr.Stream, tr.Policy)
			if err != nil {
				t.Fatal(err)
			}
			w := &witness{t: t, oracle: o, names: names{}, refused: map[trace.Ref]journalPlace{}, places: map[string]witnessed{}}
			o.Watch(func(out oracle.Output) { w.told = append(w.told, out) })
			for i, f := range tr.Frames {
				if halts(f) {
					return // what halts the core has no result to compare
				}
				w.remember(tr, i)
				w.frame(tr, f)
			}
		})
	}
}

// witness holds the oracle against what a trace states.
type witness struct {
	t       *testing.T
	oracle  *oracle.Oracle
	seq     uint64
	now     envelope.IngestTime
	told    []oracle.Output
	names   names
	refused map[trace.Ref]journalPlace
	places  map[string]witnessed
}

type witnessed struct {
	at  envelope.ReopenPlace
	now envelope.IngestTime
}

func (w *witness) remember(tr *trace.Trace, frames int) {
	for name, at := range tr.Places {
		if at == frames {
			w.places[name] = witnessed{envelope.ReopenPlace{Seq: w.seq + 1}, w.now}
		}
	}
}

func (w *witness) frame(tr *trace.Trace, f *trace.Frame) {
	made := *f.Envelope
	made.Records = slices.Clone(made.Records)
	for i := range f.Steps {
		if want := f.Steps[i].Reopen; want != nil {
			made.Records[i] = body(w.t, w.reopen(tr, want))
		}
		if m := made.Records[i].Mark; m != nil {
			w.now = max(w.now, m.IngestNow)
		}
	}
	w.seq++
	if err := w.oracle.Frame(w.seq, &made, -1); err != nil {
		w.t.Fatalf("line %d: %v", f.Line, err)
	}
	var want []trace.Expect
	for i := range f.Steps {
		want = append(want, f.Steps[i].Expect...)
	}
	for _, out := range w.told {
		if out.Row != nil {
			w.names[out.Row.ProjectionID] = revision.Window{Start: out.Row.Start, End: out.Row.End}
		}
		if l := out.Late; l != nil {
			w.refused[trace.Ref{Source: l.Source, ID: l.ID}] = journalPlace{l.Seq, l.Index}
		}
	}
	for i, out := range w.told {
		got := w.show(out)
		if i >= len(want) {
			w.t.Fatalf("line %d: output %d is not expected: %v", f.Line, i+1, got)
		}
		e := want[i]
		e.Attrs = maps.Clone(e.Attrs)
		maps.DeleteFunc(e.Attrs, func(name, _ string) bool { _, said := got[name]; return !said })
		if diff := compare(e, got); diff != "" {
			w.t.Fatalf("line %d: %s\n got %v", e.Line, diff, got)
		}
	}
	if len(w.told) < len(want) {
		w.t.Fatalf("line %d: no such output", want[len(w.told)].Line)
	}
	w.told = w.told[:0]
}

// reopen answers what a reopen line asks for; the oracle forgets nothing that would have
// to be restored.
func (w *witness) reopen(tr *trace.Trace, want *trace.Reopen) *envelope.Reopen {
	as := witnessed{envelope.ReopenPlace{Seq: w.seq + 1}, w.now}
	if want.AsOf != "" {
		as = w.places[want.AsOf]
	}
	r := &envelope.Reopen{PolicyGeneration: tr.Policy.PolicyGeneration(), Key: want.Key, Epoch: want.Epoch, AsOf: as.at, AsOfNow: as.now}
	if want.Other {
		r.PolicyGeneration = "other@1"
	}
	for _, ref := range want.Add {
		at := w.refused[ref]
		r.Add = append(r.Add, envelope.ReopenEvent{Source: ref.Source, ID: ref.ID, Seq: at.seq, Index: at.index})
	}
	for _, ref := range want.Withdraw {
		at := w.refused[ref]
		r.Withdraw = append(r.Withdraw, envelope.ReopenEvent{Source: ref.Source, ID: ref.ID, Withdraws: "target", Seq: at.seq, Index: at.index})
	}
	return r
}

// show answers an output as a trace would state it, as far as the oracle knows.
func (w *witness) show(out oracle.Output) map[string]string {
	switch {
	case out.Late != nil:
		l := out.Late
		return map[string]string{"": "late", "id": l.ID, "key": l.Key, "win": interval(revision.Window{Start: l.Start, End: l.End}), "none": yes(l.None)}
	case out.Conflict != nil:
		return map[string]string{"": "conflict", "id": out.Conflict.ID, "key": out.Conflict.Key}
	case out.Refused != nil:
		return map[string]string{"": "refused", "key": out.Refused.Key, "epoch": fmt.Sprint(out.Refused.Epoch), "why": out.Refused.Why}
	}
	r := out.Row
	op := revision.Upsert
	if r.Retracted {
		op = revision.Retract
	}
	return map[string]string{
		"": "rev", "key": r.Key, "win": interval(revision.Window{Start: r.Start, End: r.End}), "rev": fmt.Sprint(r.Revision), "op": string(op),
		"firing": string(r.Firing), "state": string(r.State), "cause": r.Cause, "origin": []string{"live", "replay", "backfill", "repair"}[r.Origin],
		"changed": yes(r.ValueChanged), "value": mapText(r.Value), "delta": mapText(r.Delta), "events": fmt.Sprint(r.Events),
		"result": orElse(r.ResultID, "-"), "projection": r.ProjectionID, "supersedes": w.names.list(r.Supersedes), "supersededBy": w.names.of(r.SupersededBy),
	}
}

func halts(f *trace.Frame) bool {
	for _, s := range f.Steps {
		if s.Error != "" {
			return true
		}
	}
	return false
}

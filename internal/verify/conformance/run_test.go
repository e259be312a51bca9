package conformance

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/internal/verify/trace"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// mode is how a trace is run.
type mode struct {
	restore bool // a snapshot and restore before every record
	repeat  bool // every event twice
}

func TestTraces(t *testing.T) {
	for _, tr := range traces(t) {
		for name, m := range map[string]mode{"straight": {}, "restored": {restore: true}, "repeated": {repeat: true}} {
			if m.repeat && tr.NoDup {
				continue
			}
			if tr.Lint == "" {
				t.Run(strings.TrimSuffix(tr.Name, ".txt")+"/"+name, func(t *testing.T) { newRunner(t, tr, m).run() })
			}
		}
	}
}

// TestRefusedPolicies: what other systems refuse at run time, lint refuses with a rule.
func TestRefusedPolicies(t *testing.T) {
	for _, tr := range traces(t) {
		if tr.Lint == "" {
			continue
		}
		var rules []string
		for _, f := range policy.Lint([]policy.Document{{Stream: tr.Stream}, {Policy: tr.Policy}}, nil) {
			rules = append(rules, f.Rule)
		}
		if !slices.Contains(rules, tr.Lint) {
			t.Errorf("%s: lint refuses by %v, want %s", tr.Name, rules, tr.Lint)
		}
	}
}

// traces reads every trace of testdata, those found by random search included.
func traces(t *testing.T) (out []*trace.Trace) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no traces: %v", err)
	}
	found, err := filepath.Glob("testdata/found/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, found...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tr, err := trace.Parse(filepath.Base(file), string(text))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, tr)
	}
	return out
}

// runner feeds one trace to one operator, and to the oracle beside it.
type runner struct {
	*pair
	t      tester
	trace  *trace.Trace
	mode   mode
	cfg    window.Config
	pairs  map[string][]byte // what Deltas left behind
	places map[int]*snapshot // number of frames → what was published there

	asked    []journalPlace // what the last REOPEN disposes of
	disposed map[journalPlace]bool
}

func newRunner(t tester, tr *trace.Trace, m mode) *runner {
	return &runner{
		pair: newPair(t, tr.Stream, tr.Policy), t: t, trace: tr, mode: m, pairs: map[string][]byte{}, places: map[int]*snapshot{}, disposed: map[journalPlace]bool{},
		cfg: window.Config{Stream: tr.Stream, Policy: tr.Policy, PolicyDigest: "digest", Partition: 0},
	}
}

func (r *runner) run() {
	for i, f := range r.trace.Frames {
		if slices.Contains(slices.Collect(maps.Values(r.trace.Places)), i) {
			r.places[i] = r.snapshot()
		}
		envelopes := r.envelopes(f)
		for _, part := range envelopes[:len(envelopes)-1] {
			r.restart()
			r.frame(part, fmt.Sprintf("line %d, a part", f.Line))
		}
		if !r.steps(f, envelopes[len(envelopes)-1]) {
			return
		}
		r.repeat(f)
	}
	if r.trace.Batch {
		r.finally()
	}
}

// envelopes answers the frame with its REOPEN made, and the frames of earlier parts before it.
func (r *runner) envelopes(f *trace.Frame) []*envelope.Frame {
	made := *f.Envelope
	made.Records = slices.Clone(made.Records)
	var out []*envelope.Frame
	for i := range f.Steps {
		want := f.Steps[i].Reopen
		if want == nil {
			continue
		}
		all := parts(r.wanted(want), want.Parts)
		for _, part := range all[:len(all)-1] {
			head := made
			head.Writer, head.Number, head.Records = "", 0, []envelope.Record{body(r.t, part)}
			out = append(out, &head)
		}
		made.Records[i] = body(r.t, all[len(all)-1])
	}
	return append(out, &made)
}

// wanted answers what a reopen line asks for.
func (r *runner) wanted(want *trace.Reopen) *envelope.Reopen {
	var add, withdraw []journalPlace
	s := r.snapshot()
	r.asked = nil
	if want.AsOf != "" {
		s = r.places[r.trace.Places[want.AsOf]]
	}
	if want.Late {
		add, withdraw = r.undisposed(want.Key, s.at)
	}
	for _, ref := range want.Add {
		add = append(add, r.find(want.Key, ref.Source, ref.ID))
	}
	for _, ref := range want.Withdraw {
		withdraw = append(withdraw, r.find(want.Key, ref.Source, ref.ID))
	}
	reopen := r.reopen(s, want.Epoch, want.Key, add, withdraw)
	if !want.Auto {
		reopen.Restore, reopen.Retracted = nil, nil
	}
	if want.Late && !want.Other {
		r.asked = r.lateOf(want.Key, s.at)
	}
	if want.Other {
		reopen.PolicyGeneration = "other@1"
	}
	return reopen
}

// lateOf answers everything of a key that was TOO_LATE before a position and waits for a
// disposition, in journal order.
func (r *runner) lateOf(key string, before envelope.ReopenPlace) (out []journalPlace) {
	for at, e := range r.events {
		if e.key == key && len(e.late) > 0 && at.seq < before.Seq && !r.disposed[at] {
			out = append(out, at)
		}
	}
	slices.SortFunc(out, func(a, b journalPlace) int {
		if c := cmp.Compare(a.seq, b.seq); c != 0 {
			return c
		}
		return cmp.Compare(a.index, b.index)
	})
	return out
}

// undisposed answers what a REOPEN takes in and out: of the late events those that count
// ("What counts" in the design) as far as the journal is known before the position. An
// event that is late for some windows goes in before it goes out of all of them.
func (r *runner) undisposed(key string, before envelope.ReopenPlace) (add, withdraw []journalPlace) {
	late := r.lateOf(key, before)
	late = slices.DeleteFunc(late, r.repeats)
	out := map[*entry]bool{}
	for _, at := range late {
		if e := r.events[at]; e.event.Withdraws != "" {
			if target := r.target(at, before); target != nil {
				out[target] = true
				withdraw = append(withdraw, at)
			}
		}
	}
	for _, at := range late {
		if e := r.events[at]; e.event.Withdraws == "" && (out[e] || !r.withdrawn(e, before)) {
			add = append(add, at)
		}
	}
	return add, withdraw
}

// repeats tells whether an event before this one had its id or, among retractions, its target.
func (r *runner) repeats(at journalPlace) bool {
	e := r.events[at]
	for other, o := range r.events {
		before := other.seq < at.seq || other.seq == at.seq && other.index < at.index
		if !before || o.key != e.key || o.event.Source != e.event.Source || r.conflicts[other] {
			continue
		}
		if o.event.ID == e.event.ID || e.event.Withdraws != "" && o.event.Withdraws == e.event.Withdraws {
			return true
		}
	}
	return false
}

// withdrawn tells whether a retraction before the position names the event.
func (r *runner) withdrawn(e *entry, before envelope.ReopenPlace) bool {
	for at, o := range r.events {
		if at.seq < before.Seq && !r.conflicts[at] && o.key == e.key && o.event.Source == e.event.Source &&
			o.event.Withdraws == e.event.ID && o.event.Digest == e.event.Digest {
			return true
		}
	}
	return false
}

// target answers the event that a retraction takes out of windows, or nil. One that came
// behind its retraction and was not late never went into any.
func (r *runner) target(at journalPlace, before envelope.ReopenPlace) *entry {
	e := r.events[at]
	for other, o := range r.events {
		if other.seq >= before.Seq || r.conflicts[other] || r.repeats(other) || o.key != e.key || o.event.Source != e.event.Source ||
			o.event.ID != e.event.Withdraws || o.event.Withdraws != "" || o.event.Digest != e.event.Digest {
			continue
		}
		if len(o.late) > 0 || other.seq < at.seq || other.seq == at.seq && other.index < at.index {
			return o
		}
	}
	return nil
}

// answered takes the answer to a REOPEN: unless it was refused, what it names is disposed of.
func (r *runner) answered(out [][]byte) {
	for _, data := range out {
		if record.Kind(data[0]) == record.KindRefused {
			return
		}
	}
	for _, at := range r.asked {
		r.disposed[at] = true
	}
	r.asked = nil
}

// steps takes the records of a frame in, one by one; false ends the trace.
func (r *runner) steps(f *trace.Frame, e *envelope.Frame) bool {
	r.seq++
	r.restart()
	if r.op.BeginFrame(r.seq, e) == f.Skipped {
		r.t.Fatalf("line %d: frame skipped: %v, want %v", f.Line, !f.Skipped, f.Skipped)
	}
	if f.Skipped {
		return true
	}
	r.enter(r.seq, e)
	for i := range f.Steps {
		if r.restart() && !r.op.BeginFrame(r.seq, e) {
			r.t.Fatalf("line %d: the open frame is skipped after a restore", f.Line)
		}
		if !r.step(&f.Steps[i], i, &e.Records[i]) {
			return false
		}
	}
	r.op.EndFrame()
	if want := (revision.InputPosition{Seq: r.seq + 1}); r.op.Position() != want {
		r.t.Fatalf("line %d: position %+v, want %+v", f.Line, r.op.Position(), want)
	}
	if err := r.oracle.Frame(r.seq, e, -1); err != nil {
		r.t.Fatalf("line %d: oracle: %v", f.Line, err)
	}
	r.compare(fmt.Sprintf("line %d", f.Line))
	return true
}

// restart replaces the operator by one restored from its checkpoint.
func (r *runner) restart() bool {
	if !r.mode.restore {
		return false
	}
	r.t.Helper()
	r.op = checkpoint(r.t, r.op, r.cfg, r.pairs)
	return true
}

func checkpoint(t tester, op *window.Operator, cfg window.Config, pairs map[string][]byte) *window.Operator {
	t.Helper()
	if err := op.Delta(func(key, value []byte) error {
		if value == nil {
			delete(pairs, string(key))
		} else {
			pairs[string(key)] = value
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	restored, err := window.Restore(cfg, func(yield func(key, value []byte) error) error {
		for key, value := range pairs { // in any order
			if err := yield([]byte(key), value); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return restored
}

// step applies one record and compares; false ends the trace.
func (r *runner) step(s *trace.Step, index int, rec *envelope.Record) bool {
	err := r.op.Apply(index, rec)
	if s.Error != "" {
		if err == nil || !strings.Contains(err.Error(), s.Error) {
			r.t.Fatalf("line %d: error %v, want one with %q", s.Line, err, s.Error)
		}
		return false
	}
	if err != nil {
		r.t.Fatalf("line %d: %v", s.Line, err)
	}
	out := r.take()
	if s.Reopen != nil {
		r.answered(out)
	}
	if r.trace.Loose {
		return true
	}
	for i, data := range out {
		got := r.show(data)
		if i >= len(s.Expect) {
			r.t.Fatalf("line %d: output %d is not expected: %s", s.Line, i+1, got)
		}
		e := s.Expect[i]
		if r.mode.repeat { // sequences move when frames are added
			e.Attrs = maps.Clone(e.Attrs)
			delete(e.Attrs, "first")
			delete(e.Attrs, "last")
		}
		if diff := compare(e, got); diff != "" {
			r.t.Fatalf("line %d: %s\n got %s", e.Line, diff, got)
		}
	}
	if len(out) < len(s.Expect) {
		r.t.Fatalf("line %d: no such output", s.Expect[len(out)].Line)
	}
	for _, c := range s.Checks {
		r.check(c)
	}
	return true
}

func drain(t testing.TB, op *window.Operator) (out [][]byte) {
	t.Helper()
	for {
		data, more := op.Next(nil)
		if !more {
			return out
		}
		out = append(out, data)
	}
}

// repeat brings the events of a frame once more: what was a conflict is one again, and
// everything else is a duplicate without output.
func (r *runner) repeat(f *trace.Frame) {
	if !r.mode.repeat {
		return
	}
	for i := range f.Steps {
		rec := f.Envelope.Records[i]
		if rec.Event == nil {
			continue
		}
		again := *f.Envelope
		again.Writer, again.Number, again.Records = "", 0, []envelope.Record{rec}
		conflict := len(f.Steps[i].Expect) > 0 && f.Steps[i].Expect[0].Kind == "conflict"
		r.seq++
		r.op.BeginFrame(r.seq, &again)
		r.enter(r.seq, &again)
		if err := r.op.Apply(0, &rec); err != nil {
			r.t.Fatalf("line %d, repeated: %v", f.Steps[i].Line, err)
		}
		out := r.take()
		if !r.trace.Loose && (len(out) > 1 || conflict != (len(out) == 1)) {
			r.t.Fatalf("line %d, repeated: %d outputs", f.Steps[i].Line, len(out))
		}
		r.op.EndFrame()
		if err := r.oracle.Frame(r.seq, &again, -1); err != nil {
			r.t.Fatalf("line %d, repeated: oracle: %v", f.Steps[i].Line, err)
		}
		r.compare(fmt.Sprintf("line %d, repeated", f.Steps[i].Line))
	}
}

// show answers an output as a trace would state it.
func show(t tester, data []byte) map[string]string {
	t.Helper()
	rec, err := record.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case rec.Late != nil:
		l := rec.Late
		return map[string]string{"": "late", "id": l.Event.ID, "key": l.Event.Key, "win": interval(l.Window), "w": instant(l.W), "none": yes(l.None)}
	case rec.Conflict != nil:
		return map[string]string{"": "conflict", "id": rec.Conflict.Event.ID, "key": rec.Conflict.Event.Key, "rule": rec.Conflict.Rule}
	}
	if f := rec.Refused; f != nil {
		return map[string]string{"": "refused", "key": f.Key, "epoch": fmt.Sprint(f.Epoch), "why": f.Why}
	}
	p := rec.Proposal
	origins := []string{"live", "replay", "backfill", "repair"}
	return map[string]string{
		"": "rev", "key": p.Key, "win": interval(p.Window), "rev": fmt.Sprint(p.Revision), "op": string(p.Op),
		"firing": string(p.Firing), "state": string(p.State), "cause": p.Cause, "origin": origins[p.Origin],
		"changed": yes(p.ValueChanged), "value": fieldText(p.Value), "delta": fieldText(p.Delta), "events": fmt.Sprint(p.Inputs.Events),
		"first": fmt.Sprint(p.Inputs.First), "last": fmt.Sprint(p.Inputs.Last), "offsets": offsetText(p.Inputs.Offsets),
		"w": instant(p.Watermark.At), "data": instant(p.Watermark.Data), "result": orElse(p.ResultID, "-"),
	}
}

// show is show, with the windows of what is superseded.
func (r *runner) show(data []byte) map[string]string {
	out := show(r.t, data)
	rec, err := record.Decode(data)
	if err != nil {
		r.t.Fatal(err)
	}
	if p := rec.Proposal; p != nil {
		r.static.Fill(p)
		out["supersedes"], out["supersededBy"] = r.names.list(p.Supersedes), r.names.of(p.SupersededBy)
		out["logical"], out["projection"] = p.LogicalWindowID, p.ProjectionID
	}
	return out
}

// names answers the windows of projections.
type names map[string]revision.Window

func (n names) of(projection string) string {
	w, known := n[projection]
	switch {
	case projection == "":
		return "-"
	case !known:
		return "unknown projection " + projection
	}
	return "[" + interval(w) + ")"
}

func (n names) list(supersedes []revision.Supersession) string {
	var out string
	for _, s := range supersedes {
		out += n.of(s.ProjectionID)
	}
	return orElse(out, "-")
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func fieldText(fields []revision.Field) string {
	if len(fields) == 0 {
		return "-"
	}
	var out []string
	for _, f := range fields {
		out = append(out, f.Name+":"+f.Text)
	}
	return strings.Join(out, ",")
}

func offsetText(ranges []revision.OffsetRange) string {
	var out []string
	for _, o := range ranges {
		out = append(out, fmt.Sprintf("%s/%d:%d-%d", o.Source, o.Partition, o.First, o.Last))
	}
	return strings.Join(out, ",")
}

func instant(t envelope.EventTime) string { return fmt.Sprintf("%dus", int64(t)) }

func interval(w revision.Window) string { return instant(w.Start) + "," + instant(w.End) }

// compare answers the first difference between what a line states and what is there.
func compare(e trace.Expect, got map[string]string) string {
	if e.Kind != got[""] {
		return fmt.Sprintf("want %s, got %s", e.Kind, got[""])
	}
	names := make([]string, 0, len(e.Attrs))
	for name := range e.Attrs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		want, err := normal(name, e.Attrs[name])
		if err != nil {
			return err.Error()
		}
		have, known := got[name]
		if !known {
			return fmt.Sprintf("%s has no field %q", e.Kind, name)
		}
		if have != want {
			return fmt.Sprintf("%s: want %s, got %s", name, want, have)
		}
	}
	return ""
}

// normal writes times as microseconds.
func normal(name, text string) (string, error) {
	switch name {
	case "w", "data", "t", "own":
		t, err := trace.Time(text)
		return instant(t), err
	case "win":
		return normalWindow(text)
	case "supersedes", "supersededBy":
		if text == "-" {
			return text, nil
		}
		var out string
		for _, one := range strings.Split(strings.TrimSuffix(text, ")"), ")") {
			w, err := normalWindow(one)
			if err != nil {
				return "", err
			}
			out += "[" + w + ")"
		}
		return out, nil
	}
	return text, nil
}

func normalWindow(text string) (string, error) {
	from, to, ok := strings.Cut(strings.Trim(text, "[)"), ",")
	start, err := trace.Time(from)
	end, err2 := trace.Time(to)
	if !ok || err != nil || err2 != nil {
		return "", fmt.Errorf("%q is no window", text)
	}
	return interval(revision.Window{Start: start, End: end}), nil
}

// check compares what the operator answers of itself.
func (r *runner) check(c trace.Expect) {
	r.t.Helper()
	got := map[string]string{"": c.Kind}
	w, data, parts := r.op.Status()
	switch c.Kind {
	case "w":
		got["t"], got["data"] = instant(w), instant(data)
		if tw, td, _, _ := r.op.Totals(); tw != w || td != data {
			r.t.Fatalf("line %d: Totals say %s and %s, Status %s and %s", c.Line, tw, td, w, data)
		}
	case "status":
		for _, p := range parts {
			if p.Source == orElse(c.Attrs["src"], p.Source) && fmt.Sprint(p.Partition) == orElse(c.Attrs["part"], "0") {
				got["src"], got["part"] = p.Source, fmt.Sprint(p.Partition)
				got["is"], got["holds"], got["own"] = p.Status, yes(p.Holds), instant(p.Watermark)
				break
			}
		}
	case "counts":
		_, _, counts, _ := r.op.Totals()
		for _, n := range counts {
			got[n.Name] = fmt.Sprint(n.N)
			if _, stated := c.Attrs[n.Name]; stated && r.mode.repeat && repeats(n.Name) {
				got[n.Name] = c.Attrs[n.Name]
			}
		}
	case "find":
		at, err := trace.Time(c.Attrs["at"])
		if err != nil {
			r.t.Fatal(err)
		}
		found, ok := r.op.Find(orElse(c.Attrs["key"], "k"), at)
		got["at"], got["key"], got["held"] = c.Attrs["at"], orElse(c.Attrs["key"], "k"), yes(ok)
		got["state"], got["rev"], got["dirty"] = string(found.State), fmt.Sprint(found.Revision), yes(found.Dirty)
		got["events"] = fmt.Sprint(found.Events)
	case "sizes":
		windows, ids, keys := r.op.Sizes()
		got["windows"], got["ids"], got["keys"] = fmt.Sprint(windows), fmt.Sprint(ids), fmt.Sprint(keys)
	default:
		r.t.Fatalf("line %d: unknown check %q", c.Line, c.Kind)
	}
	if diff := compare(c, got); diff != "" {
		r.t.Fatalf("line %d: %s: %v", c.Line, diff, got)
	}
}

// repeats tells which counts grow when events come twice.
func repeats(name string) bool {
	switch name {
	case window.CountDuplicate, window.CountConflict, window.CountForeign, window.CountNoTime:
		return true
	}
	return false
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

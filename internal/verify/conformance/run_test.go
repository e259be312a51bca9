package conformance

import (
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
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// mode is how a trace is run.
type mode struct {
	restore bool // a snapshot and restore before every record
	repeat  bool // every event twice
}

func TestTraces(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no traces: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tr, err := trace.Parse(filepath.Base(file), string(text))
		if err != nil {
			t.Error(err)
			continue
		}
		for name, m := range map[string]mode{"straight": {}, "restored": {restore: true}, "repeated": {repeat: true}} {
			if m.repeat && tr.NoDup {
				continue
			}
			t.Run(strings.TrimSuffix(tr.Name, ".txt")+"/"+name, func(t *testing.T) { newRunner(t, tr, m).run() })
		}
	}
}

// runner feeds one trace to one operator.
type runner struct {
	t     *testing.T
	trace *trace.Trace
	mode  mode
	cfg   window.Config
	op    *window.Operator
	pairs map[string][]byte // what Deltas left behind
	seq   uint64
}

func newRunner(t *testing.T, tr *trace.Trace, m mode) *runner {
	cfg := window.Config{Stream: tr.Stream, Policy: tr.Policy, PolicyDigest: "digest", Partition: 0}
	op, err := window.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &runner{t: t, trace: tr, mode: m, cfg: cfg, op: op, pairs: map[string][]byte{}}
}

func (r *runner) run() {
	for _, f := range r.trace.Frames {
		r.seq++
		r.restore()
		if r.op.BeginFrame(r.seq, f.Envelope) == f.Skipped {
			r.t.Fatalf("line %d: frame skipped: %v, want %v", f.Line, !f.Skipped, f.Skipped)
		}
		if f.Skipped {
			continue
		}
		for i := range f.Steps {
			if r.restore() && !r.op.BeginFrame(r.seq, f.Envelope) {
				r.t.Fatalf("line %d: the open frame is skipped after a restore", f.Line)
			}
			if !r.step(&f.Steps[i], i, &f.Envelope.Records[i]) {
				return
			}
		}
		r.op.EndFrame()
		if want := (revision.InputPosition{Seq: r.seq + 1}); r.op.Position() != want {
			r.t.Fatalf("line %d: position %+v, want %+v", f.Line, r.op.Position(), want)
		}
		r.repeat(f)
	}
}

// restore replaces the operator by one restored from its snapshot.
func (r *runner) restore() bool {
	if !r.mode.restore {
		return false
	}
	r.t.Helper()
	r.op = snapshot(r.t, r.op, r.cfg, r.pairs)
	return true
}

func snapshot(t testing.TB, op *window.Operator, cfg window.Config, pairs map[string][]byte) *window.Operator {
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
	out := drain(r.t, r.op)
	for i, data := range out {
		if i >= len(s.Expect) {
			r.t.Fatalf("line %d: output %d is not expected: %s", s.Line, i+1, show(r.t, data))
		}
		e := s.Expect[i]
		if r.mode.repeat { // sequences move when frames are added
			e.Attrs = maps.Clone(e.Attrs)
			delete(e.Attrs, "first")
			delete(e.Attrs, "last")
		}
		if diff := compare(e, show(r.t, data)); diff != "" {
			r.t.Fatalf("line %d: %s\n got %s", e.Line, diff, show(r.t, data))
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
		if err := r.op.Apply(0, &rec); err != nil {
			r.t.Fatalf("line %d, repeated: %v", f.Steps[i].Line, err)
		}
		out := drain(r.t, r.op)
		if len(out) > 1 || conflict != (len(out) == 1) {
			r.t.Fatalf("line %d, repeated: %d outputs", f.Steps[i].Line, len(out))
		}
		r.op.EndFrame()
	}
}

// show answers an output as a trace would state it.
func show(t testing.TB, data []byte) map[string]string {
	t.Helper()
	rec, err := record.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case rec.Late != nil:
		l := rec.Late
		return map[string]string{"": "late", "id": l.Event.ID, "key": l.Event.Key, "win": interval(l.Window), "w": instant(l.W)}
	case rec.Conflict != nil:
		return map[string]string{"": "conflict", "id": rec.Conflict.Event.ID, "key": rec.Conflict.Event.Key, "rule": rec.Conflict.Rule}
	}
	p := rec.Proposal
	static := record.Static{Stream: "orders", Job: "hourly-revenue", PolicyGeneration: "hourly-revenue@14", PolicyDigest: "digest"}
	static.Fill(p)
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	if p.ComputeDigest() != rec.Digest {
		t.Fatalf("the digest carried by the record is not that of revision %d of key %s", p.Revision, p.Key)
	}
	origins := []string{"live", "replay", "backfill", "repair"}
	return map[string]string{
		"": "rev", "key": p.Key, "win": interval(p.Window), "rev": fmt.Sprint(p.Revision), "op": string(p.Op),
		"firing": string(p.Firing), "state": string(p.State), "cause": p.Cause, "origin": origins[p.Origin],
		"changed": yes(p.ValueChanged), "value": fieldText(p.Value), "delta": fieldText(p.Delta), "events": fmt.Sprint(p.Inputs.Events),
		"first": fmt.Sprint(p.Inputs.First), "last": fmt.Sprint(p.Inputs.Last), "offsets": offsetText(p.Inputs.Offsets),
		"w": instant(p.Watermark.At), "data": instant(p.Watermark.Data),
	}
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
		from, to, ok := strings.Cut(strings.Trim(text, "[)"), ",")
		start, err := trace.Time(from)
		end, err2 := trace.Time(to)
		if !ok || err != nil || err2 != nil {
			return "", fmt.Errorf("%q is no window", text)
		}
		return interval(revision.Window{Start: start, End: end}), nil
	}
	return text, nil
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

package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/internal/verify/oracle"
	"github.com/tidemark-mesh/tidemark/internal/verify/trace"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// pair runs the core and the oracle side by side and compares them after every record.
type pair struct {
	tb     tester
	op     *window.Operator
	oracle *oracle.Oracle
	seq    uint64

	rows      map[rowID]*revision.Revision
	late      []string
	conflicts []string
}

// tester is what testing.T and rapid.T have in common.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

type rowID struct {
	key   string
	start envelope.EventTime
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
	return &pair{tb: tb, op: op, oracle: o, rows: map[rowID]*revision.Revision{}}
}

// frame feeds one frame to both, record by record.
func (p *pair) frame(f *envelope.Frame, what string) {
	p.tb.Helper()
	p.seq++
	if !p.op.BeginFrame(p.seq, f) {
		return
	}
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

func (p *pair) take() {
	p.tb.Helper()
	for {
		raw, more := p.op.Next(nil)
		if !more {
			return
		}
		r, err := record.Decode(raw)
		if err != nil {
			p.tb.Fatal(err)
		}
		switch {
		case r.Proposal != nil:
			p.rows[rowID{r.Proposal.Key, r.Proposal.Window.Start}] = r.Proposal
		case r.Late != nil:
			e := r.Late.Event
			p.late = append(p.late, fmt.Sprintf("%d/%d %s/%s %s %s-%s", e.Place.Seq, e.Place.Index, e.Source, e.ID, e.Key, r.Late.Window.Start, r.Late.Window.End))
		case r.Conflict != nil:
			e := r.Conflict.Event
			p.conflicts = append(p.conflicts, fmt.Sprintf("%d/%d %s/%s %s", e.Place.Seq, e.Place.Index, e.Source, e.ID, e.Key))
		}
	}
}

func (p *pair) compare(what string) {
	p.tb.Helper()
	w, wdata, counts, digest := p.op.Totals()
	ow, odata := p.oracle.Watermark()
	if w != ow || wdata != odata {
		p.tb.Fatalf("%s: W %s data %s, the oracle has %s and %s", what, w, wdata, ow, odata)
	}
	c := p.oracle.Counts()
	want := map[string]uint64{
		window.CountApplied: c.Applied, window.CountTooLate: c.TooLate, window.CountDuplicate: c.Duplicate,
		window.CountConflict: c.Conflict, window.CountForeign: c.Foreign, window.CountNoTime: c.NoTime,
	}
	for _, n := range counts {
		if v, known := want[n.Name]; known && v != n.N {
			p.tb.Fatalf("%s: %d %s, the oracle has %d", what, n.N, n.Name, v)
		}
	}
	if got := fmt.Sprintf("%x", digest); got != fmt.Sprintf("%032x", c.IDDigest) {
		p.tb.Fatalf("%s: idDigest %s, the oracle has %032x", what, got, c.IDDigest)
	}
	p.compareRows(what)
	p.compareRefused(what)
}

func (p *pair) compareRows(what string) {
	p.tb.Helper()
	rows := p.oracle.Rows()
	if len(rows) != len(p.rows) {
		p.tb.Fatalf("%s: %d windows published, the oracle has %d", what, len(p.rows), len(rows))
	}
	for _, r := range rows {
		got := p.rows[rowID{r.Key, r.Start}]
		if got == nil {
			p.tb.Fatalf("%s: window %s of %s is not published", what, r.Start, r.Key)
		}
		value := map[string]string{}
		for _, f := range got.Value {
			value[f.Name] = f.Text
		}
		state := fmt.Sprintf("revision %d end %s retracted %v value %v events %d ids %x", got.Revision, got.Window.End, got.Op == revision.Retract, value, got.Inputs.Events, got.Inputs.IDDigest)
		if r.Value == nil {
			r.Value = map[string]string{}
		}
		expect := fmt.Sprintf("revision %d end %s retracted %v value %v events %d ids %s", r.Revision, r.End, r.Retracted, r.Value, r.Events, r.IDDigest)
		if state != expect {
			p.tb.Fatalf("%s: window %s of %s is\n%s, the oracle has\n%s", what, r.Start, r.Key, state, expect)
		}
	}
}

func (p *pair) compareRefused(what string) {
	p.tb.Helper()
	var late, conflicts []string
	for _, l := range p.oracle.Late() {
		late = append(late, fmt.Sprintf("%d/%d %s/%s %s %s-%s", l.Seq, l.Index, l.Source, l.ID, l.Key, l.Start, l.End))
	}
	for _, c := range p.oracle.Conflicts() {
		conflicts = append(conflicts, fmt.Sprintf("%d/%d %s/%s %s", c.Seq, c.Index, c.Source, c.ID, c.Key))
	}
	if fmt.Sprint(late) != fmt.Sprint(p.late) {
		p.tb.Fatalf("%s: late %v, the oracle has %v", what, p.late, late)
	}
	if fmt.Sprint(conflicts) != fmt.Sprint(p.conflicts) {
		p.tb.Fatalf("%s: conflicts %v, the oracle has %v", what, p.conflicts, conflicts)
	}
}

func TestOracleAgreesOnEveryTrace(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no traces: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tr, err := trace.Parse(filepath.Base(file), string(text))
			if err != nil {
				t.Fatal(err)
			}
			p := newPair(t, tr.Stream, tr.Policy)
			for _, f := range tr.Frames {
				if halts(f) {
					return // what halts the core has no result to compare
				}
				p.frame(f.Envelope, fmt.Sprintf("line %d", f.Line))
			}
		})
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

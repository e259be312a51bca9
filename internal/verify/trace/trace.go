// Package trace reads text traces: a policy, the frames of one events journal, and what
// must come out after each record. The grammar is written down in
// internal/verify/conformance/testdata/README.md.
//
// Events carry real JSON data and its digest, so that the windower's core and an
// independent oracle can both be fed with the same frames.
package trace

import (
	"fmt"
	"strings"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// Trace is one parsed trace.
type Trace struct {
	Name   string
	Stream *policy.BusinessStream
	Policy *policy.StreamTimePolicy
	Frames []*Frame
	Places map[string]int // name of a place line → number of frames before it
	NoDup  bool           // the trace forgets ids, so events must not be repeated
	Cases  []string       // cases of the literature that the trace translates
	Loose  bool           // outputs are not stated: core and oracle must only agree
	Batch  bool           // in the end readers see what a batch computation gives
	Lint   string         // rule by which lint refuses the policy; then there are no frames
}

// Frame is one message of the events journal; its sequence is its place in
// Trace.Frames, from 1.
type Frame struct {
	Line     int
	Skipped  bool // expected to be had before
	Envelope *envelope.Frame
	Steps    []Step // one a record
}

// Step is what must hold after one record.
type Step struct {
	Line   int
	Text   string
	Reopen *Reopen  // of a reopen line
	Expect []Expect // the outputs of the record, in order; all of them
	Error  string   // not empty: the record halts with an error that holds this text
	Checks []Expect // what must be true afterwards
}

// Expect is one expect or check line: a kind and attributes.
type Expect struct {
	Line  int
	Kind  string // rev, late, conflict; w, status, counts, find, sizes
	Attrs map[string]string
}

// Parse reads a trace.
func Parse(name, text string) (*Trace, error) {
	p := &parser{trace: &Trace{Name: name, Places: map[string]int{}}, offsets: map[string]uint64{}}
	for i, line := range strings.Split(text, "\n") {
		p.line = i + 1
		if at := strings.IndexByte(line, '#'); at >= 0 {
			line = line[:at]
		}
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if err := p.take(fields); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, p.line, err)
		}
	}
	if p.trace.Policy == nil {
		return nil, fmt.Errorf("%s: it has no policy line", name)
	}
	if p.block != nil {
		return nil, fmt.Errorf("%s: the frame of line %d has no end", name, p.block.Line)
	}
	return p.trace, nil
}

type parser struct {
	trace   *Trace
	line    int
	block   *Frame // open frame … end
	last    *Step
	offsets map[string]uint64 // last offset per source partition
	attrs   attrs
}

// attrs are the key=value fields of a line, taken one by one so that a leftover shows.
type attrs map[string]string

func (a attrs) take(name, otherwise string) string {
	v, ok := a[name]
	if !ok {
		return otherwise
	}
	delete(a, name)
	return v
}

func (p *parser) take(fields []string) (err error) {
	kind, rest := fields[0], fields[1:]
	if kind == "note" {
		return nil // why the trace is as it is, for the reader
	}
	if kind == "expect" || kind == "check" {
		return p.expect(kind, rest)
	}
	if kind == "case" {
		p.trace.Cases = append(p.trace.Cases, rest...)
		return nil
	}
	if p.attrs, err = parseAttrs(rest); err != nil {
		return err
	}
	if kind != "policy" && p.trace.Policy == nil {
		return fmt.Errorf("%s stands before the policy line", kind)
	}
	switch kind {
	case "policy":
		err = p.policy()
	case "nodup":
		p.trace.NoDup = true
	case "loose":
		p.trace.Loose = true
	case "batch":
		p.trace.Batch = true
	case "lint":
		p.trace.Lint = p.attrs.take("rule", "")
	case "frame":
		err = p.frame()
	case "end":
		if p.block == nil {
			return fmt.Errorf("end without frame")
		}
		p.block = nil
	case "E", "R", "M", "W", "gap", "reopen":
		err = p.record(kind)
	case "place":
		err = p.place(p.attrs.take("name", ""))
	default:
		return fmt.Errorf("unknown line %q", kind)
	}
	if err == nil && len(p.attrs) > 0 {
		err = fmt.Errorf("%s does not know %v", kind, p.attrs)
	}
	return err
}

func parseAttrs(fields []string) (attrs, error) {
	a := attrs{}
	for _, f := range fields {
		name, value, ok := strings.Cut(f, "=")
		if !ok {
			return nil, fmt.Errorf("%q is no name=value", f)
		}
		a[name] = value
	}
	return a, nil
}

// expect adds an expect or check line to the record before it.
func (p *parser) expect(kind string, rest []string) error {
	if len(rest) == 0 || p.last == nil && rest[0] != "skip" {
		return fmt.Errorf("%s says nothing, or stands before the first record", kind)
	}
	switch {
	case rest[0] == "error":
		p.last.Error = strings.Join(rest[1:], " ")
		return nil
	case rest[0] == "skip":
		if len(p.trace.Frames) == 0 {
			return fmt.Errorf("expect skip stands before the first frame")
		}
		p.trace.Frames[len(p.trace.Frames)-1].Skipped = true
		return nil
	}
	a, err := parseAttrs(rest[1:])
	if err != nil {
		return err
	}
	e := Expect{Line: p.line, Kind: rest[0], Attrs: a}
	if kind == "expect" {
		p.last.Expect = append(p.last.Expect, e)
	} else {
		p.last.Checks = append(p.last.Checks, e)
	}
	return nil
}

// frame opens a frame of several records, or one with a number.
func (p *parser) frame() error {
	if p.block != nil {
		return fmt.Errorf("the frame of line %d has no end", p.block.Line)
	}
	n, err := parseUint(p.attrs.take("n", "0"))
	if err != nil {
		return err
	}
	f := p.newFrame()
	f.Envelope.Writer, f.Envelope.Number = p.attrs.take("writer", ""), n
	if p.attrs.take("extractor", "yes") == "no" {
		f.Envelope.Extractors = []string{OtherExtractor}
	}
	p.block = f
	return nil
}

func (p *parser) newFrame() *Frame {
	f := &Frame{Line: p.line, Envelope: &envelope.Frame{Extractors: []string{p.trace.Policy.Extractor}}}
	for _, v := range p.trace.Stream.Values {
		f.Envelope.Values = append(f.Envelope.Values, v.Name)
	}
	p.trace.Frames = append(p.trace.Frames, f)
	return f
}

// record adds one record to the open frame, or in a frame of its own.
func (p *parser) record(kind string) error {
	f := p.block
	if f == nil {
		f = p.newFrame()
	}
	var r envelope.Record
	var reopen *Reopen
	var err error
	switch kind {
	case "E", "R":
		r.Event, err = p.event(kind == "R", f)
	case "M":
		r.Mark, err = p.mark()
	case "W":
		r.Mark, err = p.watermark()
	case "gap":
		r.Gap, err = p.gap()
	case "reopen":
		r.Reopen = []byte("made when the trace runs")
		reopen, err = p.reopen()
	}
	if err != nil {
		return err
	}
	f.Envelope.Records = append(f.Envelope.Records, r)
	f.Steps = append(f.Steps, Step{Line: p.line, Text: kind, Reopen: reopen})
	p.last = &f.Steps[len(f.Steps)-1]
	return nil
}

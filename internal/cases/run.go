package cases

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-mesh/tidemark/internal/core/admission"
	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/internal/verify/oracle"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Result is the verdict on one case.
type Result struct {
	File   string   `json:"file"`
	Line   int      `json:"line"`
	Name   string   `json:"name"`
	OK     bool     `json:"ok"`
	Diff   []string `json:"diff,omitempty"`  // lines that begin with -, expected, and +, what came
	Notes  []string `json:"notes,omitempty"` // what was left out, e.g. an oracle that does not know the policy
	Events int      `json:"events"`
}

// quietMark is how long a source partition must have been quiet at a mark for its next
// event to begin a new generation, as in ingest.
const quietMark = 1000 // ms

// markEvery is the pace of marks while a case waits, in microseconds: often enough that no
// source partition looks silent.
const markEvery = 20_000_000

// Run runs one case.
func Run(c *Case) Result {
	r := &runner{c: c, result: Result{File: c.File, Line: c.Line, Name: c.Name}}
	if err := r.run(); err != nil {
		r.result.Diff = append(r.result.Diff, "! "+err.Error())
	}
	r.result.OK = len(r.result.Diff) == 0
	return r.result
}

// runner is an installation in miniature: one ingest, one windower a key partition.
type runner struct {
	c      *Case
	result Result
	admit  *admission.Admitter
	names  struct{ extractors, values []string }
	now    envelope.EventTime
	parts  []*sourcePart
	lanes  []*lane

	revisions  []revision.Revision
	quarantine []refused
	late       []record.Late
	conflicts  []record.Conflict
}

type refused struct{ id, reason, rule, source string }

// sourcePart is one source partition as its ingest sees it.
type sourcePart struct {
	source     string
	number     uint32
	n          uint64
	generation uint64
	maxima     []envelope.EventTime
	arrived    envelope.EventTime // the last arrival
	finished   bool
	quietSeen  bool
}

// lane is one key partition.
type lane struct {
	op     *window.Operator
	oracle *oracle.Oracle // nil when it does not know the policy
	number uint64         // frames
	seq    uint64
}

func (r *runner) run() error {
	r.admit = admission.New(r.c.stream)
	r.names.extractors, r.names.values = r.admit.Frame()
	r.now = r.c.now
	for _, s := range r.c.time.Sources {
		for n := range s.Partitions {
			p := &sourcePart{source: s.Name, number: uint32(n), generation: 1, arrived: r.now}
			for range r.names.extractors {
				p.maxima = append(p.maxima, envelope.MinEventTime)
			}
			r.parts = append(r.parts, p)
		}
	}
	for pp := range r.c.stream.Partitions {
		doc := policy.Document{Policy: r.c.time}
		op, err := window.New(window.Config{Stream: r.c.stream, Policy: r.c.time, PolicyDigest: doc.Digest(), Partition: pp})
		if err != nil {
			return err
		}
		l := &lane{op: op}
		if l.oracle, err = oracle.New(r.c.stream, r.c.time); err != nil && pp == 0 {
			r.result.Notes = append(r.result.Notes, "not compared with the oracle: "+err.Error())
		}
		r.lanes = append(r.lanes, l)
	}
	for i := range r.c.Steps {
		if err := r.step(i, &r.c.Steps[i]); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	r.compare("", r.c.Expect)
	return r.askOracle()
}

func (r *runner) step(i int, s *Step) error {
	from := len(r.revisions)
	switch {
	case s.Expect != nil:
		r.compare(fmt.Sprintf("step %d: ", i+1), s.Expect)
		return nil
	case s.Wait != "":
		d, err := policy.ParseDuration(s.Wait)
		if err != nil {
			return err
		}
		if err := r.wait(r.now.Add(int64(d)), s.Marks == nil || *s.Marks); err != nil {
			return err
		}
	case s.Send != nil:
		if err := r.send(s.Send); err != nil {
			return err
		}
	case s.Finish != nil:
		r.part(s.Finish.Source, s.Finish.Partition).finished = true
	}
	if s.Marks == nil || *s.Marks {
		if err := r.marks(); err != nil {
			return err
		}
	}
	// Key partitions fire independently: within a step the order is that of the outputs
	// of one mark.
	copy(r.revisions[from:], ordered(r.revisions[from:]))
	return nil
}

// ordered answers revisions by (end, start, key) of what comes; what goes for it stays in
// front of it.
func ordered(revisions []revision.Revision) []revision.Revision {
	var groups [][]revision.Revision
	open := false
	for _, v := range revisions {
		if !open {
			groups = append(groups, nil)
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], v)
		open = v.SupersededBy != ""
	}
	slices.SortStableFunc(groups, func(a, b []revision.Revision) int {
		x, y := &a[len(a)-1], &b[len(b)-1]
		return cmp.Or(cmp.Compare(x.Window.End, y.Window.End), cmp.Compare(x.Window.Start, y.Window.Start), strings.Compare(x.Key, y.Key))
	})
	return slices.Concat(groups...)
}

func (r *runner) part(source string, number int) *sourcePart {
	for _, p := range r.parts {
		if p.source == source && int(p.number) == number {
			return p
		}
	}
	return nil
}

// send takes a request in as ingest does.
func (r *runner) send(s *Send) error {
	items, err := s.items()
	if err != nil {
		return err
	}
	part := r.part(s.Source, s.Partition)
	if part != nil && part.finished {
		return fmt.Errorf("source %s partition %d is finished and takes nothing", s.Source, s.Partition)
	}
	frames := make([]envelope.Frame, len(r.lanes))
	for _, item := range items {
		r.result.Events++
		format := admission.Plain
		if s.CloudEvents {
			format = admission.CloudEvent
		}
		ev := &envelope.Event{}
		why := r.admit.Decide(admission.Item{Format: format, Bytes: item, Source: s.Source, IDPath: s.IDPath}, uint32(s.Partition), envelope.IngestTime(r.now), ev)
		if part == nil {
			why = &admission.Refusal{Reason: admission.UnknownPartition, Rule: fmt.Sprintf("the policy has no source %q partition %d", s.Source, s.Partition)}
		} else {
			part.take()
			ev.SourcePartition, ev.SourceOffset, ev.PartitionGeneration = part.number, 1<<32|part.n, 1<<32|part.generation
			part.arrived = r.now
		}
		if why != nil {
			r.quarantine = append(r.quarantine, refused{strings.Clone(ev.ID), string(why.Reason), why.Rule, s.Source})
			continue
		}
		ev.IngestTime = envelope.IngestTime(r.now)
		for x, t := range ev.Times {
			part.maxima[x] = max(part.maxima[x], t)
		}
		pp := admission.KeyPartition(ev.Key, len(r.lanes))
		frames[pp].Records = append(frames[pp].Records, envelope.Record{Event: ev.Clone()})
	}
	for pp := range frames {
		if len(frames[pp].Records) > 0 {
			if err := r.write(pp, &frames[pp]); err != nil {
				return err
			}
		}
	}
	return nil
}

// take gives the next event its place.
func (p *sourcePart) take() {
	if p.quietSeen {
		p.generation++
		p.quietSeen = false
	}
	p.n++
}

// wait lets time pass. A living ingest marks every few seconds, and partitions that do
// not while others do count as silent; so marks are written on the way.
func (r *runner) wait(until envelope.EventTime, marks bool) error {
	for marks && r.now.Add(markEvery) < until {
		r.now = r.now.Add(markEvery)
		if err := r.marks(); err != nil {
			return err
		}
	}
	r.now = until
	return nil
}

// marks writes a mark of every source partition into every key partition. Frames of marks
// alone are not numbered.
func (r *runner) marks() error {
	for pp, l := range r.lanes {
		f := &envelope.Frame{}
		for _, p := range r.parts {
			quiet := uint64(max(0, int64(r.now-p.arrived)/1000))
			p.quietSeen = p.quietSeen || quiet >= quietMark
			m := &envelope.Mark{
				Source: p.source, Partition: p.number, Epoch: 1, Generation: 1<<32 | p.generation, MaxEventTime: slices.Clone(p.maxima),
				QuietForMs: quiet, Finished: p.finished, IngestNow: envelope.IngestTime(r.now), Writer: "case", Frames: l.number,
			}
			if p.n > 0 {
				m.Offset = 1<<32 | p.n
			}
			f.Records = append(f.Records, envelope.Record{Mark: m})
		}
		if err := r.append(pp, f); err != nil {
			return err
		}
	}
	return nil
}

// write appends a numbered frame.
func (r *runner) write(pp int, f *envelope.Frame) error {
	r.lanes[pp].number++
	f.Writer, f.Number = "case", r.lanes[pp].number
	return r.append(pp, f)
}

// append appends a frame to a key partition's journal and lets its windower and its oracle
// take it in.
func (r *runner) append(pp int, f *envelope.Frame) error {
	l := r.lanes[pp]
	l.seq++
	f.Extractors, f.Values = r.names.extractors, r.names.values
	if l.oracle != nil {
		if err := l.oracle.Frame(l.seq, f, -1); err != nil {
			return fmt.Errorf("oracle: %w", err)
		}
	}
	l.op.BeginFrame(l.seq, f)
	for i := range f.Records {
		if err := l.op.Apply(i, &f.Records[i]); err != nil {
			return err
		}
		for {
			out, more := l.op.Next(nil)
			if !more {
				break
			}
			if err := r.output(out); err != nil {
				return err
			}
		}
	}
	l.op.EndFrame()
	return nil
}

func (r *runner) output(raw []byte) error {
	rec, err := record.Decode(raw)
	if err != nil {
		return err
	}
	switch {
	case rec.Proposal != nil:
		r.revisions = append(r.revisions, *rec.Proposal)
	case rec.Late != nil:
		r.late = append(r.late, *rec.Late)
	case rec.Conflict != nil:
		r.conflicts = append(r.conflicts, *rec.Conflict)
	}
	return nil
}

// current answers the last revision of every window, by start, end and key.
func (r *runner) current() []revision.Revision {
	type place struct {
		key    string
		window revision.Window
	}
	last := map[place]int{}
	for i := range r.revisions {
		last[place{r.revisions[i].Key, r.revisions[i].Window}] = i
	}
	var rows []revision.Revision
	for _, i := range last {
		rows = append(rows, r.revisions[i])
	}
	slices.SortFunc(rows, func(a, b revision.Revision) int {
		return cmp.Or(
			cmp.Compare(a.Window.Start, b.Window.Start), cmp.Compare(a.Window.End, b.Window.End), strings.Compare(a.Key, b.Key),
		)
	})
	return rows
}

// askOracle compares every current row with an independent recomputation.
func (r *runner) askOracle() error {
	rows := r.current()
	want := 0
	for pp, l := range r.lanes {
		if l.oracle == nil {
			return nil
		}
		for _, o := range l.oracle.Rows() {
			want++
			i := slices.IndexFunc(rows, func(v revision.Revision) bool {
				return v.Key == o.Key && v.Window == revision.Window{Start: o.Start, End: o.End}
			})
			if i < 0 {
				return fmt.Errorf("the oracle has key %q window %s (key partition %d), the engine does not: this is a bug, please report the case", o.Key, o.Start, pp)
			}
			got := &rows[i]
			same := got.Revision == o.Revision && (got.Op == revision.Retract) == o.Retracted && got.Inputs.Events == o.Events &&
				hex.EncodeToString(got.Inputs.IDDigest[:]) == o.IDDigest
			for _, f := range got.Value {
				same = same && o.Value[f.Name] == f.Text
			}
			if !same {
				return fmt.Errorf("key %q window %s: the engine has revision %d %v, the oracle revision %d %v: this is a bug, please report the case", o.Key, o.Start, got.Revision, got.Value, o.Revision, o.Value)
			}
		}
	}
	if want != len(rows) {
		return fmt.Errorf("the engine has %d windows, the oracle %d: this is a bug, please report the case", len(rows), want)
	}
	return nil
}

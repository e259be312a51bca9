package trace

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// Extractors of a trace's business stream: the policy's, and one that frames before it have.
const (
	Extractor      = "at@2"
	OtherExtractor = "at@1"
)

// Time reads a point in event time: milliseconds, microseconds with "us", a clock time on
// 2026-11-30, RFC 3339, -inf or +inf.
func Time(text string) (envelope.EventTime, error) {
	if us, ok := strings.CutSuffix(text, "us"); ok {
		n, err := strconv.ParseInt(us, 10, 64)
		return envelope.EventTime(n), err
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return envelope.EventTime(n * 1000), nil
	}
	if len(text) > 2 && text[2] == ':' {
		text = "2026-11-30T" + text + "Z"
	}
	return envelope.ParseEventTime(text)
}

// duration reads milliseconds, or a duration as policies write it.
func duration(text string) (policy.Duration, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return policy.Duration(n) * policy.Millisecond, nil
	}
	return policy.ParseDuration(text)
}

func parseUint(text string) (uint64, error) { return strconv.ParseUint(text, 10, 64) }

// window reads what kind of windows the policy line asks for: tumbling, with every=
// hopping, with gap= sessions, with calendar= days, weeks or months of a zone.
func (p *parser) window() policy.WindowSpec {
	w := policy.WindowSpec{Kind: policy.Tumbling, Calendar: p.attrs.take("calendar", ""), Zone: p.attrs.take("zone", "UTC"), Rule: p.attrs.take("rule", "")}
	switch {
	case w.Calendar != "":
		w.Kind = policy.Calendar
	case p.attrs["gap"] != "":
		w.Kind = policy.Session
	case p.attrs["every"] != "":
		w.Kind = policy.Hopping
	}
	if w.Kind == policy.Session && w.Rule == "" {
		w.Rule = "gap"
	}
	return w
}

// policy reads the policy line. Unstated: 1 h windows, D = L = T = 0, hold, one source
// partition shop/0, ids kept for ever, an int v, results n=count() and sum=sum(v).
func (p *parser) policy() (err error) {
	if p.trace.Policy != nil {
		return fmt.Errorf("a second policy line")
	}
	s := &policy.BusinessStream{
		Name: "orders", Partitions: 1, Key: []string{"/key"},
		Extractors: []policy.Extractor{
			{Name: OtherExtractor, Path: "/old", Format: policy.UnixUs},
			{Name: Extractor, Path: "/t", Format: policy.UnixUs},
		},
		MaxFuture: policy.Hour, NotBefore: envelope.MinEventTime, SchemaGeneration: 1, MaxEventBytes: 1 << 18,
		Retractions: p.attrs.take("retractions", "no") == "yes",
	}
	d := &policy.StreamTimePolicy{
		Stream: "orders", Job: "hourly-revenue", Extractor: Extractor,
		AllIdle: policy.AllIdle(p.attrs.take("idle", "hold")), Window: p.window(),
		Late: "rebuild", CorrectionMode: "UPSERT_REVISION",
	}
	for _, f := range []struct {
		name, otherwise string
		to              *policy.Duration
	}{
		{"size", "1h", &d.Window.Size},
		{"offset", "0", &d.Window.Offset},
		{"every", "0", &d.Window.Every},
		{"gap", "0", &d.Window.Gap},
		{"D", "0", &d.OutOfOrderness},
		{"L", "0", &d.AllowedLateness},
		{"T", "0", &d.IdleAfter},
		{"ids", "290000d", nil},
	} {
		v, err := duration(p.attrs.take(f.name, f.otherwise))
		switch {
		case err != nil && f.name != "ids":
			return err
		case f.to != nil:
			*f.to = v
		case err != nil:
			d.RetainIDs = 1<<63 - 1
		default:
			d.RetainIDs = v
		}
	}
	if d.Window.Kind == policy.Session || d.Window.Kind == policy.Calendar {
		d.Window.Size = 0
	}
	if d.Sources, err = sources(p.attrs.take("sources", "shop:1")); err != nil {
		return err
	}
	if d.Generation, err = strconv.Atoi(p.attrs.take("generation", "14")); err != nil {
		return err
	}
	if s.Values, err = values(p.attrs.take("values", "v:int")); err != nil {
		return err
	}
	if d.Aggregates, err = aggregates(p.attrs.take("results", "n=count(),sum=sum(v)")); err != nil {
		return err
	}
	p.trace.Stream, p.trace.Policy = s, d
	return nil
}

func sources(text string) (out []policy.SourceRef, err error) {
	for _, item := range strings.Split(text, ",") {
		name, count, _ := strings.Cut(item, ":")
		n, err := strconv.Atoi(count)
		if err != nil {
			return nil, err
		}
		out = append(out, policy.SourceRef{Name: name, Partitions: n})
	}
	return out, nil
}

func values(text string) (out []policy.ValueSpec, err error) {
	for _, item := range strings.Split(text, ",") {
		part := strings.Split(item, ":")
		v := policy.ValueSpec{Name: part[0], Path: "/" + part[0], Type: policy.Int}
		if len(part) > 1 {
			v.Type = policy.ValueType(part[1])
		}
		if len(part) > 2 {
			if v.Scale, err = strconv.Atoi(part[2]); err != nil {
				return nil, err
			}
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b policy.ValueSpec) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// aggregates reads results; a comma inside parentheses stands before a limit.
func aggregates(text string) (out []policy.AggregateSpec, err error) {
	for _, item := range strings.Split(text, "),") {
		name, call, _ := strings.Cut(item, "=")
		spec, err := policy.ParseAggregate(name, strings.TrimSuffix(call, ")")+")")
		if err != nil {
			return nil, fmt.Errorf("%q is no result such as sum=sum(v): %w", item, err)
		}
		out = append(out, spec)
	}
	slices.SortFunc(out, func(a, b policy.AggregateSpec) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// event reads E (assertion) and R (retraction).
func (p *parser) event(retract bool, f *Frame) (*envelope.Event, error) {
	a := p.attrs
	t, err := Time(a.take("t", "0"))
	if err != nil {
		return nil, err
	}
	ev := &envelope.Event{
		ID: a.take("id", fmt.Sprintf("line%d", p.line)), Source: a.take("src", "shop"), Key: a.take("key", "k"),
		Times: []envelope.EventTime{t}, PartitionGeneration: 1, Type: "test",
	}
	if retract {
		ev.Op, ev.Withdraws = envelope.Retract, a.take("withdraws", "")
	}
	if err := p.from(ev); err != nil {
		return nil, err
	}
	if ev.Origin, err = origin(a.take("origin", "live")); err != nil {
		return nil, err
	}
	return ev, p.data(ev, f)
}

// from reads where an event came from. Offsets count up by themselves.
func (p *parser) from(ev *envelope.Event) error {
	part, err := parseUint(p.attrs.take("part", "0"))
	if err != nil {
		return err
	}
	ev.SourcePartition = uint32(part)
	at := fmt.Sprintf("%s/%d", ev.Source, part)
	n, err := parseUint(p.attrs.take("off", strconv.FormatUint(p.offsets[at]+1, 10)))
	p.offsets[at], ev.SourceOffset = n, n
	return err
}

func origin(text string) (envelope.Origin, error) {
	for o, name := range []string{"live", "replay", "backfill", "repair"} {
		if name == text {
			return envelope.Origin(o), nil
		}
	}
	return 0, fmt.Errorf("unknown origin %q", text)
}

// data reads the values and makes the event's JSON and its digest. "note" is a member
// that no value stands for: it makes another digest and nothing else.
func (p *parser) data(ev *envelope.Event, f *Frame) error {
	clock := "t"
	if f.Envelope.Extractors[0] == OtherExtractor {
		clock = "old"
	}
	tree := map[string]any{"key": ev.Key, clock: int64(ev.Times[0])}
	for _, spec := range p.trace.Stream.Values {
		text := p.attrs.take(spec.Name, "1")
		tree[spec.Name] = text
		v := envelope.Value{Text: text}
		if spec.Type != policy.String {
			n, err := envelope.ParseDecimal(text, spec.Scale)
			if err != nil {
				return fmt.Errorf("value %s: %w", spec.Name, err)
			}
			v = envelope.Value{Int: n}
		}
		ev.Values = append(ev.Values, v)
	}
	if note := p.attrs.take("note", ""); note != "" {
		tree["note"] = note
	}
	data, err := json.Marshal(tree) // keys sorted, no nulls: the canonical form for plain ASCII
	ev.Data, ev.Digest = data, sha256.Sum256(data)
	return err
}

// mark reads M: one mark of a source partition. Unstated, it is active, in epoch 1 and
// generation 1, with ingestNow 0.
func (p *parser) mark() (*envelope.Mark, error) {
	a := p.attrs
	highest, err := Time(a.take("max", "-inf"))
	if err != nil {
		return nil, err
	}
	now, err := Time(a.take("now", "0"))
	if err != nil {
		return nil, err
	}
	m := &envelope.Mark{
		Source: a.take("src", p.trace.Policy.Sources[0].Name), MaxEventTime: []envelope.EventTime{highest}, IngestNow: envelope.IngestTime(now),
		Paused: a.take("paused", "no") == "yes", Finished: a.take("finished", "no") == "yes", Writer: a.take("writer", ""),
	}
	var part uint64
	for _, f := range []struct {
		name, otherwise string
		to              *uint64
	}{
		{"part", "0", &part},
		{"epoch", "1", &m.Epoch},
		{"gen", "1", &m.Generation},
		{"off", "0", &m.Offset},
		{"pending", "0", &m.Pending},
		{"inflight", "0", &m.InFlight},
		{"quiet", "0", &m.QuietForMs},
		{"frames", "0", &m.Frames},
	} {
		if *f.to, err = parseUint(a.take(f.name, f.otherwise)); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	m.Partition = uint32(part)
	return m, nil
}

// watermark reads "W to=t": a mark of shop/0 that brings W to t, for policies with one
// source partition.
func (p *parser) watermark() (*envelope.Mark, error) {
	to, err := Time(p.attrs.take("to", ""))
	if err != nil {
		return nil, err
	}
	s := p.trace.Policy.Sources
	if len(s) != 1 || s[0].Partitions != 1 {
		return nil, fmt.Errorf("a W line is for policies with one source partition; write M")
	}
	return &envelope.Mark{
		Source: s[0].Name, Epoch: 1, Generation: 1,
		MaxEventTime: []envelope.EventTime{to.Add(int64(p.trace.Policy.OutOfOrderness))},
	}, nil
}

func (p *parser) gap() (g *envelope.Gap, err error) {
	g = &envelope.Gap{Writer: p.attrs.take("writer", ""), Reason: "trace"}
	if g.First, err = parseUint(p.attrs.take("first", "")); err != nil {
		return nil, err
	}
	g.Last, err = parseUint(p.attrs.take("last", ""))
	return g, err
}

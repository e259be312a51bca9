package conformance

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// journalGen draws random events journals: several source partitions, disorder, pauses,
// resumes, silence, finishing, duplicates, conflicts, retractions.
type journalGen struct {
	t          *rapid.T
	stream     *policy.BusinessStream
	policy     *policy.StreamTimePolicy
	now        envelope.EventTime // the busiest event time so far
	sent       []envelope.Event
	partitions []*sourceState
	next       int
}

type sourceState struct {
	source string
	number uint32
	mark   envelope.Mark
	max    envelope.EventTime
}

func newJournalGen(t *rapid.T) *journalGen {
	second := policy.Second
	g := &journalGen{t: t, now: 1_000_000_000}
	g.stream = &policy.BusinessStream{
		Name: "orders", Partitions: 1, Key: []string{"/key"}, NotBefore: envelope.MinEventTime, MaxFuture: policy.Hour, MaxEventBytes: 1 << 18,
		Values:      []policy.ValueSpec{{Name: "v", Path: "/v", Type: policy.Decimal, Scale: 2}},
		Extractors:  []policy.Extractor{{Name: "at@1", Path: "/t", Format: policy.UnixUs}},
		Retractions: rapid.Bool().Draw(t, "retractions"),
	}
	size := policy.Duration(rapid.SampledFrom([]int64{1, 7, 60}).Draw(t, "size")) * second
	late := policy.Duration(rapid.SampledFrom([]int64{0, 1, 30, 600}).Draw(t, "L")) * second
	g.policy = &policy.StreamTimePolicy{
		Stream: "orders", Job: "job", Generation: 1, Extractor: "at@1", Late: "rebuild", CorrectionMode: "UPSERT_REVISION",
		Sources:         []policy.SourceRef{{Name: "shop", Partitions: rapid.IntRange(1, 3).Draw(t, "partitions")}, {Name: "web", Partitions: 1}},
		OutOfOrderness:  policy.Duration(rapid.SampledFrom([]int64{0, 2, 20}).Draw(t, "D")) * second,
		IdleAfter:       policy.Duration(rapid.SampledFrom([]int64{0, 5}).Draw(t, "T")) * second,
		AllIdle:         rapid.SampledFrom([]policy.AllIdle{policy.Hold, policy.Advance}).Draw(t, "allIdle"),
		Window:          policy.WindowSpec{Kind: policy.Tumbling, Size: size, Offset: policy.Duration(rapid.Int64Range(-int64(size)+1, int64(size)-1).Draw(t, "offset")), Zone: "UTC"},
		Aggregates:      []policy.AggregateSpec{{Name: "avg", Func: "avg", Arg: "v"}, {Name: "different", Func: "distinct", Arg: "v", Limit: policy.DefaultDistinct}, {Name: "first", Func: "first", Arg: "v"}, {Name: "last", Func: "last", Arg: "v"}, {Name: "max", Func: "max", Arg: "v"}, {Name: "min", Func: "min", Arg: "v"}, {Name: "n", Func: "count"}, {Name: "sum", Func: "sum", Arg: "v"}},
		AllowedLateness: late, RetainIDs: late + size + policy.Duration(rapid.Int64Range(0, 5).Draw(t, "ids"))*second,
	}
	for _, s := range g.policy.Sources {
		for n := range s.Partitions {
			g.partitions = append(g.partitions, &sourceState{
				source: s.Name, number: uint32(n), max: envelope.MinEventTime,
				mark: envelope.Mark{Source: s.Name, Partition: uint32(n), Epoch: 1, Generation: 1, Writer: "w"},
			})
		}
	}
	return g
}

// frame draws one frame.
func (g *journalGen) frame() *envelope.Frame {
	f := &envelope.Frame{Extractors: []string{"at@1"}, Values: []string{"v"}}
	for range rapid.IntRange(1, 4).Draw(g.t, "records") {
		if rapid.IntRange(0, 2).Draw(g.t, "kind") == 0 {
			f.Records = append(f.Records, envelope.Record{Mark: g.mark()})
		} else {
			f.Records = append(f.Records, envelope.Record{Event: g.event()})
		}
	}
	return f
}

func (g *journalGen) event() *envelope.Event {
	if len(g.sent) > 0 {
		old := g.sent[rapid.IntRange(0, len(g.sent)-1).Draw(g.t, "which")]
		switch rapid.IntRange(0, 9).Draw(g.t, "repeat") {
		case 0, 1:
			return &old
		case 2: // the same id with other data
			return g.build(old.Source, old.SourcePartition, old.ID, old.Key, old.Times[0], rapid.Int64Range(-5, 5).Draw(g.t, "v"))
		case 3, 4:
			if g.stream.Retractions && old.Op == envelope.Assert {
				return g.retract(old)
			}
		}
	}
	p := g.partitions[rapid.IntRange(0, len(g.partitions)-1).Draw(g.t, "part")]
	g.next++
	at := g.now.Add(rapid.Int64Range(-40_000_000, 8_000_000).Draw(g.t, "t"))
	if rapid.IntRange(0, 15).Draw(g.t, "old") == 0 {
		at = at.Add(-rapid.Int64Range(0, 900_000_000).Draw(g.t, "age"))
	}
	g.now = max(g.now, at)
	p.max = max(p.max, at)
	ev := g.build(p.source, p.number, fmt.Sprintf("e%d", g.next), rapid.SampledFrom([]string{"a", "b", "ü/1"}).Draw(g.t, "key"), at, rapid.Int64Range(-100, 100).Draw(g.t, "v"))
	if rapid.IntRange(0, 20).Draw(g.t, "foreign") == 0 {
		ev.Source = "elsewhere"
	}
	g.sent = append(g.sent, *ev)
	return ev
}

// retract withdraws an event; at times before it, at times with other data.
func (g *journalGen) retract(old envelope.Event) *envelope.Event {
	g.next++
	ev := old
	ev.Op, ev.Withdraws, ev.ID = envelope.Retract, old.ID, fmt.Sprintf("r%d", g.next)
	switch rapid.IntRange(0, 5).Draw(g.t, "retraction") {
	case 0: // of one that is still to come
		g.next++
		ev.Withdraws = fmt.Sprintf("e%d", g.next+1)
	case 1:
		changed := g.build(old.Source, old.SourcePartition, ev.ID, old.Key, old.Times[0], 77)
		changed.Op, changed.Withdraws = ev.Op, ev.Withdraws
		ev = *changed
	}
	g.sent = append(g.sent, ev)
	return &ev
}

func (g *journalGen) build(source string, partition uint32, id, key string, at envelope.EventTime, v int64) *envelope.Event {
	data := fmt.Sprintf(`{"key":%q,"t":%d,"v":"%d.%02d"}`, key, int64(at), v, 5)
	value := v*100 + 5
	if v < 0 {
		value = v*100 - 5
	}
	digest, err := envelope.DigestJSON([]byte(data))
	if err != nil {
		g.t.Fatal(err)
	}
	return &envelope.Event{
		ID: id, Source: source, Key: key, SourcePartition: partition, SourceOffset: uint64(g.next), Times: []envelope.EventTime{at},
		Values: []envelope.Value{{Int: value}}, Digest: digest, Data: []byte(data), Origin: envelope.Origin(rapid.IntRange(0, 3).Draw(g.t, "origin")),
	}
}

func (g *journalGen) mark() *envelope.Mark {
	p := g.partitions[rapid.IntRange(0, len(g.partitions)-1).Draw(g.t, "marked")]
	m := &p.mark
	m.IngestNow += envelope.IngestTime(rapid.SampledFrom([]int64{0, 200_000, 5_000_000, 31_000_000}).Draw(g.t, "now"))
	m.QuietForMs = rapid.SampledFrom([]uint64{0, 4_999, 5_000, 60_000}).Draw(g.t, "quiet")
	m.Pending = rapid.SampledFrom([]uint64{0, 0, 0, 1}).Draw(g.t, "pending")
	m.InFlight = rapid.SampledFrom([]uint64{0, 0, 0, 1}).Draw(g.t, "inflight")
	m.Paused = rapid.IntRange(0, 9).Draw(g.t, "paused") == 0
	switch rapid.IntRange(0, 29).Draw(g.t, "life") {
	case 0:
		m.Epoch++
		m.Generation++
	case 1:
		m.Generation++
	case 2:
		m.Finished = true
	}
	m.MaxEventTime = []envelope.EventTime{p.max}
	out := *m
	if rapid.IntRange(0, 19).Draw(g.t, "stale") == 0 && out.Epoch > 1 {
		out.Epoch--
	}
	return &out
}

// For every random journal the core and the oracle agree after every frame: watermarks,
// counts, results with revision numbers, late and conflict records.
func TestOracleAgreesOnRandomJournals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newJournalGen(t)
		p := newPair(t, g.stream, g.policy)
		for i := range rapid.IntRange(5, 60).Draw(t, "frames") {
			p.frame(g.frame(), fmt.Sprintf("frame %d", i+1))
		}
	})
}

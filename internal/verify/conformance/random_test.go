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
	kinds      []policy.WindowKind
	unit       policy.Duration    // that event time runs in
	now        envelope.EventTime // the busiest event time so far
	spread     int64              // how far events are from it, in units
	keys       []string
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

func allKinds() []policy.WindowKind {
	return []policy.WindowKind{policy.Tumbling, policy.Hopping, policy.Calendar, policy.Session}
}

func newJournalGen(t *rapid.T, kinds ...policy.WindowKind) *journalGen {
	g := &journalGen{t: t, now: 1_000_000_000, kinds: kinds}
	g.stream = &policy.BusinessStream{
		Name: "orders", Partitions: 1, Key: []string{"/key"}, NotBefore: envelope.MinEventTime, MaxFuture: policy.Hour, MaxEventBytes: 1 << 18,
		Values:      []policy.ValueSpec{{Name: "v", Path: "/v", Type: policy.Decimal, Scale: 2}},
		Extractors:  []policy.Extractor{{Name: "at@1", Path: "/t", Format: policy.UnixUs}},
		Retractions: rapid.Bool().Draw(t, "retractions"),
	}
	g.policy = &policy.StreamTimePolicy{
		Stream: "orders", Job: "job", Generation: 1, Extractor: "at@1", Late: "rebuild", CorrectionMode: "UPSERT_REVISION",
		Sources: []policy.SourceRef{{Name: "shop", Partitions: rapid.IntRange(1, 3).Draw(t, "partitions")}, {Name: "web", Partitions: 1}},
		AllIdle: rapid.SampledFrom([]policy.AllIdle{policy.Hold, policy.Advance}).Draw(t, "allIdle"),
		Aggregates: []policy.AggregateSpec{
			{Name: "avg", Func: "avg", Arg: "v"},
			{Name: "different", Func: "distinct", Arg: "v", Limit: policy.DefaultDistinct},
			{Name: "first", Func: "first", Arg: "v"},
			{Name: "last", Func: "last", Arg: "v"},
			{Name: "max", Func: "max", Arg: "v"},
			{Name: "min", Func: "min", Arg: "v"},
			{Name: "n", Func: "count"},
			{Name: "sum", Func: "sum", Arg: "v"},
		},
		IdleAfter: policy.Duration(rapid.SampledFrom([]int64{0, 5}).Draw(t, "T")) * policy.Second,
	}
	g.window()
	g.spread = rapid.SampledFrom([]int64{4, 15, 40}).Draw(t, "spread")
	g.keys = []string{"a", "b", "ü/1"}[:rapid.IntRange(1, 3).Draw(t, "keys")]
	g.policy.OutOfOrderness = g.times([]int64{0, 2, 20}, "D")
	g.policy.AllowedLateness = g.times([]int64{0, 1, 30, 600}, "L")
	g.policy.RetainIDs = g.policy.AllowedLateness + g.policy.Window.Longest() + g.times([]int64{0, 1, 5}, "ids")
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

// window draws windows of any kind. Calendar windows are long, so their time runs faster.
func (g *journalGen) window() {
	g.unit = policy.Second
	w := &g.policy.Window
	w.Zone = "UTC"
	switch w.Kind = rapid.SampledFrom(g.kinds).Draw(g.t, "window"); w.Kind {
	case policy.Tumbling, policy.Hopping:
		w.Size = g.times([]int64{1, 7, 60}, "size")
		w.Offset = policy.Duration(rapid.Int64Range(-int64(w.Size)+1, int64(w.Size)-1).Draw(g.t, "offset"))
		if w.Kind == policy.Hopping {
			w.Every = max(w.Size*policy.Duration(rapid.SampledFrom([]int64{2, 3, 5, 10}).Draw(g.t, "every"))/10, 1)
		}
	case policy.Session:
		w.Gap, w.Rule = g.times([]int64{1, 4, 10}, "gap"), "rule"
	case policy.Calendar:
		g.unit = policy.Hour
		w.Calendar = rapid.SampledFrom([]string{policy.CalendarDay, policy.CalendarWeek, policy.CalendarMonth}).Draw(g.t, "calendar")
		change := rapid.SampledFrom(clockChanges()).Draw(g.t, "zone")
		w.Zone, g.now = change.zone, change.at
	}
}

// clockChange is a zone and an instant close to a change of its clocks.
type clockChange struct {
	zone string
	at   envelope.EventTime
}

func clockChanges() []clockChange {
	return []clockChange{
		{"Europe/Paris", 1774749600_000000},        // 2026-03-29, 23 hours
		{"Europe/Paris", 1793055600_000000},        // 2026-10-25, 25 hours
		{"America/Los_Angeles", 1615680000_000000}, // 2021-03-14
		{"America/St_Johns", 1162090800_000000},    // 2006-10-29, put back at 00:01
		{"America/Sao_Paulo", 1541300400_000000},   // 2018-11-04, no midnight
		{"Pacific/Apia", 1325239200_000000},        // 2011-12-30 is left out
		{"UTC", 0},
	}
}

// times draws one of the lengths, in the unit that the journal's time runs in.
func (g *journalGen) times(of []int64, name string) policy.Duration {
	return policy.Duration(rapid.SampledFrom(of).Draw(g.t, name)) * g.unit
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
	// A tenth of a unit is coarse enough for distances of exactly a gap, or a window.
	at := g.now.Add(rapid.Int64Range(-10*g.spread, 2*g.spread).Draw(g.t, "t") * int64(g.unit) / 10)
	switch rapid.IntRange(0, 15).Draw(g.t, "old") {
	case 0:
		at = at.Add(-rapid.Int64Range(0, 900).Draw(g.t, "age") * int64(g.unit))
	case 1:
		at = at.Add(rapid.Int64Range(-1, 1).Draw(g.t, "edge"))
	}
	g.now = max(g.now, at)
	p.max = max(p.max, at)
	ev := g.build(p.source, p.number, fmt.Sprintf("e%d", g.next), rapid.SampledFrom(g.keys).Draw(g.t, "key"), at, rapid.Int64Range(-100, 100).Draw(g.t, "v"))
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
		g := newJournalGen(t, allKinds()...)
		p := newPair(t, g.stream, g.policy)
		for i := range rapid.IntRange(5, 60).Draw(t, "frames") {
			p.frame(g.frame(), fmt.Sprintf("frame %d", i+1))
		}
	})
}

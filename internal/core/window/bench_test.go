package window

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// benchConfig is hourly revenue over 8 source partitions, one key partition.
func benchConfig() Config {
	stream := &policy.BusinessStream{
		Name: "orders", Partitions: 8, Key: []string{"/region"},
		Values:     []policy.ValueSpec{{Name: "amount", Path: "/amount", Type: policy.Decimal, Scale: 2}},
		Extractors: []policy.Extractor{{Name: "at@1", Path: "/at", Format: policy.RFC3339}},
	}
	p := &policy.StreamTimePolicy{
		Stream: "orders", Job: "hourly-revenue", Generation: 1, Extractor: "at@1",
		Sources: []policy.SourceRef{{Name: "shop", Partitions: 8}}, OutOfOrderness: 5 * policy.Minute,
		Window:          policy.WindowSpec{Kind: policy.Tumbling, Size: policy.Hour},
		Aggregates:      []policy.AggregateSpec{{Name: "orders", Func: "count"}, {Name: "revenue", Func: "sum", Arg: "amount"}},
		AllowedLateness: policy.Day, RetainIDs: 48 * policy.Hour,
	}
	return Config{Stream: stream, Policy: p, PolicyDigest: "digest"}
}

// load makes events that are all new: event time runs an hour every perHour events, most
// within 5 minutes of the front.
type load struct {
	keys    []string
	frame   *envelope.Frame
	event   envelope.Event
	id      []byte
	n       uint64
	perHour uint64
	random  *rand.Rand
}

func newLoad(keys int, perHour uint64) *load {
	l := &load{
		frame: &envelope.Frame{Extractors: []string{"at@1"}, Values: []string{"amount"}},
		id:    []byte("order-0000000000000000"), perHour: perHour, random: rand.New(rand.NewPCG(1, 2)),
	}
	for i := range keys {
		l.keys = append(l.keys, fmt.Sprintf("region-%07d", i))
	}
	l.event = envelope.Event{Source: "shop", Times: make([]envelope.EventTime, 1), Values: make([]envelope.Value, 1)}
	return l
}

const benchStart = 1_796_032_800_000_000

func (l *load) front() envelope.EventTime {
	return benchStart + envelope.EventTime(l.n*3_600_000_000/l.perHour)
}

func (l *load) next() *envelope.Event {
	l.n++
	ev, r := &l.event, l.random.Uint64()
	for i, n := len(l.id)-1, l.n; n > 0; i, n = i-1, n/10 {
		l.id[i] = byte('0' + n%10)
	}
	ev.ID = string(l.id)
	ev.Key = l.keys[r%uint64(len(l.keys))]
	ev.SourcePartition, ev.SourceOffset = uint32(r>>32)%8, l.n
	ev.Times[0] = l.front() - envelope.EventTime(r>>40%300_000_000)
	ev.Values[0].Int = int64(r % 10_000)
	binary.LittleEndian.PutUint64(ev.Digest[:], r)
	return ev
}

// marks move ingestNow by 10 µs an event.
func (l *load) marks() []envelope.Mark {
	marks := make([]envelope.Mark, 8)
	for i := range marks {
		marks[i] = envelope.Mark{Source: "shop", Partition: uint32(i), Epoch: 1, Generation: 1, Pending: 1, MaxEventTime: []envelope.EventTime{l.front()}, IngestNow: envelope.IngestTime(10 * l.n)}
	}
	return marks
}

// feed applies n events in frames of 256, with marks every 64 frames, and answers the
// number of outputs.
func feed(b testing.TB, o *Operator, l *load, n int) (outputs int) {
	var buf []byte
	for done, frame := 0, 0; done < n; frame++ {
		seq := o.Position().Seq
		o.BeginFrame(seq, l.frame)
		for i := 0; i < 256 && done < n; i++ {
			if err := o.ApplyEvent(i, l.next()); err != nil {
				b.Fatal(err)
			}
			done++
		}
		o.EndFrame()
		if frame%64 != 63 {
			continue
		}
		o.BeginFrame(seq+1, l.frame)
		for i, m := range l.marks() {
			if err := o.Apply(i, &envelope.Record{Mark: &m}); err != nil {
				b.Fatal(err)
			}
			for more := true; more; {
				if buf, more = o.Next(buf[:0]); more {
					outputs++
				}
			}
		}
		o.EndFrame()
	}
	return outputs
}

// BenchmarkApplyEvent measures new events with their share of marks, revisions and
// forgetting; ns/op is one event. Generating an event costs about 60 ns of it.
func BenchmarkApplyEvent(b *testing.B) {
	for _, keys := range []int{1_000, 12_500, 100_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			o, err := New(benchConfig())
			if err != nil {
				b.Fatal(err)
			}
			l := newLoad(keys, 1_000_000)
			feed(b, o, l, 300_000)
			b.ReportAllocs()
			b.ResetTimer()
			outputs := feed(b, o, l, b.N)
			b.ReportMetric(float64(outputs)/float64(b.N), "revisions/op")
		})
	}
}

// BenchmarkDuplicate measures events that were had.
func BenchmarkDuplicate(b *testing.B) {
	o, err := New(benchConfig())
	if err != nil {
		b.Fatal(err)
	}
	l := newLoad(100_000, 1_000_000)
	feed(b, o, l, 500_000)
	*l = *newLoad(100_000, 1_000_000)
	b.ResetTimer()
	for n := 0; n < b.N; n += 500_000 {
		*l = *newLoad(100_000, 1_000_000)
		feed(b, o, l, min(500_000, b.N-n))
	}
}

// BenchmarkHash is the part of an event that the identity costs.
func BenchmarkHash(b *testing.B) {
	for b.Loop() {
		sha256.Sum256([]byte("4:shop|22:order-0000000000000000"))
	}
}

// BenchmarkState reports bytes of memory with a million ids and a hundred thousand open
// windows, and what a whole and an incremental Delta cost.
func BenchmarkState(b *testing.B) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	o, err := New(benchConfig())
	if err != nil {
		b.Fatal(err)
	}
	l := newLoad(50_000, 500_000)
	feed(b, o, l, 1_000_000)
	runtime.GC()
	runtime.ReadMemStats(&after)
	windows, ids, _ := o.Sizes()
	for b.Loop() {
		var pairs, bytes int
		put := func(key, value []byte) error {
			pairs++
			bytes += len(key) + len(value)
			return nil
		}
		if err := o.Delta(put); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(pairs), "pairs")
		b.ReportMetric(float64(bytes), "snapshotBytes")
		for _, p := range o.order { // all of it again
			for i := range p.wins {
				p.touch(i)
			}
		}
		for i := range o.ids.chunks {
			o.ids.chunks[i].dirty = true
		}
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "heapMB")
	b.ReportMetric(float64(ids), "ids")
	b.ReportMetric(float64(windows), "windows")
}

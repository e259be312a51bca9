package window

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// sessionBench is benchConfig with sessions of 11 minutes.
func sessionBench() Config {
	cfg := benchConfig()
	cfg.Policy.Window = policy.WindowSpec{Kind: policy.Session, Gap: 11 * policy.Minute, Rule: "gap-11-v2"}
	cfg.Policy.AllowedLateness = 30 * policy.Minute
	cfg.Policy.RetainIDs = policy.Hour
	return cfg
}

// bridges makes every so many events come up to 25 minutes late: they join and bridge
// sessions that were published.
type bridges struct {
	*load
	every uint64
}

func (l *bridges) next() *envelope.Event {
	ev := l.load.next()
	if l.n%l.every == 0 {
		ev.Times[0] -= envelope.EventTime(l.random.Int64N(int64(20 * policy.Minute)))
	}
	return ev
}

// marked answers marks whose ingestNow moves too, so that what is final is forgotten.
func (l *load) marked() []envelope.Mark {
	marks := l.marks()
	for i := range marks {
		marks[i].IngestNow = envelope.IngestTime(l.front()-benchStart) / 4
	}
	return marks
}

// feedSessions is feed for sessions; it answers the numbers of outputs.
func feedSessions(b testing.TB, o *Operator, l *bridges, n int) (outputs int) {
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
		for i, m := range l.marked() {
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

// BenchmarkSessions measures new events of 100,000 keys, about 6 and 30 to a session, of which
// one in 50 comes late, with their share of marks, groups and forgetting; ns/op is one event.
func BenchmarkSessions(b *testing.B) {
	for _, perHour := range []uint64{1_000_000, 2_000_000} {
		b.Run(fmt.Sprintf("perHour=%d", perHour), func(b *testing.B) {
			o, err := New(sessionBench())
			if err != nil {
				b.Fatal(err)
			}
			l := &bridges{load: newLoad(100_000, perHour), every: 50}
			feedSessions(b, o, l, int(2*perHour))
			b.ReportAllocs()
			b.ResetTimer()
			outputs := feedSessions(b, o, l, b.N)
			b.StopTimer()
			b.ReportMetric(float64(outputs)/float64(b.N), "revisions/op")
			sessions, ids, _ := o.Sizes()
			b.ReportMetric(float64(sessions), "sessions")
			b.ReportMetric(float64(ids), "ids")
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.HeapAlloc)/1e6, "heapMB")
			runtime.KeepAlive(o)
		})
	}
}

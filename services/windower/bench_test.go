package windower

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// BenchmarkUnit reads an events journal of 64 KiB frames to its end: frames in, windows
// journaled, checkpoints written.
func BenchmarkUnit(b *testing.B) {
	for _, keys := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			w := newWorld(b, 1)
			const events = 1_000_000
			last := w.load(events, keys)
			u := w.unit(0, b.TempDir())
			b.ResetTimer()
			for b.Loop() {
				b.StopTimer()
				w.recreate(0)
				u = w.unit(0, b.TempDir())
				u.every = 2 * time.Second
				b.StartTimer()
				r := start(b, u)
				r.reachedBench(b, last+1)
				b.StopTimer()
				r.cancel()
				must(b, r.end(b))
				b.StartTimer()
			}
			b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64(u.accepted().Records), "records")
		})
	}
}

func (r *running) reachedBench(b *testing.B, next uint64) {
	b.Helper()
	for {
		select {
		case err := <-r.done:
			b.Fatal(err)
		case <-time.After(time.Millisecond):
		}
		if c := r.u.accepted(); c != nil && c.Inputs[0].Seq >= next {
			return
		}
	}
}

// load writes events over ten hours, eight source partitions, a mark every 20 frames.
func (w *world) load(events, keys int) (last uint64) {
	w.t.Helper()
	w.pol.Sources[0].Partitions = 8
	const frameBytes = 64 << 10
	body := []byte(`{"order":{"region":"eu-west","amount":"12.50","occurred_at":"2026-11-30T10:00:00Z","customer":"c-0000000000","items":[{"sku":"a-17","n":2}]},"channel":"web"}`)
	fb := envelope.NewFrameBuilder("writer-1", []string{testExtractor}, []string{"amount"})
	var pending []jetstream.PubAckFuture
	acked := func() {
		select {
		case ack := <-pending[0].Ok():
			last = max(last, ack.Sequence)
		case err := <-pending[0].Err():
			w.t.Fatal(err)
		}
		pending = pending[1:]
	}
	flush := func() {
		w.number[0]++
		f, err := shared.conn.JS.PublishAsync(subject.Events(w.bs.Name, 0), append([]byte(nil), fb.Finish(w.number[0])...))
		must(w.t, err)
		if pending = append(pending, f); len(pending) > 32 {
			acked()
		}
		fb.Reset()
	}
	step := 10 * hour / int64(events)
	for i := range events {
		e := w.order(fmt.Sprintf("key-%d", (i*7919)%keys), epoch.Add(int64(i)*step), int64(i%5000))
		e.SourcePartition, e.Data, e.Digest = uint32(i%8), body, [32]byte{byte(i), byte(i >> 8), byte(i >> 16), 1}
		must(w.t, fb.AddEvent(e))
		if fb.Len() >= frameBytes {
			flush()
			if w.number[0]%20 == 0 {
				w.marks(fb)
				flush()
			}
		}
	}
	flush()
	w.marks(fb)
	flush()
	for len(pending) > 0 {
		acked()
	}
	return last
}

func (w *world) marks(fb *envelope.FrameBuilder) {
	for p := range uint32(8) {
		m := w.markOf(0, w.high)
		m.Partition = p
		must(w.t, fb.AddMark(m))
	}
}

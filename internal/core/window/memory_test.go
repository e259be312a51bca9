package window

import (
	"runtime"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// held answers an operator that took n events in 20 hours of event time, so that it holds
// n ids and 20 open windows of every key, and the bytes of heap that it lives in.
func held(t testing.TB, n, keys int) (*Operator, *load, uint64) {
	before := liveHeap()
	o, err := New(benchConfig())
	if err != nil {
		t.Fatal(err)
	}
	l := newLoad(keys, uint64(n/20))
	feed(t, o, l, n)
	after := liveHeap()
	runtime.KeepAlive(o)
	return o, l, after - before
}

// liveHeap answers how many bytes are in use when all garbage is gone.
func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// advance brings W to a time. Arrival time jumps, which makes every partition silent, and
// goes on in small steps for more than a minute, so that what is final is given back.
func advance(t testing.TB, o *Operator, l *load, to envelope.EventTime) {
	t.Helper()
	for step := range 6 {
		o.BeginFrame(o.Position().Seq, l.frame)
		for i, m := range l.marks() {
			m.MaxEventTime[0], m.IngestNow = to.Add(int64(5*policy.Minute)), envelope.IngestTime(to.Add(int64(step)*int64(20*policy.Second)))
			if err := o.Apply(i, &envelope.Record{Mark: &m}); err != nil {
				t.Fatal(err)
			}
			for more := true; more; {
				_, more = o.Next(nil)
			}
		}
		o.EndFrame()
	}
	if w, _, _ := o.Status(); w != to {
		t.Fatalf("W is %s, want %s", w, to)
	}
}

// again answers the operator that comes out of a checkpoint; the old one is gone by then.
func again(t testing.TB, o **Operator) *Operator {
	t.Helper()
	type pair struct{ key, value []byte }
	var pairs []pair
	if err := (*o).Delta(func(key, value []byte) error {
		pairs = append(pairs, pair{key, value})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	cfg := (*o).cfg
	*o = nil
	restored, err := Restore(cfg, func(yield func(key, value []byte) error) error {
		for _, p := range pairs {
			if err := yield(p.key, p.value); err != nil {
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

// repeat sends the first n events of a load once more, and then one new event of their
// time; it answers by how much duplicates and refused events grew.
func repeat(t testing.TB, o *Operator, keys, n, of int) (duplicates, refused uint64) {
	t.Helper()
	before := o.totals
	l := newLoad(keys, uint64(of/20))
	for done := 0; done <= n; {
		o.BeginFrame(o.Position().Seq, l.frame)
		for i := 0; i < 256 && done <= n; i++ {
			ev := l.next()
			if done == n {
				ev.ID, ev.Times[0] = "new", benchStart
			}
			if err := o.ApplyEvent(i, ev); err != nil {
				t.Fatal(err)
			}
			for more := true; more; {
				_, more = o.Next(nil)
			}
			done++
		}
		o.EndFrame()
	}
	return o.totals[classDuplicate] - before[classDuplicate], o.totals[classTooLate] - before[classTooLate]
}

// checkIDs goes through the life of n ids: restored from a checkpoint they are all there,
// they tell duplicates of events that are too late by now, and they go bucket by bucket.
func checkIDs(t *testing.T, o *Operator, l *load, n, keys int) {
	windows, _, _ := o.Sizes()
	o = again(t, &o)
	if w, ids, _ := o.Sizes(); ids != n || w != windows {
		t.Fatalf("restored are %d ids and %d windows, want %d and %d", ids, w, n, windows)
	}
	advance(t, o, l, benchStart+envelope.EventTime(47*policy.Hour)) // all windows are final, no id is forgotten
	if w, ids, _ := o.Sizes(); w != 0 || ids != n {
		t.Fatalf("%d windows and %d ids are held at 47 h, want 0 and %d", w, ids, n)
	}
	if duplicates, tooLate := repeat(t, o, keys, n/10, n); duplicates != uint64(n/10) || tooLate != 1 {
		t.Errorf("%d repeated events and a new one are %d duplicates and %d too late", n/10, duplicates, tooLate)
	}
	full := liveHeap()
	advance(t, o, l, benchStart+envelope.EventTime(58*policy.Hour)) // ids of the first 10 of 20 hours are due
	_, ids, _ := o.Sizes()
	if half := liveHeap(); ids < n*4/10 || ids > n*6/10 || half > full*8/10 {
		t.Errorf("at 58 h %d of %d ids are held in %d of %d bytes", ids, n, half, full)
	}
	advance(t, o, l, benchStart+envelope.EventTime(70*policy.Hour))
	if _, ids, keys := o.Sizes(); ids != 0 || keys != 0 || len(o.ids.buckets) != 0 {
		t.Errorf("at 70 h %d ids, %d keys and %d buckets are held", ids, keys, len(o.ids.buckets))
	}
}

// The heavy suite does the same with ten million ids.
func TestIDsLiveThroughACheckpointAndGoByBuckets(t *testing.T) {
	const n, keys = 80_000, 400
	o, l, _ := held(t, n, keys)
	checkIDs(t, o, l, n, keys)
}

// BenchmarkIDs reports what an id and an open window cost: bytes/id counts all that is
// held, with 10 ids a window.
func BenchmarkIDs(b *testing.B) {
	for b.Loop() {
		o, _, bytes := held(b, 1_000_000, 5_000)
		var slots, entries uint64
		for i := range o.ids.shards {
			slots += 8 * uint64(len(o.ids.shards[i].slots))
		}
		for i := range o.ids.chunks {
			entries += 48 * uint64(cap(o.ids.chunks[i].entries))
		}
		windows, ids, _ := o.Sizes()
		b.ReportMetric(float64(bytes)/float64(ids), "bytes/id")
		b.ReportMetric(float64(slots+entries)/float64(ids), "indexBytes/id")
		b.ReportMetric(float64(bytes-slots-entries)/float64(windows), "bytes/window")
	}
}

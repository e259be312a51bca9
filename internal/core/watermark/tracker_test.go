package watermark

import (
	"bytes"
	"math"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"pgregory.net/rapid"
)

const second = 1_000_000

func testPolicy(partitions int, d, idle policy.Duration, all policy.AllIdle) *policy.StreamTimePolicy {
	return &policy.StreamTimePolicy{
		Sources:        []policy.SourceRef{{Name: "shop", Partitions: partitions}},
		OutOfOrderness: d, IdleAfter: idle, AllIdle: all,
	}
}

// mark answers an active mark of a partition of shop in epoch 1, generation 1.
func mark(partition uint32, highest envelope.EventTime) *envelope.Mark {
	return &envelope.Mark{
		Source: "shop", Partition: partition, Epoch: 1, Generation: 1, Pending: 1,
		MaxEventTime: []envelope.EventTime{highest},
	}
}

func quiet(m *envelope.Mark, ms uint64) *envelope.Mark {
	m.Pending, m.QuietForMs = 0, ms
	return m
}

func wantW(t *testing.T, tr *Tracker, w, data envelope.EventTime) {
	t.Helper()
	if tr.W() != w || tr.Data() != data {
		t.Fatalf("W = %d, Wdata = %d; want %d and %d", tr.W(), tr.Data(), w, data)
	}
}

func TestNoMarkHoldsAtMinusInfinity(t *testing.T) {
	tr := New(testPolicy(2, 10, 0, policy.Hold))
	tr.Take(mark(0, 100), 0)
	wantW(t, tr, envelope.MinEventTime, envelope.MinEventTime)
	if s := tr.Status(); !s[1].Holds || s[1].Status != Absent || s[0].Holds {
		t.Fatalf("the partition without a mark must hold: %+v", s)
	}
	tr.Take(mark(1, 50), 0)
	wantW(t, tr, 40, 40)
}

func TestIdleExcludedAndCatchesUp(t *testing.T) {
	tr := New(testPolicy(2, 0, 10*policy.Second, policy.Hold))
	tr.Take(mark(0, 100), 0)
	tr.Take(quiet(mark(1, 3), 9_999), 0)
	wantW(t, tr, 3, 3)
	tr.Take(quiet(mark(1, 3), 10_000), 0)
	wantW(t, tr, 100, 3)
	tr.Take(mark(1, 50), 0) // resumes below W: catching up
	if s := tr.Status()[1].Status; s != CatchingUp {
		t.Fatalf("status %s, want catching-up", s)
	}
	tr.Take(mark(0, 120), 0)
	wantW(t, tr, 120, 50)
	tr.Take(mark(1, 119), 0)
	tr.Take(mark(0, 130), 0)
	wantW(t, tr, 130, 119)
	tr.Take(mark(1, 130), 0) // reaches W exactly: counts again
	tr.Take(mark(0, 140), 0)
	wantW(t, tr, 130, 130)
}

func TestIdleNeedsMoreThanQuiet(t *testing.T) {
	for name, change := range map[string]func(*envelope.Mark){
		"pending":   func(m *envelope.Mark) { m.Pending = 1 },
		"in flight": func(m *envelope.Mark) { m.InFlight = 1 },
		"paused":    func(m *envelope.Mark) { m.Paused = true },
	} {
		tr := New(testPolicy(2, 0, policy.Second, policy.Advance))
		tr.Take(mark(0, 100), 0)
		m := quiet(mark(1, 3), math.MaxUint64)
		change(m)
		tr.Take(m, 0)
		if tr.W() != 3 {
			t.Errorf("%s: W = %d, want 3", name, tr.W())
		}
	}
	off := New(testPolicy(2, 0, 0, policy.Advance))
	off.Take(mark(0, 100), 0)
	off.Take(quiet(mark(1, 3), math.MaxUint64), 0)
	wantW(t, off, 3, 3)
}

func TestSilentHoldsUntilItMarks(t *testing.T) {
	tr := New(testPolicy(2, 0, policy.Second, policy.Advance))
	at := func(m *envelope.Mark, now int64) *envelope.Mark { m.IngestNow = envelope.IngestTime(now); return m }
	tr.Take(at(quiet(mark(1, 3), 5_000), 0), 0)
	tr.Take(at(mark(0, 100), 7*second), 0) // the base for partition 1 starts here
	wantW(t, tr, 100, 3)
	tr.Take(at(mark(0, 200), 37*second), 0) // exactly 30 s: not silent
	wantW(t, tr, 200, 3)
	tr.Take(at(mark(0, 300), 37*second+1), 0)
	wantW(t, tr, 200, 3)
	if s := tr.Status(); s[1].Status != Silent || !s[1].Holds {
		t.Fatalf("partition 1 must be silent and hold: %+v", s)
	}
	next := at(mark(0, 400), 38*second)
	next.Epoch = 2 // a new epoch of the other does not end silence
	tr.Take(next, 0)
	wantW(t, tr, 200, 3)
	tr.Take(at(quiet(mark(1, 3), 5_000), 0), 0)
	wantW(t, tr, 400, 3)
}

func TestSilenceIsMeasuredWithinOneEpoch(t *testing.T) {
	tr := New(testPolicy(2, 0, policy.Second, policy.Advance))
	tr.Take(mark(0, 100), 0)
	tr.Take(quiet(mark(1, 3), 5_000), 0)
	m := mark(0, 200)
	m.Epoch, m.IngestNow = 2, 1000*second // another machine, another clock
	tr.Take(m, 0)
	wantW(t, tr, 200, 3)
	m = mark(0, 300)
	m.Epoch, m.IngestNow = 2, 1031*second
	tr.Take(m, 0)
	wantW(t, tr, 200, 3)
}

func TestFinishedIsOutForGood(t *testing.T) {
	tr := New(testPolicy(2, 5, 0, policy.Hold))
	done := func(n uint32, h envelope.EventTime) *envelope.Mark {
		m := mark(n, h)
		m.Finished = true
		return m
	}
	tr.Take(done(0, 10), 0)
	tr.Take(mark(1, 100), 0)
	wantW(t, tr, 95, 95)
	tr.Take(mark(0, 20), 0) // says nothing any more
	wantW(t, tr, 95, 95)
	tr.Take(done(1, 100), 0)
	wantW(t, tr, envelope.MaxEventTime, envelope.MaxEventTime)
}

func TestAllIdle(t *testing.T) {
	for _, all := range []policy.AllIdle{policy.Hold, policy.Advance} {
		tr := New(testPolicy(3, 5*second, 10*policy.Second, all))
		m := mark(2, 500*second)
		m.Finished = true
		tr.Take(m, 0)
		tr.Take(mark(0, 100*second), 0)
		tr.Take(mark(1, 50*second), 0)
		wantW(t, tr, 45*second, 45*second)
		tr.Take(quiet(mark(0, 100*second), 12_000), 0)
		tr.Take(quiet(mark(1, 50*second), 11_000), 0)
		want := envelope.EventTime(45 * second)
		if all == policy.Advance {
			want = (500 + 11 - 5 - 10) * second // the finished one's maximum takes part
		}
		wantW(t, tr, want, 45*second)
	}
}

func TestIgnoredMarks(t *testing.T) {
	tr := New(testPolicy(1, 0, 0, policy.Hold))
	other := mark(0, 99)
	other.Source = "elsewhere"
	old := mark(0, 99)
	old.Generation = 1
	for name, c := range map[string]struct {
		m         *envelope.Mark
		extractor int
	}{
		"another source":      {other, 0},
		"a partition outside": {mark(1, 99), 0},
		"no extractor":        {mark(0, 99), -1},
		"short list":          {mark(0, 99), 1},
	} {
		if tr.Take(c.m, c.extractor) {
			t.Errorf("%s counts", name)
		}
	}
	m := mark(0, 10)
	m.Epoch, m.Generation = 2, 2
	tr.Take(m, 0)
	low := mark(0, 99)
	low.Epoch, low.Generation = 1, 9
	lowGen := mark(0, 99)
	lowGen.Epoch, lowGen.Generation = 2, 1
	if tr.Take(low, 0) || tr.Take(lowGen, 0) {
		t.Error("a mark of a lower epoch or generation counts")
	}
	wantW(t, tr, 10, 10)
}

func TestArithmeticSaturates(t *testing.T) {
	tr := New(testPolicy(1, math.MaxInt64, policy.Second, policy.Advance))
	tr.Take(mark(0, -5), 0)
	wantW(t, tr, envelope.MinEventTime, envelope.MinEventTime)
	tr = New(testPolicy(1, 0, policy.Second, policy.Advance))
	m := quiet(mark(0, math.MaxInt64-5), math.MaxUint64)
	tr.Take(m, 0)
	wantW(t, tr, envelope.MaxEventTime, math.MaxInt64-5)
}

// anyMark draws a mark of one of four partitions, some outside the policy.
func anyMark(t *rapid.T) *envelope.Mark {
	return &envelope.Mark{
		Source:       "shop",
		Partition:    uint32(rapid.IntRange(0, 3).Draw(t, "partition")),
		Epoch:        uint64(rapid.IntRange(1, 2).Draw(t, "epoch")),
		Generation:   uint64(rapid.IntRange(1, 2).Draw(t, "generation")),
		MaxEventTime: []envelope.EventTime{envelope.EventTime(rapid.IntRange(-50, 200).Draw(t, "max"))},
		Pending:      uint64(rapid.IntRange(0, 1).Draw(t, "pending")),
		QuietForMs:   uint64(rapid.IntRange(0, 4).Draw(t, "quiet")),
		IngestNow:    envelope.IngestTime(rapid.IntRange(0, 90).Draw(t, "now") * second),
		Finished:     rapid.IntRange(0, 19).Draw(t, "finished") == 0,
	}
}

func TestMonotoneAndRestorable(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		all := rapid.SampledFrom([]policy.AllIdle{policy.Hold, policy.Advance}).Draw(rt, "all")
		p := testPolicy(3, 7, 2*policy.Millisecond, all)
		tr := New(p)
		for range rapid.IntRange(1, 40).Draw(rt, "marks") {
			w, data := tr.W(), tr.Data()
			m := anyMark(rt)
			snapshot := tr.AppendSnapshot(nil)
			twin, err := Restore(p, snapshot)
			if err != nil {
				rt.Fatal(err)
			}
			if tr.Take(m, 0) != twin.Take(m, 0) || !bytes.Equal(tr.AppendSnapshot(nil), twin.AppendSnapshot(nil)) {
				rt.Fatalf("a restored tracker differs after %+v", m)
			}
			if tr.W() < w || tr.Data() < data {
				rt.Fatalf("fell from %d, %d to %d, %d", w, data, tr.W(), tr.Data())
			}
		}
	})
}

func TestRestoreRefuses(t *testing.T) {
	p := testPolicy(2, 0, 0, policy.Hold)
	tr := New(p)
	tr.Take(mark(0, 1), 0)
	good := tr.AppendSnapshot(nil)
	for n := range good {
		if _, err := Restore(p, good[:n]); err == nil {
			t.Fatalf("a snapshot cut to %d bytes was read", n)
		}
	}
	if _, err := Restore(testPolicy(3, 0, 0, policy.Hold), good); err == nil {
		t.Error("a snapshot of another policy was read")
	}
	if _, err := Restore(p, append([]byte{format + 1}, good[1:]...)); err == nil {
		t.Error("a snapshot of another format was read")
	}
	if _, err := Restore(p, append(good, 0)); err == nil {
		t.Error("a snapshot with trailing bytes was read")
	}
}

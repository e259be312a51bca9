package window

import (
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"pgregory.net/rapid"
)

func TestAssign(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		at := rapid.Int64().Draw(rt, "t")
		size := rapid.Int64Range(1, math.MaxInt64).Draw(rt, "size")
		offset := rapid.Int64Range(-size+1, size-1).Draw(rt, "offset")
		start, end := assign(envelope.EventTime(at), size, offset)
		// By arbitrary precision: floor((t-offset)/size)*size + offset, cut at the ends.
		n := new(big.Int).Sub(big.NewInt(at), big.NewInt(offset))
		n.Div(n, big.NewInt(size)).Mul(n, big.NewInt(size)).Add(n, big.NewInt(offset))
		cut := func(n *big.Int) envelope.EventTime {
			switch {
			case n.Cmp(big.NewInt(math.MinInt64)) < 0:
				return envelope.MinEventTime
			case n.Cmp(big.NewInt(math.MaxInt64)) > 0:
				return envelope.MaxEventTime
			}
			return envelope.EventTime(n.Int64())
		}
		if ws, we := cut(n), cut(new(big.Int).Add(n, big.NewInt(size))); start != ws || end != we {
			rt.Fatalf("[%d, %d), want [%d, %d)", start, end, ws, we)
		}
	})
}

func TestSpans(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var f writerFrames
		had, lost := map[uint64]bool{}, map[uint64]bool{}
		for range rapid.IntRange(0, 20).Draw(rt, "steps") {
			first := rapid.Uint64Range(1, 20).Draw(rt, "first")
			last := first + rapid.Uint64Range(0, 3).Draw(rt, "more")
			into, set := &f.had, had
			if rapid.Bool().Draw(rt, "lost") {
				into, set = &f.lost, lost
			}
			*into = into.with(span{first, last})
			for n := first; n <= last; n++ {
				set[n] = true
			}
		}
		for n := uint64(1); n < 25; n++ {
			if f.had.has(n) != had[n] || f.lost.has(n) != lost[n] {
				rt.Fatalf("%d: had %v, lost %v", n, f.had, f.lost)
			}
		}
		for i := 1; i < len(f.had); i++ {
			if f.had[i].first <= f.had[i-1].last+1 {
				rt.Fatalf("spans touch: %v", f.had)
			}
		}
		want := uint64(0)
		for n := uint64(22); n > 0; n-- {
			if !had[n] && !lost[n] {
				want = n
			}
		}
		if hole, _ := f.missing(22); hole.first != want {
			rt.Fatalf("hole %v, want %d: %v", hole, want, f)
		}
	})
}

// TestIDIndex compares with a map: find under a rising watermark, forgetting, memory given back.
func TestIDIndex(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		keys := newKeyTable()
		x := newIDIndex(10_000_000, &keys)
		type name struct{ id, key byte }
		model := map[name]envelope.EventTime{}
		w := envelope.EventTime(-30_000_000)
		for range rapid.IntRange(1, 200).Draw(rt, "steps") {
			n := name{rapid.Byte().Draw(rt, "id") % 40, rapid.Byte().Draw(rt, "key") % 3}
			if rapid.IntRange(0, 9).Draw(rt, "kind") == 0 {
				w += envelope.EventTime(rapid.Int64Range(0, 5_000_000).Draw(rt, "step"))
				x.sweep(w)
			}
			key := keys.intern(string('a' + rune(n.key)))
			_, found := x.find([16]byte{n.id}, key, w)
			at, had := model[n]
			if found != (had && w < at+10_000_000) {
				rt.Fatalf("%v at W %d: found %v, had %v at %d", n, w, found, had, at)
			}
			at = w + envelope.EventTime(rapid.Int64Range(-9_999_999, 3_000_000).Draw(rt, "time"))
			if !found {
				x.insert(idEntry{hash: [16]byte{n.id}, time: at, key: key})
				model[n] = at
			}
		}
		x.sweep(envelope.MaxEventTime)
		if x.live != 0 || len(x.buckets) != 0 || keys.count() != 0 {
			rt.Fatalf("%d ids, %d buckets, %d keys are left", x.live, len(x.buckets), keys.count())
		}
	})
}

// small answers an operator of 1 s windows in which keys a and b are due at the next mark.
func small(t *testing.T) *Operator {
	t.Helper()
	cfg := benchConfig()
	cfg.Policy.Window.Size, cfg.Policy.OutOfOrderness = policy.Second, 0
	cfg.Policy.Sources[0].Partitions = 1
	o, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	o.BeginFrame(1, newLoad(1, 1).frame)
	for i, key := range []string{"b", "a"} {
		ev := &envelope.Event{ID: key, Key: key, Source: "shop", Times: []envelope.EventTime{5}, Values: make([]envelope.Value, 1)}
		if err := o.ApplyEvent(i, ev); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func dueMark(o *Operator) error {
	m := &envelope.Mark{Source: "shop", Epoch: 1, MaxEventTime: []envelope.EventTime{1_000_000}}
	return o.Apply(2, &envelope.Record{Mark: m})
}

func TestPositionAndTotalsInsideAMark(t *testing.T) {
	o := small(t)
	if err := dueMark(o); err != nil {
		t.Fatal(err)
	}
	for n, want := range []revision.InputPosition{{Seq: 1, Index: 2}, {Seq: 1, Index: 2, Outputs: 1}, {Seq: 1, Index: 3}} {
		if o.Position() != want {
			t.Fatalf("after %d outputs: position %+v, want %+v", n, o.Position(), want)
		}
		w, _, _, _ := o.Totals()
		if done := n == 2; (w == 1_000_000) != done {
			t.Fatalf("after %d outputs: W = %s: it counts once all outputs are taken", n, w)
		}
		if n < 2 {
			if err := o.Delta(func(_, _ []byte) error { return nil }); err == nil {
				t.Fatal("a checkpoint was written while outputs waited")
			}
			if err := o.ApplyEvent(3, &envelope.Event{}); err == nil {
				t.Fatal("a record was applied while outputs waited")
			}
		}
		if _, more := o.Next(nil); more != (n < 2) {
			t.Fatalf("Next %d answers %v", n, more)
		}
	}
	o.EndFrame()
	if want := (revision.InputPosition{Seq: 2}); o.Position() != want {
		t.Fatalf("position %+v, want %+v", o.Position(), want)
	}
	if o.BeginFrame(1, newLoad(1, 1).frame) {
		t.Fatal("a frame before the position is fresh")
	}
}

func TestProtocolErrors(t *testing.T) {
	o := small(t)
	if err := o.ApplyEvent(7, &envelope.Event{}); err == nil || !strings.Contains(err.Error(), "record 2 is next") {
		t.Errorf("a hole between records: %v", err)
	}
	o.EndFrame()
	if err := o.ApplyEvent(0, &envelope.Event{}); err == nil {
		t.Error("a record outside a frame was applied")
	}
}

// TestDamageHalts: what cannot be computed names window, key and event; the position
// stays before it, and the state is not stored any more.
func TestDamageHalts(t *testing.T) {
	o := small(t)
	cells := o.cellsOf(o.order[0], 0)
	for i := range cells {
		cells[i].N = math.MaxInt64 // the next event overflows the count
	}
	ev := &envelope.Event{ID: "x", Key: "b", Source: "shop", Times: []envelope.EventTime{6}, Values: make([]envelope.Value, 1)}
	err := o.ApplyEvent(2, ev)
	if err == nil {
		t.Fatal("an overflow was taken")
	}
	for _, part := range []string{`key "b"`, "1970-01-01T00:00:00Z", `event "x"`, "overflow", "sequence 1, record 2"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if o.Position() != (revision.InputPosition{Seq: 1, Index: 2}) {
		t.Errorf("position %+v", o.Position())
	}
	if again := dueMark(o); again == nil {
		t.Error("a halted operator went on")
	}
	if err := o.Delta(func(_, _ []byte) error { return nil }); err == nil {
		t.Error("the state of a halted operator was stored")
	}
}

// TestRestoreRefuses: another format, core version, policy or key partition, and damage.
func TestRestoreRefuses(t *testing.T) {
	o := small(t)
	cfg := o.cfg
	pairs := map[string][]byte{}
	if err := o.Delta(func(key, value []byte) error { pairs[string(key)] = value; return nil }); err != nil {
		t.Fatal(err)
	}
	restore := func(cfg Config, change func(map[string][]byte)) error {
		copied := map[string][]byte{}
		for k, v := range pairs {
			copied[k] = append([]byte(nil), v...)
		}
		change(copied)
		_, err := Restore(cfg, func(yield func(key, value []byte) error) error {
			for k, v := range copied {
				if err := yield([]byte(k), v); err != nil {
					return err
				}
			}
			return nil
		})
		return err
	}
	none := func(map[string][]byte) {}
	if err := restore(cfg, none); err != nil {
		t.Fatal(err)
	}
	other := cfg
	other.PolicyDigest = "other"
	partition := cfg
	partition.Partition = 3
	for name, err := range map[string]error{
		"format":    restore(cfg, func(m map[string][]byte) { m["m"][0] = Format + 1 }),
		"version":   restore(cfg, func(m map[string][]byte) { m["m"][1] = CoreVersion + 1 }),
		"policy":    restore(other, none),
		"partition": restore(partition, none),
		"kind":      restore(cfg, func(m map[string][]byte) { m["?"] = nil }),
	} {
		if !errors.Is(err, ErrFormat) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	for key := range pairs {
		if err := restore(cfg, func(m map[string][]byte) { delete(m, key) }); err == nil {
			t.Errorf("a checkpoint without pair %q was read", key)
		}
		for n := range pairs[key] {
			if key[0] != 'k' && n > 0 {
				_ = restore(cfg, func(m map[string][]byte) { m[key] = m[key][:n] }) // must not panic
			}
		}
	}
	if err := restore(cfg, func(m map[string][]byte) { m["m"] = m["m"][:9] }); err == nil {
		t.Error("a cut checkpoint was read")
	}
}

func TestNewRefusesWindowsThatCannotBe(t *testing.T) {
	for want, spec := range map[string]policy.WindowSpec{
		"above 0":            {Kind: policy.Tumbling},
		"cannot start every": {Kind: policy.Hopping, Size: 1, Every: 2},
		"no IANA time zone":  {Kind: policy.Calendar, Calendar: policy.CalendarDay, Zone: "Europe/Parris"},
	} {
		cfg := benchConfig()
		cfg.Policy.Window = spec
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", spec, err, want)
		}
	}
}

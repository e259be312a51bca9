package aggregate_test

import (
	"bytes"
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/tidemark-mesh/tidemark/internal/core/aggregate"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// values are those of every test's stream: a decimal of two digits, an int and a text.
func stream(retractions bool) *policy.BusinessStream {
	return &policy.BusinessStream{
		Name: "orders",
		Values: []policy.ValueSpec{
			{Name: "amount", Type: policy.Decimal, Scale: 2},
			{Name: "items", Type: policy.Int},
			{Name: "sku", Type: policy.String},
			{Name: "wide", Type: policy.Decimal, Scale: 18},
			{Name: "whole", Type: policy.Decimal, Scale: 0},
		},
		Retractions: retractions,
	}
}

func compile(t testing.TB, retractions bool, f, arg string) aggregate.Compiled {
	t.Helper()
	return compileCall(t, retractions, f+"("+arg+")")
}

// compileCall compiles a result as a document writes it.
func compileCall(t testing.TB, retractions bool, call string) aggregate.Compiled {
	t.Helper()
	spec, err := policy.ParseAggregate("result", call)
	if err != nil {
		t.Fatal(err)
	}
	c, err := aggregate.Compile(stream(retractions), &policy.StreamTimePolicy{Aggregates: []policy.AggregateSpec{spec}})
	if err != nil {
		t.Fatal(err)
	}
	return c[0]
}

// everyCall is every function over every type that it takes.
func everyCall() []string {
	calls := []string{"count()"}
	for _, f := range aggregate.Names() {
		for _, arg := range []string{"amount", "items", "sku"} {
			if f != "count" && (arg != "sku" || f != "sum" && f != "avg") {
				calls = append(calls, f+"("+arg+")")
			}
		}
	}
	return calls
}

func ints(numbers ...int64) []envelope.Value {
	values := make([]envelope.Value, len(numbers))
	for i, n := range numbers {
		values[i].Int = n
	}
	return values
}

func texts(words ...string) []envelope.Value {
	values := make([]envelope.Value, len(words))
	for i, w := range words {
		values[i].Text = w
	}
	return values
}

// one answers what an event brings of which nothing but its value matters.
func one(v envelope.Value) *aggregate.Input { return &aggregate.Input{Value: v} }

func addAll(t testing.TB, c aggregate.Compiled, cell *aggregate.Cell, values []envelope.Value) {
	t.Helper()
	for _, v := range values {
		if err := c.Add(cell, one(v)); err != nil {
			t.Fatal(err)
		}
	}
}

func result(c aggregate.Compiled, cell *aggregate.Cell) revision.Field {
	return aggregate.Results([]aggregate.Compiled{c}, []aggregate.Cell{*cell})[0]
}

func TestResults(t *testing.T) {
	for _, c := range []struct {
		f, arg string
		values []envelope.Value
		want   string
		quoted bool
	}{
		{"count", "", ints(0, 0, 0), "3", false},
		{"sum", "amount", ints(1293050), "12930.50", true},
		{"sum", "amount", ints(5), "0.05", true},
		{"sum", "amount", ints(-5), "-0.05", true},
		{"sum", "amount", ints(-5, 5), "0.00", true},
		{"sum", "amount", ints(-150), "-1.50", true},
		{"sum", "items", ints(3, -10), "-7", false},
		{"sum", "whole", ints(12), "12", true},
		{"sum", "wide", ints(1), "0.000000000000000001", true},
		{"sum", "items", ints(math.MaxInt64, math.MaxInt64, 2), "18446744073709551616", false},
		{"sum", "items", ints(math.MinInt64, math.MinInt64), "-18446744073709551616", false},
		{"sum", "wide", ints(math.MaxInt64, math.MaxInt64), "18.446744073709551614", true},
		{"min", "amount", ints(250, -100, 300), "-1.00", true},
		{"max", "amount", ints(250, -100, 300), "3.00", true},
		{"min", "items", ints(math.MaxInt64, math.MinInt64), "-9223372036854775808", false},
		{"max", "items", ints(math.MinInt64), "-9223372036854775808", false},
		{"max", "items", ints(-3, -2), "-2", false},
		{"min", "sku", texts("b", "B", "é"), "B", true},
		{"max", "sku", texts("b", "B", "é"), "é", true},
		{"min", "sku", texts("a", ""), "", true},
		{"avg", "items", ints(412, 413), "412.500000", true},
		{"avg", "items", ints(1, 1, 0), "0.666667", true},
		{"avg", "items", ints(-1, -1, 0), "-0.666667", true},
		{"avg", "items", ints(0), "0.000000", true},
		{"avg", "amount", ints(100, 0, 0), "0.33333333", true},
		{"avg", "amount", ints(-1), "-0.01000000", true},
		{"avg", "items", ints(math.MinInt64, math.MinInt64), "-9223372036854775808.000000", true},
		{"avg", "wide", ints(1, 2), "0.000000000000000001500000", true},
	} {
		for _, retractions := range []bool{false, true} {
			f := compile(t, retractions, c.f, c.arg)
			var cell aggregate.Cell
			addAll(t, f, &cell, c.values)
			if got := result(f, &cell); got.Text != c.want || got.Quoted != c.quoted || got.Name != "result" {
				t.Errorf("%s(%s) of %v is %+v, want %s", c.f, c.arg, c.values, got, c.want)
			}
			if f.Name() != c.f {
				t.Errorf("%s is named %s", c.f, f.Name())
			}
		}
	}
}

// An average is rounded once, half to even, at its sixth digit beyond the scale.
func TestAverageRoundsHalfToEven(t *testing.T) {
	f := compile(t, false, "avg", "items")
	for _, c := range []struct {
		one  int64 // this many ones …
		n    int   // … among so many values
		want string
	}{
		{1, 2_000_000, "0.000000"},
		{3, 2_000_000, "0.000002"},
		{5, 2_000_000, "0.000002"},
		{-1, 2_000_000, "0.000000"},
		{-3, 2_000_000, "-0.000002"},
	} {
		cell := aggregate.Cell{}
		addAll(t, f, &cell, ints(c.one))
		cell.N = int64(c.n)
		if got := result(f, &cell).Text; got != c.want {
			t.Errorf("%d of %d is %s, want %s", c.one, c.n, got, c.want)
		}
	}
}

func TestAverageEqualsBigRationals(t *testing.T) {
	f := compile(t, false, "avg", "items")
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Int64(), 1, 50).Draw(t, "values")
		var cell aggregate.Cell
		total := new(big.Int)
		for _, v := range values {
			if err := f.Add(&cell, one(envelope.Value{Int: v})); err != nil {
				t.Fatal(err)
			}
			total.Add(total, big.NewInt(v))
		}
		// Half to even by hand: twice the remainder against the divisor.
		scaled := new(big.Int).Mul(total, big.NewInt(1_000_000))
		sign := scaled.Sign()
		n := big.NewInt(int64(len(values)))
		q, r := new(big.Int).QuoRem(scaled.Abs(scaled), n, new(big.Int))
		if c := r.Lsh(r, 1).Cmp(n); c > 0 || c == 0 && q.Bit(0) == 1 {
			q.Add(q, big.NewInt(1))
		}
		digits := q.String()
		if len(digits) < 7 {
			digits = strings.Repeat("0", 7-len(digits)) + digits
		}
		want := digits[:len(digits)-6] + "." + digits[len(digits)-6:]
		if sign < 0 && q.Sign() != 0 {
			want = "-" + want
		}
		if got := aggregate.Results([]aggregate.Compiled{f}, []aggregate.Cell{cell})[0].Text; got != want {
			t.Fatalf("average of %v is %s, want %s", values, got, want)
		}
	})
}

func TestCompileRefuses(t *testing.T) {
	for _, c := range []struct{ f, arg, want string }{
		{"median", "amount", "no such function; this version has avg, count, distinct, first, last, max, min, sum"},
		{"sum", "price", `declares no value "price"; it declares: amount, items, sku, wide, whole`},
		{"sum", "sku", "value sku is of type string"},
		{"avg", "sku", "value sku is of type string"},
		{"sum", "", "needs the name of a declared value"},
		{"avg", "", "needs the name of a declared value"},
		{"min", "", "needs the name of a declared value"},
		{"first", "", "needs the name of a declared value"},
		{"distinct", "", "needs the name of a declared value"},
		{"distinct", "sku", "the limit is 0; it must be from 1 to 1000000"},
		{"count", "amount", "count takes no value"},
	} {
		_, err := aggregate.Compile(stream(false), &policy.StreamTimePolicy{
			Aggregates: []policy.AggregateSpec{{Name: "r", Func: c.f, Arg: c.arg}},
		})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "aggregate r: "+c.f+"("+c.arg+")") {
			t.Errorf("%s(%s): error is %v, want %q", c.f, c.arg, err, c.want)
		}
	}
}

func TestCompileBindsValues(t *testing.T) {
	compiled, err := aggregate.Compile(stream(false), &policy.StreamTimePolicy{Aggregates: []policy.AggregateSpec{
		{Name: "n", Func: "count"}, {Name: "top", Func: "max", Arg: "sku"}, {Name: "total", Func: "sum", Arg: "items"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	values := []envelope.Value{{Int: 1}, {Int: 2}, {Text: "s"}, {}, {}}
	var got []envelope.Value
	for i := range compiled {
		got = append(got, compiled[i].Pick(values))
	}
	if want := []envelope.Value{{}, {Text: "s"}, {Int: 2}}; !slices.Equal(got, want) {
		t.Errorf("picked %v, want %v", got, want)
	}
	if compiled[0].Value != -1 || compiled[1].Arg != "sku" || compiled[2].Value != 1 {
		t.Errorf("compiled %+v", compiled)
	}
}

func TestOverflowIsAnErrorInBothDirections(t *testing.T) {
	for _, name := range []string{"sum", "avg"} {
		f := compile(t, true, name, "items")
		for _, c := range []struct {
			cell        aggregate.Cell
			add, remove int64 // which of the two overflows
		}{
			{aggregate.Cell{Hi: math.MaxInt64, Lo: math.MaxUint64, N: 3}, 1, -1},
			{aggregate.Cell{Hi: math.MinInt64, N: 3}, -1, 1},
		} {
			for _, try := range []func(*aggregate.Cell) error{
				func(cell *aggregate.Cell) error { return f.Add(cell, one(envelope.Value{Int: c.add})) },
				func(cell *aggregate.Cell) error { return f.Remove(cell, one(envelope.Value{Int: c.remove})) },
			} {
				cell := c.cell
				if err := try(&cell); !errors.Is(err, aggregate.ErrOverflow) || cell != c.cell {
					t.Errorf("%s: error is %v and the cell %+v, was %+v", name, err, cell, c.cell)
				}
			}
		}
	}
	for _, name := range everyCall() {
		f := compileCall(t, true, name)
		cell := aggregate.Cell{N: math.MaxInt64}
		if err := f.Add(&cell, one(envelope.Value{Int: 1})); !errors.Is(err, aggregate.ErrOverflow) || cell != (aggregate.Cell{N: math.MaxInt64}) {
			t.Errorf("%s counts on from 2^63-1: %v, %+v", name, err, cell)
		}
	}
}

func TestRemoveOfWhatIsNotHeld(t *testing.T) {
	for _, call := range everyCall() {
		f := compileCall(t, true, call)
		var cell aggregate.Cell
		if err := f.Remove(&cell, one(envelope.Value{Int: 1, Text: "x"})); !errors.Is(err, aggregate.ErrNotHeld) || cell != (aggregate.Cell{}) {
			t.Errorf("%s: error is %v, cell %+v", call, err, cell)
		}
	}
	for _, c := range []struct{ f, arg string }{{"min", "items"}, {"max", "sku"}, {"first", "items"}, {"last", "sku"}} {
		f := compile(t, true, c.f, c.arg)
		var cell aggregate.Cell
		addAll(t, f, &cell, []envelope.Value{{Int: 1, Text: "a"}})
		if err := f.Remove(&cell, one(envelope.Value{Int: 2, Text: "b"})); !errors.Is(err, aggregate.ErrNotHeld) || cell.N != 1 {
			t.Errorf("%s: error is %v, cell %+v", c.f, err, cell)
		}
		f = compile(t, false, c.f, c.arg)
		cell = aggregate.Cell{}
		addAll(t, f, &cell, []envelope.Value{{Int: 1, Text: "a"}})
		if err := f.Remove(&cell, one(envelope.Value{Int: 1, Text: "a"})); !errors.Is(err, aggregate.ErrNotRetractable) || cell.N != 1 {
			t.Errorf("%s without retractions: error is %v, cell %+v", c.f, err, cell)
		}
	}
}

// aliased answers a string that shares memory with b, as those of a decoded frame do.
func aliased(b []byte) string { return unsafe.String(&b[0], len(b)) }

// draw draws one compiled function of any kind and events for it; few distinct values and
// times, so that they repeat.
func draw(t *rapid.T, tb testing.TB, retractions bool) (aggregate.Compiled, []aggregate.Input) {
	call := rapid.SampledFrom(append(everyCall(), "sum(wide)")).Draw(t, "call")
	number := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-3, 3))
	word := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"a", "b", ""}))
	name := rapid.SampledFrom([]string{"a", "ab", "b"})
	events := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) aggregate.Input {
		return aggregate.Input{
			Value: envelope.Value{Int: number.Draw(t, "int"), Text: word.Draw(t, "text")},
			Time:  envelope.EventTime(rapid.Int64Range(-2, 2).Draw(t, "time")), Source: name.Draw(t, "source"), ID: name.Draw(t, "id"),
		}
	}), 1, 40).Draw(t, "events")
	return compileCall(tb, retractions, call), events
}

func takeAll(t testing.TB, c aggregate.Compiled, cell *aggregate.Cell, events []aggregate.Input) {
	t.Helper()
	for i := range events {
		if err := c.Add(cell, &events[i]); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOrderOfArrivalNeverMatters(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f, events := draw(rt, t, rapid.Bool().Draw(rt, "retractions"))
		shuffled := rapid.Permutation(events).Draw(rt, "shuffled")
		var one, other aggregate.Cell
		takeAll(t, f, &one, events)
		takeAll(t, f, &other, shuffled)
		if a, b := result(f, &one), result(f, &other); a != b {
			rt.Fatalf("%s gives %v and %v", f.Name(), a, b)
		}
		if a, b := f.AppendState(nil, &one), f.AppendState(nil, &other); !bytes.Equal(a, b) {
			rt.Fatalf("%s has states %x and %x", f.Name(), a, b)
		}
	})
}

// Withdrawing, at any time and in any order, leaves what would be there without the events.
func TestRemoveUndoesAdd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f, events := draw(rt, t, true)
		kept := rapid.IntRange(0, len(events)).Draw(rt, "kept")
		var want, got aggregate.Cell
		takeAll(t, f, &want, events[:kept])
		takeAll(t, f, &got, rapid.Permutation(events).Draw(rt, "in"))
		for _, in := range rapid.Permutation(events[kept:]).Draw(rt, "out") {
			if err := f.Remove(&got, &in); err != nil {
				rt.Fatal(err)
			}
		}
		if a, b := f.AppendState(nil, &got), f.AppendState(nil, &want); !bytes.Equal(a, b) {
			rt.Fatalf("%s has state %x, want %x", f.Name(), a, b)
		}
		if kept == 0 {
			if got != (aggregate.Cell{}) {
				rt.Fatalf("%s emptied is %+v", f.Name(), got)
			}
		} else if a, b := result(f, &got), result(f, &want); a != b {
			rt.Fatalf("%s gives %v, want %v", f.Name(), a, b)
		}
	})
}

func TestStateRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f, events := draw(rt, t, rapid.Bool().Draw(rt, "retractions"))
		var cell aggregate.Cell
		takeAll(t, f, &cell, events[1:]) // also none
		state := f.AppendState(nil, &cell)
		restored := aggregate.Cell{Hi: 7, Lo: 7, N: 7}
		rest, err := f.DecodeState(append(slices.Clone(state), "rest"...), &restored)
		if err != nil || string(rest) != "rest" {
			rt.Fatalf("%s: rest %q, %v", f.Name(), rest, err)
		}
		takeAll(t, f, &cell, events[:1])
		takeAll(t, f, &restored, events[:1])
		if a, b := result(f, &restored), result(f, &cell); a != b || restored.N != cell.N {
			rt.Fatalf("%s gives %v, want %v", f.Name(), a, b)
		}
		if len(state) > 0 {
			var broken aggregate.Cell
			if _, err := f.DecodeState(state[:len(state)-1], &broken); err == nil {
				rt.Fatalf("%s decodes a state cut off: %x", f.Name(), state)
			}
		}
	})
}

func FuzzDecodeState(f *testing.F) {
	f.Add(uint8(0), []byte{2, 4, 6})
	f.Add(uint8(3), []byte{2, 4, 1, 6, 3})
	f.Add(uint8(5), []byte{2, 2, 1, 'a', 1, 1, 'b', 1})
	f.Add(uint8(8), []byte{1, 1, 2, 1, 's', 1, 'i', 4, 0, 1})
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		calls := everyCall()
		c := compileCall(t, which < 128, calls[int(which)%len(calls)])
		var cell, again aggregate.Cell
		if _, err := c.DecodeState(data, &cell); err != nil {
			return
		}
		state := c.AppendState(nil, &cell)
		if _, err := c.DecodeState(state, &again); err != nil || !reflect.DeepEqual(cell, again) {
			t.Fatalf("%+v became %+v: %v", cell, again, err)
		}
	})
}

func TestDeltas(t *testing.T) {
	s := stream(true)
	compiled, err := aggregate.Compile(s, &policy.StreamTimePolicy{Aggregates: []policy.AggregateSpec{
		{Name: "avg", Func: "avg", Arg: "items"},
		{Name: "first", Func: "first", Arg: "sku"},
		{Name: "high", Func: "max", Arg: "amount"},
		{Name: "orders", Func: "count"},
		{Name: "revenue", Func: "sum", Arg: "amount"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	cells := make([]aggregate.Cell, len(compiled))
	take := func(amount, items int64, sku string) []revision.Field {
		values := []envelope.Value{{Int: amount}, {Int: items}, {Text: sku}, {}, {}}
		for i := range compiled {
			if err := compiled[i].Add(&cells[i], one(compiled[i].Pick(values))); err != nil {
				t.Fatal(err)
			}
		}
		return aggregate.Results(compiled, cells)
	}
	field := func(name, text string) revision.Field {
		return revision.Field{Name: name, Text: text, Quoted: name != "orders"}
	}
	check := func(what string, old, now []revision.Field, want ...revision.Field) {
		t.Helper()
		got, err := aggregate.Deltas(compiled, old, now)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v (%v), want %v", what, got, err, want)
		}
	}
	first := take(1250, 2, "b")
	two := take(-1500, 1, "a")
	check("first revision", nil, first,
		field("avg", "2.000000"), field("high", "12.50"), field("orders", "1"), field("revenue", "12.50"))
	check("second revision", first, two,
		field("avg", "-0.500000"), field("high", "0.00"), field("orders", "1"), field("revenue", "-15.00"))
	check("retracted", two, nil,
		field("avg", "-1.500000"), field("high", "-12.50"), field("orders", "-2"), field("revenue", "2.50"))
	check("nothing", nil, nil,
		revision.Field{Name: "avg", Text: "0.000000"}, revision.Field{Name: "high", Text: "0.00"},
		revision.Field{Name: "orders", Text: "0"}, revision.Field{Name: "revenue", Text: "0.00"})

	for _, bad := range []string{"", "-", "12.5", "12", "1250", ".50", "1x.50", "12.500"} {
		broken := slices.Clone(two)
		broken[4].Text = bad
		if _, err := aggregate.Deltas(compiled, broken, two); err == nil {
			t.Errorf("%q passes for a number of two digits", bad)
		}
	}
	huge := slices.Clone(two)
	huge[4].Text = "-" + strings.Repeat("9", 40) + ".00"
	if _, err := aggregate.Deltas(compiled, huge, two); !errors.Is(err, aggregate.ErrOverflow) {
		t.Errorf("error is %v, want an overflow", err)
	}
}

// The deltas of a window's revisions add up to its value.
func TestDeltasAddUp(t *testing.T) {
	f := compile(t, true, "sum", "amount")
	compiled := []aggregate.Compiled{f}
	rapid.Check(t, func(rt *rapid.T) {
		var cell, deltas aggregate.Cell
		var old []revision.Field
		for _, v := range rapid.SliceOfN(rapid.Int64Range(-1e15, 1e15), 1, 20).Draw(rt, "values") {
			addAll(t, f, &cell, ints(v))
			now := aggregate.Results(compiled, []aggregate.Cell{cell})
			diff, err := aggregate.Deltas(compiled, old, now)
			if err != nil {
				rt.Fatal(err)
			}
			addAll(t, f, &deltas, ints(v))
			if want := result(f, &aggregate.Cell{Hi: v >> 63, Lo: uint64(v), N: 1}); diff[0] != want {
				rt.Fatalf("delta is %v, want %v", diff[0], want)
			}
			old = now
		}
		if result(f, &cell) != result(f, &deltas) {
			rt.Fatal("deltas do not add up")
		}
	})
}

// What is kept of an event does not point into the frame that it came in.
func TestTextIsCopied(t *testing.T) {
	for _, retractions := range []bool{false, true} {
		for _, call := range everyCall() {
			f := compileCall(t, retractions, call)
			frame := []byte("abc")
			var cell aggregate.Cell
			in := aggregate.Input{Value: envelope.Value{Text: aliased(frame)}, Source: aliased(frame[:1]), ID: aliased(frame[1:])}
			takeAll(t, f, &cell, []aggregate.Input{in})
			before, state := result(f, &cell), f.AppendState(nil, &cell)
			copy(frame, "zzz")
			if after := result(f, &cell); after != before || !bytes.Equal(f.AppendState(nil, &cell), state) {
				t.Errorf("%s: %v became %v", call, before, after)
			}
		}
	}
}

// A policy can ask for exactly what is computed.
func TestEveryFunctionOfDocumentsIsComputed(t *testing.T) {
	documented := slices.Sorted(slices.Values(policy.AggregateNames()))
	if !slices.Equal(aggregate.Names(), documented) {
		t.Errorf("computed are %v, documents may name %v", aggregate.Names(), documented)
	}
}

// Many distinct values: the multiset splits and drops chunks and stays in order.
func TestManyDistinctValues(t *testing.T) {
	low, high := compile(t, true, "min", "items"), compile(t, true, "max", "items")
	numbers := rand.New(rand.NewPCG(1, 2)).Perm(20_000)
	var least, greatest aggregate.Cell
	for _, n := range numbers {
		addAll(t, low, &least, ints(int64(n)))
		addAll(t, high, &greatest, ints(int64(n)))
	}
	var restored aggregate.Cell
	if rest, err := low.DecodeState(low.AppendState(nil, &least), &restored); err != nil || len(rest) > 0 {
		t.Fatalf("rest %d, %v", len(rest), err)
	}
	for n := range int64(19_999) {
		for _, step := range []struct {
			f    aggregate.Compiled
			cell *aggregate.Cell
			out  int64
			want int64
		}{{low, &least, n, n + 1}, {low, &restored, n, n + 1}, {high, &greatest, 19_999 - n, 19_998 - n}} {
			if err := step.f.Remove(step.cell, one(envelope.Value{Int: step.out})); err != nil {
				t.Fatal(err)
			}
			if got := result(step.f, step.cell).Text; got != big.NewInt(step.want).String() {
				t.Fatalf("%s without %d is %s, want %d", step.f.Name(), step.out, got, step.want)
			}
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	for _, c := range []struct{ f, arg string }{{"count", ""}, {"sum", "amount"}, {"avg", "amount"}, {"max", "amount"}, {"first", "amount"}, {"distinct", "amount"}} {
		f := compile(b, false, c.f, c.arg)
		b.Run(c.f, func(b *testing.B) {
			var cell aggregate.Cell
			b.ReportAllocs()
			in := one(envelope.Value{Int: 1250})
			for b.Loop() {
				if err := f.Add(&cell, in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("max, retractions, 100k distinct", func(b *testing.B) {
		f := compile(b, true, "max", "amount")
		var cell aggregate.Cell
		random := rand.New(rand.NewPCG(1, 2))
		b.ReportAllocs()
		in := new(aggregate.Input)
		for b.Loop() {
			in.Value.Int = random.Int64N(100_000)
			if err := f.Add(&cell, in); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkResultsAndDeltas(b *testing.B) {
	compiled := []aggregate.Compiled{compile(b, false, "count", ""), compile(b, false, "sum", "amount")}
	old := aggregate.Results(compiled, []aggregate.Cell{{N: 411}, {Lo: 1294550, N: 411}})
	cells := []aggregate.Cell{{N: 412}, {Lo: 1293050, N: 412}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := aggregate.Deltas(compiled, old, aggregate.Results(compiled, cells)); err != nil {
			b.Fatal(err)
		}
	}
}

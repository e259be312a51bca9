package aggregate_test

import (
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/aggregate"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// withdrawn are the events of TestWithdrawing: by their letters in its table.
var withdrawn = map[byte]aggregate.Input{
	'a': event(10, "shop", "a", 300, "pear"),
	'b': event(30, "shop", "b", -100, "fig"),
	'c': event(20, "shop", "c", 300, "pear"),
	'd': event(10, "aa", "d", 250, "yam"),
}

// Every function, event by event: a capital letter withdraws, and the result is exactly
// that of the events that are left, at each step.
func TestWithdrawing(t *testing.T) {
	for _, c := range []struct{ call, steps, want string }{
		{"count()", "abcABdD", "1 2 3 2 1 2 1"},
		{"sum(amount)", "abcABdD", "3.00 2.00 5.00 2.00 3.00 5.50 3.00"},
		{"sum(items)", "abcBA", "300 200 500 600 300"},
		{"avg(items)", "abcACB", "300.000000 100.000000 166.666667 100.000000 -100.000000 -"},
		{"avg(amount)", "abB", "3.00000000 1.00000000 3.00000000"},
		{"min(amount)", "abcBd", "3.00 -1.00 -1.00 3.00 2.50"},
		{"min(sku)", "abcBA", "pear fig fig pear pear"},
		{"max(amount)", "abcACB", "3.00 3.00 3.00 3.00 -1.00 -"},
		{"max(sku)", "acdDA", "pear pear yam pear pear"},
		{"first(amount)", "cabdDAC", "3.00 3.00 3.00 2.50 3.00 3.00 -1.00"},
		{"first(sku)", "bcadDACB", "fig pear pear yam pear pear fig -"},
		{"last(amount)", "abcBCA", "3.00 -1.00 -1.00 3.00 3.00 -"},
		{"last(sku)", "dabBAD", "yam pear fig pear yam -"},
		{"distinct(items)", "acbACB", "1 1 2 2 1 -"},
		{"distinct(sku)", "abcdCBA", "1 2 2 3 3 2 1"},
	} {
		f := compileCall(t, true, c.call)
		var cell aggregate.Cell
		var got []string
		for i := range len(c.steps) {
			step := c.steps[i]
			in, take := withdrawn[step|0x20], f.Add
			if step < 'a' {
				take = f.Remove
			}
			if err := take(&cell, &in); err != nil {
				t.Fatalf("%s, %s: %v", c.call, c.steps[:i+1], err)
			}
			if cell.N == 0 {
				got = append(got, "-")
				continue
			}
			got = append(got, result(f, &cell).Text)
		}
		if cell.N == 0 && cell != (aggregate.Cell{}) {
			t.Errorf("%s emptied is %+v", c.call, cell)
		}
		if all := strings.Join(got, " "); all != c.want {
			t.Errorf("%s over %s gives\n     %s\nwant %s", c.call, c.steps, all, c.want)
		}
	}
}

// Taking the events out in the reverse order leads through exactly the earlier results,
// and the deltas of the way back are those of the way there, negated.
func TestWithdrawingLeadsBackThroughEarlierResults(t *testing.T) {
	for _, call := range everyCall() {
		compiled := []aggregate.Compiled{compileCall(t, true, call)}
		cells := make([]aggregate.Cell, 1)
		values, states := [][]revision.Field{nil}, []string{string(compiled[0].AppendState(nil, &cells[0]))}
		for _, letter := range "abcd" {
			in := withdrawn[byte(letter)]
			takeAll(t, compiled[0], &cells[0], []aggregate.Input{in})
			values = append(values, aggregate.Results(compiled, cells))
			states = append(states, string(compiled[0].AppendState(nil, &cells[0])))
		}
		for at := len(values) - 1; at > 0; at-- {
			in := withdrawn["abcd"[at-1]]
			if err := compiled[0].Remove(&cells[0], &in); err != nil {
				t.Fatalf("%s: %v", call, err)
			}
			var now []revision.Field
			if at > 1 {
				now = aggregate.Results(compiled, cells)
			}
			if at > 1 && now[0] != values[at-1][0] || string(compiled[0].AppendState(nil, &cells[0])) != states[at-1] {
				t.Errorf("%s without event %d is %v, was %v", call, at, now, values[at-1])
			}
			there, back := deltaText(t, compiled, values[at-1], values[at]), deltaText(t, compiled, values[at], now)
			if strings.TrimLeft(there, "-") != strings.TrimLeft(back, "-") || there == back && strings.Trim(there, "0.") != "" {
				t.Errorf("%s: the delta of event %d is %s, that of its withdrawal %s", call, at, there, back)
			}
		}
	}
}

// deltaText answers the one delta; empty when the result has none.
func deltaText(t *testing.T, compiled []aggregate.Compiled, old, now []revision.Field) string {
	t.Helper()
	deltas, err := aggregate.Deltas(compiled, old, now)
	if err != nil {
		t.Fatal(err)
	}
	if len(deltas) == 0 {
		return ""
	}
	return deltas[0].Text
}

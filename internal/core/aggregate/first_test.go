package aggregate_test

import (
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/aggregate"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// edgeEvents are in the order of time, source, id; each has its place as its value.
var edgeEvents = []aggregate.Input{
	event(-5, "web", "z", 0, "nil"),
	event(10, "shop", "a", 1, "one"),
	event(10, "shop", "b", 2, "two"),
	event(10, "web", "a", 3, "three"),
	event(11, "aa", "a", 4, "four"),
}

func event(at envelope.EventTime, source, id string, n int64, text string) aggregate.Input {
	return aggregate.Input{Time: at, Source: source, ID: id, Value: envelope.Value{Int: n, Text: text}}
}

func TestFirstIsByTimeThenSourceThenID(t *testing.T) {
	for _, retractions := range []bool{false, true} {
		for from, want := range []string{"0.00", "0.01", "0.02", "0.03", "0.04"} {
			f := compile(t, retractions, "first", "amount")
			var cell aggregate.Cell
			for at := len(edgeEvents) - 1; at >= from; at-- { // the first comes last
				takeAll(t, f, &cell, edgeEvents[at:at+1])
			}
			if got := result(f, &cell); got.Text != want || !got.Quoted {
				t.Errorf("first from %d on is %+v, want %s", from, got, want)
			}
		}
	}
}

func TestFirstKeepsOneEventUnlessItMayBeWithdrawn(t *testing.T) {
	sizes := map[bool]int{}
	for _, retractions := range []bool{false, true} {
		f := compile(t, retractions, "first", "sku")
		var cell aggregate.Cell
		takeAll(t, f, &cell, edgeEvents)
		sizes[retractions] = len(f.AppendState(nil, &cell))
		if got := result(f, &cell); got.Text != "nil" || !got.Quoted {
			t.Errorf("first is %+v", got)
		}
	}
	if sizes[false] > 20 || sizes[true] < 4*sizes[false] {
		t.Errorf("states have %d bytes without retractions and %d with them", sizes[false], sizes[true])
	}
}

func TestFirstOfTextHasNoDelta(t *testing.T) {
	for arg, want := range map[string]bool{"sku": false, "items": true, "amount": true} {
		if _, numeric := compile(t, false, "first", arg).Decimals(); numeric != want {
			t.Errorf("first(%s) is numeric: %v", arg, numeric)
		}
	}
}

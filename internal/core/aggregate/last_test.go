package aggregate_test

import (
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/aggregate"
)

func TestLastIsByTimeThenSourceThenID(t *testing.T) {
	for _, retractions := range []bool{false, true} {
		for to, want := range []string{"nil", "one", "two", "three", "four"} {
			f := compile(t, retractions, "last", "sku")
			var cell aggregate.Cell
			for at := to; at >= 0; at-- { // the last comes first
				takeAll(t, f, &cell, edgeEvents[at:at+1])
			}
			if got := result(f, &cell); got.Text != want || !got.Quoted {
				t.Errorf("last up to %d is %+v, want %s", to, got, want)
			}
		}
	}
}

func TestLastOfIntsIsABareInteger(t *testing.T) {
	f := compile(t, true, "last", "items")
	var cell aggregate.Cell
	takeAll(t, f, &cell, edgeEvents)
	if got := result(f, &cell); got.Text != "4" || got.Quoted {
		t.Errorf("last is %+v", got)
	}
}

// A late event that is not the last changes nothing but the count of events.
func TestLastStaysWithAnEarlierEvent(t *testing.T) {
	f := compile(t, false, "last", "sku")
	var cell aggregate.Cell
	takeAll(t, f, &cell, edgeEvents[3:])
	takeAll(t, f, &cell, edgeEvents[:3])
	if got := result(f, &cell).Text; got != "four" || cell.N != 5 {
		t.Errorf("last is %s of %d events", got, cell.N)
	}
}

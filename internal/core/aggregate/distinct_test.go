package aggregate_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/aggregate"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

func TestDistinctCountsValuesOnce(t *testing.T) {
	for _, c := range []struct {
		call   string
		values []envelope.Value
		want   string
	}{
		{"distinct(sku)", texts("a", "b", "a", "A", ""), "4"},
		{"distinct(sku)", texts("é", "e\u0301"), "2"}, // bytes, not looks
		{"distinct(items)", ints(1, 1, 1), "1"},
		{"distinct(amount)", ints(100, -100, 100, 0), "3"},
	} {
		for _, retractions := range []bool{false, true} {
			f := compileCall(t, retractions, c.call)
			var cell aggregate.Cell
			addAll(t, f, &cell, c.values)
			if got := result(f, &cell); got.Text != c.want || got.Quoted {
				t.Errorf("%s of %v is %+v, want %s", c.call, c.values, got, c.want)
			}
		}
	}
	if digits, numeric := compileCall(t, false, "distinct(sku)").Decimals(); digits != 0 || !numeric {
		t.Error("the count of texts has no delta")
	}
}

// Up to the limit all is exact; one distinct value more is an error that says what to do
// and leaves the cell as it was.
func TestDistinctKeepsToItsLimit(t *testing.T) {
	f := compileCall(t, true, "distinct(sku, 3)")
	var cell aggregate.Cell
	addAll(t, f, &cell, texts("a", "b", "c", "a", "b", "c"))
	state := string(f.AppendState(nil, &cell))
	err := f.Add(&cell, one(envelope.Value{Text: "d"}))
	if !errors.Is(err, aggregate.ErrLimit) || string(f.AppendState(nil, &cell)) != state {
		t.Fatalf("a fourth value: %v", err)
	}
	for _, part := range []string{"holds 3 already", "distinct(sku, 3)", "new generation with a higher limit", "1000000"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	for range 2 {
		if err := f.Remove(&cell, one(envelope.Value{Text: "b"})); err != nil {
			t.Fatal(err)
		}
	}
	addAll(t, f, &cell, texts("d"))
	if got := result(f, &cell).Text; got != "3" {
		t.Errorf("with room again it is %s", got)
	}
}

func TestDistinctRefusesAStateAboveItsLimit(t *testing.T) {
	wide, narrow := compileCall(t, true, "distinct(sku, 3)"), compileCall(t, true, "distinct(sku, 2)")
	var cell, read aggregate.Cell
	addAll(t, wide, &cell, texts("a", "b", "c"))
	if _, err := narrow.DecodeState(wide.AppendState(nil, &cell), &read); err == nil {
		t.Error("a state of 3 values is read under a limit of 2")
	}
}

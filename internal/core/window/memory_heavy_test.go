//go:build heavy

package window

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// What one key partition may take with ten million ids and a million open windows.
const (
	liveBudget = 1 << 30 // bytes that are referred to
	heapBudget = 3 << 29 // and what the collector needs beside them, as services run it
)

func TestTenMillionIDsKeepToTheirBudget(t *testing.T) {
	const n, keys = 10_000_000, 50_000
	defer debug.SetGCPercent(debug.SetGCPercent(50)) // as cmd/tidemark sets it
	o, l, live := held(t, n, keys)
	windows, ids, _ := o.Sizes()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("%d ids and %d windows live in %d MiB, %d bytes an id; the collector lets the heap grow to %d MiB; at most %d MiB were taken",
		ids, windows, live>>20, live/uint64(ids), m.NextGC>>20, m.HeapSys>>20)
	if ids != n || windows < 1_000_000 {
		t.Errorf("%d ids and %d windows are held", ids, windows)
	}
	if live > liveBudget || m.NextGC > heapBudget || m.HeapSys > heapBudget {
		t.Errorf("the budget is %d MiB alive, %d MiB in all", liveBudget>>20, heapBudget>>20)
	}
	checkIDs(t, o, l, n, keys)
}

package effector

import (
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
)

func TestAResumeBeginsSlowlyWithTheProvidersBehindTheGate(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable})
	o := w.node(t.TempDir()).hand()
	hear := func(scope effectlog.Scope, closed bool) {
		t.Helper()
		must(t, o.upTo(testContext(t), w.gate(scope, closed)))
	}
	percent := func(want int) {
		t.Helper()
		states := o.u.providers.limits.States()
		if len(states) == 0 {
			t.Fatal("there is no limiter")
		}
		for of, s := range states {
			if s.Percent != want {
				t.Errorf("%s may send %d %% of its rate; want %d", of.Adapter, s.Percent, want)
			}
		}
	}
	percent(100)
	hear(effectlog.AdapterScope("another"), true)
	hear(effectlog.AdapterScope("another"), false)
	hear(effectlog.Global, false) // which was open
	percent(100)
	hear(effectlog.Global, true)
	percent(100)
	hear(effectlog.Global, false)
	percent(10)
}

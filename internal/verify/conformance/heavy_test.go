//go:build heavy

package conformance

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

// TestHundredThousandTraces is TestRandomTraces at length. A seed that fails is minimised
// into testdata/found, where TestTraces finds it ever after.
func TestHundredThousandTraces(t *testing.T) {
	const traces, workers = 100_000, 4
	first := rand.Uint64()
	t.Logf("seeds from %d on", first)
	var next, failed atomic.Uint64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for n := next.Add(1); n <= traces && failed.Load() < 3; n = next.Add(1) {
				m := mode{}
				switch n % 10 {
				case 0:
					m.restore = true
				case 1:
					m.repeat = true
				}
				if why := searched(first+n, m); why != "" {
					failed.Add(1)
					t.Error(why)
				}
			}
		})
	}
	wg.Wait()
}

// searched is search for a goroutine: the failure is the answer.
func searched(seed uint64, m mode) (failed string) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			failed = r.text
		default:
			panic(r)
		}
	}()
	search(remembering{}, seed, m)
	return ""
}

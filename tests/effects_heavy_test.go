//go:build heavy

package tests

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var (
	effectsCount  = flag.Int("effects.count", 10_000, "effects of each part of TestTenThousandEffectsUnderKills")
	effectsRounds = flag.Int("effects.rounds", 60, "kills of each part of TestTenThousandEffectsUnderKills")
	effectsSeed   = flag.Uint64("effects.seed", 0, "seed of TestTenThousandEffectsUnderKills; 0 = another one each time")
)

// As TestEffectsOutliveKillsAndFaults, with many effects, many kills and other faults each
// time.
func TestTenThousandEffectsUnderKills(t *testing.T) {
	seed := *effectsSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed: -effects.seed %d", seed)
	for _, p := range providers {
		t.Run(p.name, func(t *testing.T) {
			effectsUnderFaults(t, *effectsCount, *effectsRounds, seed, p.promises, p.flags...)
		})
	}
}

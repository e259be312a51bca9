//go:build heavy

package tests

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"
)

var (
	effectsCount  = flag.Int("effects.count", 3_400, "effects of each of the three parts of TestTenThousandEffectsUnderKills")
	effectsRounds = flag.Int("effects.rounds", 40, "kills of each part of TestTenThousandEffectsUnderKills")
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

// Both sides die again and again. A provider that is not there is not asked in vain for
// ever, and one that died in the middle of an action has it in its log or has not done it.
func TestEffectsWhileTheProviderDies(t *testing.T) {
	const n = 1500
	for _, p := range providers {
		t.Run(p.name, func(t *testing.T) {
			e := startEffects(t, p.promises, append([]string{"--mode", "accept=80,lose-answer=10,drop=10", "--seed", "7"}, p.flags...)...)
			e.grant(n, "--finish")
			random := rand.New(rand.NewPCG(7, 1))
			for range 10 {
				time.Sleep(time.Duration(random.IntN(700)) * time.Millisecond) // the random moment itself
				e.provider.kill()
				e.killEffector(1, random)
				e.provider.begin()
			}
			e.settle(n, 3*time.Minute)
			t.Logf("%v", e.judge(n))
		})
	}
}

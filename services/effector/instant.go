package effector

import (
	"time"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// instants is the effector's clock for the time of one claim: the server's stored time of
// the CLAIM and the monotonic time since. A machine's wall clock that is wrong all the
// time does no harm; one that jumps, or a machine that slept, is seen by comparing both.
type instants struct {
	clock clock.Clock
	claim effect.Time // the server's time of the CLAIM
	base  time.Time   // when the CLAIM was acknowledged here
	wall0 int64       // the wall clock at base, Unix microseconds
}

func newInstants(clk clock.Clock, claimed, acknowledged time.Time) *instants {
	return &instants{clock: clk, claim: effect.Time(claimed.UnixMicro()), base: acknowledged, wall0: acknowledged.UnixMicro()}
}

// now answers effector time.
func (i *instants) now() effect.Time { return i.claim.Add(i.clock.Since(i.base).Microseconds()) }

// wall answers the time that the wall clock shows, counted from the CLAIM too.
func (i *instants) wall() effect.Time { return i.claim.Add(i.clock.Now().UnixMicro() - i.wall0) }

// apartFrom is how far both clocks may part before the partition is claimed again.
const apartFrom = int64(2 * time.Second / time.Microsecond)

// apart tells whether the wall clock jumped or the machine slept since the claim.
func (i *instants) apart() bool {
	d := int64(i.wall() - i.now())
	return d > apartFrom || d < -apartFrom
}

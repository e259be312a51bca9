package watermark

import (
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// numaproj/numaflow#1872, #871: with hundreds of partitions watermarks slow down and then
// stand. Here a mark looks once at every partition, and nothing of older marks is kept.
func TestFiveHundredPartitionsMoveTheWatermarkWithoutGrowing(t *testing.T) {
	const partitions = 500
	tr := New(testPolicy(partitions, 0, 0, policy.Hold))
	round := envelope.EventTime(0)
	turn := func() {
		round++
		for n := range uint32(partitions) {
			tr.Take(mark(n, round*1000+envelope.EventTime(n)), 0)
			if n+1 < partitions && tr.W() >= round*1000 {
				t.Fatalf("W is %s before every partition reached round %d", tr.W(), round)
			}
		}
		if tr.W() != round*1000 {
			t.Fatalf("W is %s in round %d", tr.W(), round)
		}
	}
	turn()
	if n := testing.AllocsPerRun(10, turn); n > 0 {
		t.Errorf("a round of marks allocates %v times", n)
	}
}

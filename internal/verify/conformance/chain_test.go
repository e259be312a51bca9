package conformance

import (
	"fmt"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// bridged answers a trace of n published sessions and what joins them all: late bridges,
// or ones that a REOPEN brings.
func bridged(n int, reopened bool) []string {
	lateness := "1d"
	if reopened {
		lateness = "0"
	}
	lines := []string{"policy gap=10 L=" + lateness + " results=n=count(),sum=sum(v)", "loose", "frame"}
	for i := range n {
		lines = append(lines, fmt.Sprintf("E id=s%d t=%d v=%d", i, 15*i, i))
	}
	lines = append(lines, "end", fmt.Sprintf("M max=%d now=0", 15*n), fmt.Sprintf("M max=%d now=60000", 15*n+20), "frame")
	for i := range n - 1 {
		lines = append(lines, fmt.Sprintf("E id=b%d t=%d v=1", i, 15*i+7))
	}
	lines = append(lines, "end")
	if reopened {
		return append(lines, "reopen late=yes parts=5")
	}
	return append(lines, fmt.Sprintf("M max=%d now=60000", 15*n+20))
}

// TestMergesOfThousands: thousands of sessions become one in a chain of groups, each of
// which retracts at most 400 and is whole by itself; core and oracle say the same, and the
// same comes out when a REOPEN brings the bridges.
func TestMergesOfThousands(t *testing.T) {
	for _, n := range []int{400, 401, 402, 1300} {
		for _, reopened := range []bool{false, true} {
			lines := bridged(n, reopened)
			r := newRunner(t, read(t, lines), mode{})
			r.run()
			current := 0
			for _, row := range r.rows {
				if row.Op == revision.Upsert {
					current++
					if row.Inputs.Events != uint64(2*n-1) {
						t.Errorf("%d sessions, reopened %v: one of %d events is current", n, reopened, row.Inputs.Events)
					}
				}
				if len(row.Supersedes) > 400 {
					t.Errorf("%d sessions: a group retracts %d", n, len(row.Supersedes))
				}
			}
			if current != 1 {
				t.Errorf("%d sessions, reopened %v: %d are current in the end", n, reopened, current)
			}
		}
	}
}

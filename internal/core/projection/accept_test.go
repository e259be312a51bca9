package projection_test

import (
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/projection"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

func TestJudge(t *testing.T) {
	digest := func(n byte) revision.Digest { return revision.Digest{n} }
	after := func(rev uint64, n byte) *revision.Predecessor {
		return &revision.Predecessor{Revision: rev, Digest: digest(n)}
	}
	none := projection.Current{}
	head := projection.Current{Revision: 3, Digest: digest(3)}

	for _, c := range []struct {
		name    string
		cur     projection.Current
		p       projection.Proposal
		retired bool
		want    projection.Verdict
	}{
		{"first of a projection", none, projection.Proposal{Revision: 1, Digest: digest(1)}, false, projection.Accepted},
		{"next of a projection", head, projection.Proposal{Revision: 4, Digest: digest(4), Predecessor: after(3, 3)}, false, projection.Accepted},
		{"the head again", head, projection.Proposal{Revision: 3, Digest: digest(3), Predecessor: after(2, 2)}, false, projection.DuplicateSame},
		{"another head", head, projection.Proposal{Revision: 3, Digest: digest(9), Predecessor: after(2, 2)}, false, projection.DuplicateDifferent},
		{"below the head", head, projection.Proposal{Revision: 2, Digest: digest(2), Predecessor: after(1, 1)}, false, projection.Stale},
		{"the first again, far below", head, projection.Proposal{Revision: 1, Digest: digest(1)}, false, projection.Stale},
		{"one left out", head, projection.Proposal{Revision: 5, Digest: digest(5), Predecessor: after(4, 4)}, false, projection.GapAhead},
		{"predecessor of another digest", head, projection.Proposal{Revision: 4, Digest: digest(4), Predecessor: after(3, 9)}, false, projection.GapAhead},
		{"predecessor of another number", head, projection.Proposal{Revision: 4, Digest: digest(4), Predecessor: after(2, 3)}, false, projection.GapAhead},
		{"predecessor not named", head, projection.Proposal{Revision: 4, Digest: digest(4)}, false, projection.GapAhead},
		{"second without a first", none, projection.Proposal{Revision: 2, Digest: digest(2), Predecessor: after(1, 1)}, false, projection.GapAhead},
		{"first with a predecessor", none, projection.Proposal{Revision: 1, Digest: digest(1), Predecessor: after(0, 0)}, false, projection.GapAhead},
		{"revision 0 on an empty projection", none, projection.Proposal{Digest: digest(0)}, false, projection.GapAhead},

		// A retired generation is refused before anything else is looked at.
		{"retired: next", head, projection.Proposal{Revision: 4, Digest: digest(4), Predecessor: after(3, 3)}, true, projection.WrongGeneration},
		{"retired: same", head, projection.Proposal{Revision: 3, Digest: digest(3)}, true, projection.WrongGeneration},
		{"retired: different", head, projection.Proposal{Revision: 3, Digest: digest(9)}, true, projection.WrongGeneration},
		{"retired: stale", head, projection.Proposal{Revision: 1, Digest: digest(1)}, true, projection.WrongGeneration},
		{"retired: gap", head, projection.Proposal{Revision: 9, Digest: digest(9)}, true, projection.WrongGeneration},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := projection.Judge(c.cur, c.p, c.retired); got != c.want {
				t.Errorf("verdict is %s, want %s", got, c.want)
			}
		})
	}
}

func TestDamage(t *testing.T) {
	for verdict, want := range map[projection.Verdict]bool{
		projection.WrongGeneration:    false,
		projection.DuplicateSame:      false,
		projection.DuplicateDifferent: true,
		projection.Stale:              true,
		projection.GapAhead:           true,
		projection.Accepted:           false,
	} {
		if got := verdict.Damage(); got != want {
			t.Errorf("%s: damage is %v, want %v", verdict, got, want)
		}
	}
}

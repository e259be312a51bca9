package projector

import (
	"fmt"

	"github.com/tidemark-mesh/tidemark/internal/core/projection"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// brokenGroup answers what is wrong with a group as its author wrote it, "" for nothing.
// A group is one revision that concerns no other projection, or the retractions of what
// one projection replaces and behind them that projection, which names all of them in
// their order.
func brokenGroup(group []proposal) string {
	last := group[len(group)-1].revision
	if last.Op == revision.Retract && len(group) > 1 {
		return fmt.Sprintf("%d retractions name the projection that replaces theirs, but a retraction that names none follows them", len(group)-1)
	}
	if len(last.Supersedes) != len(group)-1 {
		return fmt.Sprintf("a revision replaces %d projections, but %d retractions stand before it", len(last.Supersedes), len(group)-1)
	}
	for i, s := range last.Supersedes {
		r := group[i].revision
		switch {
		case r.Key != last.Key:
			return fmt.Sprintf("a revision of key %q replaces one of key %q", last.Key, r.Key)
		case r.SupersededBy != last.ProjectionID:
			return fmt.Sprintf("a retraction names %s as what replaces it, but %s follows", r.SupersededBy, last.ProjectionID)
		case s.ProjectionID != r.ProjectionID || s.Revision != r.Revision:
			return fmt.Sprintf("a revision replaces %s, revision %d, but %s, revision %d, is retracted before it", s.ProjectionID, s.Revision, r.ProjectionID, r.Revision)
		}
	}
	return ""
}

// mixed answers the place of the first proposal whose verdict differs from the first
// one's, 0 if there is none: a group is accepted whole, or was before, or is of a retired
// generation, and never a bit of each.
func mixed(verdicts []projection.Verdict) int {
	for i, v := range verdicts {
		if v != verdicts[0] {
			return i
		}
	}
	return 0
}

package subscribe

import (
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Batch is what was accepted together, as far as the subscription concerns it.
type Batch struct {
	Revisions  []*revision.Revision // in order; empty only with Options.Progress
	Generation int
	Partition  int                // key partition
	W          envelope.EventTime // watermark committed with the batch
	Wdata      envelope.EventTime // by data alone, idle source partitions included
	OpenFrom   envelope.EventTime // least start of a session that has not fired yet; +inf when there is none
	Token      string             // resumes behind this batch
}

// State answers the output state of r's window under this batch: FINALIZED once it is
// final by the rule of its policy, else the state that r carries. FINALIZED means that the
// live path is done, not that reality cannot change.
func (b *Batch) State(r *revision.Revision, rule revision.Finality) revision.OutputState {
	return rule.State(r, b.W, b.OpenFrom)
}

// Seen tells new revisions from repeated ones by their number, for consumers that cannot
// keep the token and their own state in one transaction. The zero Seen has had nothing.
type Seen struct{ highest map[string]uint64 }

// Fresh notes r and answers whether it is newer than every revision of its projection
// noted before.
func (s *Seen) Fresh(r *revision.Revision) bool {
	if r.Revision <= s.highest[r.ProjectionID] {
		return false
	}
	if s.highest == nil {
		s.highest = map[string]uint64{}
	}
	s.highest[r.ProjectionID] = r.Revision
	return true
}

// Note tells Seen of a revision that a consumer has applied in an earlier life.
func (s *Seen) Note(projectionID string, number uint64) {
	if s.highest == nil {
		s.highest = map[string]uint64{}
	}
	s.highest[projectionID] = max(s.highest[projectionID], number)
}

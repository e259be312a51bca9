// Package projection decides what happens to a proposed revision.
//
// All proposals of a projection have one ordered author, so in an undamaged system only
// WRONG_GENERATION, DUPLICATE_SAME and ACCEPTED occur. Each other verdict means that a
// journal or a checkpoint is damaged; Damage tells so, and the partition must halt.
package projection

import "github.com/tidemark-mesh/tidemark/pkg/revision"

// Verdict is what a proposal gets.
type Verdict string

// Verdicts, in the order in which they are tried.
const (
	WrongGeneration    Verdict = "WRONG_GENERATION"    // the generation is retired
	DuplicateSame      Verdict = "DUPLICATE_SAME"      // already accepted: no-op
	DuplicateDifferent Verdict = "DUPLICATE_DIFFERENT" // damage
	Stale              Verdict = "STALE"               // lower than current: damage
	GapAhead           Verdict = "GAP_AHEAD"           // predecessor missing: damage
	Accepted           Verdict = "ACCEPTED"
)

// Current is the accepted head of one projection; Revision 0 means none.
type Current struct {
	Revision uint64
	Digest   revision.Digest
}

// Proposal is what Judge needs to know of a proposed revision.
type Proposal struct {
	Revision    uint64
	Digest      revision.Digest
	Predecessor *revision.Predecessor
}

// Damage tells whether the verdict can only come from a damaged journal or checkpoint:
// nothing of the proposal's group may be accepted and the partition halts.
func (v Verdict) Damage() bool {
	return v == DuplicateDifferent || v == Stale || v == GapAhead
}

// Judge answers the verdict on p given the accepted head cur. retired tells that a
// CONTROL record retired the generation.
//
// Only the head's digest is known here: a proposal below the head is STALE even if it
// repeats an accepted revision, and one whose predecessor is not the head, by number or
// by digest, is GAP_AHEAD.
func Judge(cur Current, p Proposal, retired bool) Verdict {
	switch {
	case retired:
		return WrongGeneration
	case cur.Revision > 0 && p.Revision == cur.Revision:
		if p.Digest == cur.Digest {
			return DuplicateSame
		}
		return DuplicateDifferent
	case p.Revision < cur.Revision:
		return Stale
	case !follows(cur, p):
		return GapAhead
	}
	return Accepted
}

// follows tells whether p is the next revision after cur and names cur as its predecessor.
func follows(cur Current, p Proposal) bool {
	if p.Revision != cur.Revision+1 {
		return false
	}
	if cur.Revision == 0 {
		return p.Predecessor == nil
	}
	return p.Predecessor != nil && *p.Predecessor == revision.Predecessor{Revision: cur.Revision, Digest: cur.Digest}
}

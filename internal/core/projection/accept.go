// Package projection decides what happens to a proposed revision.
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

// Judge answers the verdict on p given the accepted head cur. retired tells that a
// CONTROL record retired the generation.
func Judge(cur Current, p Proposal, retired bool) Verdict { panic("contract only") }

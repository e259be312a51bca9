package record

import "github.com/tidemark-mesh/tidemark/pkg/revision"

// Field numbers of pkg/schema/journal.proto.
const (
	proposalKey               = 1
	proposalStart             = 2
	proposalEnd               = 3
	proposalResultID          = 4
	proposalOp                = 5
	proposalRevision          = 6
	proposalPredecessor       = 7
	proposalPredecessorDigest = 8
	proposalState             = 9
	proposalFiring            = 10
	proposalOrigin            = 11
	proposalValueChanged      = 12
	proposalValue             = 13
	proposalDelta             = 14
	proposalPartition         = 15
	proposalFirst             = 16
	proposalLast              = 17
	proposalEvents            = 18
	proposalIDDigest          = 19
	proposalOffsets           = 20
	proposalWatermarkAt       = 21
	proposalWatermarkData     = 22
	proposalCause             = 23
	proposalSupersedes        = 24
	proposalSupersededBy      = 25
	proposalDigest            = 26

	recordEvent = 1 // of Late and Conflict

	eventSource    = 1
	eventID        = 2
	eventKey       = 3
	eventPartition = 4
	eventOffset    = 5
	eventTime      = 6
	eventDigest    = 7
	eventRetract   = 8
	eventWithdraws = 9
	eventSeq       = 10
	eventIndex     = 11

	lateStart = 2
	lateEnd   = 3
	lateW     = 4
	lateNone  = 5

	conflictRule  = 2
	conflictFirst = 3

	refusedKey       = 1
	refusedEpoch     = 2
	refusedAsOfSeq   = 3
	refusedAsOfIndex = 4
	refusedWhy       = 5
)

// Enumerations count from 1 in the order of these functions; 0 is none.

func opByNumber(n uint64) revision.Op {
	switch n {
	case 1:
		return revision.Upsert
	case 2:
		return revision.Retract
	}
	return ""
}

func stateByNumber(n uint64) revision.OutputState {
	switch n {
	case 1:
		return revision.OnTimeEmitted
	case 2:
		return revision.Corrected
	}
	return ""
}

func firingByNumber(n uint64) revision.Firing {
	switch n {
	case 1:
		return revision.FiringOnTime
	case 2:
		return revision.FiringLate
	case 3:
		return revision.FiringReopened
	}
	return ""
}

func opNumber(op revision.Op) uint64 { return numberOf(op, opByNumber) }

func stateNumber(s revision.OutputState) uint64 { return numberOf(s, stateByNumber) }

func firingNumber(f revision.Firing) uint64 { return numberOf(f, firingByNumber) }

// numberOf inverts one of the functions above.
func numberOf[T ~string](value T, byNumber func(uint64) T) uint64 {
	for n := uint64(1); byNumber(n) != ""; n++ {
		if byNumber(n) == value {
			return n
		}
	}
	return 0
}

package window

import "github.com/tidemark-mesh/tidemark/pkg/revision"

// Names of counts in a COMMIT, over records of the events journal seen by this operator.
const (
	CountApplied   = "applied"   // events that at least one window took (withdrawn ones included)
	CountTooLate   = "tooLate"   // events that no window took
	CountRefused   = "refused"   // (event, window) pairs that were TOO_LATE
	CountDuplicate = "duplicate" // same id and digest again
	CountConflict  = "conflict"
	CountForeign   = "foreign" // source not in the policy
	CountOnTime    = "onTime"  // (event, window) pairs
	CountLate      = "lateAccepted"
	CountNoTime    = "noTime"   // events older than the policy's extractor
	CountReopened  = "reopened" // events that REOPENs took in or out; left out while 0
	CountRevisions = "revisions"
)

// class is a place in totals. The order is that of the names above, sorted.
type class int

const (
	classApplied class = iota
	classConflict
	classDuplicate
	classForeign
	classLate
	classNoTime
	classOnTime
	classRefused
	classReopened
	classRevisions
	classTooLate
	classes
)

// classNames answers the names in the order of the classes.
func classNames() [classes]string {
	return [classes]string{
		CountApplied, CountConflict, CountDuplicate, CountForeign, CountLate,
		CountNoTime, CountOnTime, CountRefused, CountReopened, CountRevisions, CountTooLate,
	}
}

// totals counts since the start of the journal.
type totals [classes]uint64

func (t *totals) list() []revision.Count {
	out := make([]revision.Count, 0, classes)
	for i, name := range classNames() {
		if t[i] > 0 || class(i) != classReopened {
			out = append(out, revision.Count{Name: name, N: t[i]})
		}
	}
	return out
}

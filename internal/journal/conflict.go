package journal

import (
	"fmt"
	"strconv"
	"strings"
)

// verdict is what an answer of the server means to a writer.
type verdict int

const (
	accepted verdict = iota
	conflict         // the expectation does not hold, or may not: read the tail
	unsure           // not stored as far as known, or not known: read the tail, send again
	refused          // never: configuration or a bug
)

func (v verdict) String() string {
	return [...]string{"accepted", "conflict", "unsure", "refused"}[v]
}

// Server error codes with a meaning of their own.
const (
	codeWrongLast         = 10071 // the text carries the last sequence
	codeWrongLastConstant = 10164 // something is in flight: perhaps no conflict at all
	codeStreamMismatch    = 10060
	codeMessageTooLarge   = 10054
	codeHeaderTooLarge    = 10097
	codeSealed            = 10109
	codeBatchDisabled     = 10174
	codeBatchHeader       = 10177
	codeBatchInvalidID    = 10179
	codeBatchTooLarge     = 10199
)

// classify is the one place that gives server error codes a meaning. last is the
// sequence that a conflict's text reports, 0 if it has none. Codes without an entry
// (no leader, too many in flight, staged batch gone, disk full) leave the outcome open:
// only acceptance or a wrong last sequence settles it.
func classify(code int, text string) (v verdict, last uint64) {
	switch code {
	case codeWrongLast, codeWrongLastConstant:
		return conflict, reportedLast(text)
	case codeStreamMismatch, codeMessageTooLarge, codeHeaderTooLarge, codeSealed,
		codeBatchDisabled, codeBatchHeader, codeBatchInvalidID, codeBatchTooLarge:
		return refused, 0
	}
	return unsure, 0
}

// reportedLast reads N from "wrong last sequence: N".
func reportedLast(text string) uint64 {
	_, number, found := strings.Cut(text, ": ")
	if !found {
		return 0
	}
	last, err := strconv.ParseUint(strings.TrimSpace(number), 10, 64)
	if err != nil {
		return 0
	}
	return last
}

// answer is a decoded publish acknowledgement.
type answer struct {
	verdict verdict
	seq     uint64 // of the message, or of a batch's last message
	count   int    // of a batch
	last    uint64 // reported with a conflict
	cause   error  // nil if accepted
}

func (a answer) String() string {
	if a.cause != nil {
		return fmt.Sprintf("%s (%v)", a.verdict, a.cause)
	}
	return fmt.Sprintf("%s at %d", a.verdict, a.seq)
}

package revision

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// StateAt answers the output state of a window whose current revision is r, given the
// committed watermark w and the allowed lateness in microseconds: FINALIZED once
// w >= end + allowedLateness, else what the revision says. A nil r is a window never
// published: OPEN. Not for sessions, which are final later and under one more condition.
func StateAt(r *Revision, w envelope.EventTime, allowedLateness int64) OutputState {
	if r == nil {
		return Open
	}
	if w >= r.Window.End.Add(allowedLateness) {
		return Finalized
	}
	return r.State
}

// CanaryServes tells whether a canary of percent (0 to 100) serves the key from the
// candidate: first 4 bytes of SHA-256(key), big-endian, mod 10,000 < 100 * percent. A
// key served at some percentage stays served at every higher one.
func CanaryServes(key string, percent int) bool {
	sum := sha256.Sum256([]byte(key))
	return int64(binary.BigEndian.Uint32(sum[:4])%10_000) < 100*int64(percent)
}

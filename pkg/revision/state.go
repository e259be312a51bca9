package revision

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// Finality says when the live path is done with a window of a policy.
type Finality struct {
	Lateness int64 // allowedLateness, microseconds
	Gap      int64 // of sessions, microseconds; 0 for windows of other kinds
}

// Final tells whether the live path is done with a window that ends at end, under a
// COMMIT of watermark w and openFrom: w >= end + lateness. A session is open to events
// for a gap longer, and as long as a session that has not fired begins before its end
// (openFrom), that one may still take its place: w >= end + lateness + gap and openFrom
// >= end.
func (f Finality) Final(end, w, openFrom envelope.EventTime) bool {
	last := end.Add(f.Lateness)
	if f.Gap > 0 {
		return w >= last.Add(f.Gap) && openFrom >= end
	}
	return w >= last
}

// State answers the output state of a window whose current revision is r, under a COMMIT
// of watermark w and openFrom: FINALIZED once it is final, else what the revision says. A
// nil r is a window never published: OPEN.
func (f Finality) State(r *Revision, w, openFrom envelope.EventTime) OutputState {
	switch {
	case r == nil:
		return Open
	case f.Final(r.Window.End, w, openFrom):
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

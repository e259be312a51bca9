package window

import "github.com/tidemark-mesh/tidemark/pkg/envelope"

// assign answers the tumbling window [start, end) that holds t: windows are aligned to
// the epoch plus offset, with floor for times before it. A window that would reach over
// an end of time is cut there; it never wraps.
func assign(t envelope.EventTime, size, offset int64) (start, end envelope.EventTime) {
	// Both remainders are below size, so their difference cannot overflow; t-offset could.
	into := floorMod(int64(t), size) - floorMod(offset, size)
	if into < 0 {
		into += size
	}
	start, end = t-envelope.EventTime(into), t+envelope.EventTime(size-into)
	if start > t {
		start = envelope.MinEventTime
	}
	if end < t {
		end = envelope.MaxEventTime
	}
	return start, end
}

// floorMod answers the remainder of a/b in [0, b); b > 0.
func floorMod(a, b int64) int64 {
	r := a % b
	if r < 0 {
		r += b
	}
	return r
}

// floorDiv answers a/b rounded down; b > 0.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

package ingest

import "time"

// quietStep is the most that one look at the clock may add. A process that was frozen for
// minutes finds its input waiting in the socket: the time it slept is not quiet time.
const quietStep = time.Second

// quiet measures monotonic time since the last arrival, without the stretches in which
// nothing could have arrived. Times are since the start of the process.
type quiet struct {
	seen  time.Duration // the last look at the clock
	total time.Duration
}

// advance looks at the clock; running tells whether the stretch since the last look counts.
func (q *quiet) advance(now time.Duration, running bool) {
	if stretch := now - q.seen; running && stretch > 0 {
		q.total += min(stretch, quietStep)
	}
	q.seen = now
}

// arrival starts again from nothing.
func (q *quiet) arrival(now time.Duration) { q.seen, q.total = now, 0 }

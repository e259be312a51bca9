package ingest

import (
	"time"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// stepAlarm is how far wall time may leave monotonic time before it is an alarm.
const stepAlarm = 2 * time.Second

// stamper stamps arrivals: wall time at the start plus monotonic time since, so that a
// wall clock set forward or back moves no stamp.
type stamper struct {
	clock clock.Clock
	start time.Time
}

func newStamper(c clock.Clock) *stamper { return &stamper{clock: c, start: c.Now()} }

// elapsed answers monotonic time since the start.
func (s *stamper) elapsed() time.Duration { return s.clock.Since(s.start) }

func (s *stamper) now() envelope.IngestTime {
	return envelope.IngestTime(s.start.UnixMicro() + s.elapsed().Microseconds())
}

// step answers how far the wall clock is ahead of what now stamps.
func (s *stamper) step() time.Duration {
	stamped := s.now()
	return time.Duration(s.clock.Now().UnixMicro()-int64(stamped)) * time.Microsecond
}

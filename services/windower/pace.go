package windower

import (
	"time"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/journal"
)

// When to commit. With nothing else at hand outputs are committed at once; under load
// they are gathered, because a commit costs the journal a sync whatever its size.
const (
	gatherBytes = 256 << 10
	gatherFor   = 25 * time.Millisecond
	// eagerFlights is how many commits may be in flight for another one to be made at once.
	eagerFlights = 2
	// movedFor is the longest that a position or watermark that moved is kept back. The
	// contract says a second; readers who wait for a position should not wait so long.
	movedFor = 250 * time.Millisecond
	// cutBytes ends a commit. What is left to the bound holds one more record of any size
	// that a key and a policy can make, and the COMMIT.
	cutBytes = journal.MaxCommitBytes - 256<<10
	// groupRoom is what records that must stand in one commit may come to: the rest holds
	// the COMMIT. No group is larger by itself, see policy.MergeLimit.
	groupRoom = journal.MaxCommitBytes - 16<<10
	// recordOverhead bounds what the wire form adds to a record.
	recordOverhead = 6
)

// When to checkpoint: the time to restart is what must be read again.
const (
	checkpointEvery = 10 * time.Second // default of Config.CheckpointEvery
	checkpointInput = 1 << 30          // bytes of frames
)

// pace remembers when things were done last.
type pace struct {
	clock      clock.Clock
	every      time.Duration // between checkpoints
	checkpoint time.Time
	input      int       // bytes taken in since the last checkpoint
	saved      int       // bytes taken in before it
	commit     time.Time // when the last commit was made
	output     time.Time // when the first output that waits came; zero when none does
}

func newPace(clk clock.Clock, every time.Duration) pace {
	now := clk.Now()
	return pace{clock: clk, every: every, checkpoint: now, commit: now}
}

// checkpointDue tells whether enough was taken in, or long enough ago.
func (p *pace) checkpointDue() bool {
	return p.input >= checkpointInput || p.input > 0 && p.clock.Since(p.checkpoint) >= p.every
}

func (p *pace) checkpointed() {
	p.saved += p.input
	p.input, p.checkpoint = 0, p.clock.Now()
}

// outputs notes whether outputs wait.
func (p *pace) outputs(wait bool) {
	switch {
	case !wait:
		p.output = time.Time{}
	case p.output.IsZero():
		p.output = p.clock.Now()
	}
}

// due tells whether a commit must be made: bytes of records wait, flights are unsettled,
// idle says that no input is at hand, moved that there is something to say at all.
func (p *pace) due(bytes, flights int, idle, moved bool) bool {
	switch {
	case !moved:
		return false
	case bytes == 0:
		return p.clock.Since(p.commit) >= movedFor
	case bytes >= gatherBytes, idle && flights < eagerFlights:
		return true
	}
	return p.clock.Since(p.output) >= gatherFor
}

// left answers how long until due may change by time alone.
func (p *pace) left(bytes int) time.Duration {
	if bytes == 0 {
		return movedFor - p.clock.Since(p.commit)
	}
	return gatherFor - p.clock.Since(p.output)
}

package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/tidemark-mesh/tidemark/internal/clock"
)

// progress shows how far a verb is: a bar with rate and ETA on a terminal, nothing elsewhere.
type progress struct {
	pool *mpb.Progress
	bar  *mpb.Bar
	unit atomic.Int64

	start time.Time
}

// progress starts one; total 0 means that the end is not known.
func (c *cli) progress(name string, total int64) *progress {
	f, ok := c.err.(*os.File)
	if !ok || !isTerminal(f) || total == 0 {
		return &progress{}
	}
	p := &progress{start: clock.System().Now(), pool: mpb.New(mpb.WithOutput(f), mpb.WithWidth(48), mpb.WithRefreshRate(150*time.Millisecond))}
	p.bar = p.pool.AddBar(total,
		mpb.PrependDecorators(decor.Name(name+" "), decor.Percentage()),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return p.pace() }), decor.AverageETA(decor.ET_STYLE_GO)))
	return p
}

// pace answers how many events are done, and how many a second.
func (p *progress) pace() string {
	events := p.unit.Load()
	elapsed := clock.System().Since(p.start)
	if elapsed < time.Second {
		return fmt.Sprintf(" %d ", events)
	}
	return fmt.Sprintf(" %d  %d/s ", events, events*int64(time.Second/time.Millisecond)/elapsed.Milliseconds())
}

// set says how much of the total is done, and how many events that is.
func (p *progress) set(done, events int64) {
	if p.bar != nil {
		p.unit.Store(events)
		p.bar.SetCurrent(done)
	}
}

// end takes the bar down.
func (p *progress) end() {
	if p.bar != nil {
		p.bar.Abort(false)
		p.pool.Wait()
	}
}

// pace lets at most rate events a second pass.
type pace struct {
	rate  int
	start time.Time
	count int64
}

func newPace(rate int) *pace { return &pace{rate: rate, start: clock.System().Now()} }

func (p *pace) wait(ctx context.Context, events int) error {
	if p.rate == 0 {
		return nil
	}
	due := time.Duration(float64(p.count) / float64(p.rate) * float64(time.Second))
	p.count += int64(events)
	ahead := due - clock.System().Since(p.start)
	if ahead <= 0 {
		return nil
	}
	timer := clock.System().NewTimer(ahead)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return nil
	}
}

// scale says how much is done of a total that became known on the way.
func (p *progress) scale(done, total int64) {
	if p.bar != nil {
		p.bar.SetTotal(total, false)
		p.set(done, done)
	}
}

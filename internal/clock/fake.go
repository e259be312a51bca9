package clock

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Fake is a Clock that stands still until a test moves it. Wall time and monotonic time
// move together by Advance; JumpWall moves wall time alone, as a corrected machine clock
// does: Since, timers and tickers do not notice.
type Fake struct {
	mu      sync.Mutex
	changed *sync.Cond // timers were set or stopped
	wall    time.Time
	mono    time.Duration
	waiting []*fakeTimer
}

// NewFake answers a Fake that shows the wall time start.
func NewFake(start time.Time) *Fake {
	f := &Fake{wall: start.Round(0).UTC()}
	f.changed = sync.NewCond(&f.mu)
	return f
}

// Now answers wall time. What stands for the monotonic reading travels in the location,
// so it survives Add and is stripped by UTC and In, much as the real one is.
func (f *Fake) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now()
}

func (f *Fake) now() time.Time {
	reading := fmt.Sprintf("fake %d %d", f.mono, f.wall.UnixNano())
	return f.wall.In(time.FixedZone(reading, 0))
}

// Since answers monotonic time since t; wall time for a t without a monotonic reading.
func (f *Fake) Since(t time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	var mono, wall int64
	if _, err := fmt.Sscanf(t.Location().String(), "fake %d %d", &mono, &wall); err != nil {
		return f.wall.Sub(t)
	}
	return f.mono - time.Duration(mono) - time.Duration(t.UnixNano()-wall)
}

// JumpWall moves wall time by d, forward or back, and nothing else.
func (f *Fake) JumpWall(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wall = f.wall.Add(d)
}

// Advance moves both times by d and fires what falls due on the way, in order of time.
func (f *Fake) Advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	end := f.mono + d
	for {
		next := f.due(end)
		if next == nil {
			break
		}
		f.step(next.at)
		next.fire()
	}
	f.step(end)
}

func (f *Fake) step(to time.Duration) {
	if to > f.mono {
		f.wall = f.wall.Add(to - f.mono)
		f.mono = to
	}
}

// due answers the timer that falls due first, at end or before.
func (f *Fake) due(end time.Duration) *fakeTimer {
	var first *fakeTimer
	for _, t := range f.waiting {
		if t.at <= end && (first == nil || t.at < first.at) {
			first = t
		}
	}
	return first
}

// AwaitTimers blocks until at least n timers and tickers are waiting: a test knows then
// that the code under test has come to its wait.
func (f *Fake) AwaitTimers(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.waiting) < n {
		f.changed.Wait()
	}
}

// NewTimer answers a timer that fires when the clock was advanced by d.
func (f *Fake) NewTimer(d time.Duration) Timer {
	t := &fakeTimer{clock: f, c: make(chan time.Time, 1)}
	t.Reset(d)
	return t
}

// NewTicker answers a ticker; ticks nobody took are dropped.
func (f *Fake) NewTicker(d time.Duration) Ticker {
	if d <= 0 {
		panic("clock: non-positive interval for NewTicker")
	}
	t := &fakeTimer{clock: f, c: make(chan time.Time, 1), every: d}
	t.Reset(d)
	return fakeTicker{t}
}

type fakeTimer struct {
	clock *Fake
	c     chan time.Time
	at    time.Duration
	every time.Duration // 0: once
}

func (t *fakeTimer) C() <-chan time.Time { return t.c }

// Reset sets the timer anew; as with package time, nothing stale is left in its channel.
func (t *fakeTimer) Reset(d time.Duration) {
	f := t.clock
	f.mu.Lock()
	defer f.mu.Unlock()
	t.remove()
	t.at = f.mono + max(d, 0)
	f.waiting = append(f.waiting, t)
	if d <= 0 {
		t.fire()
	}
	f.changed.Broadcast()
}

// Stop answers whether the timer was still waiting.
func (t *fakeTimer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	was := t.remove()
	t.clock.changed.Broadcast()
	return was
}

// remove takes the timer out of the clock and drains its channel. The clock is locked.
func (t *fakeTimer) remove() bool {
	at := slices.Index(t.clock.waiting, t)
	if at >= 0 {
		t.clock.waiting = slices.Delete(t.clock.waiting, at, at+1)
	}
	select {
	case <-t.c:
	default:
	}
	return at >= 0
}

// fire sends the time of the clock, which is locked.
func (t *fakeTimer) fire() {
	select {
	case t.c <- t.clock.now():
	default:
	}
	if t.every > 0 {
		t.at += t.every
		return
	}
	if at := slices.Index(t.clock.waiting, t); at >= 0 {
		t.clock.waiting = slices.Delete(t.clock.waiting, at, at+1)
	}
}

type fakeTicker struct{ t *fakeTimer }

func (t fakeTicker) C() <-chan time.Time { return t.t.c }
func (t fakeTicker) Stop()               { t.t.Stop() }

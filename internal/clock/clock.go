// Package clock is the only place that reads a clock.
package clock

import "time"

// Clock reads wall and monotonic time. Tests drive a Fake.
type Clock interface {
	// Now answers wall time with a monotonic reading.
	Now() time.Time
	// Since answers monotonic time since t, which came from Now.
	Since(t time.Time) time.Duration
	// NewTimer and NewTicker are those of package time.
	NewTimer(d time.Duration) Timer
	NewTicker(d time.Duration) Ticker
}

// Timer is a time.Timer.
type Timer interface {
	C() <-chan time.Time
	Reset(d time.Duration)
	Stop() bool
}

// Ticker is a time.Ticker.
type Ticker interface {
	C() <-chan time.Time
	Stop()
}

// System answers the machine's clock.
func System() Clock { return system{} }

type system struct{}

func (system) Now() time.Time                   { return time.Now() }
func (system) Since(t time.Time) time.Duration  { return time.Since(t) }
func (system) NewTimer(d time.Duration) Timer   { return sysTimer{time.NewTimer(d)} }
func (system) NewTicker(d time.Duration) Ticker { return sysTicker{time.NewTicker(d)} }

type sysTimer struct{ *time.Timer }

func (t sysTimer) C() <-chan time.Time   { return t.Timer.C }
func (t sysTimer) Reset(d time.Duration) { t.Timer.Reset(d) }

type sysTicker struct{ *time.Ticker }

func (t sysTicker) C() <-chan time.Time { return t.Ticker.C }

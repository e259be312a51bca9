package bench

import "time"

// Window is a kind of windows that the workload can be computed in.
type Window string

// Kinds of windows. All take the same events.
const (
	Tumbling Window = "tumbling" // 1 h
	Hopping  Window = "hopping"  // 1 h, every 15 min
	Session  Window = "session"  // gap 11 min
)

// Lengths of windows.
const (
	windowSize = time.Hour
	hopEvery   = 15 * time.Minute
	sessionGap = 11 * time.Minute
)

// Windows answers every kind by name.
func Windows() []Window { return []Window{Hopping, Session, Tumbling} }

// document answers the kind as a policy writes it.
func (w Window) document() string {
	switch w {
	case Hopping:
		return "{hopping: 1h, every: 15m, zone: UTC}"
	case Session:
		return "{session: 11m, rule: gap-11-v2}"
	}
	return "{tumbling: 1h, zone: UTC}"
}

// every answers the time between the starts of two windows of fixed bounds.
func (w Window) every() time.Duration {
	if w == Hopping {
		return hopEvery
	}
	return windowSize
}

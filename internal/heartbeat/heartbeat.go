// Package heartbeat tells whether the loops of a process still turn: what /livez asks.
package heartbeat

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/clock"
)

// Overdue is how long a loop may go without a beat. The longest single step waits for a
// stream without a leader for a minute.
const Overdue = 90 * time.Second

// Monitor knows the loops of a process. A nil Monitor takes every call and knows nothing.
type Monitor struct {
	clock clock.Clock
	start time.Time
	mu    sync.Mutex
	loops map[*Loop]bool
}

// New answers a Monitor without loops.
func New(c clock.Clock) *Monitor {
	return &Monitor{clock: c, start: c.Now(), loops: map[*Loop]bool{}}
}

// Loop is one loop that must turn.
type Loop struct {
	monitor *Monitor
	name    string
	beat    atomic.Int64 // nanoseconds of monotonic time since the monitor's start
}

// Start adds a loop; it counts as having beaten now. Stop takes it away.
func (m *Monitor) Start(name string) *Loop {
	l := &Loop{monitor: m, name: name}
	if m == nil {
		return l
	}
	l.Beat()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loops[l] = true
	return l
}

// Beat says that the loop turned.
func (l *Loop) Beat() {
	if l.monitor != nil {
		l.beat.Store(int64(l.monitor.clock.Since(l.monitor.start)))
	}
}

// Rest says that the loop waits for something from outside: it is not late until it has
// beaten again.
func (l *Loop) Rest() { l.beat.Store(math.MaxInt64) }

// Stop ends the loop's duty to beat.
func (l *Loop) Stop() {
	if l.monitor == nil {
		return
	}
	l.monitor.mu.Lock()
	defer l.monitor.mu.Unlock()
	delete(l.monitor.loops, l)
}

// Late answers the loops whose beat is overdue, by name.
func (m *Monitor) Late() []string {
	if m == nil {
		return nil
	}
	now := m.clock.Since(m.start)
	m.mu.Lock()
	defer m.mu.Unlock()
	var late []string
	for l := range m.loops {
		if quiet := now - time.Duration(l.beat.Load()); quiet > Overdue {
			late = append(late, fmt.Sprintf("%s has not turned for %s", l.name, quiet.Round(time.Second)))
		}
	}
	slices.Sort(late)
	return late
}

package sendlimit

import (
	"sync"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// Group holds the limiters of a process. It is safe for concurrent use.
type Group struct {
	clock    clock.Clock
	mu       sync.Mutex
	limiters map[Of]*Limiter
}

// Of says whose sends a limiter bounds. Versions of an adapter share it.
type Of struct {
	Adapter string // name, without the version
	Account string
}

// NewGroup answers an empty group.
func NewGroup(c clock.Clock) *Group { return &Group{clock: c, limiters: map[Of]*Limiter{}} }

// At answers the limiter of an adapter and its account, with the limits of doc from now on.
func (g *Group) At(doc *policy.Adapter) *Limiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	of := Of{doc.Name, doc.Account}
	l := g.limiters[of]
	if l == nil {
		l = New(g.clock, doc.Rate, doc.Breaker)
		g.limiters[of] = l
		return l
	}
	l.Set(doc.Rate, doc.Breaker)
	return l
}

// Ramp ramps every limiter of an adapter by its name; "" is all of them.
func (g *Group) Ramp(adapter string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for of, l := range g.limiters {
		if adapter == "" || of.Adapter == adapter {
			l.Ramp()
		}
	}
}

// States answers how every limiter stands.
func (g *Group) States() map[Of]State {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make(map[Of]State, len(g.limiters))
	for of, l := range g.limiters {
		out[of] = l.State()
	}
	return out
}

// Phase is where a breaker stands.
type Phase string

// Phases.
const (
	Closed   Phase = "closed"
	Open     Phase = "open"
	HalfOpen Phase = "half-open" // one canary may go, or is under way
)

// State is how a limiter stands.
type State struct {
	Breaker Phase
	Until   time.Duration // Open: until a canary may go
	Percent int           // of the rate that is allowed
	Open    int           // attempts
}

// State answers how the limiter stands.
func (l *Limiter) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	s := State{Breaker: Closed, Percent: l.percent(now), Open: l.open}
	switch {
	case l.breaker.half(now):
		s.Breaker = HalfOpen
	case l.breaker.tripped:
		s.Breaker, s.Until = Open, l.breaker.until-now
	}
	return s
}

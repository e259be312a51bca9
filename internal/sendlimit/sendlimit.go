// Package sendlimit bounds what is sent to a provider: how many effects a second, how
// many at once, and none at all while answers are ambiguous. It bounds sends alone;
// queries and receipts go on.
//
// Limits are per adapter and account, and of one process: two effectors send twice as
// much. Nothing here survives a restart, and nothing of it makes a send safe; that is the
// ledger's business.
package sendlimit

import (
	"sync"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// Reason says why nothing may be sent now.
type Reason string

// Reasons.
const (
	TooFast     Reason = "rate"        // the rate is used up
	Busy        Reason = "concurrency" // as many attempts are open as may be
	BreakerOpen Reason = "breaker"     // too many answers were ambiguous
	AskedToWait Reason = "retry-after" // the provider asked to be left alone
	Unreachable Reason = "unreachable" // attempts are not sent one after the other
)

// Times that no document sets.
const (
	rampStep     = time.Minute // after which a ramp doubles
	rampFrom     = 10          // percent of the rate that a ramp begins with
	unsentBefore = 3           // attempts not sent in a row, before the next ones wait
	unsentFirst  = time.Second // wait after these, doubled for each further one
	unsentMost   = time.Minute
	cooldownMost = time.Hour
)

// Limiter bounds the sends of one adapter and account. It is safe for concurrent use.
type Limiter struct {
	clock clock.Clock
	start time.Time // durations below are monotonic, since start

	mu       sync.Mutex
	rate     policy.Rate
	open     int           // permits that have not ended
	next     time.Duration // when the next token would come if none were saved up
	rampedAt time.Duration
	ramping  bool
	waitTill time.Duration // as the provider asked
	unsent   int           // attempts that were not sent in a row
	idleTill time.Duration // because of these
	breaker  breaker
}

// New answers a limiter with a full rate and a closed breaker.
func New(c clock.Clock, rate policy.Rate, b policy.Breaker) *Limiter {
	l := &Limiter{clock: c, start: c.Now()}
	l.Set(rate, b)
	return l
}

// Set changes the limits, as a new version of an adapter does. Open permits, the breaker
// and what it counted stay.
func (l *Limiter) Set(rate policy.Rate, b policy.Breaker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rate = rate
	l.breaker.set(b)
}

func (l *Limiter) now() time.Duration { return l.clock.Since(l.start) }

// Take answers a permit for one attempt, which must be ended. Without one it answers why,
// and how long it takes at least until another Take can do better; 0 is until a permit
// ends.
func (l *Limiter) Take() (p *Permit, wait time.Duration, why Reason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if wait, why = l.barred(now); why != "" {
		return nil, wait, why
	}
	cost, wait := l.take(now)
	if wait > 0 {
		return nil, wait, TooFast
	}
	l.open++
	p = &Permit{limiter: l, cost: cost}
	if l.breaker.half(now) {
		l.breaker.canary = p
	}
	return p, 0, ""
}

// barred answers what keeps an attempt from being made, the rate aside.
func (l *Limiter) barred(now time.Duration) (time.Duration, Reason) {
	switch {
	case l.breaker.until > now:
		return l.breaker.until - now, BreakerOpen
	case l.breaker.canary != nil:
		return 0, BreakerOpen
	case l.waitTill > now:
		return l.waitTill - now, AskedToWait
	case l.idleTill > now:
		return l.idleTill - now, Unreachable
	case l.open >= l.rate.Concurrency:
		return 0, Busy
	}
	return 0, ""
}

// take takes a token and answers the time that it is worth, or else how long it is until
// there is one. Tokens are saved up for as many attempts as may be open at once, and never
// for more than a second.
func (l *Limiter) take(now time.Duration) (cost, wait time.Duration) {
	percent := l.percent(now)
	apart := time.Second * 100 / time.Duration(l.rate.PerSecond*percent)
	saved := max(1, min(l.rate.Concurrency, l.rate.PerSecond)*percent/100)
	l.next = max(l.next, now)
	if early := l.next - now - time.Duration(saved-1)*apart; early > 0 {
		return 0, early
	}
	l.next += apart
	return apart, 0
}

// percent answers how much of the rate is allowed now.
func (l *Limiter) percent(now time.Duration) int {
	if !l.ramping {
		return 100
	}
	percent := rampFrom
	for at := l.rampedAt + rampStep; at <= now && percent < 100; at += rampStep {
		percent *= 2
	}
	if percent >= 100 {
		l.ramping = false
	}
	return min(percent, 100)
}

// Ramp begins again with a tenth of the rate, which doubles each minute, as after a pause
// of whatever kind: what piled up meanwhile is not to hit the provider at once.
func (l *Limiter) Ramp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ramp(l.now())
}

func (l *Limiter) ramp(now time.Duration) {
	l.ramping, l.rampedAt = true, now
	l.next = max(l.next, now)
}

// Permit is the right to make one attempt.
type Permit struct {
	limiter *Limiter
	cost    time.Duration // of its token
	ended   bool
}

// Return gives the permit back: no attempt was made. It does nothing on a permit that has
// ended.
func (p *Permit) Return() { p.end(effect.NotSent, 0, false) }

// End says how the attempt ended, and how long the provider asked to be left alone; 0 is
// not at all. An attempt that was not sent gives its token back and tells the breaker
// nothing, and a throttled one only tells it nothing. An answer that the ledger does not
// accept as what it claims to be is to be given as effect.Ambiguous. End does nothing on
// a permit that has ended.
func (p *Permit) End(class effect.Class, retryAfter time.Duration) { p.end(class, retryAfter, true) }

func (p *Permit) end(class effect.Class, retryAfter time.Duration, made bool) {
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.ended {
		return
	}
	p.ended = true
	l.open--
	now := l.now()
	if retryAfter > 0 {
		l.waitTill = max(l.waitTill, now+retryAfter)
	}
	canary := l.breaker.canary == p
	if canary {
		l.breaker.canary = nil
	}
	if class == effect.NotSent {
		l.next -= p.cost
	}
	if made {
		l.count(class, canary, now)
	}
}

// count tells the breaker and the wait for the unreachable how an attempt ended.
func (l *Limiter) count(class effect.Class, canary bool, now time.Duration) {
	if class == effect.NotSent {
		if l.idleTill > now {
			return // of the same burst: it says nothing more than the others did
		}
		if l.unsent++; l.unsent >= unsentBefore {
			l.idleTill = now + min(unsentFirst<<min(l.unsent-unsentBefore, 6), unsentMost)
		}
		return
	}
	l.unsent, l.idleTill = 0, 0
	if class == effect.Throttled {
		return
	}
	if l.breaker.count(class == effect.Ambiguous, canary, now) {
		l.ramp(now)
	}
}

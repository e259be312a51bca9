package sendlimit

import (
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

var (
	wide    = policy.Rate{PerSecond: 1000, Concurrency: 1000}
	breaks  = policy.Breaker{Consecutive: 3, Window: 50, Percent: 5, Cooldown: 30 * policy.Second}
	morning = time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)
)

// bench is a limiter on a clock that stands still.
type bench struct {
	t     *testing.T
	clock *clock.Fake
	*Limiter
}

func newBench(t *testing.T, rate policy.Rate) *bench {
	c := clock.NewFake(morning)
	return &bench{t, c, New(c, rate, breaks)}
}

func (b *bench) take() *Permit {
	b.t.Helper()
	p, wait, why := b.Take()
	if p == nil {
		b.t.Fatalf("no permit: %s, for %s", why, wait)
	}
	return p
}

func (b *bench) refused(want Reason) time.Duration {
	b.t.Helper()
	p, wait, why := b.Take()
	if p != nil || why != want {
		b.t.Fatalf("permit %v for reason %q; want a refusal for %q", p != nil, why, want)
	}
	return wait
}

func (b *bench) end(classes ...effect.Class) {
	b.t.Helper()
	for _, class := range classes {
		b.take().End(class, 0)
		b.clock.Advance(10 * time.Millisecond)
	}
}

// granted answers how many permits are given in d, asked for every millisecond.
func (b *bench) granted(d time.Duration) (n int) {
	for range d / time.Millisecond {
		if p, _, _ := b.Take(); p != nil {
			n++
			p.End(effect.Executed, 0)
		}
		b.clock.Advance(time.Millisecond)
	}
	return n
}

func TestTheRateIsKeptOverASecond(t *testing.T) {
	b := newBench(t, policy.Rate{PerSecond: 20, Concurrency: 4})
	if n := b.granted(10 * time.Second); n < 200 || n > 204 {
		t.Errorf("%d permits in ten seconds; want 20 a second and at most 4 saved up", n)
	}
}

func TestARefusalTellsWhenTheNextTokenComes(t *testing.T) {
	b := newBench(t, policy.Rate{PerSecond: 4, Concurrency: 1})
	b.take().End(effect.Executed, 0)
	wait := b.refused(TooFast)
	if wait != 250*time.Millisecond {
		t.Fatalf("wait is %s; want 250ms", wait)
	}
	b.clock.Advance(wait - 1)
	b.refused(TooFast)
	b.clock.Advance(1)
	b.take()
}

func TestTokensAreNotSavedUpWhileNothingIsSent(t *testing.T) {
	b := newBench(t, policy.Rate{PerSecond: 10, Concurrency: 3})
	b.clock.Advance(time.Hour)
	for range 3 {
		b.take().End(effect.Executed, 0)
	}
	b.refused(TooFast)
}

func TestNoMoreAttemptsAreOpenThanAllowed(t *testing.T) {
	b := newBench(t, policy.Rate{PerSecond: 1000, Concurrency: 2})
	first := b.take()
	b.take()
	b.clock.Advance(time.Second)
	if wait := b.refused(Busy); wait != 0 {
		t.Errorf("wait is %s; nobody knows when an attempt ends", wait)
	}
	first.End(effect.Executed, 0)
	first.End(effect.Executed, 0) // a permit ends once
	b.take()
	b.refused(Busy)
}

func TestAnAttemptThatWasNotSentGivesItsTokenBack(t *testing.T) {
	for name, give := range map[string]func(*Permit){
		"not sent": func(p *Permit) { p.End(effect.NotSent, 0) },
		"returned": (*Permit).Return,
	} {
		b := newBench(t, policy.Rate{PerSecond: 1, Concurrency: 1})
		give(b.take())
		if p, _, why := b.Take(); p == nil {
			t.Errorf("%s: refused for %s", name, why)
		}
	}
	b := newBench(t, policy.Rate{PerSecond: 1, Concurrency: 1})
	b.take().End(effect.Throttled, 0)
	b.refused(TooFast) // the provider was asked
}

func TestSendsWaitWhileAttemptsAreNotSentInARow(t *testing.T) {
	b := newBench(t, wide)
	b.end(effect.NotSent, effect.NotSent, effect.NotSent)
	if wait := b.refused(Unreachable); wait > time.Second || wait <= 0 {
		t.Fatalf("wait is %s; want up to 1s", wait)
	}
	for range 20 { // each further one doubles the wait, up to a minute
		b.clock.Advance(time.Minute)
		b.take().End(effect.NotSent, 0)
	}
	if wait := b.refused(Unreachable); wait != time.Minute {
		t.Fatalf("wait is %s; want 1m", wait)
	}
	b.clock.Advance(time.Minute)
	b.end(effect.Executed)
	b.end(effect.NotSent, effect.NotSent)
	b.take()
}

// Many attempts at once that were not sent, as behind one slow commit, are one reason to
// wait and not many.
func TestABurstThatWasNotSentIsWaitedForOnce(t *testing.T) {
	b := newBench(t, wide)
	for want := time.Second; want <= 4*time.Second; want *= 2 {
		var burst []*Permit
		for range 20 {
			burst = append(burst, b.take())
		}
		for _, p := range burst {
			p.End(effect.NotSent, 0)
		}
		if wait := b.refused(Unreachable); wait != want {
			t.Fatalf("wait is %s; want %s", wait, want)
		}
		b.clock.Advance(want)
	}
}

func TestThreeAmbiguousAnswersInARowOpenTheBreaker(t *testing.T) {
	b := newBench(t, wide)
	b.end(effect.Ambiguous, effect.Ambiguous, effect.Executed, effect.Ambiguous, effect.Ambiguous)
	b.take().Return()
	b.end(effect.NotSent, effect.Throttled, effect.Ambiguous) // the first two say nothing of the provider
	b.refused(BreakerOpen)
	if s := b.State(); s.Breaker != Open || s.Until <= 0 {
		t.Errorf("state is %+v; want open", s)
	}
}

func TestMoreThanAPartOfTheWindowOpensTheBreaker(t *testing.T) {
	b := newBench(t, wide)
	for i := range 60 { // 2 of 50 stay within 5 %
		class := effect.Executed
		if i%25 == 24 {
			class = effect.Ambiguous
		}
		b.end(class)
	}
	b.end(effect.Ambiguous) // the third among the last 50
	b.refused(BreakerOpen)
}

func TestFewAnswersAreNoWindow(t *testing.T) {
	b := newBench(t, wide)
	for range 8 {
		b.end(effect.Ambiguous, effect.Executed, effect.Pending, effect.Refused, effect.InFlight)
	}
	b.take()
}

func TestOneCanaryGoesAfterTheCooldown(t *testing.T) {
	b := newBench(t, wide)
	b.end(effect.Ambiguous, effect.Ambiguous, effect.Ambiguous)
	b.clock.Advance(b.refused(BreakerOpen) - 1)
	b.refused(BreakerOpen)
	b.clock.Advance(1)
	if s := b.State(); s.Breaker != HalfOpen {
		t.Errorf("state is %+v; want half-open", s)
	}
	canary := b.take()
	b.clock.Advance(time.Hour)
	b.refused(BreakerOpen)
	canary.End(effect.Executed, 0)
	if s := b.State(); s.Breaker != Closed || s.Percent != 10 {
		t.Errorf("state is %+v; want closed, at a tenth of the rate", s)
	}
	b.end(effect.Ambiguous, effect.Ambiguous) // what was counted before is forgotten
	b.clock.Advance(time.Second)
	b.take()
}

func TestAnAmbiguousCanaryDoublesTheCooldown(t *testing.T) {
	b := newBench(t, wide)
	b.end(effect.Ambiguous, effect.Ambiguous)
	b.take().End(effect.Ambiguous, 0)
	want := 30 * time.Second
	for range 10 {
		if wait := b.refused(BreakerOpen); wait != want {
			t.Fatalf("wait is %s; want %s", wait, want)
		}
		b.clock.Advance(want)
		b.take().End(effect.Ambiguous, 0)
		want = min(2*want, time.Hour)
	}
}

func TestACanaryThatWasNotSentLeavesTheBreakerHalfOpen(t *testing.T) {
	b := newBench(t, wide)
	b.end(effect.Ambiguous, effect.Ambiguous, effect.Ambiguous)
	b.clock.Advance(30 * time.Second)
	b.take().End(effect.NotSent, 0)
	b.take().Return()
	if s := b.State(); s.Breaker != HalfOpen {
		t.Errorf("state is %+v; want half-open", s)
	}
	b.take()
	b.refused(BreakerOpen)
}

func TestAnswersToAttemptsFromBeforeDoNotCloseAnOpenBreaker(t *testing.T) {
	b := newBench(t, wide)
	late := b.take()
	b.end(effect.Ambiguous, effect.Ambiguous, effect.Ambiguous)
	late.End(effect.Executed, 0)
	b.refused(BreakerOpen)
}

func TestARampDoublesEachMinute(t *testing.T) {
	b := newBench(t, policy.Rate{PerSecond: 100, Concurrency: 10})
	b.Ramp()
	for _, want := range []int{10, 20, 40, 80, 100, 100} {
		if s := b.State(); s.Percent != want {
			t.Fatalf("%d %% of the rate; want %d", s.Percent, want)
		}
		n := b.granted(10 * time.Second)
		if n < want*10-1 || n > want*10+10 {
			t.Errorf("%d permits in ten seconds at %d %%", n, want)
		}
		b.clock.Advance(50 * time.Second)
	}
}

func TestWhatTheProviderAsksForIsKept(t *testing.T) {
	b := newBench(t, wide)
	b.take().End(effect.Throttled, 20*time.Second)
	if wait := b.refused(AskedToWait); wait != 20*time.Second {
		t.Fatalf("wait is %s; want 20s", wait)
	}
	b.clock.JumpWall(time.Hour) // a corrected clock is no reason to send sooner
	b.refused(AskedToWait)
	b.clock.Advance(20 * time.Second)
	b.take()
}

func TestAShorterRetryAfterDoesNotEndALongerOne(t *testing.T) {
	b := newBench(t, wide)
	first, second := b.take(), b.take()
	first.End(effect.Throttled, time.Minute)
	second.End(effect.Ambiguous, time.Second)
	if wait := b.refused(AskedToWait); wait != time.Minute {
		t.Errorf("wait is %s; want 1m", wait)
	}
}

func TestVersionsOfAnAdapterShareALimiter(t *testing.T) {
	c := clock.NewFake(morning)
	g := NewGroup(c)
	v1 := &policy.Adapter{Name: "rewards", Version: 1, Account: "a", Rate: policy.Rate{PerSecond: 1, Concurrency: 1}, Breaker: breaks}
	p, _, _ := g.At(v1).Take()
	if p == nil {
		t.Fatal("the first permit was refused")
	}
	v2 := *v1
	v2.Version, v2.Rate = 2, policy.Rate{PerSecond: 1000, Concurrency: 2}
	l := g.At(&v2)
	if l != g.At(v1) || l.State().Open != 1 {
		t.Fatal("version 2 has a limiter of its own")
	}
	g.At(&v2)
	c.Advance(time.Second)
	if p, _, why := l.Take(); p == nil {
		t.Errorf("refused for %s under the limits of version 2", why)
	}
	other := v2
	other.Account = "b"
	if g.At(&other) == l {
		t.Error("another account shares the limiter")
	}
	g.Ramp("rewards")
	if s := g.States()[Of{"rewards", "b"}]; s.Percent != 10 {
		t.Errorf("state is %+v; want a ramp", s)
	}
}

package sendlimit

import (
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// breaker opens when too many answers are ambiguous, since each of them may cost a person
// a search. After a while one canary goes: a clear answer closes the breaker, an
// ambiguous one opens it for twice as long. The zero breaker is closed.
type breaker struct {
	rule    policy.Breaker
	tripped bool
	until   time.Duration // no canary before; 0 = closed
	wait    time.Duration // how long it was open the last time
	canary  *Permit       // that is under way

	inRow  int    // ambiguous answers one after the other
	last   []bool // the last answers, oldest at index oldest once it is full; true = ambiguous
	oldest int
}

func (b *breaker) set(rule policy.Breaker) {
	if rule.Window != b.rule.Window {
		b.last, b.oldest = nil, 0
	}
	b.rule = rule
}

// half tells whether the next attempt is the canary.
func (b *breaker) half(now time.Duration) bool { return b.tripped && b.until <= now }

// count counts an answer and tells whether it closed the breaker. While the breaker is
// open the canary's alone counts: the others were sent before it opened.
func (b *breaker) count(ambiguous, canary bool, now time.Duration) (closed bool) {
	switch {
	case b.tripped && !canary:
		return false
	case canary && !ambiguous:
		*b = breaker{rule: b.rule}
		return true
	case canary:
		b.trip(now, b.wait*2)
		return false
	}
	b.note(ambiguous)
	if b.inRow >= b.rule.Consecutive || b.tooMany() {
		b.trip(now, time.Duration(b.rule.Cooldown)*time.Microsecond)
	}
	return false
}

func (b *breaker) trip(now, wait time.Duration) {
	cooldown := time.Duration(b.rule.Cooldown) * time.Microsecond
	b.wait = min(max(wait, cooldown), max(cooldownMost, cooldown))
	b.tripped, b.until = true, now+b.wait
}

func (b *breaker) note(ambiguous bool) {
	if b.inRow++; !ambiguous {
		b.inRow = 0
	}
	if len(b.last) < b.rule.Window {
		b.last = append(b.last, ambiguous)
		return
	}
	b.last[b.oldest] = ambiguous
	b.oldest = (b.oldest + 1) % len(b.last)
}

// tooMany tells whether more than the allowed part of a full window is ambiguous. A
// window that is not full would make one answer of few a large part.
func (b *breaker) tooMany() bool {
	if len(b.last) < b.rule.Window {
		return false
	}
	n := 0
	for _, ambiguous := range b.last {
		if ambiguous {
			n++
		}
	}
	return n*100 > b.rule.Percent*b.rule.Window
}

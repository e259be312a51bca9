package ingest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// requestBytes is what a request counts beside its body: goroutine, events, verdicts.
const requestBytes = 4 << 10

// budget bounds the bytes of requests that are not acknowledged. Frames hold about as
// much again, so a process needs twice the budget.
type budget struct {
	size    int64
	free    *semaphore.Weighted
	used    atomic.Int64
	waiting atomic.Int64
}

func newBudget(size int64) *budget {
	return &budget{size: size, free: semaphore.NewWeighted(size)}
}

// hold is a reserved share; give returns it, once.
type hold struct {
	b    *budget
	n    int64
	once sync.Once
}

// reserve waits at most wait for n bytes. The answer is an *Error (busy), or ctx's error.
func (b *budget) reserve(ctx context.Context, n int64, wait time.Duration) (*hold, error) {
	n = min(n+requestBytes, b.size)
	if !b.free.TryAcquire(n) {
		b.waiting.Add(1)
		defer b.waiting.Add(-1)
		bounded, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		if err := b.free.Acquire(bounded, n); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, errBusy(wait)
		}
	}
	b.used.Add(n)
	return &hold{b: b, n: n}, nil
}

// full tells whether somebody waits: the door is back-pressured.
func (b *budget) full() bool { return b.waiting.Load() > 0 }

func (h *hold) give() {
	h.once.Do(func() {
		h.b.used.Add(-h.n)
		h.b.free.Release(h.n)
	})
}

package leases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrOver: the holder does not run any more.
var ErrOver = errors.New("leases are not kept any more")

// Lease is one held lease. It is good until it is lost or given back.
type Lease struct {
	holder   *Holder
	key      string
	term     string
	revision uint64
	since    time.Duration
	lost     chan struct{}
	yield    chan struct{}
	once     sync.Once

	// Under the holder's lock.
	yielding    bool // yield is closed
	elsewhere   bool // the unit belongs to another member
	elsewhereAt time.Duration
}

// Lost is closed when the lease is no longer ours: others may work already.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Yield is closed when another member should have the unit and would take it: finish what
// is decided, leave what makes its start fast, and Release. There is no hurry.
func (l *Lease) Yield() <-chan struct{} { return l.yield }

// Release gives the lease back, so that others need not wait for silence. It waits for
// the server, for a moment at most.
func (l *Lease) Release() { l.end(false) }

// Abandon is Release after the unit could not be kept going here. For a while, longer each
// time, the process takes it only when no other does.
func (l *Lease) Abandon() { l.end(true) }

func (l *Lease) end(failed bool) {
	l.once.Do(func() {
		h := l.holder
		h.mu.Lock()
		mine := h.held[l.key] == l
		if failed = failed && mine; failed { // what failed because others took over did not fail here
			h.penalise(l)
		}
		if mine {
			event := eventReleased
			switch {
			case failed:
				event = eventAbandoned
			case l.yielding:
				event = eventHandedOver
			}
			h.drop(l, event)
		}
		h.mu.Unlock()
		if mine {
			h.remove(context.Background(), l.key, l.revision)
		}
		h.kick()
	})
}

// drop takes a lease off the list. The holder is locked.
func (h *Holder) drop(l *Lease, event string) {
	delete(h.held, l.key)
	close(l.lost)
	h.metrics.ended(event)
}

func (h *Holder) dropAll(event string) {
	for _, l := range h.held {
		h.drop(l, event)
	}
}

// penalty keeps a unit from coming back at once to where it failed.
type penalty struct {
	until time.Duration
	last  time.Duration // its length
}

// Penalties in ttl: the first one, the longest one, and how long a unit must have gone
// well for the next failure to count as the first.
const (
	penaltyFirst  = 2
	penaltyMost   = 100
	penaltyForget = 20
)

func (h *Holder) penalise(l *Lease) {
	now, last := h.now(), h.penalties[l.key].last
	if now-l.since >= penaltyForget*h.o.TTL {
		last = 0
	}
	next := min(max(penaltyFirst*h.o.TTL, 2*last), penaltyMost*h.o.TTL)
	h.penalties[l.key] = penalty{until: now + next, last: next}
}

func (h *Holder) penalised(key string, now time.Duration) bool { return now < h.penalties[key].until }

// contender is one Acquire.
type contender struct{ wake chan struct{} }

func (c *contender) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Acquire blocks until the lease named key (subject.Lease) is ours or ctx ends. One
// Acquire of a key goes at a time, while Run does.
func (h *Holder) Acquire(ctx context.Context, key string) (*Lease, error) {
	c := &contender{wake: make(chan struct{}, 1)}
	h.mu.Lock()
	if h.contenders[key] != nil || h.held[key] != nil {
		h.mu.Unlock()
		return nil, fmt.Errorf("lease %s is held or waited for by this process already", key)
	}
	h.contenders[key] = c
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.contenders, key)
		h.kick()
	}()
	h.kick()
	var cause error
	for {
		select {
		case <-c.wake:
		case <-h.over:
			return nil, fmt.Errorf("lease %s: %w", key, ErrOver)
		case <-ctx.Done():
			if cause != nil {
				return nil, fmt.Errorf("lease %s: %w (%w)", key, ctx.Err(), cause)
			}
			return nil, fmt.Errorf("lease %s: %w", key, ctx.Err())
		}
		l, err := h.try(ctx, key)
		if l != nil {
			return l, nil
		}
		if err != nil {
			cause = err
		}
	}
}

// try takes the lease if it is still to be tried; a lost race is no error.
func (h *Holder) try(ctx context.Context, key string) (*Lease, error) {
	h.mu.Lock()
	expect, ok := h.decide(key, h.now())
	h.mu.Unlock()
	if !ok {
		return nil, nil
	}
	term := uuid.NewString()
	revision, err := h.put(ctx, key, encode(leaseEntry{Instance: h.o.Instance, Address: h.o.Address, Session: h.session, Term: term}), expect)
	if errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return h.grant(key, term, revision)
}

// grant notes a lease that was written. By now it may be taken already, or we may be silent.
func (h *Holder) grant(key, term string, revision uint64) (*Lease, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	if e := h.view.leases[key]; e != nil && e.revision > revision || now-h.beat.renewed >= h.o.TTL {
		return nil, nil
	}
	l := &Lease{
		holder: h, key: key, term: term, revision: revision, since: now,
		lost: make(chan struct{}), yield: make(chan struct{}),
	}
	h.held[key] = l
	delete(h.contenders, key)
	h.metrics.taken()
	return l, nil
}

func sortByKey(all []*Lease) {
	slices.SortFunc(all, func(a, b *Lease) int { return cmp.Compare(a.key, b.key) })
}

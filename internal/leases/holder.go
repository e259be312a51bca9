package leases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// askTimeout bounds one question to a server: without a leader it may stay unanswered.
const askTimeout = 2 * time.Second

// Holder keeps leases for one process. Safe for concurrent use.
type Holder struct {
	js       jetstream.JetStream
	instance string
	address  string
	ttl      time.Duration
	clk      clock.Clock

	mu     sync.Mutex
	bucket jetstream.KeyValue
}

// New answers a Holder. instance names the process; a process that starts again under
// the same instance takes its own leases back at once. address is shown to others (421).
// ttl is how long a holder may be silent; it renews three times as often.
func New(js jetstream.JetStream, instance, address string, ttl time.Duration) *Holder {
	return &Holder{js: js, instance: instance, address: address, ttl: ttl, clk: clock.System()}
}

// entry is a lease in the bucket. No time stands in it: others watch whether it changes,
// each on its own monotonic clock.
type entry struct {
	Instance string `json:"instance"`
	Address  string `json:"address"`
	Term     string `json:"term"` // of one Acquire: tells a restarted process from itself
}

// Acquire blocks until the lease named key (subject.Lease) is ours or ctx ends. A foreign
// lease counts as free once its entry did not change for ttl on our own monotonic clock,
// or its holder released it. A server that does not answer is waited for. The answer's
// Lost is closed when renewal fails for ttl or another holder took it.
func (h *Holder) Acquire(ctx context.Context, key string) (*Lease, error) {
	a := attempt{holder: h, key: key, term: uuid.NewString()}
	var cause error
	for {
		began := h.clk.Now()
		revision, err := a.try(ctx)
		if err == nil && revision != 0 {
			return h.hold(key, a.term, revision, began), nil
		}
		if err != nil {
			cause = err
		}
		timer := h.clk.NewTimer(h.poll())
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			if cause != nil {
				return nil, fmt.Errorf("lease %s: %w (%w)", key, ctx.Err(), cause)
			}
			return nil, fmt.Errorf("lease %s: %w", key, ctx.Err())
		}
	}
}

// poll is how often a foreign lease is looked at.
func (h *Holder) poll() time.Duration { return min(h.ttl/6, 500*time.Millisecond) }

// attempt is what one Acquire has seen of a foreign lease.
type attempt struct {
	holder *Holder
	key    string
	term   string
	seen   uint64    // its revision
	since  time.Time // when that revision was seen first
}

// try answers the revision of our entry, or 0 when the lease is not free.
func (a *attempt) try(ctx context.Context) (uint64, error) {
	h := a.holder
	kv, err := h.open(ctx)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	have, err := kv.Get(ctx, a.key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return won(kv.Create(ctx, a.key, h.value(a.term)))
	}
	if err != nil {
		return 0, err
	}
	if h.mine(have.Value()) || a.silent(have.Revision()) {
		return won(kv.Update(ctx, a.key, h.value(a.term), have.Revision()))
	}
	return 0, nil
}

// silent tells whether the entry has stood at revision for ttl.
func (a *attempt) silent(revision uint64) bool {
	if revision != a.seen {
		a.seen, a.since = revision, a.holder.clk.Now()
		return false
	}
	return a.holder.clk.Since(a.since) >= a.holder.ttl
}

// won takes a lost race as "not free".
func won(revision uint64, err error) (uint64, error) {
	if errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return 0, nil
	}
	return revision, err
}

func (h *Holder) value(term string) []byte {
	data, err := json.Marshal(entry{Instance: h.instance, Address: h.address, Term: term})
	if err != nil {
		panic(err) // three strings always marshal
	}
	return data
}

// mine tells whether an entry was written under our instance, by this process or the one before it.
func (h *Holder) mine(value []byte) bool {
	var e entry
	return json.Unmarshal(value, &e) == nil && e.Instance == h.instance
}

// open answers the bucket. A handle is kept: opening asks the server.
func (h *Holder) open(ctx context.Context) (jetstream.KeyValue, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bucket != nil {
		return h.bucket, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	kv, err := h.js.KeyValue(ctx, subject.LeaseBucket)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", subject.LeaseBucket, err)
	}
	h.bucket = kv
	return kv, nil
}

// Who answers the address of the current holder of key, "" if none. A holder that died
// is named until another takes its lease.
func (h *Holder) Who(ctx context.Context, key string) (address string, err error) {
	kv, err := h.open(ctx)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	have, err := kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("lease %s: %w", key, err)
	}
	var e entry
	if err := json.Unmarshal(have.Value(), &e); err != nil {
		return "", fmt.Errorf("lease %s: unreadable entry: %w", key, err)
	}
	return e.Address, nil
}

package providersim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/httpx"
)

// Options of a Sim.
type Options struct {
	Log      string      // file; made where it is missing
	Clock    clock.Clock // retention, holds and delays; nil = the machine's
	Settings Settings
	Mix      Mix    // of what becomes of requests; nil = accept
	Seed     uint64 // of the mix
	QueryMix Mix    // of what becomes of queries; nil = accept

	HTTP httpx.Options // Addr "" = 127.0.0.1, any free port
}

// Sim is a running provider.
type Sim struct {
	clock  clock.Clock
	server *httpx.Server
	log    *log

	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	served  error

	mu       sync.Mutex
	changed  chan struct{} // closed and made anew with every change
	settings Settings
	issues   rules
	queries  rules
	keys     map[string]*known    // by idempotency key
	done     map[string][]*Record // executions by effectKey
	order    []*Record            // executions
	held     map[string]*Record   // by id
	ids      uint64
	broken   error
	outbox   outbox
}

// known is what the provider remembers of an idempotency key. After a restart, lastSeen is
// that of the execution: answers that were repeated leave no line in the log.
type known struct {
	digest                         string
	firstSeen, lastSeen, completed time.Time
	record                         *Record // nil while it is being carried out
	forgetAfter                    Duration
}

// Start opens the log, takes up what it holds, and serves.
func Start(o Options) (*Sim, error) {
	settings, err := o.Settings.complete()
	if err := errors.Join(err, o.QueryMix.forQueries()); err != nil {
		return nil, err
	}
	if o.Clock == nil {
		o.Clock = clock.System()
	}
	s := &Sim{
		clock: o.Clock, changed: make(chan struct{}), settings: settings,
		issues:  rules{mix: o.Mix, seed: o.Seed, byKey: map[string]int{}},
		queries: rules{mix: o.QueryMix, seed: o.Seed, byKey: map[string]int{}},
		keys:    map[string]*known{}, done: map[string][]*Record{}, held: map[string]*Record{},
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.outbox = newOutbox()
	records, err := s.open(o)
	if err != nil {
		s.stop()
		return nil, err
	}
	s.takeUp(records)
	s.routes()
	s.running.Go(func() { s.served = s.server.Serve() })
	s.running.Go(s.deliverReceipts)
	return s, nil
}

func (s *Sim) open(o Options) ([]Record, error) {
	l, records, err := openLog(o.Log)
	if err != nil {
		return nil, err
	}
	if o.HTTP.Addr == "" {
		o.HTTP.Addr = "127.0.0.1:0"
	}
	o.HTTP.Problems = s.Problems
	if s.server, err = httpx.Listen(o.HTTP); err != nil {
		l.close()
		return nil, err
	}
	s.log = l
	return records, nil
}

// takeUp brings the memory to where the log ends: a request that was held goes on being
// held.
func (s *Sim) takeUp(records []Record) {
	receipts := map[string]*Record{}
	for i := range records {
		r := &records[i]
		if n, err := strconv.ParseUint(strings.TrimPrefix(r.ID, "sim-"), 10, 64); err == nil {
			s.ids = max(s.ids, n)
		}
		switch r.Kind {
		case Held:
			s.held[r.ID] = r
			if r.IdempotencyKey != "" {
				s.keys[r.IdempotencyKey] = &known{digest: r.BodyDigest, firstSeen: r.Time, lastSeen: r.Time}
			}
		case Execution:
			s.remember(r)
			receipts[r.ID] = r
		case Delivered:
			delete(receipts, r.ID)
		}
	}
	for _, r := range s.order {
		if receipts[r.ID] != nil {
			s.owe(r)
		}
	}
	for _, r := range slices.Collect(maps.Values(s.held)) { // each is taken out of the map when it is due
		s.running.Go(func() { s.carryOut(r) })
	}
}

// remember notes an execution. The lock is held, or nobody else is there yet.
func (s *Sim) remember(r *Record) {
	delete(s.held, r.ID)
	s.order = append(s.order, r)
	s.done[r.EffectKey] = append(s.done[r.EffectKey], r)
	if r.IdempotencyKey == "" {
		return
	}
	k := s.keys[r.IdempotencyKey]
	if k == nil || k.record != nil {
		k = &known{firstSeen: r.Time, lastSeen: r.Time}
		s.keys[r.IdempotencyKey] = k
	}
	k.digest, k.record, k.completed, k.forgetAfter = r.BodyDigest, r, r.Time, r.ForgetAfter
}

// URL answers http://host:port.
func (s *Sim) URL() string { return s.server.URL() }

// Problems answers why the provider cannot execute; empty = it can.
func (s *Sim) Problems() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return []string{"log: " + s.broken.Error()}
	}
	return nil
}

// Close ends requests that wait without an answer, keeps what is held in the log for the
// next start, and waits for everything else until ctx ends.
func (s *Sim) Close(ctx context.Context) error {
	s.stop()
	err := s.server.Shutdown(ctx)
	s.running.Wait()
	s.log.close()
	return errors.Join(err, s.served)
}

// Set gives requests that the rule is for another mode.
func (s *Sim) Set(r Rule) error {
	if err := r.check(); err != nil {
		return err
	}
	s.change(func() { s.issues.list = append(s.issues.list, r) })
	return nil
}

// SetQuery is Set for queries; of modes, only those that execute nothing, accept, garbage
// and delay mean something for them.
func (s *Sim) SetQuery(r Rule) error {
	if err := errors.Join(r.check(), Mix{{r.Mode, 1}}.forQueries()); err != nil {
		return err
	}
	s.change(func() { s.queries.list = append(s.queries.list, r) })
	return nil
}

// SetMix replaces the mix, and drops every rule.
func (s *Sim) SetMix(mix Mix, seed uint64) {
	s.change(func() { s.issues.list, s.issues.mix, s.issues.seed = nil, mix, seed })
}

// Configure replaces the settings; keys and executions stay.
func (s *Sim) Configure(settings Settings) error {
	complete, err := settings.complete()
	if err != nil {
		return err
	}
	s.change(func() { s.settings = complete })
	return nil
}

// Executions answers the executions of an effectKey, oldest first.
func (s *Sim) Executions(key string) []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return values(s.done[key])
}

// All answers every execution, oldest first.
func (s *Sim) All() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return values(s.order)
}

func values(of []*Record) []Record {
	out := make([]Record, len(of))
	for i, r := range of {
		out[i] = *r
	}
	return out
}

// Requests answers how many requests of an effectKey have arrived since the start.
func (s *Sim) Requests(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.issues.byKey[key]
}

// AwaitExecutions waits until an effectKey has n executions, or fails when ctx ends.
func (s *Sim) AwaitExecutions(ctx context.Context, key string, n int) error {
	return s.await(ctx, func() bool { return len(s.done[key]) >= n }, "%d executions of %s", n, key)
}

// AwaitRequests waits until n requests of an effectKey have arrived since the start.
func (s *Sim) AwaitRequests(ctx context.Context, key string, n int) error {
	return s.await(ctx, func() bool { return s.issues.byKey[key] >= n }, "%d requests of %s", n, key)
}

// AwaitQueries waits until n queries for an effectKey have arrived since the start.
func (s *Sim) AwaitQueries(ctx context.Context, key string, n int) error {
	return s.await(ctx, func() bool { return s.queries.byKey[key] >= n }, "%d queries for %s", n, key)
}

// AwaitHeld waits until n requests are held.
func (s *Sim) AwaitHeld(ctx context.Context, n int) error {
	return s.await(ctx, func() bool { return len(s.held) >= n }, "%d held requests", n)
}

// AwaitReceipts waits until no receipt is owed.
func (s *Sim) AwaitReceipts(ctx context.Context) error {
	return s.await(ctx, func() bool { return len(s.outbox.owed) == 0 }, "every receipt taken")
}

// await waits until ok, which is asked with the lock held.
func (s *Sim) await(ctx context.Context, ok func() bool, what string, of ...any) error {
	for {
		s.mu.Lock()
		met, changed := ok(), s.changed
		s.mu.Unlock()
		if met {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("provider simulator: never saw "+what+": %w", append(of, ctx.Err())...)
		}
	}
}

// change does something with the lock held and wakes who waits.
func (s *Sim) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	close(s.changed)
	s.changed = make(chan struct{})
}

// pause waits for d on the simulator's clock; false if ctx or the simulator ended before.
func (s *Sim) pause(ctx context.Context, d time.Duration) bool {
	timer := s.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	return false
}

// now answers wall time as the log writes it.
func (s *Sim) now() time.Time { return s.clock.Now().UTC().Truncate(time.Microsecond) }

package webhook

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/heartbeat"
	"github.com/tidemark-mesh/tidemark/internal/netguard"
)

const (
	drainFor   = 15 * time.Second // attempts under way at the end may take so long
	pruneEvery = 10 * time.Minute
	pruneStep  = 1000 // deliveries forgotten in one transaction
	turnSize   = 256  // acts in one transaction
)

// StateFile names the state file in the data directory.
const StateFile = "webhook.db"

// Config of a Sender.
type Config struct {
	Endpoint *Endpoint
	Conn     *nats.Conn
	Dir      string // of the state file
	Log      zerolog.Logger
	Registry *prometheus.Registry
	Clock    clock.Clock
	Monitor  *heartbeat.Monitor
	// Jitter answers how long to wait where the schedule says d; nil adds up to a tenth.
	Jitter func(d time.Duration) time.Duration
	// Audit keeps what an operator decided, before it is done; nil keeps it in the log alone.
	Audit func(ctx context.Context, verb, reason string, details any) error
}

// Sender follows a job and delivers its revisions to one endpoint. One goroutine, loop,
// owns the queue and writes the state file; the others hand it acts.
type Sender struct {
	endpoint *Endpoint
	cfg      Config
	log      zerolog.Logger
	clock    clock.Clock
	keys     *keyring
	receipts *keyring // nil without applied
	client   *http.Client
	store    *checkpoint.Store
	metrics  *metrics

	acts    chan *act
	moved   chan struct{} // after each turn, for an intake that waits for room
	waiting atomic.Int64  // deliveries that wait for an attempt
	ended   chan struct{} // closed when the loop has ended

	queue    *queue
	position position
	pruneAt  time.Time
	unsaid   int       // deliveries that became overdue since the log spoke of them
	sayAt    time.Time // when it may again

	mu       sync.Mutex
	troubles map[string]string // what keeps the process from being ready, by part
}

// act is something to do in one turn of the loop. Its error ends the process: memory and
// file might no longer agree.
type act struct {
	run  func(t *turn) error
	done chan struct{}
}

// turn is one transaction.
type turn struct {
	*records
	now   time.Time
	after []func() // once the transaction is on the disk
}

// New opens the state file and the secrets. It dials nobody.
func New(cfg Config) (*Sender, error) {
	e := cfg.Endpoint
	if cfg.Jitter == nil {
		cfg.Jitter = func(d time.Duration) time.Duration { return d + rand.N(d/10+1) }
	}
	s := &Sender{
		endpoint: e, cfg: cfg, clock: cfg.Clock, log: cfg.Log.With().Str("endpoint", e.Name).Logger(),
		acts: make(chan *act), moved: make(chan struct{}, 1), ended: make(chan struct{}),
		queue: newQueue(e.Mode), troubles: map[string]string{"feed": "the feed has not been opened yet"},
	}
	var err error
	if s.keys, err = openKeyring(e.SecretFiles); err != nil {
		return nil, err
	}
	if e.Applied != nil {
		if s.receipts, err = openKeyring(e.Applied.SecretFiles); err != nil {
			return nil, err
		}
	}
	if s.metrics, err = newMetrics(cfg.Registry, e.Name); err != nil {
		return nil, err
	}
	transport := netguard.New(e.allow...).Transport(time.Duration(e.Timeout))
	transport.MaxIdleConnsPerHost = e.Concurrency
	s.client = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if s.store, s.position, err = openStore(filepath.Join(cfg.Dir, StateFile), e); err != nil {
		return nil, err
	}
	if err := s.restore(); err != nil {
		return nil, errors.Join(err, s.store.Close())
	}
	return s, nil
}

// Close closes the state file of a Sender that never ran; Run does it itself.
func (s *Sender) Close() error { return s.store.Close() }

// restore reads what was open when the last process ended.
func (s *Sender) restore() error {
	now := s.now()
	s.pruneAt = now
	return s.store.Update(func(tx *checkpoint.Tx) error {
		r, err := recordsOf(tx)
		if err != nil {
			return err
		}
		var closing []*Delivery
		err = r.each(func(d *Delivery) (bool, error) {
			switch {
			case !d.open():
			case d.State == StateDelivered && s.endpoint.Applied == nil: // receipts are no longer expected
				closing = append(closing, d)
			default:
				s.queue.restore(d)
			}
			return true, nil
		})
		s.queue.settle()
		for _, d := range closing {
			d.ClosedAt, d.Overdue = now, false
			err = errors.Join(err, r.put(d))
		}
		return err
	})
}

// now answers wall time as it is stored.
func (s *Sender) now() time.Time { return s.clock.Now().UTC().Truncate(time.Microsecond) }

// Run delivers until ctx ends or the feed or the state file fails for good. The Sender
// cannot be used afterwards.
func (s *Sender) Run(ctx context.Context) error {
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var parts sync.WaitGroup
	start := func(part func(context.Context) error) {
		parts.Go(func() {
			if err := part(running); err != nil && running.Err() == nil {
				stop(err)
			}
		})
	}
	start(s.intake)
	if s.endpoint.Applied != nil && s.endpoint.Applied.Pull != nil {
		start(s.pull)
	}
	err := s.loop(running)
	stop(err)
	close(s.ended)
	parts.Wait()
	s.client.CloseIdleConnections()
	if cause := context.Cause(running); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return errors.Join(err, s.store.Close())
}

// errEnded answers acts that come when the loop has ended.
var errEnded = errors.New("the webhook process is stopping; ask again when it runs")

// do runs fn in a turn of the loop and waits until it is on the disk.
func (s *Sender) do(ctx context.Context, fn func(t *turn) error) error {
	a := &act{run: fn, done: make(chan struct{})}
	select {
	case s.acts <- a:
	case <-s.ended:
		return errEnded
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-a.done:
		return nil
	case <-s.ended:
	}
	select { // the loop may have done it in its last turn
	case <-a.done:
		return nil
	default:
		return errEnded
	}
}

// loop owns the queue until ctx ends, then waits for attempts under way.
func (s *Sender) loop(ctx context.Context) error {
	flights, ground := context.WithCancel(context.WithoutCancel(ctx))
	defer ground()
	timer := s.clock.NewTimer(0)
	defer timer.Stop()
	ending := ctx.Done()
	var over <-chan time.Time
	beat := s.cfg.Monitor.Start("webhook")
	defer beat.Stop()
	for {
		var batch []*act
		beat.Rest()
		select {
		case a := <-s.acts:
			batch = s.more(a)
		case <-timer.C():
		case <-ending:
			ending = nil
			drain := s.clock.NewTimer(drainFor)
			defer drain.Stop()
			over = drain.C()
		case <-over:
			return nil
		}
		beat.Beat()
		if err := s.turn(batch); err != nil {
			return err
		}
		if ending == nil {
			if len(s.queue.flying) == 0 {
				return nil
			}
			continue
		}
		if err := s.launch(flights); err != nil {
			return err
		}
		timer.Reset(s.sleep())
	}
}

// more takes further acts that wait already.
func (s *Sender) more(first *act) []*act {
	batch := []*act{first}
	for len(batch) < turnSize {
		select {
		case a := <-s.acts:
			batch = append(batch, a)
		default:
			return batch
		}
	}
	return batch
}

// turn does acts, and what has fallen due besides attempts, in one transaction.
func (s *Sender) turn(batch []*act) error {
	now := s.now()
	if len(batch) > 0 || s.choresDue(now) {
		t := &turn{now: now}
		err := s.store.Update(func(tx *checkpoint.Tx) (err error) {
			if t.records, err = recordsOf(tx); err != nil {
				return err
			}
			for _, a := range batch {
				if err := a.run(t); err != nil {
					return err
				}
			}
			if err := s.chores(t); err != nil {
				return err
			}
			return tx.SetMeta(positionMeta, &s.position)
		})
		if err != nil {
			return fmt.Errorf("state of endpoint %s: %w", s.endpoint.Name, err)
		}
		for _, fn := range t.after {
			fn()
		}
		for _, a := range batch {
			close(a.done)
		}
	}
	s.waiting.Store(int64(s.queue.waiting))
	s.metrics.show(s, now)
	select {
	case s.moved <- struct{}{}:
	default:
	}
	return nil
}

// launch starts the attempts that are due.
func (s *Sender) launch(ctx context.Context) error {
	now := s.now()
	if s.position.Disabled != nil || now.Before(s.position.PausedTo) {
		return nil
	}
	for len(s.queue.flying) < s.endpoint.Concurrency {
		d := s.queue.next(now)
		if d == nil {
			return nil
		}
		var body []byte
		err := s.store.View(func(tx *checkpoint.Tx) error {
			b, err := tx.Bucket(bodiesBucket)
			if err != nil {
				return err
			}
			stored, err := b.Get(sequenceKey(d.Sequence))
			body = slices.Clone(stored)
			return err
		})
		if err == nil && len(body) == 0 {
			err = fmt.Errorf("delivery %s has no body", d.ID)
		}
		if err != nil {
			return fmt.Errorf("state of endpoint %s: %w", s.endpoint.Name, err)
		}
		go s.fly(ctx, d, *d, body)
	}
	return nil
}

// fly makes one attempt and hands its outcome to the loop. sent is d as it was.
func (s *Sender) fly(ctx context.Context, d *Delivery, sent Delivery, body []byte) {
	begun := s.clock.Now()
	o := s.attempt(ctx, &sent, body)
	s.metrics.attempted(o.result, s.clock.Since(begun))
	_ = s.do(context.WithoutCancel(ctx), func(t *turn) error { return s.landed(t, d, o) }) // when the loop has ended, the next process tries again
}

// sleep answers how long nothing falls due.
func (s *Sender) sleep() time.Duration {
	now := s.now()
	wake := s.pruneAt
	if at, ok := s.queue.nextDue(); ok && s.position.Disabled == nil && len(s.queue.flying) < s.endpoint.Concurrency {
		if at.Before(s.position.PausedTo) {
			at = s.position.PausedTo
		}
		if at.Before(wake) {
			wake = at
		}
	}
	if s.unsaid > 0 && s.sayAt.Before(wake) {
		wake = s.sayAt
	}
	if at, ok := s.overdueAt(); ok && at.Before(wake) {
		wake = at
	}
	return max(wake.Sub(now), 0)
}

// trouble notes what keeps a part from working; "" = nothing.
func (s *Sender) trouble(part, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if what == "" {
		delete(s.troubles, part)
		return
	}
	s.troubles[part] = what
}

// Problems answers why the process is not ready.
func (s *Sender) Problems() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, what := range s.troubles {
		all = append(all, "webhook "+s.endpoint.Name+": "+what)
	}
	slices.Sort(all)
	return all
}

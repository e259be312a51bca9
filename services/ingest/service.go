// Package ingest is the door of Tidemark: it takes events in over HTTP and NATS, gives
// each a place in its source partition, decides whether it enters the events journal or
// quarantine, and writes the marks from which readers know how far time has come.
//
// The path of a request: transport (http.go, request.go) → items (body.go) → Push
// (push.go) → source partition (partition.go) → lanes (lane.go) and quarantine
// (quarantine.go) → acknowledgements (outbox.go) → reply. Beside it run ownership
// (claims.go) and marks (marks.go).
package ingest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/internal/heartbeat"
	"github.com/tidemark-mesh/tidemark/internal/leases"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// Defaults and periods of a Service.
const (
	defaultBudget = 64 << 20
	lookEvery     = 50 * time.Millisecond
	ackTimeout    = 10 * time.Second // a lost connection is noticed at once, so this is for a server that is slow
	drainFor      = 10 * time.Second
	drainMarksFor = 3 * time.Second
)

// Config of a Service.
type Config struct {
	Conn     *natsio.Conn
	Instance string // names this process over restarts; "" = a fresh name each time
	Address  string // where this process answers HTTP, told to those who ask elsewhere
	Log      zerolog.Logger
	Registry *prometheus.Registry
	Clock    clock.Clock
	Monitor  *heartbeat.Monitor // told of loops; may be nil
	Budget   int64              // bytes of requests not acknowledged; 0 = 64 MiB
	WaitFor  time.Duration      // how long a request waits for room; 0 = 5 s
	LeaseTTL time.Duration      // how long a silent process is waited for; 0 = leases.DefaultTTL
}

// leaser says who should try to own a source partition; the sources journal decides.
type leaser interface {
	Run(ctx context.Context)
	acquire(ctx context.Context, key string) (lease, error)
	Who(ctx context.Context, key string) (address string, err error)
}

type lease interface {
	Lost() <-chan struct{}
	Yield() <-chan struct{}
	Release()
	Abandon()
}

type leaseHolder struct{ *leases.Holder }

func (h leaseHolder) acquire(ctx context.Context, key string) (lease, error) {
	l, err := h.Acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Service owns source partitions and takes in their events.
type Service struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	leases   leaser
	instance string
	address  string
	writer   string
	log      zerolog.Logger
	clock    clock.Clock
	monitor  *heartbeat.Monitor
	stamp    *stamper
	budget   *budget
	deciding chan struct{} // room for as many requests as there are processors: more would share the cache
	waitFor  time.Duration
	metrics  *metrics
	publish  publisher
	watch    func(context.Context, jetstream.JetStream, func(config.Snapshot)) error

	work     context.Context // lives from New until the drain is over
	end      context.CancelFunc
	tasks    sync.WaitGroup
	dead     chan struct{} // closed when nothing is acknowledged any more
	draining atomic.Bool
	stepped  atomic.Int64 // last alarmed clock step, ns; 0 = none

	mu       sync.Mutex
	streams  map[string]*stream
	followed bool   // a snapshot of the documents was seen
	trouble  string // why documents cannot be followed
}

// New prepares a Service; Run starts it.
func New(c Config) (*Service, error) {
	if c.Conn == nil {
		return nil, errors.New("ingest needs a NATS connection")
	}
	if c.Instance == "" {
		c.Instance = uuid.NewString()
	}
	holder, err := leases.New(leases.Options{
		JS: c.Conn.JS, Role: "ingest", Instance: c.Instance, Address: c.Address, TTL: c.LeaseTTL,
		Clock: c.Clock, Log: c.Log, Registry: c.Registry,
	})
	if err != nil {
		return nil, fmt.Errorf("ingest: %w", err)
	}
	return newService(c, leaseHolder{holder})
}

func newService(c Config, l leaser) (*Service, error) {
	if c.Clock == nil {
		c.Clock = clock.System()
	}
	js, err := jetstream.New(c.Conn.NC, jetstream.WithPublishAsyncTimeout(ackTimeout), jetstream.WithPublishAsyncMaxPending(1<<20))
	if err != nil {
		return nil, fmt.Errorf("ingest: %w", err)
	}
	writer := uuid.NewString()
	s := &Service{
		nc: c.Conn.NC, js: c.Conn.JS, writer: writer, address: c.Address, log: c.Log, clock: c.Clock, monitor: c.Monitor,
		stamp: newStamper(c.Clock), dead: make(chan struct{}), streams: make(map[string]*stream),
		publish: asyncPublisher(c.Conn.NC, js, writer), watch: config.Watch, leases: l, instance: c.Instance,
	}
	s.budget = newBudget(orDefault(c.Budget, defaultBudget))
	s.deciding = make(chan struct{}, runtime.GOMAXPROCS(0))
	s.waitFor = orDefault(c.WaitFor, waitDefault)
	if s.metrics, err = newMetrics(c.Registry, s); err != nil {
		return nil, fmt.Errorf("ingest metrics: %w", err)
	}
	s.work, s.end = context.WithCancel(context.Background())
	return s, nil
}

func orDefault[T ~int64](given, otherwise T) T {
	if given <= 0 {
		return otherwise
	}
	return given
}

// spawn runs task until the drain is over.
func (s *Service) spawn(task func(context.Context)) {
	s.tasks.Add(1)
	go func() {
		defer s.tasks.Done()
		task(s.work)
	}()
}

// Run takes events in until ctx ends, then drains: it refuses new requests, waits for
// those under way, marks, checkpoints and gives its leases back.
func (s *Service) Run(ctx context.Context) error {
	s.spawn(s.tick)
	s.spawn(func(context.Context) { s.leases.Run(ctx) })
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		s.follow(ctx)
	}()
	<-ctx.Done()
	s.draining.Store(true)
	<-followed
	s.drain()
	for _, st := range s.allStreams() {
		for _, sub := range st.subs {
			// It fails only when the connection is closed, and then nothing is subscribed.
			_ = sub.Unsubscribe()
		}
	}
	s.end()
	s.tasks.Wait()
	close(s.dead)
	return nil
}

// follow keeps the streams as the documents say until ctx ends.
func (s *Service) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := s.watch(ctx, s.js, s.apply)
		if ctx.Err() != nil {
			return
		}
		s.setTrouble(fmt.Sprintf("documents cannot be followed: %v; trying again", err))
		pause := s.clock.NewTimer(time.Second)
		select {
		case <-pause.C():
		case <-ctx.Done():
		}
		pause.Stop()
	}
}

func (s *Service) setTrouble(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = text
}

// apply is called with every snapshot of the documents.
func (s *Service) apply(snap config.Snapshot) {
	if s.draining.Load() {
		return
	}
	policies := make(map[string][]*policy.StreamTimePolicy)
	for _, e := range snap.Policies {
		policies[e.Policy.Stream] = append(policies[e.Policy.Stream], e.Policy)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followed, s.trouble = true, ""
	for _, e := range snap.Streams {
		st := s.streams[e.Stream.Name]
		if st == nil {
			st = newStream(s, e)
			if err := s.subscribeStream(st); err != nil {
				s.log.Error().Err(err).Str("stream", st.name).Msg("requests about the whole stream are not answered")
			}
			s.streams[st.name] = st
		}
		st.update(e, policies[st.name])
	}
}

// streamNamed answers an applied stream, or 404 with the known ones.
func (s *Service) streamNamed(name string) (*stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.streams[name]; st != nil {
		return st, nil
	}
	if !s.followed {
		return nil, errStopping()
	}
	known := make([]string, 0, len(s.streams))
	for n := range s.streams {
		known = append(known, n)
	}
	slices.Sort(known)
	hint := "apply a BusinessStream document first"
	if len(known) > 0 {
		hint = "known streams: " + strings.Join(known, ", ")
	}
	return nil, refuse(http.StatusNotFound, "unknown-stream", hint, "no stream is named %q", name)
}

func (s *Service) allStreams() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*stream, 0, len(s.streams))
	for _, st := range s.streams {
		all = append(all, st)
	}
	slices.SortFunc(all, func(a, b *stream) int { return strings.Compare(a.name, b.name) })
	return all
}

// tick looks at the clock and at every stream.
func (s *Service) tick(ctx context.Context) {
	ticker := s.clock.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			s.look()
		}
	}
}

func (s *Service) look() {
	s.checkClock()
	for _, st := range s.allStreams() {
		st.look()
	}
}

// checkClock alarms on a step of the wall clock. Stamps do not follow it.
func (s *Service) checkClock() {
	step := s.stamp.step()
	if step.Abs() <= stepAlarm {
		s.stepped.Store(0)
		return
	}
	if s.stepped.Swap(int64(step)) == 0 {
		s.metrics.clockAlarms.Inc()
		s.log.Error().Dur("step", step).Msg("the wall clock was set; arrival times go on as if it was not")
	}
}

// blocked tells whether nothing could arrive for st: its silence says nothing then.
func (s *Service) blocked(st *stream) bool {
	return s.budget.full() || !s.nc.IsConnected() || st.stalled()
}

// maxPayload answers the bytes that one message may have.
func (s *Service) maxPayload() int { return int(s.nc.MaxPayload()) }

// drain lets requests under way finish, then marks and checkpoints.
func (s *Service) drain() {
	ctx, cancel := context.WithTimeout(s.work, drainFor)
	defer cancel()
	// The whole budget is free once everything is acknowledged.
	if s.budget.free.Acquire(ctx, s.budget.size) != nil {
		s.log.Warn().Int64("bytes", s.budget.used.Load()).Msg("stopping with unacknowledged events; their senders were not told that they are stored")
		return
	}
	marks, cancelMarks := context.WithTimeout(s.work, drainMarksFor)
	defer cancelMarks()
	var wait sync.WaitGroup
	for _, st := range s.allStreams() {
		wait.Go(func() { s.lastMarks(marks, st) })
	}
	wait.Wait()
}

func (s *Service) lastMarks(ctx context.Context, st *stream) {
	if _, err := st.flush(ctx); err != nil {
		s.log.Warn().Err(err).Str("stream", st.name).Msg("stopping without last marks")
		return
	}
	for _, p := range st.all() {
		p.mu.Lock()
		own := p.own
		p.mu.Unlock()
		if own == nil {
			continue
		}
		err := failpoint.Hit("ingest/last-checkpoint")
		if err == nil {
			err = p.checkpoint(ctx, own)
		}
		if err != nil {
			s.log.Warn().Err(err).Str("sourcePartition", p.String()).Msg("stopping without a last checkpoint")
		}
	}
}

// Problems lists why this process is not ready; empty = ready.
func (s *Service) Problems() []string {
	var out []string
	if s.draining.Load() {
		out = append(out, "ingest is stopping")
	}
	s.mu.Lock()
	if s.trouble != "" {
		out = append(out, s.trouble)
	} else if !s.followed {
		out = append(out, "ingest has not read the documents yet")
	}
	s.mu.Unlock()
	if step := time.Duration(s.stepped.Load()); step != 0 {
		out = append(out, fmt.Sprintf("the wall clock is %s off what it was at the start; set it right, or restart ingest to accept it", step.Round(time.Millisecond)))
	}
	for _, st := range s.allStreams() {
		out = append(out, st.problems()...)
	}
	return out
}

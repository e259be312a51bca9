// Package effector carries out outside effects at most once (design: "Effects").
//
// Of each key partition of a business stream that has effect policies one process is the
// owner. It reads the revisions of the jobs' canonical generations, lets the active
// policies judge them, and writes what the ledger decides into the effects journal. An
// effect is sent when its DISPATCHING record is accepted there and stands in the dispatch
// file on disk. What became of it is written too; what is not known stays UNKNOWN until
// evidence settles it.
//
// Everything but the dispatch file can be folded anew from the effects journal.
package effector

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/adapters"
	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/heartbeat"
	"github.com/tidemark-mesh/tidemark/internal/leases"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/internal/sendlimit"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adapter"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// Config is what an effector needs.
type Config struct {
	Conn     *natsio.Conn
	Dir      string // of this service: views, and the dispatch files, which are no cache
	Instance string // names the process; the same after a restart
	Address  string // where others reach its HTTP API
	Log      zerolog.Logger
	Registry *prometheus.Registry
	Clock    clock.Clock
	Monitor  *heartbeat.Monitor // told of loops; may be nil
	LeaseTTL time.Duration      // how long a silent process is waited for; 0 = leases.DefaultTTL
	Adapters adapters.Deps      // what adapters are built on
	AskFirst time.Duration      // wait after the first question about an unknown outcome, doubled each time; 0 = 5 s
	AskMost  time.Duration      // longest such wait; 0 = 1 h
}

// Service is one effector process.
type Service struct {
	cfg       Config
	leases    *leases.Holder
	metrics   *metrics
	providers *providers
	desk      desk
	tasks     sync.WaitGroup

	mu      sync.Mutex
	loaded  bool  // the documents were read
	blind   error // why documents are not followed any more
	streams map[string]*stream
}

// stream is a business stream with effect policies.
type stream struct {
	library *library
	units   []*unit // by key partition
}

// New answers an effector that does nothing until Run.
func New(cfg Config) (*Service, error) {
	if cfg.Conn == nil || cfg.Dir == "" || cfg.Instance == "" {
		return nil, errors.New("effector: Conn, Dir and Instance must be set")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.System()
	}
	if cfg.AskFirst <= 0 {
		cfg.AskFirst = 5 * time.Second
	}
	if cfg.AskMost <= 0 {
		cfg.AskMost = time.Hour
	}
	holder, err := leases.New(leases.Options{
		JS: cfg.Conn.JS, Role: stage, Instance: cfg.Instance, Address: cfg.Address, TTL: cfg.LeaseTTL,
		Clock: cfg.Clock, Log: cfg.Log, Registry: cfg.Registry,
	})
	if err != nil {
		return nil, fmt.Errorf("effector: %w", err)
	}
	limits := sendlimit.NewGroup(cfg.Clock)
	s := &Service{cfg: cfg, streams: map[string]*stream{}, leases: holder, desk: newDesk(), providers: &providers{
		make:   func(doc *policy.Adapter) (adapter.Adapter, error) { return adapters.New(doc, cfg.Adapters) },
		limits: limits, all: map[string]*provider{},
	}}
	if s.metrics, err = newMetrics(cfg.Registry, s.survey, limits); err != nil {
		return nil, fmt.Errorf("effector: %w", err)
	}
	return s, nil
}

// Run follows the documents and keeps the partitions of their streams going until ctx
// ends; then it sends nothing any more, waits for open attempts, writes down their answers
// and returns. Without effect policies it only follows the documents.
func (s *Service) Run(ctx context.Context) error {
	s.tasks.Go(func() { s.leases.Run(ctx) })
	err := config.Watch(ctx, s.cfg.Conn.JS, func(snap config.Snapshot) { s.reconcile(ctx, snap) })
	if err != nil && ctx.Err() == nil { // what was applied before goes on
		s.cfg.Log.Error().Err(err).Msg("effector: reading the documents; new ones are not seen until a restart")
		s.mu.Lock()
		s.blind = err
		s.mu.Unlock()
		<-ctx.Done()
	}
	s.tasks.Wait()
	return s.providers.close()
}

// reconcile starts what is new. Documents are immutable and never go away.
func (s *Service) reconcile(ctx context.Context, snap config.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded = true
	for name, l := range libraries(snap) {
		st := s.streams[name]
		if st == nil {
			st = &stream{}
			s.streams[name] = st
			for pp := range l.stream.Partitions {
				u := s.newUnit(partition{stream: name, number: pp}, l)
				st.units = append(st.units, u)
				s.tasks.Go(func() { u.run(ctx) })
			}
		}
		st.library = l
		for _, u := range st.units {
			u.learn(l)
		}
	}
}

func (s *Service) newUnit(p partition, l *library) *unit {
	return &unit{
		part: p, js: s.cfg.Conn.JS, owner: s.cfg.Instance, dir: s.cfg.Dir, leases: s.leases, clock: s.cfg.Clock,
		monitor: s.cfg.Monitor, metrics: s.metrics, log: s.cfg.Log, providers: s.providers,
		askFirst: s.cfg.AskFirst, askMost: s.cfg.AskMost,
		answers: newMailbox[answered](), findings: newMailbox[finding](), changed: make(chan struct{}, 1),
		role: roleWaiting, library: l,
	}
}

// Problems answers why the process is not ready: documents not read yet, partitions that
// are halted or cannot be owned, active versions that cannot be used.
func (s *Service) Problems() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.loaded && s.blind == nil {
		return []string{"effector: the documents were not read yet"}
	}
	var problems []string
	if s.blind != nil {
		problems = append(problems, "effector: documents: "+s.blind.Error())
	}
	for _, st := range s.streams {
		for _, u := range st.units {
			for _, trouble := range u.trouble() {
				problems = append(problems, "effector: "+trouble)
			}
		}
	}
	sort.Strings(problems)
	return problems
}

// units answers every partition, in no order.
func (s *Service) units() (list []*unit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		list = append(list, st.units...)
	}
	return list
}

// stream answers a business stream with effect policies by name, nil if there is none.
func (s *Service) stream(name string) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[name]
}

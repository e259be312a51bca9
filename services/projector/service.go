// Package projector makes revisions public: it judges what windowers propose, has it
// accepted in atomic batches on the revisions stream, keeps a view of current rows, and
// answers queries from it.
//
// Every process follows the views of all partitions, so any number of them may answer
// queries. Acceptance belongs to whoever holds a partition's lease and wins the claim on
// its fence subject; the journal decides, the lease only says who tries.
package projector

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sort"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/internal/heartbeat"
	"github.com/tidemark-mesh/tidemark/internal/leases"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
)

// Config is what a projector needs.
type Config struct {
	Conn     *natsio.Conn
	Dir      string // of this service; views stand under it
	Instance string // names the process; the same after a restart
	Address  string // where others reach its HTTP API
	Log      zerolog.Logger
	Registry *prometheus.Registry
	Clock    clock.Clock
	Monitor  *heartbeat.Monitor // told of loops; may be nil
	LeaseTTL time.Duration      // how long a silent process is waited for; 0 = leases.DefaultTTL

	CheckpointEvery time.Duration // how long a view's file may be behind; default 5 s
}

// Service is one projector process.
type Service struct {
	cfg     Config
	leases  *leases.Holder
	metrics *metrics
	tasks   sync.WaitGroup

	mu      sync.Mutex
	loaded  bool  // the documents were read
	blind   error // why documents are not followed any more
	streams map[string]*stream
}

// New answers a projector that does nothing until Run.
func New(cfg Config) (*Service, error) {
	if cfg.Conn == nil || cfg.Dir == "" || cfg.Instance == "" {
		return nil, errors.New("projector: Conn, Dir and Instance must be set")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.System()
	}
	if cfg.CheckpointEvery <= 0 {
		cfg.CheckpointEvery = flushAfter
	}
	m, err := newMetrics(cfg.Registry, cfg.Clock)
	if err != nil {
		return nil, fmt.Errorf("projector: %w", err)
	}
	holder, err := leases.New(leases.Options{
		JS: cfg.Conn.JS, Role: stage, Instance: cfg.Instance, Address: cfg.Address, TTL: cfg.LeaseTTL,
		Clock: cfg.Clock, Log: cfg.Log, Registry: cfg.Registry,
	})
	if err != nil {
		return nil, fmt.Errorf("projector: %w", err)
	}
	return &Service{cfg: cfg, metrics: m, streams: map[string]*stream{}, leases: holder}, nil
}

// Run follows the documents and keeps their partitions going until ctx ends; then it
// commits what was decided, closes the views and returns.
func (s *Service) Run(ctx context.Context) error {
	api, err := s.startAPI()
	if err != nil {
		return err
	}
	s.tasks.Go(func() { s.leases.Run(ctx) })
	// Queries end before the views do: another process answers the next ones.
	working, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	s.tasks.Go(func() {
		<-ctx.Done()
		api.stop()
		end()
	})
	err = config.Watch(ctx, s.cfg.Conn.JS, func(snap config.Snapshot) { s.reconcile(working, snap, api) })
	if err != nil && ctx.Err() == nil { // what was applied before goes on
		s.cfg.Log.Error().Err(err).Msg("projector: reading the documents; new ones are not seen until a restart")
		s.mu.Lock()
		s.blind = err
		s.mu.Unlock()
		<-ctx.Done()
	}
	s.tasks.Wait()
	return nil
}

// reconcile starts what is new. Documents are immutable and never go away.
func (s *Service) reconcile(ctx context.Context, snap config.Snapshot, api *api) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded = true
	var fresh []*stream
	for _, e := range snap.Streams {
		if s.streams[e.Stream.Name] == nil {
			st := newStream(e.Stream, s.cfg.Instance)
			s.streams[e.Stream.Name] = st
			fresh = append(fresh, st)
			s.tasks.Go(func() { st.followAliases(ctx, s.cfg.Conn.JS, s.cfg.Clock, s.cfg.Log) })
		}
	}
	for _, e := range snap.Policies {
		st := s.streams[e.Policy.Stream]
		if st == nil || st.job(e.Policy.Job, e.Policy.Generation) != nil {
			continue
		}
		units := make([]*unit, st.doc.Partitions)
		for pp := range units {
			units[pp] = s.newUnit(e, partition{stream: e.Policy.Stream, job: e.Policy.Job, generation: e.Policy.Generation, number: pp})
			s.tasks.Go(func() { units[pp].run(ctx) })
		}
		st.add(&job{policy: e.Policy, units: units})
	}
	for _, st := range fresh {
		s.tasks.Go(func() {
			api.serveStatus(ctx, st)
			if !st.awaitViews(ctx) {
				return
			}
			for !st.becomeReady() {
				if !st.reachNow(ctx, s.cfg.Conn.JS, s.cfg.Clock) {
					return
				}
			}
			api.serve(ctx, st)
		})
	}
}

func (s *Service) newUnit(e config.Entry, p partition) *unit {
	return &unit{
		part: p, policy: e.Policy,
		static: record.Static{
			Stream: p.stream, Job: p.job, PolicyGeneration: e.Policy.PolicyGeneration(), PolicyDigest: e.Digest,
		},
		js: s.cfg.Conn.JS, owner: s.cfg.Instance, file: p.viewFile(s.cfg.Dir), every: s.cfg.CheckpointEvery, leases: s.leases,
		clock: s.cfg.Clock, monitor: s.cfg.Monitor, metrics: s.metrics, log: s.cfg.Log,
		role: roleStarting, ready: make(chan struct{}),
	}
}

// Problems answers why the process is not ready: documents not read yet, views that have
// not caught up since the start, partitions that are halted.
func (s *Service) Problems() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.loaded && s.blind == nil {
		return []string{"projector: the documents were not read yet"}
	}
	var problems []string
	if s.blind != nil {
		problems = append(problems, "projector: documents: "+s.blind.Error())
	}
	for _, st := range s.streams {
		if !st.isReady() {
			problems = append(problems, fmt.Sprintf("projector: the views of %s are being read", st.doc.Name))
		}
		for _, u := range st.units() {
			if problem := u.trouble(); problem != "" {
				problems = append(problems, "projector: "+problem)
			}
		}
	}
	sort.Strings(problems)
	return problems
}

// stream answers a business stream by name, nil if there is none.
func (s *Service) stream(name string) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[name]
}

// Routes adds the HTTP API to the process's mux.
func (s *Service) Routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/streams/{stream}/windows", s.httpWindows)
	mux.HandleFunc("GET /v1/streams/{stream}/status", s.httpStatus)
}

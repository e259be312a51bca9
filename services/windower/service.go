package windower

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/heartbeat"
	"github.com/tidemark-mesh/tidemark/internal/leases"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
)

// Config is what a windower needs.
type Config struct {
	Conn     *natsio.Conn
	Dir      string // the service's own directory: checkpoints stand in it
	Instance string // names the process; the same after a restart
	Address  string // where others reach its HTTP API
	Log      zerolog.Logger
	Registry *prometheus.Registry
	Clock    clock.Clock
	Monitor  *heartbeat.Monitor // told of loops; may be nil

	CheckpointEvery time.Duration // default 10 s
	SnapshotEvery   time.Duration // default 5 min; below 0: only when a partition is handed over
	LeaseTTL        time.Duration // how long a silent process is waited for; default leases.DefaultTTL
}

// Service is one windower process.
type Service struct {
	cfg     Config
	leases  *leases.Holder
	metrics *metrics
	tasks   sync.WaitGroup

	mu     sync.Mutex
	loaded bool // the documents were read
	units  map[partition]*unit
}

// New answers a windower that does nothing until Run.
func New(cfg Config) (*Service, error) {
	if cfg.Conn == nil || cfg.Dir == "" || cfg.Instance == "" {
		return nil, errors.New("windower: Conn, Dir and Instance must be set")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.System()
	}
	if cfg.CheckpointEvery <= 0 {
		cfg.CheckpointEvery = checkpointEvery
	}
	if cfg.SnapshotEvery == 0 {
		cfg.SnapshotEvery = snapshotEvery
	}
	m, err := newMetrics(cfg.Registry, cfg.Clock)
	if err != nil {
		return nil, fmt.Errorf("windower: %w", err)
	}
	holder, err := leases.New(leases.Options{
		JS: cfg.Conn.JS, Role: stage, Instance: cfg.Instance, Address: cfg.Address, TTL: cfg.LeaseTTL,
		Clock: cfg.Clock, Log: cfg.Log, Registry: cfg.Registry,
	})
	if err != nil {
		return nil, fmt.Errorf("windower: %w", err)
	}
	return &Service{cfg: cfg, metrics: m, units: map[partition]*unit{}, leases: holder}, nil
}

// Run follows the documents and keeps a unit going for every key partition of every
// policy until ctx ends; then every unit commits what it decided, leaves a checkpoint
// and gives its lease back.
func (s *Service) Run(ctx context.Context) error {
	s.tasks.Go(func() { s.leases.Run(ctx) })
	err := config.Watch(ctx, s.cfg.Conn.JS, func(snap config.Snapshot) { s.reconcile(ctx, snap) })
	s.tasks.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// reconcile starts what is new. Documents are immutable and never go away.
func (s *Service) reconcile(ctx context.Context, snap config.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded = true
	streams := map[string]config.Entry{}
	for _, e := range snap.Streams {
		streams[e.Stream.Name] = e
	}
	for _, e := range snap.Policies {
		of, ok := streams[e.Policy.Stream]
		if !ok {
			continue // its stream comes with a later snapshot
		}
		for number := range of.Stream.Partitions {
			p := partition{stream: e.Policy.Stream, job: e.Policy.Job, generation: e.Policy.Generation, number: number}
			if s.units[p] != nil {
				continue
			}
			u := s.newUnit(p, of, e)
			s.units[p] = u
			s.tasks.Go(func() { u.run(ctx) })
		}
	}
}

func (s *Service) newUnit(p partition, stream, e config.Entry) *unit {
	return &unit{
		part: p, business: stream.Stream, policy: e.Policy, policyDigest: e.Digest, coreVersion: e.CoreVersion,
		nc: s.cfg.Conn.NC, js: s.cfg.Conn.JS, owner: s.cfg.Instance, file: p.file(s.cfg.Dir),
		leases: s.leases, clock: s.cfg.Clock, monitor: s.cfg.Monitor, every: s.cfg.CheckpointEvery, snapshotEvery: max(0, s.cfg.SnapshotEvery), cut: cutBytes, metrics: s.metrics, log: s.cfg.Log, role: roleWaiting,
	}
}

// Problems answers why the process is not ready: documents not read yet, partitions that
// are halted or fail again and again.
func (s *Service) Problems() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.loaded {
		return []string{"windower: the documents were not read yet"}
	}
	var problems []string
	for _, u := range s.units {
		if problem := u.trouble(); problem != "" {
			problems = append(problems, "windower: "+problem)
		}
	}
	slices.Sort(problems)
	return problems
}

// Routes has nothing to add: the windower answers over NATS only.
func (s *Service) Routes(*http.ServeMux) {}

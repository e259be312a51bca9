package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/tidemark-mesh/tidemark/internal/adapters"
	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/heartbeat"
	"github.com/tidemark-mesh/tidemark/internal/httpx"
	"github.com/tidemark-mesh/tidemark/internal/leases"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/services/effector"
	"github.com/tidemark-mesh/tidemark/services/ingest"
	"github.com/tidemark-mesh/tidemark/services/projector"
	"github.com/tidemark-mesh/tidemark/services/reconciler"
	"github.com/tidemark-mesh/tidemark/services/windower"
)

// drainTime is how long a process may take to end after it was asked to.
const drainTime = 20 * time.Second

// checkpointFlag is for tests: how often files are written decides only how long a restart takes.
func checkpointFlag(cmd *cobra.Command, every *time.Duration) {
	hiddenDuration(cmd, every, "checkpoint-every", "how often windower and projector write their files (0 = their default)")
}

// snapshotFlag is for tests: one process that has its files needs no snapshot.
func snapshotFlag(cmd *cobra.Command, every *time.Duration) {
	hiddenDuration(cmd, every, "snapshot-every", "how often the windower stores a snapshot (0 = 5m; below 0 = never)")
}

// askFlag is for tests: how soon the effector asks a second time decides only how long an
// outcome is unknown.
func askFlag(cmd *cobra.Command, first *time.Duration) {
	hiddenDuration(cmd, first, "ask-first", "how long the effector waits after its first question about an unknown outcome (0 = its default)")
}

func hiddenDuration(cmd *cobra.Command, into *time.Duration, name, usage string) {
	f := cmd.Flags()
	f.DurationVar(into, name, 0, usage)
	if err := f.MarkHidden(name); err != nil {
		panic(err) // the flag was declared right above
	}
}

// scaleFlags say how processes of one service share their partitions.
type scaleFlags struct {
	leaseTTL      time.Duration
	snapshotEvery time.Duration
}

func (s *scaleFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.DurationVar(&s.leaseTTL, "lease-ttl", leases.DefaultTTL, "how long a process may be silent before others take its partitions (all processes of a service alike)")
	f.DurationVar(&s.snapshotEvery, "snapshot-every", 0, "how often windowers store a snapshot (0 = 5m; below 0 = only when a partition is handed over)")
}

// service is what every service looks like to the process that runs it.
type service interface {
	Run(ctx context.Context) error
	Routes(mux *http.ServeMux)
	Problems() []string
}

// node is one process: some services, one connection, one HTTP server.
type node struct {
	names    []string
	services []service
	http     *httpx.Server
	log      zerolog.Logger
}

// nodeConfig is what wiring needs.
type nodeConfig struct {
	conn     *natsio.Conn
	dir      *dataDir
	log      zerolog.Logger
	http     httpx.Options
	services []string
	scale    scaleFlags
	// checkpointEvery is how often windower and projector write their files; 0 = their default.
	checkpointEvery time.Duration
	// askFirst is how long the effector waits between questions at first; 0 = its default.
	askFirst time.Duration
}

// newNode binds the HTTP address and builds the services, top to bottom.
func newNode(cfg nodeConfig) (*node, error) {
	n := &node{names: cfg.services, log: cfg.log}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	cfg.http.Registry = registry
	cfg.http.Problems = n.problems
	monitor := heartbeat.New(clock.System())
	cfg.http.Alive = monitor.Late
	server, err := httpx.Listen(cfg.http)
	if err != nil {
		return nil, refused(err)
	}
	n.http = server
	for _, name := range cfg.services {
		s, err := buildService(name, cfg, registry, monitor, server.Advertised())
		if err != nil {
			return nil, refused(fmt.Errorf("%s: %w", name, err))
		}
		s.Routes(server.Mux)
		n.services = append(n.services, s)
	}
	return n, nil
}

func buildService(name string, cfg nodeConfig, registry *prometheus.Registry, monitor *heartbeat.Monitor, address string) (service, error) {
	log := cfg.log.With().Str("service", name).Logger()
	instance := cfg.dir.marker.Instance
	switch name {
	case "ingest":
		return ingest.New(ingest.Config{Conn: cfg.conn, LeaseTTL: cfg.scale.leaseTTL, Instance: instance, Address: address, Log: log, Registry: registry, Clock: clock.System(), Monitor: monitor})
	case "windower":
		return windower.New(windower.Config{Conn: cfg.conn, LeaseTTL: cfg.scale.leaseTTL, SnapshotEvery: cfg.scale.snapshotEvery, Dir: filepath.Join(cfg.dir.path, "windower"), Instance: instance, Address: address, Log: log, Registry: registry, Clock: clock.System(), Monitor: monitor, CheckpointEvery: cfg.checkpointEvery})
	case "projector":
		return projector.New(projector.Config{Conn: cfg.conn, LeaseTTL: cfg.scale.leaseTTL, Dir: filepath.Join(cfg.dir.path, "projector"), Instance: instance, Address: address, Log: log, Registry: registry, Clock: clock.System(), Monitor: monitor, CheckpointEvery: cfg.checkpointEvery})
	case "effector":
		return effector.New(effector.Config{Conn: cfg.conn, LeaseTTL: cfg.scale.leaseTTL, Dir: filepath.Join(cfg.dir.path, "effector"), Instance: instance, Address: address, Log: log, Registry: registry, Clock: clock.System(), Monitor: monitor, AskFirst: cfg.askFirst, Adapters: adapters.Deps{Conn: cfg.conn.NC, Log: log, Clock: clock.System()}})
	case "reconciler":
		return reconciler.New(reconciler.Config{Log: log})
	}
	return nil, fmt.Errorf("no service is named %q", name)
}

// problems answers why the process is not ready, each with its service's name.
func (n *node) problems() []string {
	var all []string
	for i, s := range n.services {
		for _, p := range s.Problems() {
			if !strings.HasPrefix(p, n.names[i]+": ") {
				p = n.names[i] + ": " + p
			}
			all = append(all, p)
		}
	}
	slices.Sort(all)
	return all
}

// run serves until ctx ends or a service fails for good, then drains within drainTime.
func (n *node) run(ctx context.Context) error {
	group, running := errgroup.WithContext(ctx)
	for i, s := range n.services {
		group.Go(func() error {
			if err := s.Run(running); err != nil && !errors.Is(err, context.Canceled) {
				return fmt.Errorf("%s: %w", n.names[i], err)
			}
			return nil
		})
	}
	group.Go(n.http.Serve)
	group.Go(func() error {
		<-running.Done()
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
		defer cancel()
		return n.http.Shutdown(stopping)
	})
	return group.Wait()
}

// slowStart is how long a start may take before the log says what it waits for.
const slowStart = 10 * time.Second

// waitReady returns when no service has a problem, or when ctx ends. A start that takes
// long is not silent: a halted partition keeps a process from ever being ready.
func (n *node) waitReady(ctx context.Context) error {
	ticker := clock.System().NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	late := clock.System().NewTimer(slowStart)
	defer late.Stop()
	for {
		problems := n.problems()
		if len(problems) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C():
			n.log.Warn().Strs("problems", problems).Str("http", n.http.URL()).Msg("not ready yet; /readyz?verbose says what is missing")
		case <-ticker.C():
		}
	}
}

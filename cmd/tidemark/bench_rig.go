package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/bench"
	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/heartbeat"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// benchRig is one run: an embedded server, the documents, and the services of the stage.
type benchRig struct {
	*cli
	options benchOptions
	clock   clock.Clock
	log     zerolog.Logger
	dir     *dataDir
	server  *natsio.Embedded
	conn    *natsio.Conn // of the services, as in `up`
	client  *natsio.Conn // of senders and readers
	stream  *policy.BusinessStream
	report  bench.Report
	running []func() error // ends a service that still runs
	ended   time.Time      // latency: when the last event was acknowledged
}

func newBenchRig(ctx context.Context, c *cli, o benchOptions) (_ *benchRig, err error) {
	r := &benchRig{cli: c, options: o, clock: clock.System(), log: zerolog.Nop()}
	r.report.Stage, r.report.Spec = o.stage, o.spec
	if c.verbose {
		r.log = c.logger()
	}
	if r.dir, err = openDataDir(o.data); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.server, err = natsio.Embed(ctx, natsio.EmbeddedOptions{Dir: filepath.Join(o.data, "nats"), Port: -1, Name: "tidemark-bench"}); err != nil {
		return nil, refused(err)
	}
	if r.conn, err = r.server.Connect(ctx, "tidemark-bench"); err != nil {
		return nil, err
	}
	if r.client, err = r.server.Connect(ctx, "tidemark-bench-client"); err != nil {
		return nil, err
	}
	if err = natsio.Provision(ctx, r.conn.JS, 1); err != nil {
		return nil, err
	}
	if err = r.dir.bind(ctx, r.conn.JS); err != nil {
		return nil, err
	}
	return r, r.documents(ctx)
}

// documents applies stream and policy; a data directory that has them already was used before.
func (r *benchRig) documents(ctx context.Context) error {
	snapshot, err := config.Load(ctx, r.conn.JS)
	if err != nil {
		return err
	}
	if len(snapshot.Streams) > 0 {
		return refused(fmt.Errorf("%s was used before; bench needs an empty data directory", r.options.data))
	}
	docs, found := policy.Parse("bench", bench.Documents(r.options.keepIDs, r.options.spec.Window))
	if len(found) > 0 {
		return usage(fmt.Errorf("--keep-ids %s: %s: %s", r.options.keepIDs, found[0].Rule, found[0].Message))
	}
	if _, err := config.Apply(ctx, r.conn.JS, docs, config.Options{Replicas: 1, Reason: "bench"}); err != nil {
		return err
	}
	if snapshot, err = config.Load(ctx, r.conn.JS); err != nil {
		return err
	}
	r.stream = snapshot.Streams[0].Stream
	return nil
}

// start runs a service until its stop is called, and waits until it is ready.
func (r *benchRig) start(ctx context.Context, name string) (stop func() error, err error) {
	cfg := nodeConfig{conn: r.conn, dir: r.dir, log: r.log}
	s, err := buildService(name, cfg, prometheus.NewRegistry(), heartbeat.New(r.clock), "http://127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(running) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	r.running = append(r.running, stop)
	n := &node{names: []string{name}, services: []service{s}}
	return stop, n.waitReady(ctx)
}

func (r *benchRig) close() {
	for _, stop := range r.running {
		if err := stop(); err != nil {
			r.note("bench: %v", err)
		}
	}
	for _, c := range []*natsio.Conn{r.client, r.conn} {
		if c != nil {
			c.Close()
		}
	}
	if r.server != nil {
		r.server.Shutdown()
	}
}

// until polls ok; step is how often.
func (r *benchRig) until(ctx context.Context, step time.Duration, ok func() (bool, error)) error {
	ticker := r.clock.NewTicker(step)
	defer ticker.Stop()
	for {
		if done, err := ok(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C():
		}
	}
}

// readable waits until readers see everything that stands in the events journals.
func (r *benchRig) readable(ctx context.Context) error {
	targets, err := waitTargets(ctx, r.client, bench.Stream)
	if err != nil {
		return err
	}
	return r.until(ctx, 10*time.Millisecond, func() (bool, error) {
		behind, err := r.behind(ctx, r.client.NC, bench.Stream, targets)
		return behind == "", err
	})
}

// measureDisk notes what the journals and files hold.
func (r *benchRig) measureDisk(ctx context.Context) error {
	r.report.Disk, r.report.Messages = map[string]int64{}, map[string]int64{}
	journals := map[string][]string{
		"quarantine": {subject.QuarantineStream(bench.Stream)}, "revisions": {subject.RevisionsStream(bench.Stream)},
		"sources": {subject.SourcesStream(bench.Stream)},
	}
	for pp := range r.stream.Partitions {
		journals["events"] = append(journals["events"], subject.EventsStream(bench.Stream, pp))
		journals["windows"] = append(journals["windows"], subject.WindowsStream(bench.Stream, bench.Job, bench.Generation, pp))
	}
	for name, streams := range journals {
		for _, stream := range streams {
			info, err := r.client.JS.Stream(ctx, stream)
			if err != nil {
				return fmt.Errorf("stream %s: %w", stream, err)
			}
			r.report.Disk[name] += int64(info.CachedInfo().State.Bytes)
			r.report.Messages[name] += int64(info.CachedInfo().State.Msgs)
		}
	}
	for name, dir := range map[string]string{"checkpoints": "windower", "views": "projector"} {
		n, err := bench.DiskBytes(filepath.Join(r.dir.path, dir))
		if err != nil && name == "checkpoints" {
			return err
		}
		r.report.Disk[name] = n
	}
	return nil
}

// published sends data and hands the acknowledgement to wait; used by the preparation.
type published struct {
	js      jetstream.JetStream
	flights []jetstream.PubAckFuture
}

// preparedInFlight bounds what is not acknowledged yet, over all key partitions.
const preparedInFlight = 256

func (p *published) send(subject string, data []byte) error {
	if len(p.flights) >= preparedInFlight {
		if err := p.settle(len(p.flights) / 2); err != nil {
			return err
		}
	}
	f, err := p.js.PublishAsync(subject, data, jetstream.WithRetryAttempts(0))
	if err != nil {
		return err
	}
	p.flights = append(p.flights, f)
	return nil
}

// settle waits for the oldest n acknowledgements.
func (p *published) settle(n int) error {
	for _, f := range p.flights[:n] {
		select {
		case <-f.Ok():
		case err := <-f.Err():
			return fmt.Errorf("prepare the events journal: %w", err)
		}
	}
	p.flights = append(p.flights[:0], p.flights[n:]...)
	return nil
}

package windower

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

const documents = `
apiVersion: tidemark/v1
kind: BusinessStream
name: NAME
partitions: 3
key: [/region]
values:
  amount: {path: /amount, type: decimal, scale: 2}
eventTime:
  order.occurred_at@1: {path: /occurred_at, format: rfc3339}
bounds: {maxFuture: 5m, notBefore: 2020-01-01T00:00:00Z}
schemaGeneration: 1
maxEventBytes: 256KiB
---
apiVersion: tidemark/v1
kind: StreamTimePolicy
schema: streamTimePolicy.v1
stream: NAME
job: JOB
generation: 1
sources: [{name: shop, partitions: 1}]
timestampExtractor: order.occurred_at@1
watermark: {boundedOutOfOrderness: 5m}
idle: {after: 15m, allIdle: hold}
window: {tumbling: WINDOW, zone: UTC}
aggregates: {revenue: sum(amount), orders: count()}
allowedLateness: 24h
late: rebuild
retention: {ids: 48h, raw: unlimited}
correctionMode: UPSERT_REVISION
`

func documentsOf(t *testing.T, stream, job, window string) []policy.Document {
	t.Helper()
	text := strings.NewReplacer("NAME", stream, "JOB", job, "WINDOW", window).Replace(documents)
	docs, findings := policy.Parse("test.yaml", []byte(text))
	if len(findings) > 0 {
		t.Fatal(findings)
	}
	return docs
}

// TestService runs two jobs on one stream of three key partitions. The second job is
// applied while the service runs; one partition of the first halts, the others go on.
func TestService(t *testing.T) {
	ctx := deadline(t)
	w := newWorld(t, 3)
	apply := func(job, window string) *policy.StreamTimePolicy {
		docs := documentsOf(t, w.bs.Name, job, window)
		_, err := config.Apply(ctx, shared.conn.JS, docs, config.Options{Replicas: 1})
		must(t, err)
		return docs[1].Policy
	}
	w.pol = apply("hourly", "1h")
	registry := prometheus.NewRegistry()
	s, err := New(Config{Conn: shared.conn, Dir: w.dir, Instance: "i-" + w.bs.Name, Log: zerolog.Nop(), Registry: registry})
	must(t, err)
	if got := s.Problems(); len(got) != 1 {
		t.Fatalf("problems before Run: %v", got)
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- s.Run(running) }()

	last := make([]uint64, 3)
	for pp := range 3 {
		last[pp] = w.traffic(pp, 0, 4, 6)
	}
	w.settled(s, last)
	half := *w
	half.pol = apply("half-hourly", "30m")
	half.settled(s, last)
	if got := s.Problems(); len(got) != 0 {
		t.Fatalf("problems: %v", got)
	}

	w.frame(1, envelope.Record{Event: w.order("key-1", epoch, 1)}) // never written
	w.mark(1, epoch.Add(9*hour))
	last[0], last[2] = w.traffic(0, 4, 2, 6), w.traffic(2, 4, 2, 6)
	await(t, "the halt of key partition 1 of both jobs", func() bool { return len(s.Problems()) == 2 })
	w.settled(s, last)
	for _, problem := range s.Problems() {
		if !strings.Contains(problem, w.bs.Name+"/01") || !strings.Contains(problem, "missing") {
			t.Errorf("problem %q", problem)
		}
	}

	begun := time.Now()
	stop()
	must(t, <-done)
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("draining took %s", took)
	}
	for _, pp := range []int{0, 2} {
		w.digest(s)
		w.same(pp)
		half.frames = w.frames
		half.digest(s)
		half.same(pp)
	}
	families, err := registry.Gather()
	must(t, err)
	seen := map[string]bool{}
	for _, f := range families {
		seen[f.GetName()] = true
		if strings.Contains(fmt.Sprint(f), "key-1") {
			t.Errorf("metric %s holds a business key", f.GetName())
		}
	}
	for _, name := range []string{
		"tidemark_claims_total", "tidemark_journal_position", "tidemark_watermark_timestamp_seconds", "tidemark_events_total",
		"tidemark_event_time_lag_seconds", "tidemark_watermark_holder", "tidemark_partition_idle", "tidemark_windows", "tidemark_lateness_seconds",
	} {
		if !seen[name] {
			t.Errorf("metric %s is missing", name)
		}
	}
}

// settled waits until every key partition of the world's job is committed up to last.
func (w *world) settled(s *Service, last []uint64) {
	w.t.Helper()
	for pp := range last {
		await(w.t, fmt.Sprintf("%s up to %d", w.part(pp), last[pp]), func() bool {
			s.mu.Lock()
			u := s.units[w.part(pp)]
			s.mu.Unlock()
			if u == nil {
				return false
			}
			c := u.accepted()
			return c != nil && c.Inputs[0].Seq > last[pp]
		})
	}
}

// digest makes the reference run with the digest of the applied policy.
func (w *world) digest(s *Service) { w.policyDigest = s.units[w.part(0)].policyDigest }

// TestServiceTakesOver ends one process and lets another go on.
func TestServiceTakesOver(t *testing.T) {
	ctx := deadline(t)
	w := newWorld(t, 3)
	docs := documentsOf(t, w.bs.Name, "hourly", "1h")
	_, err := config.Apply(ctx, shared.conn.JS, docs, config.Options{Replicas: 1})
	must(t, err)
	w.pol = docs[1].Policy
	last := make([]uint64, 3)
	for round := range 3 {
		s, err := New(Config{Conn: shared.conn, Dir: t.TempDir(), Instance: fmt.Sprintf("i-%s-%d", w.bs.Name, round), Log: zerolog.Nop()})
		must(t, err)
		running, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- s.Run(running) }()
		for pp := range 3 {
			last[pp] = w.traffic(pp, round*2, 2, 6)
		}
		w.settled(s, last)
		stop()
		must(t, <-done)
		w.digest(s)
	}
	for pp := range 3 {
		if got := w.same(pp).claims; got != 3 {
			t.Errorf("%d claims of key partition %d, want 3", got, pp)
		}
	}
}

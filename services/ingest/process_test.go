package ingest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

const documents = `
apiVersion: tidemark/v1
kind: BusinessStream
name: live
partitions: 2
key: [/region]
values:
  amount: {path: /amount, type: decimal, scale: 2}
eventTime:
  at@1: {path: /at, format: rfc3339}
bounds: {maxFuture: 5m, notBefore: 2020-01-01T00:00:00Z}
schemaGeneration: 1
`

const firstPolicy = `
apiVersion: tidemark/v1
kind: StreamTimePolicy
schema: streamTimePolicy.v1
stream: live
job: sums@1
sources: [{name: shop, partitions: 2}]
timestampExtractor: at@1
watermark: {boundedOutOfOrderness: 5m}
window: {tumbling: 1h, zone: UTC}
aggregates: {total: sum(amount)}
allowedLateness: 1h
late: manual
retention: {ids: 48h, raw: unlimited}
correctionMode: UPSERT_REVISION
`

const secondPolicy = `
apiVersion: tidemark/v1
kind: StreamTimePolicy
schema: streamTimePolicy.v1
stream: live
job: more@1
sources: [{name: shop, partitions: 2}, {name: till, partitions: 1}]
timestampExtractor: at@1
watermark: {boundedOutOfOrderness: 5m}
window: {tumbling: 2h, zone: UTC}
aggregates: {total: sum(amount)}
allowedLateness: 1h
late: manual
retention: {ids: 48h, raw: unlimited}
correctionMode: UPSERT_REVISION
`

// apply stores documents as the CLI does.
func apply(t *testing.T, conn *natsio.Conn, text string) {
	t.Helper()
	docs, findings := policy.Parse("test.yaml", []byte(text))
	if len(findings) > 0 {
		t.Fatal(findings)
	}
	if _, err := config.Apply(t.Context(), conn.JS, docs, config.Options{Replicas: 1}); err != nil {
		t.Fatal(err)
	}
}

// process is a Service as cmd runs it: real leases, real documents.
func process(t *testing.T, name string) (s *Service, stop func()) {
	t.Helper()
	s, err := New(Config{Conn: connect(t), Instance: name, Address: "http://" + name, Log: zerolog.Nop(), LeaseTTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return s, stop
}

func TestProcessesFollowDocumentsAndTakeOver(t *testing.T) {
	conn := connect(t)
	if err := natsio.Provision(t.Context(), conn.JS, 1); err != nil {
		t.Fatal(err)
	}
	first, stopFirst := process(t, "first")
	until(t, "ready without documents", func() bool { return len(first.Problems()) == 0 })
	apply(t, conn, documents)
	apply(t, conn, firstPolicy)
	push := func(s *Service, source, item string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := s.Push(ctx, &Request{Stream: "live", Source: source, Items: plain(item)})
		return err
	}
	until(t, "the first policy's partition takes events", func() bool {
		st, err := first.streamNamed("live")
		return err == nil && st.owned() >= 2 && push(first, "shop", sale("e1", "north", 1)) == nil
	})
	apply(t, conn, secondPolicy)
	until(t, "the second policy's source is owned", func() bool {
		st, err := first.streamNamed("live")
		return err == nil && st.owned() == 3 && push(first, "till", sale("e2", "north", 1)) == nil
	})
	second, _ := process(t, "second")
	until(t, "the second process stands by", func() bool {
		_, err := second.streamNamed("live")
		return err == nil && len(second.Problems()) == 0
	})
	if e := asError(push(second, "shop", sale("e3", "north", 1))); e.Status != 421 || e.Address != "http://first" {
		t.Errorf("error %+v", e)
	}
	stopFirst()
	until(t, "the second process took over", func() bool { return push(second, "shop", sale("e3", "north", 1)) == nil })
}

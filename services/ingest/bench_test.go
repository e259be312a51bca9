package ingest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/core/admission"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// flights answers a body of n lines as flights have them, about 180 B each.
func flights(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range n {
		delay := r.IntN(120) - 10
		scheduled := at.Add(time.Duration(i) * time.Second)
		fmt.Fprintf(&b, "{\"id\":\"flight-%06d\",\"scheduled_at\":%q,\"occurred_at\":%q,\"origin\":\"A%02d\",\"destination\":\"B%02d\",\"delay_min\":%d,\"distance_mi\":%d}\n",
			i, scheduled.Format(time.RFC3339), scheduled.Add(time.Duration(delay)*time.Minute).Format(time.RFC3339), r.IntN(99), r.IntN(99), delay, 100+r.IntN(2500))
	}
	return []byte(b.String())
}

// BenchmarkPush takes in requests of 2,000 lines from several clients, parsed, decided,
// framed, and acknowledged by a server that syncs every write.
func BenchmarkPush(b *testing.B) {
	w := newWorld(b, 8)
	w.stream.Key = []string{"/origin"}
	w.stream.Extractors[0] = policy.Extractor{Name: "occurred_at@1", Path: "/occurred_at", Format: policy.RFC3339}
	w.stream.Values = []policy.ValueSpec{
		{Name: "delay", Path: "/delay_min", Type: policy.Int}, {Name: "distance", Path: "/distance_mi", Type: policy.Int},
	}
	n := w.run("a").ready()
	const size = 2000
	body := flights(size)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	var client atomic.Uint32
	b.SetParallelism(4)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		number := client.Add(1) % 2
		for pb.Next() {
			req := &Request{Stream: w.stream.Name, Source: "shop", Partition: number, Items: lines(body, admission.Plain)}
			reply, err := n.Push(context.Background(), req)
			if err != nil || reply.Accepted != size {
				b.Errorf("reply %+v: %v", reply, err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)*size/b.Elapsed().Seconds(), "events/s")
}

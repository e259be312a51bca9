package windower

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// TestPreviews reads what a policy with trigger.early shows, and that its records are
// those of one without.
func TestPreviews(t *testing.T) {
	w := newWorld(t, 1)
	w.pol.Early = 30 * policy.Second
	r := start(t, w.unit(0, w.dir))
	ctx := deadline(t)
	stream, err := shared.conn.JS.Stream(ctx, subject.EarlyStream(w.bs.Name))
	must(t, err)
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	must(t, err)
	markAt := func(seconds int64) uint64 {
		m := w.markOf(0, epoch)
		m.IngestNow += envelope.IngestTime(seconds * 1_000_000)
		return w.write(0, w.frame(0, envelope.Record{Mark: m}))
	}
	next := func() (shown map[string]any, on string) {
		m, err := consumer.Next(jetstream.FetchMaxWait(30 * time.Second))
		must(t, err)
		must(t, json.Unmarshal(m.Data(), &shown))
		if m.Headers().Get(subject.HeaderSchema) != revision.PreviewSchema {
			t.Errorf("headers %v", m.Headers())
		}
		return shown, m.Subject()
	}

	w.events(0, w.order("eu west", epoch.Add(5), 1250), w.order("eu west", epoch.Add(6), 50))
	r.reached(t, markAt(1)+1)
	shown, on := next()
	if on != subject.Early(w.bs.Name, "revenue", 1, "eu west") || !strings.HasPrefix(on, "tm."+w.bs.Name+".early.revenue.1.") {
		t.Errorf("subject %s", on)
	}
	value := shown["value"].(map[string]any)
	if shown["schema"] != "early.v1" || shown["key"] != "eu west" || shown["events"] != 2.0 || value["revenue"] != "13.00" || value["orders"] != 2.0 {
		t.Errorf("got %v", shown)
	}
	w.events(0, w.order("us", epoch.Add(7), 1))
	r.reached(t, markAt(15)+1) // too early for previews
	w.events(0, w.order("us", epoch.Add(8), 1))
	r.reached(t, markAt(31)+1)
	if shown, _ = next(); shown["key"] != "us" || shown["events"] != 2.0 {
		t.Errorf("got %v, want the one window that changed, once", shown)
	}
	r.reached(t, w.mark(0, epoch.Add(2*hour))+1)
	r.drain(t)
	w.pol.Early = 0
	w.same(0)
}

//go:build heavy

package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// click is one event of the chaos workload.
type click struct {
	id   string
	user int
	n    int
	at   int64 // Unix milliseconds
}

func (e click) line(b *bytes.Buffer) {
	fmt.Fprintf(b, `{"id":%q,"user":"user-%d","n":%d,"at":%d}`+"\n", e.id, e.user, e.n, e.at)
}

// row names the window that e counts in.
func (e click) row() string {
	return fmt.Sprintf("user-%d %s", e.user, time.UnixMilli(e.at).UTC().Truncate(time.Minute).Format(time.RFC3339))
}

// sender pushes events of one source partition until each is acknowledged.
type sender struct {
	c         *chaos
	partition int
	random    *rand.Rand
	gate      chan struct{} // held while sent may be read
	sent      []click       // acknowledged, each once
	high      int64         // of the last batch
	next      int
	acked     atomic.Int64
	again     atomic.Int64
}

// Shape of what a sender does.
const (
	batchEvents  = 30
	sendEvery    = 80 * time.Millisecond
	eventSpacing = 100 // milliseconds of event time between two events
)

// run sends a batch, again and again until it is acknowledged, and then the next.
func (s *sender) run(ctx context.Context) {
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-s.gate:
		}
		s.turn(ctx)
		s.gate <- struct{}{}
		<-tick.C
	}
}

// turn sends one batch until it is acknowledged. The gate is held.
func (s *sender) turn(ctx context.Context) {
	batch := s.batch()
	body := s.body(batch)
	for ctx.Err() == nil && !s.push(ctx, s.c.conn.NC, body) {
		s.again.Add(int64(len(batch)))
		time.Sleep(50 * time.Millisecond) // a producer that tries again
	}
	if ctx.Err() == nil {
		s.sent = append(s.sent, batch...)
		s.acked.Add(int64(len(batch)))
	}
}

// batch makes the next events: disordered by up to 30 s, some of them up to an hour late.
func (s *sender) batch() []click {
	base := time.Date(2025, 3, 1, 8, 0, 0, 0, time.UTC).UnixMilli()
	out := make([]click, 0, batchEvents)
	s.high = 0
	for range batchEvents {
		at := base + int64(s.next)*eventSpacing - s.random.Int64N(30_000)
		if s.random.IntN(50) == 0 {
			at -= s.random.Int64N(3_600_000)
		}
		s.high = max(s.high, at)
		out = append(out, click{id: fmt.Sprintf("p%d-%d", s.partition, s.next), user: s.random.IntN(40), n: s.random.IntN(1000), at: at})
		s.next++
	}
	return out
}

// body writes a batch with repetitions of its own events and of old ones in between.
func (s *sender) body(batch []click) []byte {
	var b bytes.Buffer
	for i, e := range batch {
		e.line(&b)
		switch s.random.IntN(10) {
		case 0:
			batch[s.random.IntN(i+1)].line(&b)
		case 1:
			if len(s.sent) > 0 {
				s.sent[s.random.IntN(len(s.sent))].line(&b)
			}
		}
	}
	return b.Bytes()
}

// push answers whether everything was acknowledged.
func (s *sender) push(ctx context.Context, nc *nats.Conn, body []byte) bool {
	m := nats.NewMsg(subject.Ingest("clicks", "web", uint32(s.partition)))
	m.Header.Set(subject.HeaderContentType, "application/x-ndjson")
	m.Data = body
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	reply, err := nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		return false
	}
	var answer struct {
		Accepted    int             `json:"accepted"`
		Quarantined int             `json:"quarantined"`
		Error       json.RawMessage `json:"error"`
	}
	lines := bytes.Count(body, []byte("\n"))
	return json.Unmarshal(reply.Data, &answer) == nil && answer.Error == nil && answer.Accepted == lines
}

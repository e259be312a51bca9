package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// The documents of the bridges: visits of one user, sessions with a gap of a minute.
const visitsDocs = `
apiVersion: tidemark/v1
kind: BusinessStream
name: visits
partitions: 1
key: [/user]
values:
  n: {path: /n, type: int}
eventTime:
  at@1: {path: /at, format: unix-ms}
bounds: {maxFuture: 5m, notBefore: 2020-01-01T00:00:00Z}
---
apiVersion: tidemark/v1
kind: StreamTimePolicy
schema: streamTimePolicy.v1
stream: visits
job: sessions
generation: 1
sources: [{name: web, partitions: 1}]
timestampExtractor: at@1
watermark: {boundedOutOfOrderness: 0s}
window: {session: 1m, rule: gap-1-v1}
aggregates: {visits: count(), n: sum(n)}
allowedLateness: 90d
retention: {ids: 91d, raw: unlimited}
`

// Pair i has an event at its start and one 90 s later, which are two sessions, until one
// 45 s behind the start makes them one.
const (
	pairSpace   = 5 * time.Minute
	pairSecond  = 90 * time.Second
	pairBridge  = 45 * time.Second
	pairGap     = time.Minute
	pairsAround = 12 // pairs that a look takes in, around the one that is bridged now
)

// pairsBegin is the start of pair 0.
func pairsBegin() time.Time { return time.Date(2025, 6, 2, 0, 0, 0, 0, time.UTC) }

func pairStart(i int) time.Time { return pairsBegin().Add(time.Duration(i) * pairSpace) }

func visit(b *bytes.Buffer, id string, i int, at time.Time) {
	fmt.Fprintf(b, `{"id":"%s-%d","user":"k","n":1,"at":%d}`+"\n", id, i, at.UnixMilli())
}

// bridges is one run: pairs of sessions that late events make one, under readers.
type bridges struct {
	t     *testing.T
	up    *up
	nc    *nats.Conn
	pairs int
	at    atomic.Int64 // the pair that is bridged now
	looks atomic.Int64
	both  atomic.Int64 // looks that saw pairs of two sessions and pairs of one
}

func newBridges(t *testing.T, pairs int) *bridges {
	t.Helper()
	b := &bridges{t: t, up: startUp(t, t.TempDir()+"/data"), pairs: pairs}
	b.up.must("apply", "-f", write(t, "visits.yaml", visitsDocs))
	nc, err := nats.Connect(b.up.NATS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	b.nc = nc
	var first bytes.Buffer
	for i := range pairs {
		visit(&first, "a", i, pairStart(i))
		visit(&first, "b", i, pairStart(i).Add(pairSecond))
	}
	visit(&first, "end", 0, pairStart(pairs+1)) // closes the last pair
	b.up.must("send", write(t, "pairs.jsonl", first.String()), "--stream", "visits", "--source", "web", "--partition", "0")
	b.up.must("wait", "visits")
	return b
}

// bridge sends the late events at a rate, neighbours out of order.
func (b *bridges) bridge(perSecond int) {
	b.t.Helper()
	const chunk = 10
	random := rand.New(rand.NewPCG(7, 11))
	order := make([]int, b.pairs)
	for i := range order {
		order[i] = i
	}
	for i := 0; i < len(order); i += chunk {
		random.Shuffle(min(chunk, len(order)-i), func(x, y int) { order[i+x], order[i+y] = order[i+y], order[i+x] })
	}
	tick := time.NewTicker(time.Second * chunk / time.Duration(perSecond))
	defer tick.Stop()
	for i := 0; i < len(order); i += chunk {
		var body bytes.Buffer
		for _, pair := range order[i:min(i+chunk, len(order))] {
			visit(&body, "c", pair, pairStart(pair).Add(pairBridge))
		}
		m := nats.NewMsg(subject.Ingest("visits", "web", 0))
		m.Header.Set(subject.HeaderContentType, "application/x-ndjson")
		m.Data = body.Bytes()
		reply, err := b.nc.RequestMsg(m, 30*time.Second)
		if err != nil {
			b.t.Fatal(err)
		}
		if strings.Contains(string(reply.Data), `"error"`) {
			b.t.Fatalf("ingest answered %s", reply.Data)
		}
		b.at.Store(int64(i))
		<-tick.C
	}
}

// read polls the sessions around the pair that is bridged now, until ctx ends, and answers
// what is wrong with the first look at which something is.
func (b *bridges) read(ctx context.Context, every time.Duration) string {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ctx.Err() == nil {
		// Bridges of the mark before are published while newer ones come in.
		first := max(0, min(int(b.at.Load())-pairsAround*3/4-rand.IntN(150), b.pairs-pairsAround))
		if problem := b.look(first, min(b.pairs, first+pairsAround)); problem != "" {
			return problem
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return ""
}

// look asks once for the sessions of pairs [from, to): each is two sessions or one.
func (b *bridges) look(from, to int) string {
	ask, err := json.Marshal(map[string]any{"key": "k", "from": pairStart(from).Format(time.RFC3339), "to": pairStart(to).Format(time.RFC3339)})
	if err != nil {
		return err.Error()
	}
	reply, err := b.nc.Request(subject.Query("visits", "windows"), ask, 10*time.Second)
	if err != nil {
		return err.Error()
	}
	var page struct {
		Rows   []windowLine `json:"rows"`
		Cursor string       `json:"cursor"`
	}
	if err := json.Unmarshal(reply.Data, &page); err != nil || page.Cursor != "" {
		return fmt.Sprintf("%v: %s", err, reply.Data)
	}
	got := map[string]bool{}
	for _, w := range page.Rows {
		got[w.Start.Format(time.RFC3339)+" "+w.End.Format(time.RFC3339)] = true
	}
	apart, one := 0, 0
	for i := from; i < to; i++ {
		start := pairStart(i)
		second := start.Add(pairSecond)
		has := func(from, to time.Time) bool { return got[from.Format(time.RFC3339)+" "+to.Format(time.RFC3339)] }
		a, c := has(start, start.Add(pairGap)), has(start, second.Add(pairGap))
		z := has(second, second.Add(pairGap))
		switch {
		case a && z && !c:
			apart++
		case c && !a && !z:
			one++
		default:
			return fmt.Sprintf("pair %d: first session %t, second %t, both as one %t\n%s", i, a, z, c, reply.Data)
		}
	}
	if len(page.Rows) != 2*apart+one {
		return fmt.Sprintf("%d rows for %d pairs apart and %d as one\n%s", len(page.Rows), apart, one, reply.Data)
	}
	b.looks.Add(1)
	if apart > 0 && one > 0 {
		b.both.Add(1)
	}
	return ""
}

// run bridges all pairs under readers that look together more than once a millisecond,
// as far as the machine lets them.
func (b *bridges) run(perSecond int) {
	b.t.Helper()
	const readers, every = 8, 5 * time.Millisecond
	ctx, stop := context.WithCancel(b.t.Context())
	defer stop()
	var all sync.WaitGroup
	begun := time.Now()
	for range readers {
		all.Go(func() {
			if problem := b.read(ctx, every); problem != "" && ctx.Err() == nil {
				b.t.Errorf("a reader sees %s", problem)
			}
		})
	}
	b.bridge(perSecond)
	b.up.must("wait", "visits")
	took := time.Since(begun)
	stop()
	all.Wait()
	b.t.Logf("%d bridges in %s, %d looks (%.0f a second), %d of them with pairs of both kinds",
		b.pairs, took.Round(time.Millisecond), b.looks.Load(), float64(b.looks.Load())/took.Seconds(), b.both.Load())
	if b.both.Load() == 0 {
		b.t.Error("no look met the bridges")
	}
	if problem := b.look(0, min(b.pairs, 100)); problem != "" {
		b.t.Error(problem)
	}
	if out := b.up.must("windows", "visits", "--key", "k", "-o", "ndjson"); strings.Count(out, "\n") != b.pairs {
		b.t.Errorf("%d sessions at the end, want %d", strings.Count(out, "\n"), b.pairs)
	}
	b.up.verified("visits")
}

// A reader that polls while late events make one session of two never sees an old one
// beside the new one, nor none of them.
func TestReadersSeeTwoSessionsOrTheOneTheyBecome(t *testing.T) {
	newBridges(t, 600).run(200)
}

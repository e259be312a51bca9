package ingest

import (
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
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

func TestPushedEventsStandInTheJournal(t *testing.T) {
	w := newWorld(t, 3)
	n := w.run("a").ready()
	reply := n.mustPush(&Request{Partition: 1, Items: plain(sale("e1", "north", 1), sale("e2", "south", 3), sale("e3", "east", 2))})
	if reply.Accepted != 3 || reply.Quarantined != 0 || reply.Epoch != 1 || reply.FirstOffset != 1<<32|1 || reply.LastOffset != 1<<32|3 || len(reply.Items) != 0 {
		t.Errorf("reply %+v", reply)
	}
	n.flushNow()
	j := w.journal()
	found := map[string]*envelope.Event{}
	for _, ev := range j.events() {
		found[ev.ID] = ev
	}
	for i, id := range []string{"e1", "e2", "e3"} {
		ev := found[id]
		if ev == nil {
			t.Fatalf("event %s is not in the journal", id)
		}
		if ev.SourceOffset != 1<<32|uint64(i+1) || ev.SourcePartition != 1 || ev.Source != "shop" || ev.PartitionGeneration != 1<<32|1 {
			t.Errorf("event %s: offset %d, partition %d, source %q, generation %d", id, ev.SourceOffset, ev.SourcePartition, ev.Source, ev.PartitionGeneration)
		}
		if ev.Values[0].Int != 1250 || ev.IngestTime == 0 {
			t.Errorf("event %s: value %d, ingest time %d", id, ev.Values[0].Int, ev.IngestTime)
		}
	}
	for pp := range 3 {
		m := j.lastMark(t, "shop", 1, pp)
		if want := envelope.EventTime(time.Date(2026, 11, 30, 10, 0, 3, 0, time.UTC).UnixMicro()); m.Offset != 1<<32|3 || m.MaxEventTime[0] != want || m.Epoch != 1 {
			t.Errorf("key partition %d: mark %+v", pp, m)
		}
		if m := j.lastMark(t, "shop", 0, pp); m.Offset != 0 || m.MaxEventTime[0] != envelope.MinEventTime {
			t.Errorf("key partition %d: mark of the unused partition %+v", pp, m)
		}
	}
	w.checkComplete()
}

func TestEveryQuarantineReasonEndToEnd(t *testing.T) {
	w := newWorld(t, 2)
	n := w.run("a").ready()
	deep := strings.Repeat("[", 65) + strings.Repeat("]", 65)
	cases := []struct{ reason, item string }{
		{"malformed-json", `{"id":"x",`},
		{"duplicate-field", `{"id":"x","ID":"y"}`},
		{"too-large", `{"id":"big","pad":"` + strings.Repeat("x", 256<<10) + `"}`},
		{"too-deep", `{"id":"x","d":` + deep + `}`},
		{"missing-id", `{"region":"north"}`},
		{"missing-key", `{"id":"x","at":"2026-11-30T10:00:00Z","amount":1}`},
		{"key-too-long", `{"id":"x","region":"` + strings.Repeat("k", 257) + `","at":"2026-11-30T10:00:00Z","amount":1}`},
		{"missing-event-time", `{"id":"x","region":"north","amount":1}`},
		{"event-time-format", `{"id":"x","region":"north","at":"yesterday","amount":1}`},
		{"event-time-out-of-range", `{"id":"x","region":"north","at":"1999-11-30T10:00:00Z","amount":1}`},
		{"value-format", `{"id":"x","region":"north","at":"2026-11-30T10:00:00Z","amount":"many"}`},
		{"value-precision", `{"id":"x","region":"north","at":"2026-11-30T10:00:00Z","amount":"1.005"}`},
	}
	items := make([]string, len(cases))
	for i, c := range cases {
		items[i] = c.item
	}
	reply := n.mustPush(&Request{Items: plain(append(items, sale("good", "north", 1))...)})
	if reply.Accepted != 1 || reply.Quarantined != len(cases) || len(reply.Items) != len(cases) {
		t.Fatalf("accepted %d, quarantined %d, %d items", reply.Accepted, reply.Quarantined, len(reply.Items))
	}
	kept := w.quarantined()
	for i, c := range cases {
		if item := reply.Items[i]; item.Reason != c.reason || item.Index != i || item.Verdict != Quarantined || item.Rule == "" || item.Offset != 1<<32|uint64(i+1) {
			t.Errorf("%s: verdict %+v", c.reason, item)
		}
		r := kept[i]
		if r.Reason != c.reason || string(r.Bytes) != c.item || r.Offset != 1<<32|uint64(i+1) || r.Source != "shop" || r.Format != "plain" {
			t.Errorf("%s: record has reason %s, offset %d, %d bytes", c.reason, r.Reason, r.Offset, len(r.Bytes))
		}
	}
	n.flushNow()
	w.checkComplete()
}

func TestQuarantineOfCloudEvents(t *testing.T) {
	w := newWorld(t, 1)
	w.stream.Retractions = false
	n := w.run("a").ready()
	data := `"datacontenttype":"application/json","data":{"region":"north","at":"2026-11-30T10:00:00Z","amount":1}`
	ce := func(extra string) Item {
		return Item{Format: 2, Bytes: []byte(`{"specversion":"1.0","id":"c","source":"shop","type":"sale",` + extra + data + `}`)}
	}
	reply := n.mustPush(&Request{Items: []Item{
		ce(``), ce(`"dataschema":"2",`), ce(`"op":"retract","withdraws":"x",`), ce(`"withdraws":"x",`), ce(`"sourcepartition":1,`),
	}})
	want := []string{"schema-generation", "retract-not-allowed", "retract-target", "unknown-partition"}
	if reply.Accepted != 1 || len(reply.Items) != len(want) {
		t.Fatalf("reply %+v", reply)
	}
	for i, reason := range want {
		if reply.Items[i].Reason != reason || reply.Items[i].ID != "c" {
			t.Errorf("item %d: %+v, want %s", i, reply.Items[i], reason)
		}
	}
}

func TestUnknownPartitionIsKeptWithoutAnOffset(t *testing.T) {
	w := newWorld(t, 1)
	n := w.run("a").ready()
	reply := n.mustPush(&Request{Source: "other", Partition: 7, Items: plain(sale("e1", "north", 1))})
	if reply.Quarantined != 1 || reply.Items[0].Reason != "unknown-partition" || reply.Items[0].ID != "e1" || reply.Epoch != 0 {
		t.Errorf("reply %+v", reply)
	}
	r := w.quarantined()[0]
	if r.Source != "other" || r.Partition != 7 || r.Offset != 0 || string(r.Bytes) != sale("e1", "north", 1) {
		t.Errorf("record %+v", r)
	}
}

func TestNoReplyBeforeDurable(t *testing.T) {
	w := newWorld(t, 1)
	gate := newGate()
	n := w.run("a", gate.option).ready()
	gate.shut()
	type outcome struct {
		reply Reply
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		reply, err := n.push(&Request{Items: plain(sale("e1", "north", 1), `{"bad`)})
		done <- outcome{reply, err}
	}()
	until(t, "both messages held back", func() bool { return gate.held.Load() >= 2 })
	select {
	case o := <-done:
		t.Fatalf("answered before anything was acknowledged: %+v", o)
	default:
	}
	gate.open()
	o := <-done
	if o.err != nil || o.reply.Accepted != 1 || o.reply.Quarantined != 1 {
		t.Errorf("after the acknowledgements: %+v", o)
	}
}

func TestStoppedBeforeTheAcknowledgementIsNoSuccess(t *testing.T) {
	w := newWorld(t, 1)
	gate := newGate()
	n := w.run("a", gate.option).ready()
	gate.shut()
	done := make(chan error, 1)
	go func() {
		_, err := n.push(&Request{Items: plain(sale("e1", "north", 1))})
		done <- err
	}()
	until(t, "the frame held back", func() bool { return gate.held.Load() >= 1 })
	n.end() // as a crash: nothing is sent any more
	close(n.dead)
	if e := asError(<-done); e.Code != "unsettled" || e.Status != 503 {
		t.Errorf("error %+v", e)
	}
	n.dead = make(chan struct{}) // for the ordinary end of the test
	gate.open()
}

func TestLostAcknowledgementResendsTheSameFrame(t *testing.T) {
	w := newWorld(t, 2)
	var lost atomic.Int64
	n := w.run("a", func(_ *Config, s *Service) {
		if s == nil {
			return
		}
		real := s.publish
		var mu sync.Mutex
		seen := map[*parcel]bool{}
		s.publish = func(stream string, p *parcel) (jetstream.PubAckFuture, error) {
			mu.Lock()
			first := !seen[p]
			seen[p] = true
			mu.Unlock()
			future, err := real(stream, p)
			if first && err == nil {
				lost.Add(1)
				return failedAfter(future), nil
			}
			return future, err
		}
	}).ready()
	for i := range 20 {
		n.mustPush(&Request{Items: plain(sale(fmt.Sprint("e", i), fmt.Sprint("k", i), i), `{"bad`)})
	}
	n.flushNow()
	j := w.journal()
	if got := len(j.events()); got != 20 {
		t.Errorf("%d events after skipping frames had before, want 20", got)
	}
	doubled := 0
	for _, times := range j.frames {
		if times == 2 {
			doubled++
		}
	}
	if doubled == 0 || lost.Load() == 0 {
		t.Errorf("%d frames stored twice after %d lost acknowledgements", doubled, lost.Load())
	}
	if got := len(w.quarantined()); got != 20 {
		t.Errorf("%d quarantine records, want 20", got)
	}
	w.checkComplete()
}

func TestMarksAreCompleteUnderLoad(t *testing.T) {
	w := newWorld(t, 4)
	n := w.run("a", func(_ *Config, s *Service) {
		if s == nil {
			return
		}
		real := s.publish
		s.publish = func(stream string, p *parcel) (jetstream.PubAckFuture, error) {
			switch rand.IntN(20) {
			case 0:
				return nil, nats.ErrConnectionReconnecting // never sent
			case 1:
				future, err := real(stream, p)
				if err != nil {
					return future, err
				}
				return failedAfter(future), nil // stored, acknowledgement lost
			}
			return real(stream, p)
		}
	}).ready()
	var wait sync.WaitGroup
	var sent atomic.Int64
	for c := range 8 {
		wait.Go(func() {
			for i := range 25 {
				items := plain(`{"bad`)
				for k := range 1 + rand.IntN(40) {
					items = append(items, plain(sale(fmt.Sprintf("%d-%d-%d", c, i, k), fmt.Sprint("key", k), k%60))...)
				}
				if _, err := n.push(&Request{Partition: uint32(c % 2), Items: items}); err != nil {
					t.Error(err)
					return
				}
				sent.Add(int64(len(items)))
			}
		})
	}
	wait.Wait()
	n.flushNow()
	w.checkComplete()
	if got := len(w.journal().events()) + len(w.quarantined()); got != int(sent.Load()) {
		t.Errorf("%d records in the journals, %d items sent", got, sent.Load())
	}
}

func TestOffsetsFollowTheOrderOfArrival(t *testing.T) {
	w := newWorld(t, 1)
	w.run("a").ready()
	inbox := w.conn.NC.NewRespInbox()
	sub, err := w.conn.NC.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	const requests = 50
	for i := range requests {
		var body strings.Builder
		for k := range 1 + (i*7)%23 { // small requests must not overtake large ones
			fmt.Fprintln(&body, sale(fmt.Sprintf("%03d-%02d", i, k), "north", 1))
		}
		msg := nats.NewMsg(subject.Ingest(w.stream.Name, "shop", 0))
		msg.Reply, msg.Data = inbox, []byte(body.String())
		if err := w.conn.NC.PublishMsg(msg); err != nil {
			t.Fatal(err)
		}
	}
	for range requests {
		msg, err := sub.NextMsg(20 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var reply struct {
			Reply
			Error *Error
		}
		if err := json.Unmarshal(msg.Data, &reply); err != nil || reply.Error != nil {
			t.Fatalf("reply %s: %v", msg.Data, err)
		}
	}
	last := ""
	for _, ev := range w.journal().events() {
		if ev.ID <= last {
			t.Fatalf("event %s stands behind %s", ev.ID, last)
		}
		last = ev.ID
	}
}

func TestBackPressureIsBounded(t *testing.T) {
	w := newWorld(t, 1)
	gate := newGate()
	n := w.run("a", gate.option, func(c *Config, _ *Service) {
		if c != nil {
			c.Budget = 64 << 10
		}
	}).ready()
	gate.shut()
	stuck := make(chan error, 64)
	busy := 0
	for range 32 {
		go func() {
			_, err := n.push(&Request{Items: plain(sale("e", "north", 1), fmt.Sprintf(`{"pad":%q}`, strings.Repeat("x", 4000)))})
			stuck <- err
		}()
	}
	for range 32 - 64/8 {
		if e := asError(<-stuck); e.Status == 429 && e.RetryAfter > 0 {
			busy++
		} else {
			t.Errorf("error %+v", e)
		}
		if used := n.budget.used.Load(); used > n.budget.size {
			t.Errorf("%d bytes held, the budget is %d", used, n.budget.size)
		}
	}
	if busy == 0 {
		t.Error("nobody was told to come back")
	}
	gate.open()
	for range 64 / 8 {
		if err := <-stuck; err != nil {
			t.Error(err)
		}
	}
	n.mustPush(&Request{Items: plain(sale("after", "north", 1))})
	until(t, "the budget is free again", func() bool { return n.budget.used.Load() == 0 })
}

func TestFullJetStreamRecovers(t *testing.T) {
	w := newWorld(t, 1)
	ctx := context.Background()
	resize := func(bytes int64) {
		t.Helper()
		st, err := w.conn.JS.Stream(ctx, subject.EventsStream(w.stream.Name, 0))
		if err != nil {
			t.Fatal(err)
		}
		c := st.CachedInfo().Config
		c.MaxBytes = bytes
		if _, err := w.conn.JS.UpdateStream(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	n := w.run("a").ready()
	n.flushNow()
	resize(24 << 10)
	done := make(chan error, 1)
	go func() {
		_, err := n.push(&Request{Items: plain(sale("e1", "north", 1), `{"id":"e2","region":"n","at":"2026-11-30T10:00:00Z","amount":1,"pad":"`+strings.Repeat("x", 32<<10)+`"}`)})
		done <- err
	}()
	until(t, "the full journal is a problem", func() bool { return strings.Contains(strings.Join(n.Problems(), "\n"), "JetStream is full") })
	select {
	case err := <-done:
		t.Fatalf("answered while the journal was full: %v", err)
	default:
	}
	resize(-1)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	until(t, "no problem is left", func() bool { return len(n.Problems()) == 0 })
	n.flushNow()
	w.checkComplete()
}

func TestItemThatNoJournalCouldKeepIsRefusedWhole(t *testing.T) {
	w := newWorld(t, 1)
	n := w.run("a").ready()
	_, err := n.push(&Request{Items: plain(sale("e1", "north", 1), strings.Repeat("x", 1<<20))})
	if e := asError(err); e.Status != 413 {
		t.Errorf("error %+v", e)
	}
	if events := w.journal().events(); len(events) != 0 {
		t.Errorf("%d events were taken in", len(events))
	}
}

// gate holds acknowledgements back while shut. What was held is sent when it opens.
type gate struct {
	mu    sync.Mutex
	real  publisher
	block chan struct{}
	held  atomic.Int64
}

func newGate() *gate {
	g := &gate{block: make(chan struct{})}
	close(g.block)
	return g
}

func (g *gate) option(_ *Config, s *Service) {
	if s != nil {
		g.real = s.publish
		s.publish = g.publish
	}
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.block = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.block)
}

func (g *gate) publish(stream string, p *parcel) (jetstream.PubAckFuture, error) {
	g.mu.Lock()
	block := g.block
	g.mu.Unlock()
	select {
	case <-block:
		return g.real(stream, p)
	default:
	}
	g.held.Add(1)
	f := newFuture()
	go func() {
		<-block
		future, err := g.real(stream, p)
		if err != nil {
			f.failed <- err
			return
		}
		select {
		case ack := <-future.Ok():
			f.ok <- ack
		case err := <-future.Err():
			f.failed <- err
		}
	}()
	return f, nil
}

// future is an acknowledgement in the hands of a test.
type future struct {
	ok     chan *jetstream.PubAck
	failed chan error
}

func newFuture() *future { return &future{make(chan *jetstream.PubAck, 1), make(chan error, 1)} }

func (f *future) Ok() <-chan *jetstream.PubAck { return f.ok }
func (f *future) Err() <-chan error            { return f.failed }
func (f *future) Msg() *nats.Msg               { return nil }

// failedAfter answers a timeout once the message is stored: its acknowledgement is lost.
func failedAfter(real jetstream.PubAckFuture) jetstream.PubAckFuture {
	f := newFuture()
	go func() {
		select {
		case <-real.Ok():
		case <-real.Err():
		}
		f.failed <- jetstream.ErrAsyncPublishTimeout
	}()
	return f
}

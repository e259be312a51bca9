package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

func (n *node) dispose(action string, sequences ...uint64) []DisposedItem {
	n.w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	reply, err := n.Dispose(ctx, n.w.stream.Name, &DisposeRequest{Action: action, Sequences: sequences, By: "tester", Reason: "because", Job: "job-1"})
	if err != nil {
		n.w.t.Fatal(err)
	}
	return reply.Items
}

// dispositions answers the decisions in the quarantine journal.
func (w *world) dispositions() (out []envelope.QuarantineDisposition) {
	w.t.Helper()
	ctx := context.Background()
	st, err := w.conn.JS.Stream(ctx, subject.QuarantineStream(w.stream.Name))
	if err != nil {
		w.t.Fatal(err)
	}
	for seq := uint64(1); seq <= st.CachedInfo().State.LastSeq; seq++ {
		msg, err := st.GetMsg(ctx, seq)
		if err != nil {
			w.t.Fatal(err)
		}
		if msg.Subject != subject.QuarantineDisposition(w.stream.Name) {
			continue
		}
		d, err := envelope.DecodeDisposition(msg.Data)
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, d)
	}
	return out
}

// A document that gains a looser rule lets old refusals in; the rest stays refused and is
// not quarantined again.
func TestReplayTakesInWhatPassesNow(t *testing.T) {
	w := newWorld(t, 4)
	w.stream.NotBefore = envelope.EventTime(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
	n := w.run("a").ready()
	n.mustPush(&Request{Partition: 1, Items: plain(sale("old", "eu", 1), `{"id":"broken"`)})
	before := w.quarantined()
	if len(before) != 2 {
		t.Fatalf("%d records in quarantine", len(before))
	}
	items := n.dispose(envelope.Replayed, 1, 2, 99)
	if items[0].Result != resultRefused || items[0].Reason != "event-time-out-of-range" {
		t.Errorf("while the rule stands: %+v", items[0])
	}

	w.stream.NotBefore = 0
	n.st().door.Store(newDoor(w.snapshot().Streams[0]))
	items = n.dispose(envelope.Replayed, 1, 2, 99)
	if items[0].Result != envelope.Replayed || items[0].ID != "old" || items[0].KeyPartition == nil {
		t.Errorf("replayed: %+v", items[0])
	}
	if items[1].Result != resultRefused || items[1].Reason != "malformed-json" {
		t.Errorf("malformed: %+v", items[1])
	}
	if items[2].Result != resultMissing {
		t.Errorf("missing: %+v", items[2])
	}
	events := w.journal().events()
	if len(events) != 1 {
		t.Fatalf("%d events", len(events))
	}
	ev := events[0]
	if ev.ID != "old" || ev.SourcePartition != envelope.ReplayPartition || ev.SourceOffset != 1 || ev.Origin != envelope.OriginReplay || ev.Key != "eu" {
		t.Errorf("event %+v", ev)
	}
	decisions := w.dispositions()
	if len(decisions) != 1 || decisions[0].Sequence != 1 || decisions[0].Action != envelope.Replayed || decisions[0].By != "tester" || decisions[0].Job != "job-1" {
		t.Errorf("decisions %+v", decisions)
	}
	if n.dispose(envelope.Discarded, 2)[0].Result != envelope.Discarded {
		t.Error("not discarded")
	}
	if decisions = w.dispositions(); len(decisions) != 2 || decisions[1].Action != envelope.Discarded || decisions[1].Sequence != 2 {
		t.Errorf("decisions %+v", decisions)
	}
	// A decision is no record: it cannot be decided about.
	if items := n.dispose(envelope.Replayed, 3); items[0].Result != resultMissing {
		t.Errorf("a decision was replayed: %+v", items)
	}
	n.flushNow()
	for pp := range 4 {
		for _, m := range w.journal().marks("shop", envelope.ReplayPartition, pp) {
			t.Errorf("a mark speaks of the replay partition: %+v", m)
		}
	}
}

// Every format is read again as it was read first.
func TestReplayReadsEveryFormat(t *testing.T) {
	w := newWorld(t, 1)
	w.stream.NotBefore = envelope.EventTime(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
	n := w.run("a").ready()
	ce := `{"specversion":"1.0","id":"ce","source":"shop","type":"sale","data":` + sale("x", "eu", 1) + `}`
	request := func(media, body string, header map[string][]string) {
		t.Helper()
		req := &Request{}
		if header == nil {
			header = map[string][]string{}
		}
		header["Content-Type"] = []string{media}
		if err := req.split(header, typeNDJSON, []byte(body)); err != nil {
			t.Fatal(err)
		}
		n.mustPush(req)
	}
	request("application/cloudevents+json", ce, nil)
	request("text/csv", "id,region,at,amount\ncsv,eu,2026-11-30T10:00:00Z,1.50\n", nil)
	request("application/json", sale("bin", "eu", 2), map[string][]string{
		"ce-specversion": {"1.0"}, "ce-id": {"bin"}, "ce-source": {"shop"}, "ce-type": {"sale"},
	})
	if got := w.quarantined(); len(got) != 3 {
		t.Fatalf("%d records: %+v", len(got), got)
	}
	w.stream.NotBefore = 0
	n.st().door.Store(newDoor(w.snapshot().Streams[0]))
	for i, it := range n.dispose(envelope.Replayed, 1, 2, 3) {
		if it.Result != envelope.Replayed {
			t.Errorf("item %d: %+v", i, it)
		}
	}
	var ids []string
	for _, ev := range w.journal().events() {
		ids = append(ids, ev.ID)
	}
	if strings.Join(ids, " ") != "ce csv bin" {
		t.Errorf("events %q", ids)
	}
}

func TestReplayOfASourceWithoutPolicyIsRefused(t *testing.T) {
	w := newWorld(t, 1)
	n := w.run("a").ready()
	n.mustPush(&Request{Source: "kiosk", Items: plain(sale("k", "eu", 1))})
	if it := n.dispose(envelope.Replayed, 1)[0]; it.Result != resultRefused || it.Reason != "unknown-partition" {
		t.Errorf("%+v", it)
	}
	w.policies[0].Sources = append(w.policies[0].Sources, policy.SourceRef{Name: "kiosk", Partitions: 1})
	n.apply(w.snapshot())
	if it := n.dispose(envelope.Replayed, 1)[0]; it.Result != envelope.Replayed {
		t.Errorf("%+v", it)
	}
}

func TestDisposeRefusesWhatSaysTooLittle(t *testing.T) {
	w := newWorld(t, 1)
	n := w.run("a").ready()
	for _, req := range []DisposeRequest{
		{Action: "eaten", Sequences: []uint64{1}, By: "x", Reason: "y", Job: "z"},
		{Action: envelope.Replayed, By: "x", Reason: "y", Job: "z"},
		{Action: envelope.Replayed, Sequences: make([]uint64, maxDisposed+1), By: "x", Reason: "y", Job: "z"},
		{Action: envelope.Replayed, Sequences: []uint64{1}, By: "x", Job: "z"},
	} {
		var e *Error
		if _, err := n.Dispose(t.Context(), w.stream.Name, &req); !errors.As(err, &e) || e.Code != "bad-request" {
			t.Errorf("%+v: %v", req, err)
		}
	}
}

// While marks are held events go on; afterwards marks do too.
func TestHoldKeepsMarksBack(t *testing.T) {
	w := newWorld(t, 1)
	n := w.run("a").ready()
	n.flushNow()
	hold := func(ms int64) {
		t.Helper()
		data, _ := json.Marshal(holdRequest{HoldMs: ms})
		m, err := w.conn.NC.Request(subject.IngestHold(w.stream.Name), data, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var reply holdReply
		if err := json.Unmarshal(m.Data, &reply); err != nil || reply.Writer != n.writer {
			t.Fatalf("%s: %v", m.Data, err)
		}
	}
	hold(20_000)
	count := func() (marks int) {
		for _, r := range w.journal().records {
			if r.mark != nil {
				marks++
			}
		}
		return marks
	}
	marks := count()
	for i := range 20 {
		n.mustPush(&Request{Items: plain(sale(string(rune('a'+i)), "eu", i))})
	}
	flushed := make(chan error, 1)
	go func() {
		_, err := n.st().flush(t.Context())
		flushed <- err
	}()
	n.mustPush(&Request{Items: plain(sale("z", "eu", 40))})
	if got := count(); got != marks {
		t.Errorf("%d marks, %d when the hold began", got, marks)
	}
	hold(0)
	if err := <-flushed; err != nil {
		t.Fatal(err)
	}
	if count() <= marks {
		t.Error("no marks after the hold")
	}
}

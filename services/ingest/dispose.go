package ingest

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/core/admission"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// maxDisposed is how many quarantine records one request may decide about.
const maxDisposed = 256

// DisposeRequest carries an operator's decision about quarantine records.
type DisposeRequest struct {
	Action    string   `json:"action"` // replayed, discarded: what the records are to become
	Sequences []uint64 `json:"sequences"`
	By        string   `json:"by"`
	Reason    string   `json:"reason"`
	Job       string   `json:"job"`
}

// Results of single records.
const (
	resultMissing = "missing" // no quarantine record has the sequence
	resultRefused = "refused" // it does not pass the door today either
)

// DisposedItem is what became of one record.
type DisposedItem struct {
	Sequence     uint64 `json:"sequence"`
	ID           string `json:"id,omitempty"`
	Source       string `json:"source,omitempty"`
	Result       string `json:"result"` // replayed, discarded, refused, missing
	Reason       string `json:"reason,omitempty"`
	Rule         string `json:"rule,omitempty"`
	KeyPartition *int   `json:"keyPartition,omitempty"`
}

// DisposeReply says that every decision is durable.
type DisposeReply struct {
	Items []DisposedItem `json:"items"`
}

func (s *Service) serveDispose(st *stream, m *nats.Msg) {
	var req DisposeRequest
	if err := json.Unmarshal(m.Data, &req); err != nil {
		s.answer(m, nil, badRequest("send action, sequences, by, reason and job as JSON", "the request cannot be read: %v", err))
		return
	}
	reply, err := s.Dispose(s.work, st.name, &req)
	if err != nil {
		s.answer(m, nil, err)
		return
	}
	s.metrics.requests.WithLabelValues("nats", "ok").Inc()
	s.respond(m, reply)
}

// Dispose replays or discards quarantine records and writes the decisions beside them.
//
// A replayed event keeps its id and event time and comes from source partition replay
// with the record's sequence as its offset. One that does not pass the door is answered
// as refused and not quarantined a second time. Events are durable before their
// decisions: after a crash between the two the same replay may be asked for again, and
// the second event is a duplicate by its id.
func (s *Service) Dispose(ctx context.Context, name string, req *DisposeRequest) (DisposeReply, error) {
	st, err := s.streamNamed(name)
	if err != nil {
		return DisposeReply{}, err
	}
	switch {
	case s.draining.Load():
		return DisposeReply{}, errStopping()
	case req.Action != envelope.Replayed && req.Action != envelope.Discarded:
		return DisposeReply{}, badRequest("choose replayed or discarded", "action is %q", req.Action)
	case len(req.Sequences) == 0 || len(req.Sequences) > maxDisposed:
		return DisposeReply{}, badRequest(fmt.Sprintf("name 1 to %d sequences", maxDisposed), "the request names %d sequences", len(req.Sequences))
	case req.By == "" || req.Reason == "" || req.Job == "":
		return DisposeReply{}, badRequest("say who decides, why, and in which job", "by, reason or job is missing")
	}
	records, items, err := st.records(ctx, req.Sequences)
	if err != nil {
		return DisposeReply{}, err
	}
	size := int64(0)
	for _, r := range records {
		if r != nil {
			size += int64(len(r.Bytes))
		}
	}
	held, err := s.budget.reserve(ctx, size, s.waitFor)
	if err != nil {
		return DisposeReply{}, err
	}
	events := newFlight(func() {})
	for i, r := range records {
		switch {
		case r == nil:
		case req.Action == envelope.Discarded:
			items[i].Result = envelope.Discarded
		default:
			st.replay(r, req.Sequences[i], &items[i], events)
		}
	}
	events.settle()
	if err := s.await(ctx, events.done); err != nil {
		held.give()
		return DisposeReply{}, err
	}
	decisions := newFlight(held.give)
	err = st.decisions(req, items, decisions)
	decisions.settle()
	if err == nil {
		err = s.await(ctx, decisions.done)
	}
	return DisposeReply{Items: items}, err
}

// records reads quarantine records; those that are not there are answered as missing.
func (st *stream) records(ctx context.Context, sequences []uint64) ([]*envelope.QuarantineRecord, []DisposedItem, error) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	journal, err := st.svc.js.Stream(ctx, subject.QuarantineStream(st.name))
	if err != nil {
		return nil, nil, later(503, "not-ready", waitDefault, "the quarantine journal of stream %s cannot be read: %v", st.name, err)
	}
	records, items := make([]*envelope.QuarantineRecord, len(sequences)), make([]DisposedItem, len(sequences))
	for i, seq := range sequences {
		items[i] = DisposedItem{Sequence: seq, Result: resultMissing}
		m, err := journal.GetMsg(ctx, seq)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			continue
		case err != nil:
			return nil, nil, later(503, "not-ready", waitDefault, "the quarantine journal of stream %s cannot be read: %v", st.name, err)
		case m.Subject == subject.QuarantineDisposition(st.name):
			continue
		}
		r, err := envelope.DecodeQuarantine(m.Data)
		if err != nil {
			items[i].Rule = err.Error()
			continue
		}
		records[i], items[i].ID, items[i].Source = &r, r.ID, r.Source
	}
	return records, items, nil
}

// replay sends one record through the door again.
func (st *stream) replay(r *envelope.QuarantineRecord, seq uint64, item *DisposedItem, f *flight) {
	refuse := func(reason admission.Reason, rule string) {
		item.Result, item.Reason, item.Rule = resultRefused, string(reason), rule
	}
	if r.Reason == string(admission.IDConflict) {
		refuse(admission.IDConflict, "another event holds this id; withdraw that one, or send this one under an id of its own")
		return
	}
	if !st.knowsSource(r.Source) {
		refuse(admission.UnknownPartition, fmt.Sprintf("no applied policy of stream %s has source %q", st.name, r.Source))
		return
	}
	req := &Request{Stream: st.name, Source: r.Source, Partition: r.Partition, IDPath: r.IDPath, Header: r.Header, Items: []Item{itemOf(r)}}
	if r.Format == "binary" {
		req.Header = attributes(r.Header, &req.Items[0])
	}
	b := st.decide(req, st.svc.stamp.now())
	defer b.free()
	ev := &b.events[0]
	if ev.ID != "" {
		item.ID = strings.Clone(ev.ID)
	}
	if why := b.refusals[0]; why != nil {
		refuse(why.Reason, why.Rule)
		return
	}
	ev.SourcePartition, ev.SourceOffset, ev.Origin = envelope.ReplayPartition, seq, envelope.OriginReplay
	pp := admission.KeyPartition(ev.Key, len(st.lanes))
	if bad := st.lanes[pp].add(b.pool, b.events, []int32{0}, f); len(bad) > 0 {
		refuse(admission.MalformedJSON, bad[0].err.Error())
		return
	}
	item.Result, item.KeyPartition = envelope.Replayed, &pp
	st.svc.metrics.events.WithLabelValues(st.name, envelope.Replayed).Inc()
}

// itemOf makes an item of the bytes as they came in.
func itemOf(r *envelope.QuarantineRecord) Item {
	switch r.Format {
	case "cloudevent":
		return Item{Format: admission.CloudEvent, Bytes: r.Bytes}
	case "binary":
		return Item{Format: admission.Binary, Bytes: r.Bytes}
	case "csv":
		it := Item{Format: admission.Plain, raw: r.Bytes}
		header, err := envelope.NewCSVHeader(r.Columns)
		if err == nil {
			var cells []string
			reader := csv.NewReader(bytes.NewReader(r.Bytes))
			reader.FieldsPerRecord = -1
			if cells, err = reader.Read(); err == nil {
				it.Bytes, err = header.AppendObject(nil, cells)
			}
		}
		if err != nil {
			it.Bytes, it.refused = nil, &admission.Refusal{Reason: admission.MalformedJSON, Rule: err.Error()}
		}
		return it
	}
	return Item{Format: admission.Plain, Bytes: r.Bytes}
}

// attributes answers the CloudEvents attributes of a binary-mode record. Headers that
// could not be read as attributes were kept as they came: they are read once more.
func attributes(kept map[string]string, it *Item) map[string]string {
	raw := map[string][]string{}
	for name, value := range kept {
		if len(name) < len(subject.PrefixCloudEvent) || !strings.EqualFold(name[:len(subject.PrefixCloudEvent)], subject.PrefixCloudEvent) {
			continue
		}
		raw[name] = []string{value}
	}
	if len(raw) == 0 {
		return kept
	}
	read, err := envelope.BinaryAttributes(raw)
	if err != nil {
		it.refused = &admission.Refusal{Reason: admission.MalformedJSON, Rule: err.Error()}
	}
	return read
}

// knowsSource tells whether an applied policy has the source.
func (st *stream) knowsSource(source string) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	_, known := st.rules[source]
	return known
}

// decisions queues one disposition a record that was dealt with; f waits for them.
func (st *stream) decisions(req *DisposeRequest, items []DisposedItem, f *flight) error {
	at := envelope.EventTime(st.svc.stamp.now()).Time()
	for i := range items {
		it := &items[i]
		if it.Result != envelope.Replayed && it.Result != envelope.Discarded {
			continue
		}
		d := &envelope.QuarantineDisposition{
			Sequence: it.Sequence, Action: it.Result, By: req.By, Reason: req.Reason, Job: req.Job, At: at, Source: it.Source, ID: it.ID,
		}
		if it.KeyPartition != nil {
			d.KeyPartition = *it.KeyPartition
		}
		if err := st.quarantine.dispose(d, f); err != nil {
			return err
		}
	}
	return nil
}

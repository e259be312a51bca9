package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/core/admission"
	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// tracer follows one event through one business stream. It keeps what it found, never
// what it read.
type tracer struct {
	cli      *cli
	conn     *natsio.Conn
	query    traceQuery
	stream   *policy.BusinessStream
	snapshot config.Snapshot
	steps    []traceStep
	events   []traceStep // those of step event and withdrawal
	reopens  []reopened  // REOPENs that name it
}

// reopened is a REOPEN, as an answer names it.
type reopened struct {
	generation string
	key        string
	epoch      uint64
	asOf       record.Place
	partition  int // key partition
}

func (t *tracer) run(ctx context.Context) error {
	if err := t.quarantine(ctx); err != nil {
		return err
	}
	for pp := range t.stream.Partitions {
		if t.query.key == "" || admission.KeyPartition(t.query.key, t.stream.Partitions) == pp {
			if err := t.eventsOf(ctx, pp); err != nil {
				return err
			}
		}
	}
	if len(t.events) == 0 {
		return nil
	}
	for _, e := range t.snapshot.Policies {
		if e.Policy.Stream != t.stream.Name {
			continue
		}
		if err := t.generation(ctx, e.Policy); err != nil {
			return err
		}
	}
	return nil
}

// each reads a journal to its present end and shows how far it is.
func (t *tracer) each(ctx context.Context, name string, visit func(journal.Msg) error, filters ...string) error {
	last, err := journal.LastSeq(ctx, t.conn.JS, name, "")
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil || last == 0 {
		return err
	}
	bar := t.cli.progress("trace "+name, int64(last))
	defer bar.end()
	return journal.ReadRange(ctx, t.conn.JS, name, 0, 1, last, func(m journal.Msg) error {
		bar.set(int64(m.Seq), int64(m.Seq))
		return visit(m)
	}, filters...)
}

func (t *tracer) quarantine(ctx context.Context) error {
	filter := quarantineFilter{id: t.query.id, source: t.query.source, decided: true}
	return t.cli.quarantined(ctx, t.conn, t.stream.Name, filter, func(q *quarantined) error {
		name := subject.QuarantineStream(t.stream.Name)
		t.steps = append(t.steps, traceStep{
			Step: stepQuarantine, Stream: t.stream.Name, Journal: name, Sequence: q.Sequence, ID: q.ID, Source: q.Source,
			SourcePartition: envelope.PartitionName(q.Partition), SourceOffset: q.Offset, IngestTime: q.IngestTime.Format("2006-01-02T15:04:05.999999Z07:00"),
			Writer: q.Writer, Reason: q.Reason, Rule: q.Rule,
		})
		if d := q.Disposition; d != nil {
			t.steps = append(t.steps, traceStep{
				Step: stepDisposition, Stream: t.stream.Name, Journal: name, ID: q.ID, Source: q.Source, SourceOffset: q.Sequence,
				Reason: fmt.Sprintf("%s by %s at %s: %s", d.Action, d.By, d.At.Format("2006-01-02T15:04:05Z07:00"), d.Reason),
			})
		}
		return nil
	})
}

// eventsOf looks through the events journal of one key partition.
func (t *tracer) eventsOf(ctx context.Context, pp int) error {
	type number struct {
		writer string
		n      uint64
	}
	name, wanted := subject.EventsStream(t.stream.Name, pp), []byte(t.query.id)
	frames := map[number]bool{} // of frames that hold the id: a resent one counts once
	var reader envelope.FrameReader
	return t.each(ctx, name, func(m journal.Msg) error {
		if !bytes.Contains(m.Data, wanted) {
			return nil
		}
		if err := reader.Reset(m.Data); err != nil {
			return fmt.Errorf("stream %s sequence %d: %w", name, m.Seq, err)
		}
		frame := number{string([]byte(reader.Writer)), reader.Number}
		for index := 0; ; index++ {
			r, more, err := reader.Next()
			if err != nil {
				return fmt.Errorf("stream %s sequence %d: %w", name, m.Seq, err)
			}
			if !more {
				break
			}
			if ev := r.Event; ev != nil && t.wants(ev) {
				t.found(name, pp, m.Seq, index, &reader, ev.Clone(), frames[frame])
			}
			if r.Reopen != nil {
				if err := t.handedBack(name, pp, m.Seq, index, r.Reopen); err != nil {
					return fmt.Errorf("stream %s sequence %d: %w", name, m.Seq, err)
				}
			}
		}
		if reader.Writer != "" {
			frames[frame] = true
		}
		return nil
	})
}

func (t *tracer) wants(ev *envelope.Event) bool {
	return (ev.ID == t.query.id || ev.Withdraws == t.query.id) && (t.query.source == "" || ev.Source == t.query.source) &&
		(t.query.key == "" || ev.Key == t.query.key)
}

func (t *tracer) found(name string, pp int, seq uint64, index int, frame *envelope.FrameReader, ev *envelope.Event, resent bool) {
	s := traceStep{
		Step: stepEvent, Stream: t.stream.Name, Journal: name, Sequence: seq, Index: &index, ID: ev.ID, Source: ev.Source,
		SourcePartition: envelope.PartitionName(ev.SourcePartition), SourceOffset: ev.SourceOffset, Key: ev.Key, KeyPartition: &pp,
		EventTimes: map[string]envelope.EventTime{}, IngestTime: ev.IngestTime.String(), Op: "assert", Origin: originName(ev.Origin),
		Withdraws: ev.Withdraws, Digest: hex.EncodeToString(ev.Digest[:]), Writer: string([]byte(frame.Writer)), Frame: frame.Number, Class: "first",
	}
	if ev.Op == envelope.Retract {
		s.Op = "retract"
	}
	if ev.ID != t.query.id {
		s.Step = stepWithdrawal
	}
	for i, extractor := range frame.Extractors {
		s.EventTimes[string([]byte(extractor))] = ev.Times[i]
	}
	for i := range t.events {
		e := &t.events[i]
		if e.Key != s.Key || e.Source != s.Source || e.ID != s.ID {
			continue
		}
		switch { // against the first of its identity, as the windower does
		case resent:
			s.Class = "resent"
		case e.Digest == s.Digest && e.Op == s.Op:
			s.Class = "duplicate"
		default:
			s.Class = "other-digest"
		}
		break
	}
	t.events = append(t.events, s)
	t.steps = append(t.steps, s)
}

// handedBack adds a REOPEN that takes the event in or out.
func (t *tracer) handedBack(name string, pp int, seq uint64, index int, body []byte) error {
	r, err := envelope.ParseReopen(body)
	if err != nil {
		return err
	}
	for op, list := range [][]envelope.ReopenEvent{r.Add, r.Withdraw} {
		for i := range list {
			e := &list[i]
			if e.ID != t.query.id && e.Withdraws != t.query.id || t.query.source != "" && e.Source != t.query.source || t.query.key != "" && r.Key != t.query.key {
				continue
			}
			t.reopens = append(t.reopens, reopened{r.PolicyGeneration, r.Key, r.Epoch, record.Place(r.AsOf), pp})
			t.steps = append(t.steps, traceStep{
				Step: stepReopen, Stream: t.stream.Name, Journal: name, Sequence: seq, Index: &index, ID: e.ID, Source: e.Source, Key: r.Key, KeyPartition: &pp,
				Op: []string{"assert", "retract"}[op], PolicyGeneration: r.PolicyGeneration,
			})
		}
	}
	return nil
}

func originName(o envelope.Origin) string {
	switch o {
	case envelope.OriginReplay:
		return "replay"
	case envelope.OriginBackfill:
		return "backfill"
	case envelope.OriginRepair:
		return "repair"
	}
	return "live"
}

// generation adds what one policy generation made of the events found.
func (t *tracer) generation(ctx context.Context, p *policy.StreamTimePolicy) error {
	refused := map[int]bool{} // places in t.events that no window took
	seen := map[int]bool{}
	for _, e := range t.events {
		if pp := *e.KeyPartition; !seen[pp] {
			seen[pp] = true
			if err := t.refusals(ctx, p, pp, refused); err != nil {
				return err
			}
		}
	}
	told := map[uint64]bool{}
	for i, e := range t.events {
		at, timed := e.EventTimes[p.Extractor]
		if !timed || e.Class != "first" || refused[i] && !t.returned(p, e.Key) || !hasSource(p, e.Source) {
			continue
		}
		if err := t.revisions(ctx, p, &t.events[i], at, told); err != nil {
			return err
		}
	}
	return nil
}

// returned tells whether a REOPEN of the generation hands the event back to a key.
func (t *tracer) returned(p *policy.StreamTimePolicy, key string) bool {
	return slices.ContainsFunc(t.reopens, func(r reopened) bool { return r.generation == p.PolicyGeneration() && r.key == key })
}

func hasSource(p *policy.StreamTimePolicy, source string) bool {
	for _, s := range p.Sources {
		if s.Name == source {
			return true
		}
	}
	return false
}

// refusals finds the late and conflict records of the events in a windows journal, and
// the answers to REOPENs that name them.
func (t *tracer) refusals(ctx context.Context, p *policy.StreamTimePolicy, pp int, refused map[int]bool) error {
	name, wanted := subject.WindowsStream(t.stream.Name, p.Job, p.Generation, pp), []byte(t.query.id)
	return t.each(ctx, name, func(m journal.Msg) error {
		if !bytes.Contains(m.Data, wanted) && len(t.reopens) == 0 {
			return nil
		}
		e, err := journal.DecodeEntry(m.Seq, m.Data)
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		for index, raw := range e.Records {
			if record.KindOf(raw) == record.KindProposal {
				continue
			}
			r, err := record.Decode(raw)
			if err != nil {
				return fmt.Errorf("stream %s sequence %d: %w", name, m.Seq, err)
			}
			s := traceStep{Stream: t.stream.Name, Journal: name, Sequence: m.Seq, Index: &index, PolicyGeneration: p.PolicyGeneration(), KeyPartition: &pp}
			switch {
			case r.Late != nil:
				s.Step, s.Window = stepLate, &r.Late.Window
				t.refused(&s, &r.Late.Event, r.Late.None, refused)
			case r.Conflict != nil:
				s.Step, s.Rule = stepConflict, r.Conflict.Rule
				t.refused(&s, &r.Conflict.Event, true, refused)
			case slices.Contains(t.reopens, reopened{p.PolicyGeneration(), r.Refused.Key, r.Refused.Epoch, r.Refused.AsOf, pp}):
				s.Step, s.Key, s.Reason = stepRefused, r.Refused.Key, r.Refused.Why
				t.steps = append(t.steps, s)
			}
		}
		return nil
	})
}

// refused adds the step if it is about one of the events; whole tells that no window took
// the event.
func (t *tracer) refused(s *traceStep, ref *record.EventRef, whole bool, refused map[int]bool) {
	for i := range t.events {
		ev := &t.events[i]
		if *ev.KeyPartition != *s.KeyPartition || ev.Sequence != ref.Place.Seq || *ev.Index != int(ref.Place.Index) {
			continue
		}
		refused[i] = refused[i] || whole
		s.ID, s.Source, s.Key = ref.ID, ref.Source, ref.Key
		s.SourcePartition, s.SourceOffset = envelope.PartitionName(ref.SourcePartition), ref.SourceOffset
		t.steps = append(t.steps, *s)
	}
}

// revisions adds the revisions made with the event of the windows that hold its time at,
// and their current rows. told holds the sequences of revisions added before.
func (t *tracer) revisions(ctx context.Context, p *policy.StreamTimePolicy, ev *traceStep, at envelope.EventTime, told map[uint64]bool) error {
	name := subject.RevisionsStream(t.stream.Name)
	filter := subject.Revision(t.stream.Name, p.Job, p.Generation, *ev.KeyPartition, ev.Key)
	met := map[revision.Window]bool{}
	found := false
	err := t.each(ctx, name, func(m journal.Msg) error {
		r, err := revision.ParseJSON(m.Data)
		if err != nil {
			return fmt.Errorf("stream %s sequence %d: %w", name, m.Seq, err)
		}
		// A retraction counts no inputs: it concerns the event if its window held it.
		if !holdsTime(r.Window, at) || r.Inputs.Last < ev.Sequence && !met[r.Window] {
			return nil
		}
		first := !met[r.Window] && r.Op == revision.Upsert && (!found || p.Window.Kind != policy.Session)
		met[r.Window], found = true, true
		if told[m.Seq] {
			return nil
		}
		told[m.Seq] = true
		t.steps = append(t.steps, traceStep{
			Step: stepRevision, Stream: t.stream.Name, Journal: name, Sequence: m.Seq, Key: r.Key, KeyPartition: ev.KeyPartition,
			PolicyGeneration: p.PolicyGeneration(), Window: &r.Window, Revision: r.Revision, Op: string(r.Op), Origin: originName(r.Origin),
			Firing: string(r.Firing), State: string(r.State), FirstIncluding: first, Value: valueOf(r),
		})
		return nil
	}, filter)
	if err != nil || !found {
		return err
	}
	return t.rows(ctx, p, ev, at)
}

func holdsTime(w revision.Window, t envelope.EventTime) bool { return w.Start <= t && t < w.End }

// rows adds the current rows of the windows that hold the event's time.
func (t *tracer) rows(ctx context.Context, p *policy.StreamTimePolicy, ev *traceStep, at envelope.EventTime) error {
	q := windowQuery{Key: ev.Key, Generation: p.PolicyGeneration(), From: at.Add(-int64(p.Window.Longest())).String(), To: (at + 1).String()}
	err := t.cli.eachWindow(ctx, t.conn.NC, t.stream.Name, q, func(now *windowRow) error {
		w := revision.Window{Start: now.Start, End: now.End}
		if !holdsTime(w, at) || slices.ContainsFunc(t.steps, func(s traceStep) bool {
			return s.Step == stepRow && s.PolicyGeneration == now.PolicyGeneration && s.Key == now.Key && *s.Window == w
		}) {
			return nil
		}
		value := make(map[string]json.RawMessage, len(now.Value))
		for name, text := range now.Value {
			value[name] = text
		}
		t.steps = append(t.steps, traceStep{
			Step: stepRow, Stream: t.stream.Name, Key: now.Key, PolicyGeneration: now.PolicyGeneration, Window: &w,
			Revision: now.Revision, Op: now.Op, Firing: now.Firing, State: now.State, Value: value,
		})
		return nil
	})
	if err != nil && exitCode(err) == exitUnreachable {
		t.cli.note("no projector answers: the current row is left out")
		return nil
	}
	return err
}

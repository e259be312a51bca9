package ingest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/core/admission"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// door is what one version of a stream's document says about incoming events.
type door struct {
	stream     *policy.BusinessStream
	digest     string
	extractors []string
	values     []string
	admitters  sync.Pool
	batches    sync.Pool
}

func newDoor(e config.Entry) *door {
	d := &door{stream: e.Stream, digest: e.Digest}
	d.admitters.New = func() any { return admission.New(e.Stream) }
	d.extractors, d.values = admission.New(e.Stream).Frame()
	return d
}

// partitionID names a source partition within a stream.
type partitionID struct {
	source string
	number uint32
}

// stream is one business stream: its lanes, its quarantine and its source partitions.
type stream struct {
	svc        *Service
	name       string
	door       atomic.Pointer[door]
	lanes      []*lane
	quarantine *quarantine
	subs       []*nats.Subscription // of requests about the whole stream
	kicked     chan struct{}
	coming     atomic.Int64  // requests that arrived and are not taken in yet
	taken      atomic.Uint64 // items taken in so far

	mu         sync.Mutex
	partitions map[partitionID]*partition
	sorted     []*partition
	rules      map[string][]idleRule
	wanted     []chan<- cutResult
	wantNext   bool
	lastCut    time.Duration
	lastTaken  uint64        // items taken in at the last cut
	cuts       uint64        // begun
	written    uint64        // over, with or without marks
	heldUntil  time.Duration // no cut begins before: a backup is being taken
}

// newStream starts the lanes and the marks of a stream.
func newStream(s *Service, e config.Entry) *stream {
	st := &stream{
		svc: s, name: e.Stream.Name, kicked: make(chan struct{}, 1),
		partitions: make(map[partitionID]*partition), quarantine: newQuarantine(s, e.Stream.Name),
	}
	st.door.Store(newDoor(e))
	for pp := range e.Stream.Partitions {
		st.lanes = append(st.lanes, newLane(s, st.name, pp, &st.coming))
	}
	for _, box := range st.outboxes() {
		s.spawn(box.run)
	}
	s.spawn(st.mark)
	return st
}

func (st *stream) outboxes() []*outbox {
	boxes := []*outbox{st.quarantine.out}
	for _, l := range st.lanes {
		boxes = append(boxes, l.out)
	}
	return boxes
}

// update follows the documents: names of extractors and values, and every source
// partition of every policy.
func (st *stream) update(e config.Entry, policies []*policy.StreamTimePolicy) {
	if st.door.Load().digest != e.Digest {
		st.door.Store(newDoor(e))
	}
	want := make(map[partitionID]bool)
	rules := make(map[string][]idleRule)
	for _, p := range policies {
		for _, ref := range p.Sources {
			rules[ref.Name] = idleRules(policies, ref.Name)
			for n := range ref.Partitions {
				want[partitionID{ref.Name, uint32(n)}] = true
			}
		}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.rules = rules
	for id, p := range st.partitions {
		if !want[id] {
			p.stop()
			delete(st.partitions, id)
		}
	}
	for id := range want {
		if st.partitions[id] == nil {
			st.partitions[id] = st.start(id)
		}
	}
	st.sorted = st.sorted[:0:0]
	for _, p := range st.partitions {
		st.sorted = append(st.sorted, p)
	}
	slices.SortFunc(st.sorted, func(a, b *partition) int {
		return cmp.Or(strings.Compare(a.source, b.source), cmp.Compare(a.number, b.number))
	})
}

// start makes a source partition and the loop that owns it.
func (st *stream) start(id partitionID) *partition {
	p := &partition{stream: st, source: id.source, number: id.number, waiting: "waits for its lease"}
	ctx, cancel := context.WithCancel(st.svc.work)
	p.stop = cancel
	st.svc.spawn(func(context.Context) { p.supervise(ctx) })
	return p
}

// partition answers a source partition of an applied policy, nil if no policy has it.
func (st *stream) partition(source string, number uint32) *partition {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.partitions[partitionID{source, number}]
}

func (st *stream) all() []*partition {
	st.mu.Lock()
	defer st.mu.Unlock()
	return slices.Clone(st.sorted)
}

// stalled tells whether some journal of the stream takes nothing.
func (st *stream) stalled() bool {
	for _, box := range st.outboxes() {
		if box.problem() != "" {
			return true
		}
	}
	return false
}

// look is called at every tick: quiet time goes on, and a cut is made when one is due.
func (st *stream) look() {
	blocked := st.svc.blocked(st)
	for _, p := range st.all() {
		p.look(blocked)
	}
	if st.due() {
		st.kick()
	}
}

// takeUnknown quarantines a request whose source partition belongs to no policy: with its
// source position as given and without an offset, for nobody owns it.
func (st *stream) takeUnknown(req *Request, b *batch, held *hold) (*taken, error) {
	t := &taken{flight: newFlight(held.give)}
	rule := fmt.Sprintf("no applied policy of stream %s has source %q partition %d", st.name, req.Source, req.Partition)
	for i := range b.events {
		b.refusals[i] = &admission.Refusal{Reason: admission.UnknownPartition, Rule: rule}
		at := position{source: req.Source, partition: req.Partition}
		if err := st.quarantine.add(req, &req.Items[i], at, b.events[i].ID, b.refusals[i], b.at, t.flight); err != nil {
			return t, err
		}
		st.svc.metrics.quarantined.WithLabelValues(string(admission.UnknownPartition)).Inc()
	}
	t.reply = b.reply(req)
	return t, nil
}

// flush makes a cut that begins after the call and answers where its marks stand.
func (st *stream) flush(ctx context.Context) ([]Flushed, error) {
	done := make(chan cutResult, 1)
	st.want(done)
	select {
	case r := <-done:
		return r.flushed, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-st.svc.dead:
		return nil, errStopping()
	}
}

// problems lists what keeps the stream from taking events or its partitions from marking.
func (st *stream) problems() (out []string) {
	for _, box := range st.outboxes() {
		if text := box.problem(); text != "" {
			out = append(out, text)
		}
	}
	for _, p := range st.all() {
		p.mu.Lock()
		switch {
		case p.halted != "":
			out = append(out, fmt.Sprintf("source partition %s of stream %s halted: %s", p, st.name, p.halted))
		case p.own == nil && p.waiting != "":
			out = append(out, fmt.Sprintf("source partition %s of stream %s has no owner: %s", p, st.name, p.waiting))
		}
		p.mu.Unlock()
	}
	return out
}

// owned counts the partitions that are ours.
func (st *stream) owned() (n int) {
	for _, p := range st.all() {
		p.mu.Lock()
		if p.own != nil {
			n++
		}
		p.mu.Unlock()
	}
	return n
}

package ingest

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/internal/core/admission"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// partition is one source partition of a stream, owned by this process or not.
type partition struct {
	stream *stream
	source string
	number uint32

	mu       sync.Mutex
	own      *ownership // nil: not ours
	tail     chan struct{}
	quiet    quiet
	pending  uint64 // items that arrived and are not taken in yet
	inFlight uint64 // items taken in and not acknowledged yet
	marked   marked // what the last mark said
	yielding bool   // it goes to another process: nothing more is taken in
	waiting  string // why it is not ours yet, "" when it is ours or another's
	halted   string // why it never will be until an operator helps
	sub      *nats.Subscription
	stop     context.CancelFunc
}

// ownership is what one claim gives. Its fields are under the partition's lock, record
// under its own.
type ownership struct {
	epoch      uint64
	generation uint64
	n          uint64 // items taken in within the epoch
	maxima     map[string]envelope.EventTime
	finished   bool
	resume     resume
	quietSeen  bool // a mark said that the partition was quiet for a second or more
	durable    checkpoint
	lost       chan struct{} // closed when another owner took over
	lostOnce   sync.Once
	final      chan struct{} // closed when the finishing mark is durable
	final1     sync.Once

	record recordState
}

func (o *ownership) isLost() bool {
	select {
	case <-o.lost:
		return true
	default:
		return false
	}
}

func (o *ownership) lose() { o.lostOnce.Do(func() { close(o.lost) }) }

// offset answers the source offset of the item taken in last, 0 for none.
func (o *ownership) offset() uint64 {
	if o.n == 0 {
		return 0
	}
	return o.epoch<<32 | o.n
}

// String names the partition as source/number.
func (p *partition) String() string { return fmt.Sprintf("%s/%d", p.source, p.number) }

// leaseKey is the unit of which the leases speak.
func (p *partition) leaseKey() string { return subject.Lease("ingest", p.stream.name, p.String()) }

// turn is a request's place in the order of arrival.
type turn struct{ before, mine chan struct{} }

func (t turn) wait() {
	if t.before != nil {
		<-t.before
	}
}

func (t turn) pass() { close(t.mine) }

// arrive notes the items of req and answers their turn, or why the partition takes none.
func (p *partition) arrive(req *Request) (turn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.closedLocked(req); err != nil {
		return turn{}, err
	}
	if p.yielding {
		return turn{}, errNotOurs
	}
	p.quiet.arrival(p.stream.svc.stamp.elapsed())
	p.pending += uint64(len(req.Items))
	p.stream.coming.Add(1)
	t := turn{before: p.tail, mine: make(chan struct{})}
	p.tail = t.mine
	return t, nil
}

// closedLocked answers why the partition does not take req, nil if it does. Finish may be
// repeated: whoever asked for it may not have got the answer.
func (p *partition) closedLocked(req *Request) error {
	switch {
	case p.stream.svc.draining.Load():
		return errStopping()
	case p.own == nil:
		return errNotOurs
	case p.own.finished && !(req.Finish && len(req.Items) == 0):
		return errFinished(p)
	}
	return nil
}

// expect keeps the partition from looking quiet while a request is on its way in.
func (p *partition) expect() (arrived func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.quiet.arrival(p.stream.svc.stamp.elapsed())
	p.pending++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.quiet.advance(p.stream.svc.stamp.elapsed(), false)
		p.pending--
	})
}

// take gives every item its offset and hands it to its journal. The caller settles the
// flight of the answer, if there is one: the request's own share.
func (p *partition) take(req *Request, b *batch, held *hold) (*taken, error) {
	n := uint64(len(req.Items))
	injected := failpoint.Hit("ingest/after-validate")
	p.stream.coming.Add(-1) // before frames are handed over: those of the last request need not linger
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending -= n
	p.quiet.advance(p.stream.svc.stamp.elapsed(), false)
	if injected != nil {
		return nil, errUnsettled()
	}
	if err := p.closedLocked(req); err != nil {
		return nil, err
	}
	own := p.own
	if own.n+n > math.MaxUint32 {
		own.lose()
		return nil, later(http.StatusServiceUnavailable, "not-ready", waitDefault, "source partition %s used up the offsets of its epoch and is claimed again", p)
	}
	if own.quietSeen && n > 0 {
		own.generation++
		own.quietSeen = false
	}
	first := own.n + 1
	for i := range b.events {
		own.n++
		ev := &b.events[i]
		ev.SourceOffset, ev.PartitionGeneration = own.epoch<<32|own.n, own.generation
	}
	p.inFlight += n
	p.stream.taken.Add(n)
	f := newFlight(func() { p.settled(n, held) })
	t := &taken{flight: f}
	if err := p.write(req, b, own, first, f); err != nil {
		own.lose()
		return t, err
	}
	p.raise(own, b)
	own.resume.take(req)
	own.finished = own.finished || req.Finish
	t.reply = b.reply(req)
	t.reply.Epoch = own.epoch
	if n > 0 {
		t.reply.FirstOffset, t.reply.LastOffset = own.epoch<<32|first, own.offset()
	}
	return t, nil
}

// write hands accepted events to their lanes and the others to quarantine.
func (p *partition) write(req *Request, b *batch, own *ownership, first uint64, f *flight) error {
	st := p.stream
	for pp, index := range b.lanes {
		if len(index) == 0 {
			continue
		}
		for _, bad := range st.lanes[pp].add(b.pool, b.events, index, f) {
			b.refusals[bad.index] = &admission.Refusal{Reason: admission.MalformedJSON, Rule: bad.err.Error()}
		}
	}
	for i, why := range b.refusals {
		if why == nil {
			continue
		}
		at := position{p.source, p.number, own.epoch<<32 | (first + uint64(i)), own.generation}
		if err := st.quarantine.add(req, &req.Items[i], at, b.events[i].ID, why, b.at, f); err != nil {
			return err
		}
		st.svc.metrics.quarantined.WithLabelValues(string(why.Reason)).Inc()
	}
	return nil
}

// raise moves the maxima by the accepted events.
func (p *partition) raise(own *ownership, b *batch) {
	for x, name := range b.pool.extractors {
		top, seen := own.maxima[name]
		if !seen {
			top = envelope.MinEventTime
		}
		for i := range b.events {
			if b.refusals[i] == nil {
				top = max(top, b.events[i].Times[x])
			}
		}
		own.maxima[name] = top
	}
}

// settled notes that n items are durable.
func (p *partition) settled(n uint64, held *hold) {
	p.mu.Lock()
	p.quiet.advance(p.stream.svc.stamp.elapsed(), false)
	p.inFlight -= n
	p.mu.Unlock()
	held.give()
}

// look advances the quiet time; blocked tells that nothing could have arrived.
func (p *partition) look(blocked bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.quiet.advance(p.stream.svc.stamp.elapsed(), !blocked && p.pending == 0 && p.inFlight == 0)
}

// snapshot answers what a cut notes; ok is false when the partition is not ours.
func (p *partition) snapshot() (c cutPart, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.own
	if own == nil || own.isLost() {
		return cutPart{}, false
	}
	return cutPart{
		partition: p, own: own, quiet: p.quiet.total,
		state: checkpoint{
			Epoch: own.epoch, Generation: own.generation, Offset: own.offset(),
			MaxEventTime: maps.Clone(own.maxima), Finished: own.finished, Resume: own.resume.line(),
		},
	}, true
}

// awaitFinished waits until the finishing mark is durable.
func (p *partition) awaitFinished(ctx context.Context) error {
	p.mu.Lock()
	own := p.own
	p.mu.Unlock()
	if own == nil {
		return errNotOurs
	}
	p.stream.want(nil)
	select {
	case <-own.final:
		return nil
	case <-own.lost:
		return errNotOurs
	case <-ctx.Done():
		return ctx.Err()
	case <-p.stream.svc.dead:
		return errUnsettled()
	}
}

// reply lists the verdicts.
func (b *batch) reply(req *Request) Reply {
	var r Reply
	for i := range b.events {
		why, ev := b.refusals[i], &b.events[i]
		if why == nil {
			r.Accepted++
		} else {
			r.Quarantined++
		}
		if why == nil && !req.Verbose {
			continue
		}
		item := ItemReply{Index: i, ID: strings.Clone(ev.ID), Verdict: Accepted, Offset: ev.SourceOffset}
		if why != nil {
			item.Verdict, item.Reason, item.Rule = Quarantined, string(why.Reason), why.Rule
		}
		r.Items = append(r.Items, item)
	}
	return r
}

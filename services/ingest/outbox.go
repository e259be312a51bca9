package ingest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Waits of an outbox between attempts that failed in a row.
const (
	firstBackoff = 50 * time.Millisecond
	maxBackoff   = 2 * time.Second
)

// flight is a request whose messages are not all acknowledged. It starts with one share,
// which its request gives back once it has handed over everything.
type flight struct {
	left   atomic.Int64
	done   chan struct{}
	finish func()
}

func newFlight(finish func()) *flight {
	f := &flight{done: make(chan struct{}), finish: finish}
	f.left.Store(1)
	return f
}

func (f *flight) share() { f.left.Add(1) }

func (f *flight) settle() {
	if f.left.Add(-1) == 0 {
		f.finish()
		close(f.done)
	}
}

// parcel is one message, or several in one atomic batch, on the way into a stream. It is
// sent until it is acknowledged, the same bytes each time.
type parcel struct {
	messages []message
	flights  []*flight
	done     chan struct{} // closed when acknowledged
	seq      uint64        // after done: sequence of its last message in the stream
	recycle  func()        // takes the bytes back once nothing sends them any more; may be nil

	future jetstream.PubAckFuture // of the last attempt; nil when that failed at once
	err    error                  // of the last attempt, once known
}

type message struct {
	subject string
	data    []byte
}

func newParcel() *parcel { return &parcel{done: make(chan struct{})} }

// join makes f wait for p.
func (p *parcel) join(f *flight) {
	if n := len(p.flights); n > 0 && p.flights[n-1] == f {
		return
	}
	f.share()
	p.flights = append(p.flights, f)
}

func (p *parcel) settle(seq uint64) {
	p.seq = seq
	close(p.done)
	for _, f := range p.flights {
		f.settle()
	}
	p.flights, p.messages = nil, nil
	if p.recycle != nil {
		p.recycle()
	}
}

// failed tells whether the last attempt is known to have failed, without waiting.
func (p *parcel) failed() bool {
	if p.err != nil {
		return true
	}
	select {
	case p.err = <-p.future.Err():
		return true
	default:
		return false
	}
}

// publisher sends one parcel and does not wait for its acknowledgement.
type publisher func(stream string, p *parcel) (jetstream.PubAckFuture, error)

// asyncPublisher sends single messages as they are and several as an atomic batch: the
// server syncs a batch to disk once. Every attempt has a batch id of its own, for the
// server may still hold the rest of the last one.
func asyncPublisher(nc *nats.Conn, js jetstream.JetStream, writer string) publisher {
	var attempts atomic.Uint64
	return func(stream string, p *parcel) (jetstream.PubAckFuture, error) {
		last := len(p.messages) - 1
		msg := &nats.Msg{Subject: p.messages[last].subject, Data: p.messages[last].data}
		if last > 0 {
			id := fmt.Sprintf("%s-%d", writer, attempts.Add(1))
			for i, m := range p.messages[:last] {
				if err := nc.PublishMsg(&nats.Msg{Subject: m.subject, Data: m.data, Header: batchHeader(stream, id, i+1)}); err != nil {
					return nil, err
				}
			}
			msg.Header = batchHeader(stream, id, last+1)
			msg.Header[subject.HeaderBatchCommit] = []string{"1"}
		}
		return js.PublishMsgAsync(msg, jetstream.WithExpectStream(stream), jetstream.WithRetryAttempts(0))
	}
}

func batchHeader(stream, id string, n int) nats.Header {
	return nats.Header{
		subject.HeaderExpectStream: {stream}, subject.HeaderBatchID: {id}, subject.HeaderBatchSeq: {strconv.Itoa(n)},
	}
}

// outbox writes messages into one stream: pipelined, in the order given (after a resend
// they may be stored out of order and twice), until each is acknowledged.
type outbox struct {
	stream  string
	limit   int // messages in flight
	publish publisher
	clock   clock.Clock
	metrics *metrics
	// top is asked, when there is room in flight and nothing is queued, to queue what waits
	// to become full; it answers whether something goes on waiting. nil: nothing ever waits.
	top func(idle bool) (waiting bool)
	// quarantine tells that parcels are quarantine batches, not frames.
	quarantine bool

	mu    sync.Mutex
	queue []*parcel
	last  *parcel // queued last
	wake  chan struct{}
	stall atomic.Pointer[string]
}

func newOutbox(s *Service, stream string, limit int) *outbox {
	return &outbox{stream: stream, limit: limit, publish: s.publish, clock: s.clock, metrics: s.metrics, wake: make(chan struct{}, 1)}
}

// put queues a parcel; it is sent after all that were queued before.
func (o *outbox) put(p *parcel) {
	o.mu.Lock()
	o.queue = append(o.queue, p)
	o.last = p
	o.mu.Unlock()
	o.nudge()
}

// newest answers the parcel queued last, nil if there was none. Parcels settle in order:
// once it is done, all before it are.
func (o *outbox) newest() *parcel {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

func (o *outbox) nudge() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *outbox) take() *parcel {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 {
		o.queue = nil
		return nil
	}
	p := o.queue[0]
	o.queue[0] = nil
	o.queue = o.queue[1:]
	return p
}

// problem answers why nothing gets through at the moment, "" if it does.
func (o *outbox) problem() string {
	if text := o.stall.Load(); text != nil {
		return *text
	}
	return ""
}

// run sends until ctx ends.
func (o *outbox) run(ctx context.Context) {
	var flying []*parcel
	linger := o.clock.NewTimer(time.Hour)
	defer linger.Stop()
	var backoff time.Duration
	for {
		waiting := false
		if backoff == 0 {
			flying, waiting = o.fill(flying)
		}
		var lingered <-chan time.Time
		if waiting {
			linger.Reset(lingerFor)
			lingered = linger.C()
		}
		if len(flying) == 0 {
			select {
			case <-ctx.Done():
				return
			case <-o.wake:
			case <-lingered:
			}
			continue
		}
		head := flying[0]
		if head.failed() {
			backoff = min(max(firstBackoff, backoff*2), maxBackoff)
			if !o.retry(ctx, flying, backoff) {
				return
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case ack := <-head.future.Ok():
			if head.err = o.acknowledged(); head.err != nil {
				continue
			}
			o.settled(head, ack)
			flying[0] = nil
			flying = flying[1:]
			backoff = 0
		case head.err = <-head.future.Err():
		case <-o.wake:
		case <-lingered:
		}
	}
}

// fill sends what is queued while there is room in flight.
func (o *outbox) fill(flying []*parcel) (_ []*parcel, waiting bool) {
	for len(flying) < o.limit {
		p := o.take()
		if p == nil && o.top != nil {
			waiting = o.top(len(flying) == 0)
			p = o.take()
		}
		if p == nil {
			break
		}
		o.send(p)
		flying = append(flying, p)
	}
	return flying, waiting
}

func (o *outbox) send(p *parcel) {
	if p.err = o.built(); p.err == nil {
		p.future, p.err = o.publish(o.stream, p)
	}
	if p.err == nil {
		p.err = o.published()
	}
	o.metrics.published.WithLabelValues(o.stream).Add(float64(len(p.messages)))
}

// built, published and acknowledged are the steps of a parcel as failpoints know them: an
// error there counts as an attempt that failed.
func (o *outbox) built() error {
	if o.quarantine {
		return failpoint.Hit("ingest/quarantine-built")
	}
	return failpoint.Hit("ingest/frame-built")
}

func (o *outbox) published() error {
	if o.quarantine {
		return failpoint.Hit("ingest/quarantine-published")
	}
	return failpoint.Hit("ingest/after-publish")
}

func (o *outbox) acknowledged() error {
	if o.quarantine {
		return failpoint.Hit("ingest/before-quarantine-puback-seen")
	}
	return failpoint.Hit("ingest/before-puback-seen")
}

// retry waits and sends everything again that is known to have failed. It answers false
// when ctx ended.
func (o *outbox) retry(ctx context.Context, flying []*parcel, backoff time.Duration) bool {
	text := fmt.Sprintf("stream %s takes nothing: %s", o.stream, advise(flying[0].err))
	o.stall.Store(&text)
	pause := o.clock.NewTimer(backoff)
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-pause.C():
	}
	for _, p := range flying {
		if p.failed() {
			o.metrics.resent.WithLabelValues(o.stream).Inc()
			o.send(p)
		}
	}
	return true
}

func (o *outbox) settled(p *parcel, ack *jetstream.PubAck) {
	o.stall.Store(nil)
	p.future = nil
	p.settle(ack.Sequence)
}

// JetStream error codes that say that there is no room.
const (
	codeInsufficientResources = 10023
	codeStorageExceeded       = 10047
	codeStoreFailed           = 10077
)

// advise says what a failed publish means and what to do; ingest goes on by itself.
func advise(err error) string {
	var api *jetstream.APIError
	switch {
	case errors.As(err, &api) && (api.ErrorCode == codeStoreFailed || api.ErrorCode == codeStorageExceeded || api.ErrorCode == codeInsufficientResources):
		return fmt.Sprintf("JetStream is full (%v); give the stream or the server more room, ingest goes on by itself", err)
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return "the stream does not exist or has no leader; check it with `nats stream info`, ingest goes on by itself"
	}
	if errors.Is(err, jetstream.ErrAsyncPublishTimeout) {
		// A server whose disk is full may keep silent instead of refusing.
		return fmt.Sprintf("JetStream does not acknowledge (%v): its disk may be full; look at the log and /healthz of nats-server, ingest goes on by itself once the server answers", err)
	}
	return fmt.Sprintf("%v; ingest goes on by itself once the server answers", err)
}

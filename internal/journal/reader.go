package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
)

// Msg is one message of a journal as a Reader gives it.
type Msg struct {
	Seq     uint64
	Subject string
	Header  nats.Header
	Data    []byte // owned by the receiver
	Time    time.Time
	Pending uint64 // messages behind it when it was delivered
}

// Bounds of what a Reader holds ahead of its user.
const (
	prefetchMessages = 4096
	// prefetchBytes is above the largest message, or the server would refuse to send it,
	// and small against max_pending of the server: all readers of a process share one
	// connection, and the server cuts a connection for which too much waits.
	prefetchBytes = 2 << 20
	handover      = 16 // messages between the reader's goroutine and its user
)

// gone is how long a stream may be reported missing before that is believed: a server
// that starts answers so for a moment.
const gone = 2 * time.Second

// Reader reads one stream in order from a sequence on, over reconnects, and checks the
// stream's identity at start and at every reconnect. Memory is bounded: about 4 MiB are
// read ahead.
type Reader struct {
	js      jetstream.JetStream
	clk     clock.Clock
	stream  string
	filters []string
	start   Identity
	strict  bool // every sequence must come: unfiltered, and nothing is ever deleted

	out    chan Msg
	cancel context.CancelFunc
	ended  chan struct{}
	mu     sync.Mutex
	err    error
}

// Read starts at sequence next (from 1). created is the stored creation time of the
// stream, 0 when nothing is stored. filters are subjects; none means every message. ctx
// is the reader's life: when it ends, so does the reader. Errors at start and later:
// *IdentityError; what can heal is waited for.
func Read(ctx context.Context, js jetstream.JetStream, stream string, created int64, next uint64, filters ...string) (*Reader, error) {
	next = max(next, 1)
	ctx, cancel := context.WithCancel(ctx)
	r := &Reader{
		js: js, clk: clock.System(), stream: stream, filters: filters,
		out: make(chan Msg, handover), cancel: cancel, ended: make(chan struct{}),
	}
	feed, err := r.open(ctx, created, next)
	if err != nil {
		cancel()
		return nil, err
	}
	go r.run(ctx, feed, next)
	return r, nil
}

// Next answers the next message; it blocks until there is one, ctx ends, or the reader fails for good.
func (r *Reader) Next(ctx context.Context) (Msg, error) {
	select {
	case m, ok := <-r.out:
		if !ok {
			return Msg{}, r.Err()
		}
		return m, nil
	case <-ctx.Done():
		return Msg{}, ctx.Err()
	}
}

// TryNext answers a message only if one is at hand.
func (r *Reader) TryNext() (Msg, bool, error) {
	select {
	case m, ok := <-r.out:
		if !ok {
			return Msg{}, false, r.Err()
		}
		return m, true, nil
	default:
		return Msg{}, false, nil
	}
}

// C delivers messages for use in a select; closed when the reader ends (then Err tells why).
func (r *Reader) C() <-chan Msg { return r.out }

// Err answers why C was closed; nil while the reader works.
func (r *Reader) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Identity answers what the stream was when reading began.
func (r *Reader) Identity() Identity { return r.start }

// Close ends reading and waits for that.
func (r *Reader) Close() {
	r.cancel()
	<-r.ended
}

// run hands messages on and opens a new feed whenever one ends.
func (r *Reader) run(ctx context.Context, f *feed, next uint64) {
	err := r.pump(ctx, f, next)
	r.mu.Lock()
	if err == nil || ctx.Err() != nil && !definite(err) {
		err = fmt.Errorf("stream %s: reader %w: %w", r.stream, ErrClosed, context.Cause(ctx))
	}
	r.err = err
	r.mu.Unlock()
	r.cancel()
	close(r.out)
	close(r.ended)
}

func (r *Reader) pump(ctx context.Context, f *feed, next uint64) (err error) {
	for {
		next, err = r.deliver(ctx, f, next)
		f.close()
		if ctx.Err() != nil || definite(err) {
			return err
		}
		if f, err = r.open(ctx, r.start.Created, next); err != nil {
			return err
		}
	}
}

// deliver hands on what f brings. It answers the sequence to go on from when f ends.
func (r *Reader) deliver(ctx context.Context, f *feed, next uint64) (uint64, error) {
	for {
		m, err := f.next(ctx)
		if err != nil {
			return next, err
		}
		if err := failpoint.Hit("journal/before-delivery"); err != nil {
			return next, err
		}
		if m.Seq < next || r.strict && m.Seq != next {
			return next, &IdentityError{Stream: r.stream, What: fmt.Sprintf("message %d is missing, %d comes in its place", next, m.Seq)}
		}
		select {
		case r.out <- m:
			next = m.Seq + 1
			if err := failpoint.Hit("journal/after-delivery"); err != nil {
				return next, err
			}
		case <-ctx.Done():
			return next, ctx.Err()
		}
	}
}

// open checks the stream against the position and starts a feed there. What can heal is
// tried again until ctx ends.
func (r *Reader) open(ctx context.Context, created int64, next uint64) (*feed, error) {
	tempo := newPace(r.clk, 1<<62)
	var missing time.Time
	for {
		f, err := r.tryOpen(ctx, created, next)
		switch {
		case err == nil || definite(err) || errors.Is(err, nats.ErrConnectionClosed):
			return f, err
		case !errors.Is(err, jetstream.ErrStreamNotFound):
			missing = time.Time{}
		case missing.IsZero():
			missing = r.clk.Now()
		case r.clk.Since(missing) >= gone:
			if created != 0 {
				return nil, &IdentityError{Stream: r.stream, What: "it was deleted"}
			}
			return nil, err
		}
		if !tempo.wait(ctx) {
			return nil, fmt.Errorf("stream %s: %w (%w)", r.stream, ctx.Err(), err)
		}
	}
}

func (r *Reader) tryOpen(ctx context.Context, created int64, next uint64) (*feed, error) {
	id, handle, err := inspect(ctx, r.js, r.stream)
	if err != nil {
		return nil, err
	}
	if err := id.Check(created, next); err != nil {
		return nil, err
	}
	if err := failpoint.Hit("journal/before-feed"); err != nil {
		return nil, err
	}
	f, err := openFeed(ctx, r.js.Conn(), handle, next, r.filters)
	if err != nil {
		return nil, err
	}
	if r.start.Stream == "" {
		config := handle.CachedInfo().Config
		r.start = id
		r.strict = len(r.filters) == 0 && config.DenyDelete && config.DenyPurge && config.MaxAge == 0 && config.Discard == jetstream.DiscardNew
	}
	return f, nil
}

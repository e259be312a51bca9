package journal

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Writer appends to a single-writer journal: one message a commit, each with
// expected-last-sequence, several in flight. Commit and Close are for one goroutine. Any
// failure ends the Writer; claim again.
type Writer struct {
	js       jetstream.JetStream
	pub      *publisher
	clk      clock.Clock
	settings Settings
	epoch    uint64
	previous revision.Digest // of the last commit handed in; Commit's goroutine only

	slots   chan struct{}
	submit  chan *Pending
	observe chan observed
	closing chan struct{}
	once    sync.Once
	ended   chan struct{}
	abort   context.CancelFunc
	failing sync.Mutex
	err     error // why it ended; read after ended is closed

	loop writerLoop // of the writer's own goroutine
}

// Pending is a commit in flight.
type Pending struct {
	commit revision.Commit
	hash   revision.Digest
	data   []byte
	expect uint64
	token  uint64
	at     time.Time // when it was sent last
	acked  uint64    // sequence in an acknowledgement not yet in turn
	done   chan struct{}
	seq    uint64
	err    error
}

// Done is closed when the outcome is known.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Result answers the sequence of the accepted commit, or ErrFenced and the like. Only after Done.
func (p *Pending) Result() (seq uint64, err error) { return p.seq, p.err }

// Commit answers the COMMIT as it was sent, with epoch and predecessor.
func (p *Pending) Commit() revision.Commit { return p.commit }

func startWriter(js jetstream.JetStream, pub *publisher, clk clock.Clock, s Settings, head Head) *Writer {
	ctx, cancel := context.WithCancel(context.Background())
	w := &Writer{
		js: js, pub: pub, clk: clk, settings: s, epoch: head.Epoch,
		slots:   make(chan struct{}, s.MaxInFlight),
		submit:  make(chan *Pending, s.MaxInFlight),
		observe: make(chan observed),
		closing: make(chan struct{}),
		ended:   make(chan struct{}),
		abort:   cancel,
	}
	if head.Commit != nil {
		w.previous = head.Commit.Hash()
	}
	w.loop = writerLoop{Writer: w, created: head.Identity.Created, base: head.ClaimSeq, last: head.CommitAt, hash: w.previous, tempo: newPace(clk, s.RetryFor)}
	go w.loop.run(ctx)
	return w
}

// Epoch answers the epoch that was claimed.
func (w *Writer) Epoch() uint64 { return w.epoch }

// Commit appends records and c in one message (at most MaxCommitBytes together), setting
// c.Epoch and c.Previous. It blocks only while MaxInFlight commits are unsettled. An
// unknown outcome is settled inside: the own commit is looked for in the tail, and if
// absent the same bytes are appended with the same expectation. The answer's Done is
// closed once the commit is accepted or has failed for good. records are not kept. With
// Strict the result may be a *ControlError, after which the writer goes on.
func (w *Writer) Commit(ctx context.Context, records [][]byte, c revision.Commit) (*Pending, error) {
	if w.settings.Strict {
		return w.commitStrict(ctx, records, c)
	}
	p, err := w.prepare(records, c)
	if err != nil {
		return nil, err
	}
	if err := w.reserve(ctx); err != nil {
		return nil, err
	}
	return p, w.handIn(p)
}

// prepare makes the bytes of a commit that follows w.previous.
func (w *Writer) prepare(records [][]byte, c revision.Commit) (*Pending, error) {
	c.Epoch, c.Previous = w.epoch, w.previous
	data, err := EncodeEntry(&Entry{Records: records, Commit: &c})
	if err != nil {
		return nil, err
	}
	if len(data) > MaxCommitBytes {
		return nil, fmt.Errorf("stream %s: commit of %d bytes: %w, at most %d", w.settings.Stream, len(data), ErrTooLarge, MaxCommitBytes)
	}
	return &Pending{commit: c, hash: c.Hash(), data: data, done: make(chan struct{})}, nil
}

// reserve waits until one more commit may be in flight.
func (w *Writer) reserve(ctx context.Context) error {
	select {
	case <-w.closing:
		return fmt.Errorf("stream %s: writer %w", w.settings.Stream, ErrClosed)
	default:
	}
	select {
	case <-w.ended:
		return w.err
	default:
	}
	select {
	case w.slots <- struct{}{}:
		return nil
	case <-w.ended:
		return w.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *Writer) handIn(p *Pending) error {
	w.previous = p.hash
	w.submit <- p // has room: slots bounds what is unsettled
	return w.orphan(p)
}

// orphan fails a commit that was handed in when the loop had ended already.
func (w *Writer) orphan(p *Pending) error {
	select {
	case <-w.ended:
	default:
		return nil
	}
	w.loop.drain()
	<-p.done
	return nil
}

// Err answers why the Writer ended, nil while it works or after a plain Close.
func (w *Writer) Err() error {
	select {
	case <-w.ended:
		if errors.Is(w.err, ErrClosed) {
			return nil
		}
		return w.err
	default:
		return nil
	}
}

// Ended is closed when the Writer has ended: by failure (see Err), Close or Abort.
func (w *Writer) Ended() <-chan struct{} { return w.ended }

// Close waits for commits in flight, for RetryFor at most, and stops.
func (w *Writer) Close() error {
	w.once.Do(func() { close(w.closing) })
	<-w.ended
	return w.Err()
}

// Abort stops at once; commits in flight fail, though they may have been written.
func (w *Writer) Abort() {
	w.abort()
	_ = w.Close()
}

// message makes the message of p for its expectation. Its bytes never change.
func (w *Writer) message(p *Pending) *nats.Msg {
	return &nats.Msg{
		Subject: w.settings.Subject,
		Data:    p.data,
		Header: nats.Header{
			subject.HeaderExpectStream: []string{w.settings.Stream},
			subject.HeaderExpectSeq:    []string{strconv.FormatUint(p.expect, 10)},
		},
	}
}

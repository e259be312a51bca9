package journal

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// writerLoop is the state of a Writer's goroutine: what is in flight, oldest first, and
// where the journal stands behind it.
type writerLoop struct {
	*Writer
	created int64
	base    uint64          // last sequence known to be ours or seen
	last    uint64          // sequence of the last accepted COMMIT
	hash    revision.Digest // of the last accepted COMMIT
	queue   []*Pending
	byToken map[uint64]*Pending
	tempo   *pace
	retry   bool // the last trouble is not over: no progress since
}

// run sends, hears and settles until the writer fails, is aborted, or is closed with
// nothing left in flight.
func (l *writerLoop) run(ctx context.Context) {
	l.byToken = make(map[uint64]*Pending)
	err := l.serve(ctx)
	if ctx.Err() != nil && err == nil {
		err = fmt.Errorf("stream %s: writer %w", l.settings.Stream, ErrClosed)
	}
	l.abort()
	l.pub.close()
	l.err = err
	close(l.ended)
	l.drain()
}

// drain fails everything that was handed in.
func (l *writerLoop) drain() {
	l.failing.Lock()
	defer l.failing.Unlock()
	for _, p := range l.queue {
		p.err = l.err
		close(p.done)
	}
	l.queue = nil
	for {
		select {
		case p := <-l.submit:
			p.err = l.err
			close(p.done)
		default:
			return
		}
	}
}

func (l *writerLoop) serve(ctx context.Context) error {
	alarm := l.clk.NewTimer(ackTimeout)
	defer alarm.Stop()
	closing := l.closing
	for {
		if closing == nil && len(l.queue) == 0 && len(l.submit) == 0 {
			return fmt.Errorf("stream %s: writer %w", l.settings.Stream, ErrClosed)
		}
		var trouble error
		select {
		case p := <-l.submit:
			trouble = l.take(p)
		case msg := <-l.pub.replies:
			token, a, ok := l.pub.read(msg)
			if p := l.byToken[token]; ok && p != nil {
				delete(l.byToken, token)
				if trouble = failpoint.Hit("journal/before-answer"); trouble == nil {
					trouble = l.hear(p, a)
				}
			}
		case <-l.pub.status:
			if trouble = errConnCut; l.pub.nc.IsClosed() {
				return l.unsettled(ctx, nats.ErrConnectionClosed)
			}
		case <-alarm.C():
			if l.overdue() {
				trouble = errNoAnswer
			}
		case o := <-l.observe:
			err := l.see(o.msg)
			o.answer <- err
			if definite(err) {
				return err
			}
		case <-closing:
			closing = nil
		case <-ctx.Done():
			return nil
		}
		if trouble != nil && len(l.queue) > 0 {
			if err := l.settle(ctx, trouble); err != nil {
				return err
			}
		}
		l.arm(alarm)
	}
}

// arm sets the alarm to when the oldest commit in flight is overdue.
func (l *writerLoop) arm(alarm clock.Timer) {
	wait := ackTimeout
	if len(l.queue) > 0 {
		wait = max(0, ackTimeout-l.clk.Since(l.queue[0].at))
	}
	alarm.Reset(wait)
}

func (l *writerLoop) overdue() bool {
	return len(l.queue) > 0 && l.clk.Since(l.queue[0].at) >= ackTimeout
}

// take sends a commit behind those in flight.
func (l *writerLoop) take(p *Pending) error {
	p.expect = l.base
	if n := len(l.queue); n > 0 {
		p.expect = l.queue[n-1].expect + 1
	} else {
		l.tempo.reset()
	}
	l.queue = append(l.queue, p)
	return l.transmit(p)
}

func (l *writerLoop) transmit(p *Pending) error {
	p.at, p.acked = l.clk.Now(), 0
	if err := failpoint.Hit("journal/before-append"); err != nil {
		return err
	}
	token, err := l.pub.publish(l.message(p))
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	p.token = token
	l.byToken[token] = p
	return failpoint.Hit("journal/after-append")
}

// hear takes an answer. Acknowledgements count in turn only: one that overtakes another
// proves nothing about it.
func (l *writerLoop) hear(p *Pending, a answer) error {
	switch {
	case a.verdict == refused:
		return fmt.Errorf("stream %s: %w: %w", l.settings.Stream, ErrRefused, a.cause)
	case a.verdict == conflict:
		return &conflictError{last: a.last, cause: a.cause}
	case a.verdict != accepted:
		return a.cause
	case a.seq != p.expect+1:
		return fmt.Errorf("acknowledged at sequence %d, expected %d", a.seq, p.expect+1)
	}
	p.acked = a.seq
	for len(l.queue) > 0 && l.queue[0].acked != 0 {
		l.accept(l.queue[0].acked)
	}
	return nil
}

// accept completes the oldest commit in flight.
func (l *writerLoop) accept(seq uint64) {
	p := l.queue[0]
	l.queue[0] = nil
	l.queue = l.queue[1:]
	delete(l.byToken, p.token)
	l.base, l.last, l.hash, l.retry = seq, seq, p.hash, false
	l.tempo.reset()
	p.seq, p.data = seq, nil
	close(p.done)
	<-l.slots
}

// conflictError carries the last sequence that the server reported.
type conflictError struct {
	last  uint64
	cause error
}

func (e *conflictError) Error() string { return e.cause.Error() }

// unsettled ends a writer that could not learn an outcome in RetryFor.
func (l *writerLoop) unsettled(ctx context.Context, cause error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("stream %s: writer %w with %d commits in flight", l.settings.Stream, ErrClosed, len(l.queue))
	}
	return fmt.Errorf("stream %s: %w for %s: %w", l.settings.Stream, ErrUnsettled, l.settings.RetryFor.Round(time.Second), cause)
}

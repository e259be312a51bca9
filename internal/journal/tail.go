package journal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/clock"
)

// tail reads single messages of a stream from its leader.
type tail struct {
	stream jetstream.Stream
	id     Identity
}

// openTail looks at the stream now. created is its known creation time, 0 if unknown.
func openTail(ctx context.Context, js jetstream.JetStream, stream string, created int64) (*tail, error) {
	id, handle, err := inspect(ctx, js, stream)
	if err != nil {
		return nil, err
	}
	if created != 0 && id.Created != created {
		return nil, id.Check(created, id.First)
	}
	return &tail{stream: handle, id: id}, nil
}

// get reads the message at seq.
func (t *tail) get(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	msg, err := t.stream.GetMsg(ctx, seq)
	if err != nil {
		return nil, fmt.Errorf("stream %s: message %d: %w", t.id.Stream, seq, err)
	}
	return msg, nil
}

// next reads the first message on subj at or after seq; nil if there is none.
func (t *tail) next(ctx context.Context, subj string, seq uint64) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	msg, err := t.stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(subj))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: first message on %s from %d: %w", t.id.Stream, subj, seq, err)
	}
	return msg, nil
}

// last reads the last message on subj; nil if there is none.
func (t *tail) last(ctx context.Context, subj string) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	msg, err := t.stream.GetLastMsgForSubject(ctx, subj)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: last message on %s: %w", t.id.Stream, subj, err)
	}
	return msg, nil
}

// definite tells errors that waiting does not heal.
func definite(err error) bool {
	return errors.Is(err, ErrFenced) || errors.Is(err, ErrIdentity) || errors.Is(err, ErrChain) ||
		errors.Is(err, ErrRefused) || errors.Is(err, ErrBatch) || errors.Is(err, errDamaged)
}

var errDamaged = errors.New("unreadable record")

// pace spaces the attempts of one trouble: a few milliseconds first, half a second at
// most, with jitter so that rivals do not march in step. It ends after a budget.
type pace struct {
	clk     clock.Clock
	budget  time.Duration
	began   time.Time
	attempt int
}

func newPace(clk clock.Clock, budget time.Duration) *pace {
	return &pace{clk: clk, budget: budget, began: clk.Now()}
}

// reset starts over: there was progress.
func (p *pace) reset() { p.began, p.attempt = p.clk.Now(), 0 }

// wait answers false when the budget is spent or ctx ended.
func (p *pace) wait(ctx context.Context) bool {
	if p.clk.Since(p.began) >= p.budget {
		return false
	}
	full := min(5*time.Millisecond<<min(p.attempt, 7), 500*time.Millisecond)
	p.attempt++
	timer := p.clk.NewTimer(full/2 + rand.N(full/2))
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

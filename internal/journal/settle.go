package journal

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemark-mesh/tidemark/internal/failpoint"
)

// settle follows a trouble with commits in flight: it forgets the answers under way,
// reads the tail to see what was written and by whom, and sends what is missing again in
// order, the same bytes, with expectations that fit the tail (the same ones if nobody
// else wrote). What was sent before can then be accepted at most once: its expectation
// and the new one are the same, or a barrier made the old one impossible. A nil answer
// means that the loop goes on; the next answer proves whether the tail was read right.
func (l *writerLoop) settle(ctx context.Context, trouble error) error {
	if errors.Is(trouble, ErrRefused) {
		return trouble
	}
	again := l.retry
	l.retry = true
	for {
		// The first look is at once: most troubles are over when they are heard of.
		if again && !l.tempo.wait(ctx) {
			return l.unsettled(ctx, trouble)
		}
		again = true
		clear(l.byToken)
		err := failpoint.Hit("journal/settling")
		if err == nil {
			err = l.readTail(ctx, trouble)
		}
		if err == nil {
			err = failpoint.Hit("journal/settled")
		}
		if err == nil {
			err = l.resend()
		}
		if err == nil {
			return nil
		}
		if definite(err) {
			return err
		}
		if ctx.Err() != nil || l.pub.nc.IsClosed() {
			return l.unsettled(ctx, err)
		}
		trouble = err
	}
}

func (l *writerLoop) resend() error {
	for i, p := range l.queue {
		p.expect = l.base + uint64(i)
		if err := l.transmit(p); err != nil {
			return err
		}
	}
	return nil
}

// errBehind: what was read is older than what is known. A deposed leader may answer so
// for a while.
var errBehind = errors.New("the tail as read is behind what is known")

// readTail judges every message behind base: own commits count as accepted.
func (l *writerLoop) readTail(ctx context.Context, trouble error) error {
	t, err := openTail(ctx, l.js, l.settings.Stream, l.created)
	if err != nil {
		return err
	}
	known := l.base
	var refusal *conflictError
	// A reported sequence may count messages that a leader had only proposed, so it is
	// believed for the first looks only.
	if errors.As(trouble, &refusal) && l.tempo.attempt < 4 {
		known = max(known, refusal.last)
	}
	if t.id.Last < known {
		return fmt.Errorf("stream %s: %w: it ends at %d, known is %d", l.settings.Stream, errBehind, t.id.Last, known)
	}
	// A strict writer looks no further than it must: its base is what its caller knows.
	for seq := l.base + 1; seq <= t.id.Last && (!l.settings.Strict || len(l.queue) > 0); seq++ {
		entry, err := t.entry(ctx, seq)
		if err != nil {
			return err
		}
		if err := l.judge(entry); err != nil {
			return err
		}
	}
	return nil
}

// judge takes one message of the tail that follows base.
func (l *writerLoop) judge(e *Entry) error {
	switch {
	case e.Claim != nil && e.Claim.Epoch >= l.epoch:
		return &FencedError{Stream: l.settings.Stream, Ours: l.epoch, Epoch: e.Claim.Epoch, Owner: e.Claim.Owner, Seq: e.Seq}
	case e.Commit != nil && e.Commit.Epoch > l.epoch:
		return &FencedError{Stream: l.settings.Stream, Ours: l.epoch, Epoch: e.Commit.Epoch, Owner: "another owner", Seq: e.Seq}
	case e.Commit != nil:
		if len(l.queue) == 0 || e.Commit.Epoch != l.epoch || e.Commit.Hash() != l.queue[0].hash {
			return &ChainError{Stream: l.settings.Stream, Previous: l.last, Seq: e.Seq}
		}
		l.accept(e.Seq)
	case e.Control != nil && l.settings.Strict:
		l.decline(&ControlError{Stream: l.settings.Stream, Seq: e.Seq, Control: e.Control})
	case e.Control != nil && l.settings.OnControl != nil:
		l.settings.OnControl(e.Seq, e.Control)
	}
	// The journal moved, be it by others: look again at once the next time.
	l.base, l.retry = e.Seq, false
	l.tempo.reset()
	return nil
}

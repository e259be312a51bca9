package journal

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// A strict writer's expectation is the last sequence that its caller has taken in. Of a
// commit there may be many copies on the way, but all of them expect a sequence at which
// the caller knew all that was before, and the journal's last sequence only grows: a copy
// that comes late can be refused, never land behind a record that its caller did not see.
// So a strict writer needs no barrier for itself; claims and control records are barriers
// all the same, for the writers that keep several commits in flight.

// commitStrict hands a commit in once the one before is settled: only then is known which
// COMMIT it follows.
func (w *Writer) commitStrict(ctx context.Context, records [][]byte, c revision.Commit) (*Pending, error) {
	if err := w.reserve(ctx); err != nil {
		return nil, err
	}
	w.previous = w.loop.hash // the loop wrote it before it gave the slot back
	p, err := w.prepare(records, c)
	if err != nil {
		<-w.slots
		return nil, err
	}
	return p, w.handIn(p)
}

// errGap: Observe was called out of turn.
var errGap = errors.New("a message was left out, or a commit is in flight")

type observed struct {
	msg    Msg
	answer chan error
}

// Observe tells a strict writer of a message of its journal that its caller has read and
// taken in, so that the next commit need not fail for it. Messages come in order; those
// that the writer knows are ignored. Call it with no commit in flight. A newer claim ends
// the writer with ErrFenced; a message out of order is an error that changes nothing.
func (w *Writer) Observe(ctx context.Context, m Msg) error {
	if !w.settings.Strict {
		return fmt.Errorf("stream %s: only a strict writer observes", w.settings.Stream)
	}
	o := observed{msg: m, answer: make(chan error, 1)}
	select {
	case w.observe <- o:
		return <-o.answer
	case <-w.ended:
		return w.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// see takes an observed message.
func (l *writerLoop) see(m Msg) error {
	switch {
	case m.Seq <= l.base:
		return nil
	case m.Seq != l.base+1 || len(l.queue) > 0 || len(l.submit) > 0:
		return fmt.Errorf("stream %s: message %d observed behind %d: %w", l.settings.Stream, m.Seq, l.base, errGap)
	}
	e, err := DecodeEntry(m.Seq, m.Data)
	if err != nil {
		return fmt.Errorf("stream %s: %w: %w", l.settings.Stream, errDamaged, err)
	}
	return l.judge(e)
}

// decline fails the commit in flight, if there is one, and leaves the writer at work.
func (l *writerLoop) decline(err error) {
	if len(l.queue) == 0 {
		return
	}
	p := l.queue[0]
	l.queue = nil
	delete(l.byToken, p.token)
	p.err, p.data = err, nil
	close(p.done)
	<-l.slots
}

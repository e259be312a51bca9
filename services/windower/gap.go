package windower

import (
	"context"
	"errors"

	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// A mark that promises frames which were not had stops its partition until an operator
// declares them lost. That GAP record can only be appended behind the mark, so the
// windower looks ahead for it. What it finds is a function of the journal: a replay, which
// finds the record already there, passes the mark in the same state.

// missingFrames answers what advance stopped at, or nil.
func missingFrames(err error) *window.MissingFramesError {
	var missing *window.MissingFramesError
	if errors.As(err, &missing) {
		return missing
	}
	return nil
}

// gapWait is one stop at a mark.
type gapWait struct {
	u       *unit
	fold    *fold
	missing *window.MissingFramesError
	created int64           // of the events stream
	ended   <-chan struct{} // of the writer; nil before there is one
	err     func() error    // why it ended
}

// run reads on until the first hole is covered, and declares what it found. The
// partition is a problem meanwhile, and none afterwards.
func (w *gapWait) run(ctx context.Context) error {
	ahead, err := journal.Read(ctx, w.u.js, w.u.part.eventsStream(), w.created, w.missing.Seq+1)
	if err != nil {
		return err
	}
	defer ahead.Close()
	before := w.u.stop(w.missing)
	var gaps []*envelope.Gap
	for open := *w.missing; open.First <= open.Last; {
		m, err := w.next(ctx, ahead)
		if err != nil {
			return err
		}
		frame, err := envelope.DecodeFrame(m.Data)
		if err != nil {
			return w.fold.damaged(m.Seq, err)
		}
		for i := range frame.Records {
			g := frame.Records[i].Gap
			if g == nil || g.Writer != open.Writer {
				continue
			}
			gaps = append(gaps, g)
			// Several records may cover the hole in any order: begin again with each.
			open.First = firstOpen(gaps, w.missing.First, w.missing.Last)
		}
	}
	if err := w.fold.declare(gaps); err != nil {
		return err
	}
	w.u.log.Warn().Stringer("partition", w.u.part).Uint64("seq", w.missing.Seq).Str("writer", w.missing.Writer).
		Uint64("first", w.missing.First).Uint64("last", w.missing.Last).Msg("windower: frames were declared lost, the partition goes on without them")
	w.u.goOn(before)
	return nil
}

// firstOpen answers the first number from first to last that no gap covers, last+1 for none.
func firstOpen(gaps []*envelope.Gap, first, last uint64) uint64 {
	for moved := true; moved && first <= last; {
		moved = false
		for _, g := range gaps {
			if g.First <= first && first <= g.Last {
				first, moved = min(g.Last, last)+1, true
			}
		}
	}
	return first
}

// next waits for a message, or for what ends the wait.
func (w *gapWait) next(ctx context.Context, ahead *journal.Reader) (journal.Msg, error) {
	select {
	case m, ok := <-ahead.C():
		if !ok {
			return m, ahead.Err()
		}
		return m, nil
	case <-w.ended:
		return journal.Msg{}, w.err()
	case <-w.u.lost:
		return journal.Msg{}, errLeaseLost
	case <-ctx.Done():
		return journal.Msg{}, ctx.Err()
	}
}

// stop makes the partition a problem and answers the role to go back to.
func (u *unit) stop(why *window.MissingFramesError) (before role) {
	u.mu.Lock()
	defer u.mu.Unlock()
	before, u.role, u.problem = u.role, roleHalted, why.Error()
	u.log.Error().Err(why).Stringer("partition", u.part).Msg("windower: partition waits for frames that are missing, others go on")
	return before
}

func (u *unit) goOn(before role) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.role, u.problem = before, ""
}

// advance is fold.advance over marks that wait for a GAP record.
func (l *live) advance(ctx context.Context, stop func() bool) error {
	for {
		err := l.fold.advance(stop)
		missing := missingFrames(err)
		if missing == nil {
			return err
		}
		// What was decided before the mark is right: readers may have it.
		if err := l.commitAll(ctx); err != nil {
			return err
		}
		w := gapWait{u: l.u, fold: l.fold, missing: missing, created: l.created, ended: l.writer.Ended(), err: l.writer.Err}
		if err := w.run(ctx); err != nil {
			return err
		}
	}
}

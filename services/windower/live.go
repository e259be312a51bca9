package windower

import (
	"context"
	"errors"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/internal/heartbeat"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// live is the loop behind recovery: receive, decide, commit.
type live struct {
	u       *unit
	fold    *fold
	events  *journal.Reader
	writer  *journal.Writer
	saver   *saver
	lost    <-chan struct{} // the lease
	created int64           // of the events stream
	last    revision.Commit // handed in last
	lastSeq uint64          // of the last accepted COMMIT
	flights []flight        // commits in flight, in order
	broken  bool            // records were handed in and refused: nothing may follow them
	pace    pace
	snaps   *snapshotter
	yield   <-chan struct{} // closed when another process should have the partition
	beat    *heartbeat.Loop
	early   *previewer // of a policy with trigger.early, else nil
}

// flight is one commit in flight.
type flight struct {
	pending    *journal.Pending
	checkpoint bool // the saver holds a snapshot for it
}

// errLeaseLost ends the loop without harm: the unit goes back to its lease.
var errLeaseLost = errors.New("lease lost")

// errYield ends the loop so that another process goes on.
var errYield = errors.New("handing over")

// drainFor bounds what is done after the end was asked for.
const drainFor = 10 * time.Second

// run goes on until ctx ends, then drains; any other end is an error.
func (l *live) run(ctx context.Context) error {
	err := l.loop(ctx)
	switch {
	case ctx.Err() != nil && !l.broken && errors.Is(err, ctx.Err()):
		return l.leave(ctx, l.u.wanted())
	case errors.Is(err, errYield) && !l.broken:
		return l.leave(ctx, true)
	case err != nil && halts(err):
		// What was decided before the damage is right: readers may have it.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainFor)
		defer cancel()
		return errors.Join(err, l.commitAll(last))
	}
	return err
}

func (l *live) loop(ctx context.Context) error {
	for {
		l.beat.Beat()
		if err := l.settle(); err != nil {
			return err
		}
		if l.fold.open { // recovery stopped inside a frame
			if err := l.takeIn(ctx); err != nil {
				return err
			}
		}
		m, ok, err := l.events.TryNext()
		if err != nil {
			return err
		}
		if !ok {
			if m, ok, err = l.wait(ctx); err != nil {
				return err
			}
		}
		if err := l.gone(ctx); err != nil {
			return err
		}
		if l.yielded() {
			return errYield // what was fetched is fetched again by the next owner
		}
		if !ok {
			continue
		}
		if err := failpoint.Hit("windower/after-fetch"); err != nil {
			return err
		}
		l.pace.input += len(m.Data)
		if err := l.fold.load(m.Seq, m.Data); err != nil {
			return err
		}
		if err := l.takeIn(ctx); err != nil {
			return err
		}
	}
}

// gone tells whether this process must stop working on the partition.
func (l *live) gone(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-l.lost:
		return errLeaseLost
	default:
		return nil
	}
}

// yielded tells whether the partition is to be handed over. It is asked between frames
// only, so that a mark's outputs are whole and a checkpoint can be left.
func (l *live) yielded() bool {
	select {
	case <-l.yield:
		return true
	default:
		return false
	}
}

// leave drains; when another process waits to go on, it is left a snapshot too.
func (l *live) leave(ctx context.Context, handoff bool) error {
	if err := l.drain(ctx); err != nil {
		return err
	}
	if handoff {
		l.snaps.handoff(context.WithoutCancel(ctx))
	}
	return nil
}

// takeIn takes in the open frame; what one mark releases is cut over as many commits as
// it needs.
func (l *live) takeIn(ctx context.Context) error {
	full := func() bool { return l.fold.waiting() >= l.u.cut || l.fold.overflows() }
	for {
		if err := l.advance(ctx, full); err != nil {
			return err
		}
		if !l.fold.open {
			break
		}
		if err := l.commit(ctx); err != nil {
			return err
		}
		if err := l.gone(ctx); err != nil {
			return err
		}
	}
	if err := failpoint.Hit("windower/after-decide"); err != nil {
		return err
	}
	l.preview()
	l.pace.outputs(l.fold.waiting() > 0)
	return l.commitIf(ctx, false)
}

// wait is for when no frame is at hand: commit what waits, then wait for whatever comes
// first. It answers false when it was not a frame.
func (l *live) wait(ctx context.Context) (journal.Msg, bool, error) {
	if err := l.commitIf(ctx, true); err != nil {
		return journal.Msg{}, false, err
	}
	if err := failpoint.Hit("windower/on-idle"); err != nil {
		return journal.Msg{}, false, err
	}
	var tick <-chan time.Time
	if l.moved() {
		timer := l.u.clock.NewTimer(max(l.pace.left(l.fold.waiting()), time.Millisecond))
		defer timer.Stop()
		tick = timer.C()
	}
	var settled <-chan struct{}
	if len(l.flights) > 0 {
		settled = l.flights[0].pending.Done()
	}
	l.beat.Rest()
	select {
	case m, ok := <-l.events.C():
		if !ok {
			return m, false, l.events.Err()
		}
		return m, true, nil
	case err := <-l.saver.done:
		return journal.Msg{}, false, l.saved(err)
	case <-tick:
	case <-settled:
	case <-l.writer.Ended():
		return journal.Msg{}, false, l.writer.Err()
	case <-l.lost:
	case <-l.yield:
	case <-ctx.Done():
	}
	return journal.Msg{}, false, nil
}

// moved tells whether a commit would say anything that the last one did not.
func (l *live) moved() bool {
	if l.fold.waiting() > 0 {
		return true
	}
	w, wdata, _, _ := l.fold.op.Totals()
	return !samePlace(l.fold.op.Position(), l.last.Inputs[0]) || w != l.last.W || wdata != l.last.Wdata
}

func (l *live) commitIf(ctx context.Context, idle bool) error {
	bytes := l.fold.waiting()
	if bytes == 0 && !idle && l.u.clock.Since(l.pace.commit) < movedFor {
		return nil // the usual case under load: nothing to compare
	}
	if !l.pace.due(bytes, len(l.flights), idle, l.moved()) {
		return nil
	}
	return l.commit(ctx)
}

// commit hands in what waits, and takes a checkpoint with it when one is due.
func (l *live) commit(ctx context.Context) error {
	if err := l.room(ctx); err != nil {
		return err
	}
	if err := failpoint.Hit("windower/before-commit"); err != nil {
		return err
	}
	c := l.fold.commit(l.created)
	// Not to be given up in the middle: once cut, the records must go out.
	pending, err := l.writer.Commit(context.WithoutCancel(ctx), l.fold.cut(), c)
	if err == nil {
		err = failpoint.Hit("windower/after-submit")
	}
	if err != nil {
		l.broken = true
		return err
	}
	l.last = pending.Commit()
	l.pace.commit = l.u.clock.Now()
	l.pace.outputs(false)
	due := l.pace.checkpointDue() && l.saver.ready() && l.fold.whole()
	if due {
		l.pace.checkpointed()
		due = !l.saver.retry()
	}
	if due {
		if err := l.saver.take(l.fold); err != nil {
			return err
		}
		if err := failpoint.Hit("windower/checkpoint-taken"); err != nil {
			return err
		}
	}
	l.flights = append(l.flights, flight{pending, due})
	return nil
}

// room waits until another commit may be in flight.
func (l *live) room(ctx context.Context) error {
	for len(l.flights) >= journal.MaxPipeline {
		select {
		case <-l.flights[0].pending.Done():
			if err := l.landed(); err != nil {
				return err
			}
		case <-l.lost:
			return errLeaseLost
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// settle notes commits that were accepted, in order, and the end of a checkpoint.
func (l *live) settle() error {
	for len(l.flights) > 0 {
		select {
		case <-l.flights[0].pending.Done():
			if err := l.landed(); err != nil {
				return err
			}
			continue
		default:
		}
		break
	}
	select {
	case err := <-l.saver.done:
		return l.saved(err)
	default:
		return nil
	}
}

// landed takes the outcome of the first commit in flight.
func (l *live) landed() error {
	first := l.flights[0]
	seq, err := first.pending.Result()
	if err == nil {
		err = failpoint.Hit("windower/after-commit")
	}
	if err != nil {
		l.broken = true
		return err
	}
	l.lastSeq = seq
	l.flights = append(l.flights[:0], l.flights[1:]...)
	c := first.pending.Commit()
	l.u.committed(l.fold, seq, &c)
	if first.checkpoint {
		l.saver.start(seq, &c)
	}
	return nil
}

func (l *live) saved(err error) error {
	if err != nil {
		l.u.log.Warn().Err(err).Stringer("partition", l.u.part).
			Msg("windower: the checkpoint was not written and will be tried again; a restart now would take longer")
	}
	if err := l.saver.finished(err); err != nil {
		return err
	}
	if err == nil {
		l.snaps.checkpointed(l.pace.saved)
	}
	return nil
}

// commitAll commits what was decided and waits until everything is accepted.
func (l *live) commitAll(ctx context.Context) error {
	if l.broken {
		return nil
	}
	if l.moved() {
		if err := l.commit(ctx); err != nil {
			return err
		}
	}
	for len(l.flights) > 0 {
		select {
		case <-l.flights[0].pending.Done():
			if err := l.landed(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// drain commits what was decided and leaves a checkpoint at exactly that COMMIT, unless
// it was asked to end in the middle of a mark's outputs.
func (l *live) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainFor)
	defer cancel()
	if err := failpoint.Hit("windower/before-drain"); err != nil {
		return err
	}
	if err := l.commitAll(ctx); err != nil {
		return err
	}
	if err := failpoint.Hit("windower/drained"); err != nil {
		return err
	}
	if err := l.saver.wait(); err != nil {
		return err
	}
	if !l.fold.whole() || l.lastSeq == 0 || l.pace.input == 0 {
		return nil
	}
	if l.saver.retry() { // a write that failed comes first
		if err := l.saver.wait(); err != nil || !l.saver.ready() || l.saver.failed != nil {
			return errors.Join(err, l.saver.failed)
		}
	}
	if err := l.saver.take(l.fold); err != nil {
		return err
	}
	l.saver.start(l.lastSeq, &l.last)
	return errors.Join(l.saver.wait(), l.saver.failed)
}

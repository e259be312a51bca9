package projector

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/internal/heartbeat"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/leases"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Waiting times. A COMMIT without records comes at most four times a second, so that
// readers who wait for a position need not wait long; one with records comes at once.
const (
	second       = time.Second
	commitEvery  = 250 * time.Millisecond
	drainFor     = 10 * second
	backoffFirst = 200 * time.Millisecond
	backoffMost  = 5 * second
)

// role is what a process does for a partition now.
type role string

const (
	roleStarting role = "starting" // the view is being read
	roleFollower role = "follower" // the view follows; another process accepts, or none yet
	roleOwner    role = "owner"    // this process accepts
	roleHalted   role = "halted"   // damage: nothing is accepted, the view still answers
)

// unit is one supervised partition: its view, and acceptance while its lease is held.
type unit struct {
	part    partition
	policy  *policy.StreamTimePolicy
	static  record.Static
	js      jetstream.JetStream
	owner   string // names this process in claims
	file    string // of the view
	every   time.Duration
	leases  *leases.Holder
	clock   clock.Clock
	monitor *heartbeat.Monitor
	metrics *metrics
	log     zerolog.Logger

	yield <-chan struct{} // of the lease held now; the unit's goroutine only

	mu      sync.Mutex
	view    *view // nil until it is open
	role    role
	problem string // why it is halted
	failing error  // what the last attempt ended with, nil once it goes again

	ready     chan struct{} // closed when the view has caught up for the first time
	readyOnce sync.Once
}

// run keeps the partition going until ctx ends.
func (u *unit) run(ctx context.Context) {
	defer u.closeView()
	wait := backoffFirst
	for ctx.Err() == nil {
		begun := u.clock.Now()
		err := u.cycle(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && halts(err):
			u.halt(err)
			if u.opened() == nil {
				<-ctx.Done()
				return
			}
		case err != nil && !errors.Is(err, journal.ErrFenced):
			u.log.Warn().Err(err).Stringer("partition", u.part).Msg("projector: will try again")
			u.fail(err)
		}
		if v := u.opened(); v != nil && v.failure() != nil {
			u.closeView() // to be opened again
		}
		if u.clock.Since(begun) > backoffMost {
			wait = backoffFirst
		}
		if !u.pause(ctx, wait) {
			return
		}
		wait = min(2*wait, backoffMost)
	}
}

func (u *unit) pause(ctx context.Context, d time.Duration) bool {
	timer := u.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// cycle opens the view, follows, and accepts while the lease is held. A halted partition
// only follows.
func (u *unit) cycle(ctx context.Context) error {
	v, err := u.openView()
	if err != nil {
		return err
	}
	if err := failpoint.Hit("projector/view-opened"); err != nil {
		return err
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	f, err := startFollower(reading, u.js, u.part, v)
	if err != nil {
		return err
	}
	defer f.reader.Close()
	if err := failpoint.Hit("projector/following"); err != nil {
		return err
	}
	if u.state() == roleHalted {
		return u.follow(ctx, f, nil)
	}
	u.become(roleStarting)
	held := make(chan *leases.Lease, 1)
	defer func() { // a lease that came while we were leaving is given back
		stop()
		if lease, ok := <-held; ok {
			lease.Release()
		}
	}()
	go func() {
		defer close(held)
		lease, err := u.leases.Acquire(reading, subject.Lease("projector", u.part.stream, u.part.unit()))
		if err == nil {
			held <- lease
		}
	}()
	return u.follow(ctx, f, held)
}

// follow applies batches; once the lease is ours and the view has caught up it accepts.
func (u *unit) follow(ctx context.Context, f *follower, held <-chan *leases.Lease) (err error) {
	var lease *leases.Lease
	defer func() {
		switch {
		case lease == nil:
		case err != nil && ctx.Err() == nil:
			lease.Abandon() // another process may have more luck
		default:
			lease.Release()
		}
	}()
	for {
		if f.caughtUp() {
			u.caughtUp()
			if lease != nil {
				return u.own(ctx, f, lease.Lost())
			}
		}
		select {
		case m, ok := <-f.reader.C():
			if !ok {
				return f.ended()
			}
			if err := f.take(m); err != nil {
				return err
			}
		case got, ok := <-held:
			if held = nil; ok {
				lease, u.yield = got, got.Yield()
			}
		case <-f.view.broken:
			return f.view.failure()
		case <-ctx.Done():
			return nil
		}
	}
}

// own claims the fence, reads the view up to the claim, and accepts until the lease is
// lost, or the fence is.
func (u *unit) own(ctx context.Context, f *follower, lost <-chan struct{}) error {
	if err := failpoint.Hit("projector/leased"); err != nil {
		return err
	}
	w, head, err := journal.ClaimFenced(ctx, u.js, journal.FencedSettings{
		Stream: subject.RevisionsStream(u.part.stream), Fence: u.part.fence(),
		Owner: u.owner, CoreVersion: config.CoreVersion,
	})
	if err != nil {
		return err
	}
	defer w.Close()
	u.metrics.claimed()
	if err := failpoint.Hit("projector/claimed"); err != nil {
		return err
	}
	if err := f.upTo(ctx, head.ClaimSeq); err != nil {
		return err
	}
	if err := failpoint.Hit("projector/claim-seen"); err != nil {
		return err
	}
	f.reader.Close() // the owner applies its own batches
	a := newAcceptor(u.part, u.static, f.view, w, head.Epoch, u.metrics)
	from := a.position()
	reader, err := journal.Read(ctx, u.js, u.part.windowsStream(), from.Created, from.Seq)
	if err != nil {
		return err
	}
	defer reader.Close()
	from.Created = reader.Identity().Created
	u.become(roleOwner)
	u.log.Info().Stringer("partition", u.part).Uint64("epoch", head.Epoch).Uint64("from", from.Seq).Msg("projector: accepting")
	err = u.accept(ctx, a, reader, lost)
	if errors.Is(err, journal.ErrFenced) {
		u.metrics.fenced()
		u.log.Info().Stringer("partition", u.part).Msg("projector: fenced by a newer claim, following")
	}
	return err
}

// accept is the loop: receive, decide, commit.
func (u *unit) accept(ctx context.Context, a *acceptor, reader *journal.Reader, lost <-chan struct{}) error {
	ticker := u.clock.NewTicker(commitEvery)
	defer ticker.Stop()
	work, cancel := u.outlive(ctx)
	defer cancel()
	behind := false // another entry is on its way
	beat := u.monitor.Start("projector " + u.part.String())
	defer beat.Stop()
	for {
		beat.Beat()
		select {
		case <-ticker.C():
			if err := a.commitIf(work, a.due()); err != nil {
				return err
			}
		case <-lost:
			return nil
		case <-u.yield: // another process goes on behind what is committed
			return lastCommit(work, a)
		case <-ctx.Done():
			return lastCommit(work, a)
		default:
		}
		m, ok, err := reader.TryNext()
		if err != nil {
			return err
		}
		if !ok { // nothing at hand: publish what there is, then wait
			if err := a.commitIf(work, !behind && len(a.batch.messages) > 0); err != nil {
				return err
			}
			select {
			case m, ok = <-reader.C():
				if !ok {
					return reader.Err()
				}
			case <-ticker.C():
				if err := a.commitIf(work, a.due()); err != nil {
					return err
				}
				continue
			case <-a.view.broken: // queries fail until it is opened again
				return a.view.failure()
			case <-lost:
				return nil
			case <-u.yield: // another process goes on behind what is committed
				return lastCommit(work, a)
			case <-ctx.Done():
				return lastCommit(work, a)
			}
		}
		if err := failpoint.Hit("projector/after-fetch"); err != nil {
			return err
		}
		behind = m.Pending > 0
		if err := a.take(work, m.Seq, m.Data); err != nil {
			return err
		}
	}
}

// lastCommit commits what was decided before the end.
func lastCommit(ctx context.Context, a *acceptor) error {
	if err := failpoint.Hit("projector/before-drain"); err != nil {
		return err
	}
	return a.commitIf(ctx, a.moved())
}

// outlive answers a context that goes on for a while after ctx ends: a commit in flight
// that is cut off has an unknown outcome, which costs the next owner a look at the tail.
func (u *unit) outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		timer := u.clock.NewTimer(drainFor)
		defer timer.Stop()
		select {
		case <-timer.C():
			cancel()
		case <-work.Done():
		}
	})
	return work, cancel
}

func (u *unit) openView() (*view, error) {
	if v := u.opened(); v != nil {
		return v, nil
	}
	v, err := openView(u.file, u.part.String(), orderOf(u.policy), u.clock, u.every)
	if err != nil {
		return nil, err
	}
	if aside := v.aside; aside != nil {
		u.log.Warn().Stringer("partition", u.part).Str("file", aside.Path).Str("why", aside.Why).
			Msg("projector: the view's file was set aside, the view is rebuilt from the revisions stream")
	}
	u.mu.Lock()
	u.view = v
	u.mu.Unlock()
	return v, nil
}

func (u *unit) closeView() {
	u.mu.Lock()
	v := u.view
	u.view = nil
	u.mu.Unlock()
	if v == nil {
		return
	}
	if err := v.close(); err != nil {
		u.log.Error().Err(err).Stringer("partition", u.part).Msg("projector: closing the view")
	}
}

// opened answers the view, nil while it is not open.
func (u *unit) opened() *view {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.view
}

// reaches tells whether the view holds the fence record at seq, or is halted before it.
func (u *unit) reaches(seq uint64) bool {
	if u.state() == roleHalted {
		return true
	}
	v := u.opened()
	return v != nil && v.at().Fence >= seq
}

func (u *unit) state() role {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.role
}

func (u *unit) become(r role) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.role != roleHalted {
		u.role = r
	}
}

// caughtUp notes that queries see what was accepted before this process started.
func (u *unit) caughtUp() {
	u.mu.Lock()
	if u.role == roleStarting {
		u.role = roleFollower
	}
	if u.role == roleFollower {
		u.failing = nil
	}
	u.mu.Unlock()
	u.readyOnce.Do(func() { close(u.ready) })
}

// halt stops acceptance for good; the problem stays until the process ends.
func (u *unit) halt(err error) {
	u.mu.Lock()
	first := u.role != roleHalted
	u.role = roleHalted
	if first {
		u.problem = err.Error()
	}
	u.mu.Unlock()
	u.readyOnce.Do(func() { close(u.ready) })
	if first {
		u.log.Error().Err(err).Stringer("partition", u.part).Msg("projector: partition halted")
	}
}

// fail notes what an attempt ended with; it is a problem until the next one goes well.
func (u *unit) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.failing = err
}

// trouble answers why the partition is not well, "" when it is.
func (u *unit) trouble() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.problem == "" && u.failing != nil {
		return u.part.String() + ": " + u.failing.Error()
	}
	return u.problem
}

// halted answers the problem of a halted partition, "" for none.
func (u *unit) halted() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.problem
}

package effector

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/dispatchfile"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/internal/heartbeat"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/leases"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Waiting times. Open attempts get attemptsFor to end once the process was asked to, what
// follows from their answers the rest of drainFor.
const (
	drainFor     = 15 * time.Second
	attemptsFor  = 10 * time.Second
	backoffFirst = 200 * time.Millisecond
	backoffMost  = 5 * time.Second
)

// role is what a process does for a partition now.
type role string

const (
	roleWaiting role = "waiting" // for the lease: another process owns the partition, or none yet
	roleOwner   role = "owner"
	roleHalted  role = "halted" // damage: nothing is decided or sent
)

// unit is one supervised partition.
type unit struct {
	part      partition
	js        jetstream.JetStream
	owner     string // names this process in claims
	dir       string
	leases    *leases.Holder
	clock     clock.Clock
	monitor   *heartbeat.Monitor
	metrics   *metrics
	log       zerolog.Logger
	providers *providers
	askFirst  time.Duration
	askMost   time.Duration

	answers  *mailbox[answered]
	findings *mailbox[finding]
	changed  chan struct{} // documents changed
	sends    sync.WaitGroup
	sending  context.Context // of attempts and queries; ends with run

	mu       sync.Mutex
	library  *library
	view     *view // nil while the partition is not owned
	role     role
	epoch    uint64
	problem  string   // why it is halted
	failing  error    // what the last attempt to own it ended with
	problems []string // active versions that cannot be used
	barred   string
	watching watching
}

// watching is what metrics say of unknown outcomes.
type watching struct {
	open     int   // attempts
	unknown  int   // outcomes
	oldest   int64 // age of the oldest unknown outcome, microseconds
	deadline int64 // microseconds to the nearest end of resends; valid with deadlines
	any      bool  // there is a deadline
}

// run keeps the partition going until ctx ends, then waits for what it sent.
func (u *unit) run(ctx context.Context) {
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	u.sending = sending
	defer u.sends.Wait()
	defer cancel()
	wait := backoffFirst
	for ctx.Err() == nil {
		begun := u.clock.Now()
		err := u.cycle(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && halts(err):
			u.halt(err)
			return
		case err != nil && !errors.Is(err, journal.ErrFenced) && !errors.Is(err, errClocks):
			u.log.Warn().Err(err).Stringer("partition", u.part).Msg("effector: will try again")
			u.fail(err)
		}
		if u.clock.Since(begun) > backoffMost {
			wait = backoffFirst
		}
		timer := u.clock.NewTimer(wait)
		select {
		case <-timer.C():
		case <-ctx.Done():
		}
		timer.Stop()
		wait = min(2*wait, backoffMost)
	}
}

// cycle waits for the lease and owns the partition while it has it.
func (u *unit) cycle(ctx context.Context) (err error) {
	u.become(roleWaiting, nil, 0)
	lease, err := u.leases.Acquire(ctx, subject.Lease(stage, u.part.stream, subject.PP(u.part.number)))
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && ctx.Err() == nil {
			lease.Abandon() // another process may have more luck
			return
		}
		lease.Release()
	}()
	if err := failpoint.Hit("effector/leased"); err != nil {
		return err
	}
	return u.own(ctx, lease.Lost(), lease.Yield())
}

// own opens the files, claims the journal and works until the lease, the journal or ctx
// ends it.
func (u *unit) own(ctx context.Context, lost, yield <-chan struct{}) (err error) {
	file, err := dispatchfile.Open(u.part.dispatchFile(u.dir))
	switch {
	case errors.Is(err, checkpoint.ErrDamaged), errors.Is(err, checkpoint.ErrOlder):
		return damagef("dispatch file: %v", err) // unlike a view it cannot be made anew
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	v, aside, err := openView(u.part.viewFile(u.dir), u.part)
	if err != nil {
		return err
	}
	defer func() {
		u.become(roleWaiting, nil, 0)
		err = errors.Join(err, v.close())
	}()
	if aside != nil {
		u.log.Warn().Stringer("partition", u.part).Str("file", aside.Path).Str("why", aside.Why).
			Msg("effector: the view's file was set aside, the view is folded anew from the effects journal")
	}
	work, cancel := u.outlive(ctx)
	defer cancel()
	o, err := u.claim(ctx, work, v, file)
	if err != nil {
		return err
	}
	defer o.close()
	o.beat = u.monitor.Start("effector " + u.part.String())
	defer o.beat.Stop()
	u.become(roleOwner, v, o.writer.Epoch())
	u.log.Info().Stringer("partition", u.part).Uint64("epoch", o.writer.Epoch()).Msg("effector: owning")
	err = o.run(ctx, work, lost, yield)
	if errors.Is(err, journal.ErrFenced) {
		u.metrics.fenced()
		u.log.Info().Stringer("partition", u.part).Msg("effector: fenced by a newer claim")
	}
	return err
}

// outlive answers a context that goes on for a while after ctx ends.
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

// documents answers the documents as they are now.
func (u *unit) documents() *library {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.library
}

// learn gives the partition new documents.
func (u *unit) learn(l *library) {
	u.mu.Lock()
	u.library = l
	u.mu.Unlock()
	poke(u.changed)
}

func (u *unit) become(r role, v *view, epoch uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.role == roleHalted {
		return
	}
	u.role, u.view, u.epoch = r, v, epoch
	if r != roleOwner {
		u.problems, u.barred, u.watching = nil, "", watching{}
	}
}

// halt stops the partition for good; the problem stays until the process ends.
func (u *unit) halt(err error) {
	u.mu.Lock()
	u.role, u.problem, u.view = roleHalted, err.Error(), nil
	u.mu.Unlock()
	u.log.Error().Err(err).Stringer("partition", u.part).Msg("effector: partition halted")
}

func (u *unit) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.failing = err
}

// troubled notes which active versions cannot be used.
func (u *unit) troubled(problems []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.problems = problems
}

// observe notes how the owner stands. It goes well now, whatever was before.
func (u *unit) observe(o *owner) {
	w, now := watching{open: int(o.inflight.n.Load())}, o.time.now()
	for _, each := range o.watch {
		if each.state != effect.Unknown {
			continue
		}
		w.unknown++
		w.oldest = max(w.oldest, int64(now-each.since))
		if left := int64(each.deadline - now); each.deadline > 0 && (!w.any || left < w.deadline) {
			w.deadline, w.any = left, true
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.watching, u.barred, u.failing = w, o.barred, nil
}

// trouble answers why the partition is not well.
func (u *unit) trouble() (list []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.problem != "":
		return []string{u.part.String() + ": " + u.problem}
	case u.failing != nil:
		return []string{u.part.String() + ": " + u.failing.Error()}
	}
	for _, p := range u.problems {
		list = append(list, u.part.String()+": "+p)
	}
	if u.barred != "" {
		list = append(list, u.barred)
	}
	return slices.Compact(list)
}

// opened answers the view while the partition is owned here, else nil.
func (u *unit) opened() *view {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.view
}

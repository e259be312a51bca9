package windower

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/internal/heartbeat"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/leases"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Waiting between attempts.
const (
	backoffFirst = 200 * time.Millisecond
	backoffMost  = 5 * time.Second
	// troubled is after how many failures in a row a unit that goes on trying is a problem.
	troubled = 3
)

// role is what a process does for a partition now.
type role string

const (
	roleWaiting    role = "waiting"    // for the lease: another process owns it
	roleRecovering role = "recovering" // the state is brought to the last COMMIT
	roleLive       role = "live"
	roleHalted     role = "halted" // damage: nothing is written any more
)

// unit is one supervised partition.
type unit struct {
	part         partition
	business     *policy.BusinessStream
	policy       *policy.StreamTimePolicy
	policyDigest string
	coreVersion  int // pinned in the generation

	nc            *nats.Conn
	js            jetstream.JetStream
	owner         string // names this process in claims
	file          string // of the checkpoint
	leases        *leases.Holder
	clock         clock.Clock
	monitor       *heartbeat.Monitor
	every         time.Duration // between checkpoints
	snapshotEvery time.Duration // 0: only at handoffs
	cut           int           // bytes of records that end a commit
	metrics       *metrics
	log           zerolog.Logger

	mu       sync.Mutex
	role     role
	problem  string
	failures int
	epoch    uint64
	fold     *fold            // what the status endpoint looks at; nil before recovery
	last     *revision.Commit // accepted last
	lastSeq  uint64
	shown    time.Time // when the metrics were last refreshed

	// The unit's goroutine only.
	lost   <-chan struct{} // of the lease held now
	yield  <-chan struct{} // of the lease held now
	fenced bool            // the claim was lost to another process
}

func (u *unit) operator() window.Config {
	return window.Config{Stream: u.business, Policy: u.policy, PolicyDigest: u.policyDigest, Partition: u.part.number}
}

// run keeps the partition going until ctx ends or it is halted.
func (u *unit) run(ctx context.Context) {
	if u.coreVersion != window.CoreVersion {
		u.halt(damagef("%s is pinned to core version %d, this program computes version %d, which may give other records: run a program that lists version %d, or start a new generation (tidemark rollout start)",
			u.part, u.coreVersion, window.CoreVersion, u.coreVersion))
		return
	}
	stop := u.serveStatus()
	defer stop()
	wait := backoffFirst
	for ctx.Err() == nil {
		begun := u.clock.Now()
		err := u.cycle(ctx)
		switch {
		case err != nil && halts(err):
			u.halt(err)
			<-ctx.Done()
			return
		case ctx.Err() != nil:
			if err != nil && !errors.Is(err, ctx.Err()) {
				u.log.Warn().Err(err).Stringer("partition", u.part).Msg("windower: ended in the middle, the next owner goes on from the last COMMIT")
			}
			return
		}
		u.failed(err)
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

// cycle is one ownership: lease, claim, recover, live.
func (u *unit) cycle(ctx context.Context) error {
	u.become(roleWaiting)
	lease, err := u.leases.Acquire(ctx, u.part.lease())
	if err != nil {
		return err
	}
	u.yield, u.fenced = lease.Yield(), false
	err = u.hold(ctx, lease.Lost())
	if u.fenced || err != nil && ctx.Err() == nil && !errors.Is(err, errLeaseLost) {
		lease.Abandon() // another process may have more luck
	} else {
		lease.Release()
	}
	return err
}

// wanted tells whether another process would go on with the partition.
func (u *unit) wanted() bool { return u.leases != nil && u.leases.Wanted(u.part.lease()) }

// hold is cycle behind the lease.
func (u *unit) hold(ctx context.Context, lost <-chan struct{}) error {
	u.lost = lost
	if err := failpoint.Hit("windower/leased"); err != nil {
		return err
	}
	store, err := checkpoint.Open(u.file, checkpointKind)
	if err != nil {
		return err
	}
	defer u.closeStore(store)
	if aside := store.SetAside(); aside != nil {
		u.log.Warn().Stringer("partition", u.part).Str("file", aside.Path).Str("why", aside.Why).
			Msg("windower: the checkpoint file was set aside, the state is rebuilt from the events journal")
	}
	if err := failpoint.Hit("windower/checkpoint-opened"); err != nil {
		return err
	}
	u.become(roleRecovering)
	writer, head, err := journal.ClaimWriter(ctx, u.js, journal.Settings{
		Stream: u.part.windowsStream(), Subject: u.part.windowsSubject(), Owner: u.owner, CoreVersion: window.CoreVersion,
	})
	if err != nil {
		return err
	}
	defer writer.Abort() // whatever was accepted is accepted; a plain end has waited for it
	u.claimed(head)
	if err := failpoint.Hit("windower/claimed"); err != nil {
		return err
	}
	return u.own(ctx, store, writer, head)
}

// own recovers and goes on live until the partition is lost or ctx ends.
func (u *unit) own(ctx context.Context, store *checkpoint.Store, writer *journal.Writer, head journal.Head) error {
	begun := u.clock.Now()
	r := &recovery{u: u, store: store, head: head, pace: newPace(u.clock, u.every)}
	err := r.run(ctx)
	if r.events != nil {
		defer r.events.Close()
	}
	if err != nil {
		return err
	}
	// A write that goes on must not outlive the file.
	defer func() { _ = r.saver.wait() }()
	if err := failpoint.Hit("windower/recovered"); err != nil {
		return err
	}
	l := &live{
		u: u, fold: r.fold, events: r.events, writer: writer, saver: r.saver, lost: u.lost,
		created: r.events.Identity().Created, lastSeq: head.CommitAt, pace: r.pace,
		snaps: newSnapshotter(u, store), yield: u.yield, beat: u.monitor.Start("windower " + u.part.String()),
	}
	if u.policy.Early > 0 {
		l.early = startPreviewer(u.nc, u.part, u.log)
		defer l.early.end()
	}
	defer l.snaps.end()
	defer l.beat.Stop()
	if l.last = revision.NewCommit(); head.Commit != nil {
		l.last = *head.Commit
	} else {
		l.last.Inputs = []revision.InputPosition{{Seq: 1}} // a journal of which nothing is said yet
	}
	u.log.Info().Stringer("partition", u.part).Uint64("epoch", head.Epoch).Str("from", place(r.fold.op.Position())).
		Dur("recovery", u.clock.Since(begun)).Msg("windower: live")
	u.becomeLive()
	err = l.run(ctx)
	switch {
	case errors.Is(err, journal.ErrFenced):
		u.metrics.fenced()
		u.fenced = true
		u.log.Info().Err(err).Stringer("partition", u.part).Msg("windower: fenced, uncommitted work is dropped")
		return nil
	case errors.Is(err, errLeaseLost):
		u.log.Info().Stringer("partition", u.part).Msg("windower: the lease was lost, uncommitted work is dropped")
		return nil
	}
	return err
}

// stillOwner answers an error once the lease is lost.
func (u *unit) stillOwner() error {
	select {
	case <-u.lost:
		return errLeaseLost
	default:
		return nil
	}
}

func (u *unit) closeStore(store *checkpoint.Store) {
	if err := store.Close(); err != nil {
		u.log.Warn().Err(err).Stringer("partition", u.part).Msg("windower: closing the checkpoint file")
	}
}

func (u *unit) become(r role) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.role = r
}

func (u *unit) becomeLive() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.role, u.failures, u.problem = roleLive, 0, ""
}

// watching gives the fold to the status endpoint.
func (u *unit) watching(f *fold) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.fold = f
}

// claimed notes a successful claim.
func (u *unit) claimed(head journal.Head) {
	u.metrics.claimed()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.epoch, u.last, u.lastSeq = head.Epoch, head.Commit, head.CommitAt
}

// committed notes an accepted COMMIT.
func (u *unit) committed(f *fold, seq uint64, c *revision.Commit) {
	u.mu.Lock()
	before := u.last
	u.last, u.lastSeq = c, seq
	refresh := u.clock.Since(u.shown) >= metricsEvery
	if refresh {
		u.shown = u.clock.Now()
	}
	u.mu.Unlock()
	u.metrics.committed(u.part, before, c)
	if refresh {
		u.metrics.refresh(u.part, f)
	}
}

// failed notes the end of a cycle that will be tried again; nil is a plain loss of ownership.
func (u *unit) failed(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.role = roleWaiting; err == nil || errors.Is(err, errLeaseLost) {
		return
	}
	u.failures++
	if u.failures >= troubled {
		u.problem = u.part.String() + ": " + err.Error()
	}
	u.log.Warn().Err(err).Stringer("partition", u.part).Int("failures", u.failures).Msg("windower: will try again")
}

// halt stops the partition for good; the problem stays until the process ends.
func (u *unit) halt(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.role, u.problem = roleHalted, err.Error()
	u.log.Error().Err(err).Stringer("partition", u.part).Msg("windower: partition halted, others go on")
}

// trouble answers the problem of the partition, "" for none.
func (u *unit) trouble() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.problem
}

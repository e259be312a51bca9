package effector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/dispatchfile"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/internal/heartbeat"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// owner is one claim of a partition: the loop receive, decide, commit, send.
type owner struct {
	u      *unit
	view   *view
	file   *dispatchfile.File
	writer *journal.Writer
	time   *instants
	log    *journal.Reader // the own journal: what others write into it
	beat   *heartbeat.Loop

	reading context.Context // of the feeds: ends with the claim
	library *library
	book    *book
	feeds   map[string]*feed // by job
	arrived chan *arrival
	pending []*arrival // not judged whole, in order

	claimed   bool                                    // what the claim found is settled
	barred    string                                  // why nothing is sent until `effects recover`
	lost      map[effect.EffectKey]dispatchfile.Entry // attempts of effects that no record is of
	answers   []answered
	found     []finding
	waits     map[waitKey]wait
	unproven  map[effect.EffectKey]unproven // open corrections by what they correct
	reviewing bool                          // every open correction is looked at again
	reviewed  effect.EffectKey              // how far

	shut    map[effectlog.Scope]bool         // gates that were closed when it was looked last
	watch   map[effect.EffectKey]*watched    // open attempts and unknown outcomes
	later   map[effect.EffectKey]effect.Time // PREPARED effects that are not tried again before
	queried map[uint64]bool                  // commands whose query is under way
	recent  *recentRevisions
	asking  int              // queries under way
	scanned effect.EffectKey // how far PREPARED effects were looked through
	look    bool             // something changed that may let an effect go

	bookAt      time.Time
	walked      bool // a walk is over, and its survey not forgotten
	commitAt    time.Time
	inflight    *inflight
	sending     context.Context // of attempts and queries
	cancelSends context.CancelFunc
}

// errClocks makes the partition claim again, which sets its clock anew.
var errClocks = errors.New("the wall clock and the monotonic clock parted: the machine slept or its clock was set; claiming again")

// Waiting times of the loop.
const (
	cursorEvery = time.Second            // a COMMIT that only says how far revisions were read
	lookEvery   = 200 * time.Millisecond // for effects that wait for a token
	bookAgain   = 5 * time.Second        // active versions that could not be used are tried again
	pendingMost = 16                     // batches taken in and not judged
)

// run turns until ctx, the lease or the journal ends it, then lets open attempts end.
func (o *owner) run(ctx, work context.Context, lost, yield <-chan struct{}) error {
	o.reading = ctx
	defer o.endFeeds()
	err := o.loop(ctx, work, lost, yield)
	o.inflight.over.Store(true) // what was not sent yet is not sent any more
	if err == nil {
		err = o.drain(work)
	}
	return err
}

func (o *owner) loop(ctx, work context.Context, lost, yield <-chan struct{}) error {
	if err := o.refresh(work); err != nil {
		return err
	}
	for {
		o.beat.Beat()
		moved, err := o.turn(work)
		if err != nil {
			return err
		}
		sent, err := o.dispatch(work)
		if err != nil {
			return err
		}
		if err := o.forgetSurvey(); err != nil {
			return err
		}
		o.u.observe(o)
		select {
		case <-ctx.Done():
			return nil
		case <-lost:
			return nil
		case <-yield:
			return nil
		default:
		}
		if moved || sent {
			continue
		}
		if err := o.wait(ctx, work, lost, yield); err != nil {
			return err
		}
	}
}

// wait is for when there is nothing to decide.
func (o *owner) wait(ctx, work context.Context, lost, yield <-chan struct{}) error {
	timer := o.u.clock.NewTimer(o.idle())
	defer timer.Stop()
	o.beat.Rest()
	select {
	case m, ok := <-o.log.C():
		if !ok {
			return errors.Join(o.log.Err(), errEnded)
		}
		return o.hear(work, m)
	case a := <-o.arrived:
		return o.arrive(a)
	case <-o.u.answers.wake:
	case <-o.u.findings.wake:
	case <-o.u.changed:
		return o.refresh(work)
	case <-timer.C():
		if len(o.book.problems) > 0 && o.u.clock.Since(o.bookAt) >= bookAgain {
			return o.refresh(work) // a secret's file may be there by now
		}
	case <-o.writer.Ended():
		return o.writer.Err()
	case <-ctx.Done():
	case <-lost:
	case <-yield:
	}
	return nil
}

// errEnded: the reader of the own journal ended without saying why.
var errEnded = errors.New("the reader of the effects journal ended")

// idle answers how long nothing falls due.
func (o *owner) idle() time.Duration {
	wait := cursorEvery
	if o.look {
		wait = lookEvery
	}
	now := o.time.now()
	for _, w := range o.watch {
		wait = min(wait, time.Duration(w.due-now)*time.Microsecond)
	}
	return max(wait, time.Millisecond)
}

// hear takes in one message of the own journal that this process did not write.
func (o *owner) hear(ctx context.Context, m journal.Msg) error {
	if m.Seq <= o.view.at().Seq {
		return nil // our own commit, or seen already
	}
	if err := o.writer.Observe(ctx, m); err != nil {
		return err // fenced, if it is a claim
	}
	e, err := journal.DecodeEntry(m.Seq, m.Data)
	if err != nil {
		return damagef("stream %s: %v; restore the stream from a backup", o.u.part.journal(), err)
	}
	return o.take(ctx, e)
}

// take applies entries and follows from what they say.
func (o *owner) take(ctx context.Context, entries ...*journal.Entry) error {
	a, err := o.view.apply(entries...)
	if err != nil {
		return err
	}
	for _, r := range a.effects {
		o.noticed(r)
	}
	for _, void := range a.voids {
		o.u.log.Warn().Stringer("partition", o.u.part).Str("void", string(void)).Msg("effector: a record in the effects journal counts for nothing")
	}
	o.look = o.look || len(a.effects) > 0 || a.control
	if a.control {
		return o.refresh(ctx)
	}
	return nil
}

// upTo reads the own journal until everything up to seq is taken in.
func (o *owner) upTo(ctx context.Context, seq uint64) error {
	for o.view.at().Seq < seq {
		m, err := o.log.Next(ctx)
		if err != nil {
			return err
		}
		if err := o.hear(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// arrive keeps a batch for the next turn.
func (o *owner) arrive(a *arrival) error {
	switch {
	case o.feeds[a.feed.job] != a.feed:
		return nil // of a feed that was replaced
	case a.err != nil:
		return a.err
	}
	o.pending = append(o.pending, a)
	return nil
}

// gather takes what is at hand, without waiting.
func (o *owner) gather(ctx context.Context) error {
	for {
		m, ok, err := o.log.TryNext()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if err := o.hear(ctx, m); err != nil {
			return err
		}
	}
	for len(o.pending) < pendingMost {
		select {
		case a := <-o.arrived:
			if err := o.arrive(a); err != nil {
				return err
			}
			continue
		default:
		}
		break
	}
	o.answers = append(o.answers, o.u.answers.take()...)
	o.found = append(o.found, o.u.findings.take()...)
	return nil
}

// turn decides everything that is at hand and commits it. It tells whether it did.
func (o *owner) turn(ctx context.Context) (bool, error) {
	if o.time.apart() {
		return false, errClocks
	}
	for {
		if err := o.gather(ctx); err != nil {
			return false, err
		}
		d := newDraft(o.view, o.time.now())
		if err := o.decide(ctx, d); err != nil {
			return false, err
		}
		if len(d.owned) == 0 && (!o.moved(d) || o.u.clock.Since(o.commitAt) < cursorEvery) {
			d.settle()
			return false, nil
		}
		if err := failpoint.Hit("effector/before-commit"); err != nil {
			return false, err
		}
		again, err := o.commit(ctx, d)
		if err != nil {
			return false, err
		}
		if !again {
			return true, nil
		}
	}
}

// decide lets every input of the turn have its say.
func (o *owner) decide(ctx context.Context, d *draft) error {
	steps := []func(context.Context, *draft) error{o.takeAnswers, o.takeFindings, o.obey, o.judgePending, o.judgeWaiting, o.reviewCorrections, o.sweep}
	if !o.claimed {
		steps = []func(context.Context, *draft) error{o.takeAnswers, o.loseOpen}
	}
	for _, step := range steps {
		if d.full() {
			return nil
		}
		if err := step(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// commit appends the draft. It answers again where somebody else's record landed first:
// that is taken in, and nothing of the draft was written.
func (o *owner) commit(ctx context.Context, d *draft) (again bool, err error) {
	c := revision.NewCommit()
	if last := o.view.at().Commit; last != nil {
		c.Records, c.RecordsDigest = last.Records, last.RecordsDigest
	}
	c.Inputs = o.cursors(d)
	for _, record := range d.owned {
		c.Records++
		c.RecordsDigest = link(c.RecordsDigest, record)
	}
	pending, err := o.writer.Commit(ctx, d.owned, c)
	if err != nil {
		return o.refused(ctx, err)
	}
	select {
	case <-pending.Done():
	case <-ctx.Done():
		return false, ctx.Err()
	}
	seq, err := pending.Result()
	if err != nil {
		return o.refused(ctx, err)
	}
	o.commitAt = o.u.clock.Now()
	accepted := pending.Commit()
	o.u.metrics.committed(o.u.part, seq)
	if err := o.take(ctx, &journal.Entry{Seq: seq, Records: d.owned, Commit: &accepted}); err != nil {
		return false, err
	}
	d.settle()
	return false, nil
}

// moved tells whether a COMMIT would say more of revisions than the last one.
func (o *owner) moved(d *draft) bool {
	last := o.view.at().Commit
	return last == nil && len(o.feeds) > 0 || last != nil && !slices.Equal(last.Inputs, o.cursors(d))
}

// refused takes in what landed before a commit.
func (o *owner) refused(ctx context.Context, err error) (again bool, _ error) {
	var control *journal.ControlError
	if !errors.As(err, &control) {
		return false, err
	}
	return true, o.upTo(ctx, control.Seq)
}

// cursors answers how far every feed was judged once d is accepted, for its COMMIT.
func (o *owner) cursors(d *draft) (list []revision.InputPosition) {
	for _, f := range o.feeds {
		next := max(f.next, d.next[f])
		// Revisions that wait for their provenance are in no record: they are read again.
		for key, w := range o.waits {
			if w.feed == f && !d.waited[key] {
				next = min(next, w.batch)
			}
		}
		for _, w := range d.waits {
			if w.feed == f {
				next = min(next, w.batch)
			}
		}
		mode := f.kind
		if next > f.target {
			mode = walkNone
		}
		list = append(list, revision.InputPosition{Stream: f.fence(), Created: f.created, Seq: next, Index: uint32(mode)})
	}
	slices.SortFunc(list, func(a, b revision.InputPosition) int { return strings.Compare(a.Stream, b.Stream) })
	return list
}

// refresh follows CONTROL records and documents: which policies are active, and which
// generation's revisions are read.
func (o *owner) refresh(ctx context.Context) error {
	o.library = o.u.documents()
	o.book = o.library.open(o.view.state(), o.book, o.u.providers)
	o.u.troubled(o.book.problems)
	o.bookAt = o.u.clock.Now()
	o.resume()
	o.reviewAll()
	o.look = true
	for job, f := range o.feeds {
		if !slices.Contains(o.book.jobs(), job) {
			o.drop(f)
		}
	}
	for _, job := range o.book.jobs() {
		if err := o.follow(ctx, job); err != nil {
			return err
		}
	}
	return nil
}

// follow starts reading a job's canonical generation, unless that is done already.
func (o *owner) follow(ctx context.Context, job string) error {
	state := o.view.state()
	alias, _ := state.Alias(job)
	basis := alias.Seq
	for _, p := range o.book.ofJob(job) {
		active, _ := state.Active(p.policy.EffectType)
		basis = max(basis, active.Seq)
	}
	old := o.feeds[job]
	if old != nil && (old.basis == basis || alias.Switching) {
		return nil // a switch under way sends nothing; its end names the generation
	}
	stream := subject.RevisionsStream(o.u.part.stream)
	id, err := journal.Identify(ctx, o.u.js, stream)
	if err != nil {
		return err
	}
	f := &feed{
		part: o.u.part, job: job, generation: alias.Canonical, epoch: alias.Epoch, basis: basis, created: id.Created,
		from: 1, done: make(chan struct{}),
	}
	f.start(o.view.at())
	if f.target, err = journal.LastSeq(ctx, o.u.js, stream, f.fence()); err != nil {
		return err
	}
	if f.kind == walkNone || f.target < f.from {
		f.kind, f.target = walkNone, 0
	}
	f.mode = f.kind
	f.next, f.wdata = f.from, revision.NewCommit().Wdata
	if old != nil {
		o.drop(old)
	}
	reading, stop := context.WithCancel(o.reading)
	f.stop = stop
	o.feeds[job] = f
	sessions := o.book.ofJob(job)[0].sessions()
	go f.run(reading, o.u.js, o.view, sessions, o.arrived)
	o.u.log.Info().Stringer("partition", o.u.part).Str("job", job).Int("generation", f.generation).
		Uint64("from", f.from).Bool("walk", f.mode != walkNone).Msg("effector: reading revisions")
	return nil
}

// start decides where a feed begins: where the last COMMIT says, unless a CONTROL behind
// it made the generation, its alias or a policy another one.
func (f *feed) start(at place) {
	f.kind = walkAnew
	if at.Commit == nil {
		return
	}
	for _, p := range at.Commit.Inputs {
		switch {
		case p.Stream == f.fence() && f.basis < at.CommitAt:
			f.from, f.created, f.kind = p.Seq, p.Created, walk(p.Index)
			return
		case p.Stream != f.fence() && strings.HasPrefix(p.Stream, f.part.jobPrefix(f.job)):
			f.kind = walkSwitch
		}
	}
}

// forgetSurvey gives up what walks noted, once none is under way.
func (o *owner) forgetSurvey() error {
	if !o.walked {
		return nil
	}
	for _, f := range o.feeds {
		if f.mode != walkNone {
			return nil
		}
	}
	o.walked = false
	return o.view.store.Update(func(tx *checkpoint.Tx) error { return tx.Drop(walkBucket) })
}

// drop stops a feed and forgets what it brought.
func (o *owner) drop(f *feed) {
	f.end()
	delete(o.feeds, f.job)
	o.pending = slices.DeleteFunc(o.pending, func(a *arrival) bool { return a.feed == f })
	for key, w := range o.waits {
		if w.feed == f {
			delete(o.waits, key)
		}
	}
}

func (o *owner) endFeeds() {
	for _, f := range o.feeds {
		f.end()
	}
	clear(o.feeds)
}

// alarm tells what a person must look at.
func (o *owner) alarm(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	o.u.metrics.alarmed()
	o.u.log.Error().Msg("effector: " + text)
}

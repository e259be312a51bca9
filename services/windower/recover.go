package windower

import (
	"context"
	"fmt"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// recovery brings a fold to the last COMMIT of its windows journal.
type recovery struct {
	u     *unit
	store *checkpoint.Store
	head  journal.Head

	fold   *fold
	saver  *saver
	from   uint64          // COMMITs from this sequence on are compared
	last   revision.Digest // chain over the journal's own records
	chain  journal.Chain
	events *journal.Reader
	pace   pace
}

// recover answers the fold at the last COMMIT and the reader that goes on from there.
func (r *recovery) run(ctx context.Context) error {
	if err := r.checkEvents(ctx); err != nil {
		return err
	}
	if err := failpoint.Hit("windower/events-checked"); err != nil {
		return err
	}
	if err := r.restore(ctx); err != nil {
		return err
	}
	if err := failpoint.Hit("windower/restored"); err != nil {
		return err
	}
	r.u.watching(r.fold)
	var created int64
	if r.head.Commit != nil {
		created = r.head.Commit.Inputs[0].Created
	}
	var err error
	r.events, err = journal.Read(ctx, r.u.js, r.u.part.eventsStream(), created, r.fold.op.Position().Seq)
	if err != nil || r.head.Commit == nil {
		return err
	}
	return journal.ReadRange(ctx, r.u.js, r.u.part.windowsStream(), r.head.Identity.Created, r.from, r.head.CommitAt, func(m journal.Msg) error {
		return r.entry(ctx, m)
	})
}

// checkEvents compares the events stream with what the last COMMIT says was read.
func (r *recovery) checkEvents(ctx context.Context) error {
	if r.head.Commit == nil {
		return nil
	}
	if len(r.head.Commit.Inputs) != 1 {
		return damagef("stream %s: the COMMIT at sequence %d names %d input positions, a windows journal has one", r.u.part.windowsStream(), r.head.CommitAt, len(r.head.Commit.Inputs))
	}
	at := r.head.Commit.Inputs[0]
	if at.Stream != r.u.part.eventsStream() {
		return damagef("stream %s: the COMMIT at sequence %d speaks of stream %s, this partition reads %s", r.u.part.windowsStream(), r.head.CommitAt, at.Stream, r.u.part.eventsStream())
	}
	id, err := journal.Identify(ctx, r.u.js, at.Stream)
	if err != nil {
		return err
	}
	next := at.Seq
	if at.Index > 0 || at.Outputs > 0 {
		next++ // the message in which the position stands was read
	}
	if err := id.Check(at.Created, next); err != nil {
		return fmt.Errorf("%w; %s was computed from it: restore the stream from a backup or start a new generation", err, r.u.part)
	}
	return nil
}

// restore loads the local checkpoint, or a snapshot that is worth more, or begins anew
// when there is neither that fits the journal.
func (r *recovery) restore(ctx context.Context) error {
	local, err := r.local(ctx)
	if err != nil {
		return err
	}
	if r.download(ctx, local) {
		return nil
	}
	if local != nil {
		why, err := r.load(*local)
		if err != nil || why == "" {
			return err
		}
		if err := r.setAside(why); err != nil {
			return err
		}
		if r.download(ctx, nil) {
			return nil
		}
	}
	op, err := window.New(r.u.operator())
	if err != nil {
		return &damage{err.Error(), err}
	}
	r.fold, r.from = newFold(r.u.part, r.u.policy.Extractor, op), 1
	r.saver = newSaver(r.store, r.identity(), true)
	r.chain.Start()
	return nil
}

// local answers what the local file stands at, nil when it holds nothing of use.
func (r *recovery) local(ctx context.Context) (*saved, error) {
	var state saved
	err := r.store.View(func(tx *checkpoint.Tx) error {
		_, err := tx.Meta(stateKey, &state)
		return err
	})
	if err != nil || len(state.Commit) == 0 {
		return nil, err
	}
	why, err := r.fits(ctx, state)
	if err != nil || why == "" {
		return &state, err
	}
	return nil, r.setAside(why)
}

func (r *recovery) setAside(why string) error {
	if err := r.store.Reset("stale", why); err != nil {
		return err
	}
	r.u.log.Warn().Stringer("partition", r.u.part).Str("why", why).Str("file", r.store.SetAside().Path).
		Msg("windower: the checkpoint does not fit and was set aside, the state is rebuilt from a snapshot or the events journal")
	return nil
}

func (r *recovery) identity() saved {
	return saved{
		Windows: r.head.Identity.Created, PolicyDigest: r.u.policyDigest, CoreVersion: window.CoreVersion,
	}
}

// fits answers why a checkpoint must be discarded, "" when it may be used: it must stand
// at a COMMIT that this very journal holds.
func (r *recovery) fits(ctx context.Context, state saved) (why string, err error) {
	want := r.identity()
	switch {
	case state.PolicyDigest != want.PolicyDigest:
		return "it belongs to another policy document", nil
	case state.CoreVersion != want.CoreVersion:
		return fmt.Sprintf("core version %d wrote it, this is %d", state.CoreVersion, want.CoreVersion), nil
	case state.Windows != want.Windows:
		return "it belongs to another windows journal of the same name", nil
	case r.head.Commit == nil || state.Seq > r.head.CommitAt:
		return fmt.Sprintf("it stands at sequence %d, ahead of the windows journal, whose last COMMIT is at %d", state.Seq, r.head.CommitAt), nil
	}
	commit, err := revision.ParseCommit(state.Commit)
	if err != nil {
		return "its COMMIT cannot be read: " + err.Error(), nil
	}
	why = fmt.Sprintf("its COMMIT is not the one at sequence %d of the windows journal", state.Seq)
	err = journal.ReadRange(ctx, r.u.js, r.u.part.windowsStream(), state.Windows, state.Seq, state.Seq, func(m journal.Msg) error {
		e, err := journal.DecodeEntry(m.Seq, m.Data)
		if err != nil {
			return damagef("stream %s: %w", r.u.part.windowsStream(), err)
		}
		if e.Commit != nil && e.Commit.Hash() == commit.Hash() {
			why = ""
		}
		return nil
	})
	return why, err
}

// load makes the operator from the checkpoint; it answers why that is impossible, or "".
func (r *recovery) load(state saved) (why string, err error) {
	commit, err := revision.ParseCommit(state.Commit)
	if err != nil {
		return "its COMMIT cannot be read: " + err.Error(), nil
	}
	var op *window.Operator
	err = r.store.View(func(tx *checkpoint.Tx) error {
		bucket, err := tx.Bucket(stateBucket)
		if err != nil {
			return err
		}
		op, err = window.Restore(r.u.operator(), bucket.Each)
		if err != nil {
			why = err.Error()
		}
		return nil
	})
	if err != nil || why != "" {
		return why, err
	}
	if at := commit.Inputs[0]; !samePlace(op.Position(), at) {
		return fmt.Sprintf("its state is at %s, its COMMIT at %s", place(op.Position()), place(at)), nil
	}
	f := newFold(r.u.part, r.u.policy.Extractor, op)
	f.digest, f.records = commit.RecordsDigest, commit.Records
	r.fold, r.from, r.last = f, state.Seq+1, commit.RecordsDigest
	r.saver = newSaver(r.store, r.identity(), false)
	return "", r.chain.Next(r.u.part.windowsStream(), state.Seq, commit)
}

// entry compares one message of the windows journal with what the core makes of the
// events up to it.
func (r *recovery) entry(ctx context.Context, m journal.Msg) error {
	windows := r.u.part.windowsStream()
	e, err := journal.DecodeEntry(m.Seq, m.Data)
	if err != nil {
		return damagef("stream %s: %w; restore the stream from a backup or start a new generation", windows, err)
	}
	if e.Commit == nil {
		return nil
	}
	if err := r.chain.Next(windows, e.Seq, e.Commit); err != nil {
		return err
	}
	for _, record := range e.Records {
		r.last = chainOver(r.last, record)
	}
	if r.last != e.Commit.RecordsDigest {
		return damagef("stream %s: the records up to sequence %d (events position %s) are not those that its COMMIT was made over: the journal is damaged; restore it from a backup or start a new generation",
			windows, e.Seq, place(e.Commit.Inputs[0]))
	}
	if err := failpoint.Hit("windower/before-replay"); err != nil {
		return err
	}
	if err := r.reach(ctx, e.Commit.Inputs[0]); err != nil {
		return err
	}
	if err := r.compare(e.Seq, e.Commit); err != nil {
		return err
	}
	if err := failpoint.Hit("windower/after-replay"); err != nil {
		return err
	}
	r.fold.cut() // these records are in the journal already
	return r.save(e.Seq, e.Commit)
}

// reach runs the core to a position of the events journal.
func (r *recovery) reach(ctx context.Context, to revision.InputPosition) error {
	there := func() bool { return !r.fold.op.Position().Less(to) }
	for !there() {
		if !r.fold.open {
			m, err := r.events.Next(ctx)
			if err != nil {
				return err
			}
			r.pace.input += len(m.Data)
			if err := r.fold.load(m.Seq, m.Data); err != nil {
				return err
			}
		}
		err := r.fold.advance(there)
		if missing := missingFrames(err); missing != nil {
			w := gapWait{u: r.u, fold: r.fold, missing: missing, created: r.events.Identity().Created}
			err = w.run(ctx)
		}
		if err != nil {
			return err
		}
	}
	return r.u.stillOwner()
}

// compare halts when the core does not say what the COMMIT at seq says.
func (r *recovery) compare(seq uint64, c *revision.Commit) error {
	mine, at := r.fold.commit(c.Inputs[0].Created), c.Inputs[0]
	what := ""
	switch {
	case !samePlace(mine.Inputs[0], at):
		what = fmt.Sprintf("the core never stands at %s, the next place is %s", place(at), place(mine.Inputs[0]))
	case mine.Records != c.Records:
		what = fmt.Sprintf("%d records were computed, the COMMIT counts %d", mine.Records, c.Records)
	case mine.RecordsDigest != c.RecordsDigest:
		what = fmt.Sprintf("recordsDigest is %x, the COMMIT says %x", mine.RecordsDigest, c.RecordsDigest)
	case mine.IDDigest != c.IDDigest:
		what = fmt.Sprintf("idDigest is %x, the COMMIT says %x", mine.IDDigest, c.IDDigest)
	case mine.OpenFrom != c.OpenFrom:
		what = fmt.Sprintf("openFrom is %s, the COMMIT says %s", mine.OpenFrom, c.OpenFrom)
	case mine.W != c.W || mine.Wdata != c.Wdata:
		what = fmt.Sprintf("W is %s and Wdata %s, the COMMIT says %s and %s", mine.W, mine.Wdata, c.W, c.Wdata)
	default:
		return nil
	}
	return damagef("%s: what is computed from %s up to %s differs from the COMMIT at sequence %d of %s: %s; nothing is written any more: restore the damaged journal from a backup or start a new generation (tidemark rollout start)",
		r.u.part, at.Stream, place(at), seq, r.u.part.windowsStream(), what)
}

// save checkpoints now and then, so that a long recovery need not be done twice.
func (r *recovery) save(seq uint64, c *revision.Commit) error {
	if !r.pace.checkpointDue() || !r.saver.ready() || !r.fold.whole() {
		return nil
	}
	if err := failpoint.Hit("windower/recovery-checkpoint"); err != nil {
		return err
	}
	r.pace.checkpointed()
	if !r.saver.retry() {
		if err := r.saver.take(r.fold); err != nil {
			return err
		}
		r.saver.start(seq, c)
	}
	return r.saver.wait()
}

func samePlace(a, b revision.InputPosition) bool {
	return a.Seq == b.Seq && a.Index == b.Index && a.Outputs == b.Outputs
}

// place writes a position as sequence/index/outputs.
func place(p revision.InputPosition) string {
	return fmt.Sprintf("%d/%d/%d", p.Seq, p.Index, p.Outputs)
}

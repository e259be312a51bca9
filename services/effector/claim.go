package effector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/dispatchfile"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// claim makes this process the owner of the partition: it claims the journal, brings the
// view up to the claim and compares the dispatch file with it. ctx bounds the claim and
// the reading; work outlives it for what is in flight.
func (u *unit) claim(ctx, work context.Context, v *view, file *dispatchfile.File) (*owner, error) {
	w, head, err := journal.ClaimWriter(ctx, u.js, journal.Settings{
		Stream: u.part.journal(), Subject: u.part.subject(), Owner: u.owner, CoreVersion: config.CoreVersion, Strict: true,
	})
	if err != nil {
		return nil, err
	}
	o := &owner{
		u: u, view: v, file: file, writer: w, feeds: map[string]*feed{}, arrived: make(chan *arrival, 4),
		lost: map[effect.EffectKey]dispatchfile.Entry{}, waits: map[waitKey]wait{}, watch: map[effect.EffectKey]*watched{},
		later: map[effect.EffectKey]effect.Time{}, queried: map[uint64]bool{}, unproven: map[effect.EffectKey]unproven{}, recent: newRecentRevisions(), inflight: &inflight{},
	}
	acknowledged := u.clock.Now()
	o.sending, o.cancelSends = context.WithCancel(u.sending)
	if err := o.recoverView(ctx, work, head, acknowledged); err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

// close gives back what the owner holds. Attempts under way go on: their answers are
// heard by the next owner in this process.
func (o *owner) close() {
	if o.log != nil {
		o.log.Close()
	}
	o.writer.Abort()
	o.inflight.over.Store(true)
	o.releaseSends()
}

// releaseSends gives up the context of attempts once there are none and will be none.
func (o *owner) releaseSends() {
	if o.inflight.over.Load() && o.inflight.n.Load() == 0 {
		o.cancelSends()
	}
}

// recoverView folds the journal up to the claim, and inspects the dispatch file.
func (o *owner) recoverView(ctx, work context.Context, head journal.Head, acknowledged time.Time) error {
	if err := failpoint.Hit("effector/claimed"); err != nil {
		return err
	}
	o.u.metrics.claimed()
	if err := o.fit(head); err != nil {
		return err
	}
	log, err := journal.Read(work, o.u.js, o.u.part.journal(), head.Identity.Created, o.view.at().Seq+1)
	if err != nil {
		return err
	}
	o.log = log
	claimed, err := o.catchUp(ctx, head.ClaimSeq)
	if err != nil {
		return err
	}
	o.time = newInstants(o.u.clock, claimed, acknowledged)
	for _, s := range []effect.State{effect.Dispatching, effect.Unknown} {
		if err := o.rewatch(s); err != nil {
			return err
		}
	}
	return o.inspect(ctx, head)
}

// fit discards a view that is not of this journal, or is ahead of it.
func (o *owner) fit(head journal.Head) error {
	at := o.view.at()
	why := ""
	switch {
	case at.Created == 0:
	case at.Created != head.Identity.Created:
		why = "it is of another journal of the same name"
	case at.Seq > head.ClaimSeq:
		why = fmt.Sprintf("it reaches to sequence %d, the journal to %d", at.Seq, head.ClaimSeq)
	case at.CommitAt > head.CommitAt, at.CommitAt == head.CommitAt && at.Commit != nil && at.Commit.Hash() != head.Commit.Hash():
		why = fmt.Sprintf("its COMMIT at sequence %d is not in the journal", at.CommitAt)
	}
	if why != "" {
		if err := o.view.reset("stale", why); err != nil {
			return err
		}
		o.u.log.Warn().Stringer("partition", o.u.part).Str("why", why).Msg("effector: the view was set aside and is folded anew from the effects journal")
	}
	o.view.bind(head.Identity)
	return nil
}

// foldAtOnce is how many messages go into the view in one transaction while it catches up.
const foldAtOnce = 512

// catchUp folds the journal up to the claim and answers the server's time of the CLAIM.
func (o *owner) catchUp(ctx context.Context, to uint64) (claimed time.Time, err error) {
	var some []*journal.Entry
	for seq := o.view.at().Seq; seq < to; {
		m, err := o.log.Next(ctx)
		if err != nil {
			return claimed, err
		}
		e, err := journal.DecodeEntry(m.Seq, m.Data)
		if err != nil {
			return claimed, damagef("stream %s: %v; restore the stream from a backup", o.u.part.journal(), err)
		}
		seq = m.Seq
		if e.Claim != nil {
			claimed = m.Time
		}
		if some = append(some, e); len(some) < foldAtOnce && seq < to {
			continue
		}
		if err := failpoint.Hit("effector/catch-up"); err != nil {
			return claimed, err
		}
		if _, err := o.view.apply(some...); err != nil {
			return claimed, err
		}
		some = nil
	}
	if claimed.IsZero() {
		return claimed, errors.New("the own claim was not read back")
	}
	return claimed, nil
}

// rewatch puts every effect of a state on the watch list.
func (o *owner) rewatch(s effect.State) error {
	o.library = o.u.documents()
	var after effect.EffectKey
	for {
		keys, err := o.view.inState(s, after, foldAtOnce)
		if err != nil || len(keys) == 0 {
			return err
		}
		for _, key := range keys {
			r, err := o.view.effect(key)
			if err != nil {
				return err
			}
			o.noticed(r)
		}
		after = keys[len(keys)-1]
	}
}

// inspect compares the dispatch file with the journal. Where the journal knows an attempt
// it wins. An attempt that it does not know was lost with the journal's tail, and nothing
// is sent until an operator ran `effects recover`.
func (o *owner) inspect(ctx context.Context, head journal.Head) error {
	mine := dispatchfile.Identity{Stream: o.u.part.journal(), Created: head.Identity.Created}
	bound, set := o.file.Identity()
	if !set {
		return o.file.Bind(ctx, mine)
	}
	entries, err := o.file.Everything()
	if err != nil {
		return err
	}
	for _, e := range entries {
		known, err := o.view.attempts(e.Key)
		if err != nil {
			return err
		}
		if e.Attempt <= known {
			continue
		}
		o.lost[e.Key] = e // the last of a key has the highest number
		if e.Seq > 0 {
			o.barred = fmt.Sprintf("%s: the dispatch file has an attempt of effect %s at sequence %d that the journal does not know: the journal lost its tail; run tidemark effects recover", o.u.part, e.Key, e.Seq)
		}
	}
	if bound != mine {
		o.barred = fmt.Sprintf("%s: the dispatch file speaks of another journal of this name; run tidemark effects recover", o.u.part)
	}
	if last, err := o.file.Last(); err != nil {
		return err
	} else if o.barred == "" && last > head.CommitAt {
		o.barred = fmt.Sprintf("%s: the journal's last COMMIT is at sequence %d, below %d of the dispatch file: it lost its tail; run tidemark effects recover", o.u.part, head.CommitAt, last)
	}
	if o.barred != "" {
		o.u.log.Error().Stringer("partition", o.u.part).Msg("effector: " + o.barred)
	}
	return nil
}

// loseOpen settles what the claim found: attempts that somebody else made are of unknown
// outcome, and so are effects with an attempt that only the dispatch file knows.
func (o *owner) loseOpen(ctx context.Context, d *draft) error {
	for _, key := range sortedKeys(o.watch) {
		if o.watch[key].state != effect.Dispatching {
			continue
		}
		if d.full() {
			return nil
		}
		r, err := d.get(key)
		if err != nil {
			return err
		}
		if r.State != effect.Dispatching {
			continue // answered by an attempt of this process
		}
		next, _, err := d.decide(r, ledger.Lose{By: effect.Effector, Claim: true})
		if err != nil {
			return err
		}
		if next != nil {
			if err := o.settled(ctx, d, r, next); err != nil {
				return err
			}
		}
	}
	for _, key := range sortedKeys(o.lost) {
		e := o.lost[key]
		if d.full() {
			return nil
		}
		r, err := d.get(key)
		if err != nil {
			return err
		}
		if r == nil {
			continue // nothing says what it is; a revision that mints the key will
		}
		caps, _ := o.capabilities(r)
		if _, why, err := d.decide(r, recovered(e, effect.Identity{}, nil, caps)); err != nil {
			return err
		} else if why != "" && why != ledger.JournalKnows {
			o.alarm("%s: effect %s: attempt %d of the dispatch file: %s", o.u.part, key, e.Attempt, why.Why())
		}
		d.then(func() { delete(o.lost, key) })
	}
	d.then(func() { o.claimed, o.look = true, true })
	return nil
}

func recovered(e dispatchfile.Entry, id effect.Identity, covered *revision.Window, caps ledger.Adapter) ledger.Recover {
	return ledger.Recover{Key: e.Key, Identity: id, Covered: covered, Attempt: e.Attempt, Epoch: e.Epoch, Digest: e.Digest, Adapter: caps}
}

// recoverLost makes the record of an effect whose attempt only the dispatch file knows,
// now that a revision says which effect it is, and perhaps what was sent.
func (o *owner) recoverLost(d *draft, p *ruled, e dispatchfile.Entry, id effect.Identity, covered *revision.Window, j *ledger.Judgement) (*effect.Record, error) {
	lost := recovered(e, id, covered, p.provider.caps)
	lost.Judgement = j
	next, why, err := d.decide(nil, lost)
	if err != nil {
		return nil, err
	}
	if why != "" {
		return nil, damagef("%s: effect %s cannot be recovered from the dispatch file: %s", o.u.part, e.Key, why.Why())
	}
	d.then(func() { delete(o.lost, e.Key) })
	return next, nil
}

// recover opens a gate that the dispatch file keeps closed: what it knows of effects that
// have a record is in the journal by now, and the rest stays in the file until a revision
// says what it is of.
func (o *owner) recover(ctx context.Context, d *draft, a *effectlog.Asked) error {
	note := "the dispatch file and the journal agree; nothing was to be done"
	if o.barred != "" {
		note = fmt.Sprintf("%d attempts of the dispatch file are of effects without a record; each becomes UNKNOWN when a revision names it", len(o.lost))
	}
	mine := dispatchfile.Identity{Stream: o.u.part.journal(), Created: o.view.at().Created}
	d.then(func() {
		if o.barred == "" {
			return
		}
		if err := o.file.Recovered(context.WithoutCancel(ctx), mine); err != nil {
			o.alarm("%s: %v", o.u.part, err)
			return
		}
		o.barred, o.look = "", true
	})
	return d.done(a, 0, "", note)
}

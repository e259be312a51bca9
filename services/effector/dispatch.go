package effector

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/dispatchfile"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/sendlimit"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adapter"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Bounds of dispatching.
const (
	dispatchWithin = time.Second // from the look at the revisions to the append
	inflightMost   = 32          // open attempts of a partition
	scanMost       = 256         // PREPARED effects looked at in one go
	dispatchTries  = 3
)

// inflight counts the open attempts of one owner.
type inflight struct {
	n    atomic.Int32
	over atomic.Bool // nothing is begun any more
}

// opened is an attempt whose DISPATCHING record is accepted, or is about to be.
type opened struct {
	record *effect.Record
	via    *provider
	permit *sendlimit.Permit
}

func (op *opened) attempt() *effect.Attempt { return &op.record.Attempts[len(op.record.Attempts)-1] }

// dispatch opens attempts and sends them. The order is the law: the journal accepts the
// commit, the dispatch file is on disk, then the first byte.
func (o *owner) dispatch(ctx context.Context) (bool, error) {
	if !o.look || !o.claimed {
		return false, nil
	}
	keys, err := o.candidates()
	if err != nil || len(keys) == 0 {
		return false, err
	}
	for range dispatchTries {
		began := o.u.clock.Now()
		reached, err := o.reachRevisions(ctx, keys)
		if err != nil || !reached {
			return false, err
		}
		d := newDraft(o.view, o.time.now())
		list, err := o.open(ctx, d, keys)
		if err != nil {
			giveBack(list)
			return false, err
		}
		if len(d.owned) == 0 {
			d.settle()
			return false, nil
		}
		if o.u.clock.Since(began) > dispatchWithin {
			giveBack(list)
			continue
		}
		again, err := o.commitDispatch(ctx, d)
		if err != nil || again {
			giveBack(list)
		}
		if err != nil {
			return false, err
		}
		if !again {
			return true, o.send(ctx, list)
		}
	}
	o.look = true
	return false, nil
}

func (o *owner) commitDispatch(ctx context.Context, d *draft) (again bool, err error) {
	if err := failpoint.Hit("effector/before-dispatch"); err != nil {
		return false, err
	}
	return o.commit(ctx, d)
}

// giveBack frees what was reserved for attempts that were not made.
func giveBack(list []*opened) {
	for _, op := range list {
		op.permit.Return()
	}
}

// candidates answers effects that may go: PREPARED ones, some at a time in turn, and those
// of unknown outcome that the sweeper found fit to be sent again.
func (o *owner) candidates() (keys []effect.EffectKey, err error) {
	o.look = false
	room := inflightMost - int(o.inflight.n.Load())
	if room <= 0 || o.barred != "" || o.view.state().Begun() == 0 {
		return nil, nil // an answer, or a CONTROL, makes us look again
	}
	now := o.time.now()
	for key, w := range o.watch {
		if !w.resend {
			continue
		}
		r, err := o.view.effect(key)
		if err != nil {
			return nil, err
		}
		if o.closed(r) == "" {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b effect.EffectKey) int { return bytes.Compare(a[:], b[:]) })
	some, err := o.view.inState(effect.Prepared, o.scanned, scanMost)
	if err != nil {
		return nil, err
	}
	o.look = !o.scanned.IsZero() // what stands before that was not looked at this time
	o.scanned = effect.EffectKey{}
	for i, key := range some {
		if len(keys) >= room {
			o.scanned, o.look = some[max(i-1, 0)], true
			break
		}
		if until, waits := o.later[key]; waits && now < until {
			o.look = true
			continue
		}
		r, err := o.view.effect(key)
		if err != nil {
			return nil, err
		}
		if o.closed(r) == "" && o.book.types[r.Identity.EffectType] != nil && r.MergedInto == nil {
			keys = append(keys, key)
		}
	}
	if len(some) == scanMost && o.scanned.IsZero() {
		o.scanned, o.look = some[scanMost-1], true
	}
	return keys[:min(len(keys), room)], nil
}

// closed answers the closed gate that holds an effect back, "" if all are open.
func (o *owner) closed(r *effect.Record) string {
	if o.barred != "" {
		return "recover"
	}
	f := o.feeds[r.Identity.Job]
	if f == nil || r.Request == nil {
		return "no-policy"
	}
	return string(o.view.state().ClosedGate(effectlog.Sending{
		EffectType: r.Identity.EffectType, Adapter: unversioned(r.Request.Adapter), Job: f.job, Generation: f.generation,
	}))
}

// reachRevisions judges every revision that is accepted by now, as the stream's leader
// says, of the jobs of keys. It answers false when that takes too long.
func (o *owner) reachRevisions(ctx context.Context, keys []effect.EffectKey) (bool, error) {
	targets := map[*feed]uint64{}
	for _, key := range keys {
		r, err := o.view.effect(key)
		if err != nil {
			return false, err
		}
		f := o.feeds[r.Identity.Job]
		if f == nil || targets[f] != 0 {
			continue
		}
		last, err := journal.LastSeq(ctx, o.u.js, subject.RevisionsStream(o.u.part.stream), f.fence())
		if err != nil {
			return false, err
		}
		targets[f] = last
	}
	timer := o.u.clock.NewTimer(dispatchWithin)
	defer timer.Stop()
	for {
		if o.reached(targets) {
			return true, nil
		}
		if len(o.pending) == 0 {
			select {
			case a := <-o.arrived:
				if err := o.arrive(a); err != nil {
					return false, err
				}
			case <-timer.C():
				o.look = true
				return false, nil
			case <-ctx.Done():
				return false, nil
			}
		}
		if _, err := o.turn(ctx); err != nil {
			return false, err
		}
	}
}

// reached tells whether every feed is judged up to its target. A feed that was replaced
// meanwhile is not asked for: its effects are found unfit.
func (o *owner) reached(targets map[*feed]uint64) bool {
	for f, target := range targets {
		if o.feeds[f.job] == f && f.next <= target {
			return false
		}
	}
	return true
}

// open evaluates every key once more and writes a DISPATCHING record for those that may go.
func (o *owner) open(ctx context.Context, d *draft, keys []effect.EffectKey) (list []*opened, err error) {
	for _, key := range keys {
		if d.full() {
			o.look = true
			break
		}
		op, err := o.openOne(ctx, d, key)
		if err != nil {
			return list, err
		}
		if op != nil {
			list = append(list, op)
		}
	}
	return list, nil
}

func (o *owner) openOne(ctx context.Context, d *draft, key effect.EffectKey) (*opened, error) {
	r, err := d.get(key)
	if err != nil || r == nil || r.Latest == nil || r.State != effect.Prepared && r.State != effect.Unknown {
		return nil, err
	}
	p, f := o.book.types[r.Identity.EffectType], o.feeds[r.Identity.Job]
	if p == nil || f == nil || o.waitsFor(r) {
		return nil, nil
	}
	in, err := o.revision(ctx, r.Latest.Revision.Sequence)
	if err != nil {
		return nil, err
	}
	j, via, err := o.judgementOf(ctx, d, p, f, in, r)
	if err != nil {
		return nil, err
	}
	e := ledger.Dispatch{
		Epoch: o.writer.Epoch(), ClosedGate: o.closed(r), Policy: p.policy.Ref(), Adapter: via.doc.Ref(),
		Judgement: j, RevisionsUpTo: f.next - 1, Token: true,
	}
	if _, why := ledger.Decide(r, e, d.now); why != "" {
		return nil, o.unfit(ctx, d, r, &j, why)
	}
	permit, _, busy := via.limit.Take()
	if permit == nil {
		o.look = true
		o.u.metrics.limited(via.doc.Name, busy)
		return nil, nil
	}
	next, why, err := d.decide(r, e)
	if err != nil || why != "" {
		permit.Return()
		return nil, err
	}
	return &opened{record: next, via: via, permit: permit}, nil
}

// waitsFor tells whether a revision newer than the one that the effect was judged by waits
// for its provenance.
func (o *owner) waitsFor(r *effect.Record) bool {
	w, waits := o.waits[waitKey{effectType: r.Identity.EffectType, projection: r.Latest.Revision.ProjectionID}]
	return waits && w.seq > r.Latest.Revision.Sequence
}

// unfit follows from a refusal to dispatch: what needs a person is held, what the newest
// judgement says otherwise is judged again, the rest waits.
func (o *owner) unfit(ctx context.Context, d *draft, r *effect.Record, j *ledger.Judgement, why ledger.Refusal) error {
	o.u.metrics.refused(why)
	if r.State != effect.Prepared {
		return nil
	}
	switch why {
	case ledger.ApprovalMissing, ledger.ApprovalUsed, ledger.ApprovalExpired:
		rule := r.Airlock
		for _, lock := range []string{j.Airlock, "approval"} {
			if rule == "" {
				rule = lock
			}
		}
		_, _, err := d.decide(r, ledger.Hold{By: effect.Effector, Rule: rule})
		return err
	case ledger.PayloadChanged, ledger.RuleFalse:
		_, err := o.rejudge(ctx, d, r)
		return err
	case ledger.NotCanonical, ledger.OlderRevision, ledger.RevisionUnjudged:
		if f := o.feeds[r.Identity.Job]; f != nil && f.mode == walkNone { // the new generation has no such window
			_, _, err := d.decide(r, ledger.Hold{By: effect.Effector, Rule: ledger.LockSwitch})
			return err
		}
	}
	return nil
}

// errFile: the dispatch file could not be written, so nothing was sent.
var errFile = errors.New("dispatch file")

// send writes the attempts into the dispatch file and lets them go. Where the file cannot
// be written none of them is sent, and each is answered so.
func (o *owner) send(ctx context.Context, list []*opened) error {
	if len(list) == 0 {
		return nil
	}
	if err := o.note(ctx, list); err != nil {
		for _, op := range list {
			op.permit.Return()
			o.u.answers.put(answered{
				key: op.record.Key, epoch: op.attempt().Epoch, attempt: op.attempt().N,
				answer: adapter.Answer{Class: effect.NotSent, Detail: "the dispatch file could not be written"},
			})
		}
		return errors.Join(errFile, err)
	}
	for _, op := range list {
		o.launch(op)
	}
	return nil
}

// note brings the attempts into the dispatch file, on disk.
func (o *owner) note(ctx context.Context, list []*opened) error {
	if err := failpoint.Hit("effector/dispatched"); err != nil {
		return err
	}
	seq := o.view.at().CommitAt
	entries := make([]dispatchfile.Entry, len(list))
	for i, op := range list {
		a := op.attempt()
		entries[i] = dispatchfile.Entry{Key: op.record.Key, Attempt: a.N, Epoch: a.Epoch, Digest: a.Digest, Seq: seq}
	}
	if err := o.file.Append(ctx, entries); err != nil {
		return err
	}
	return failpoint.Hit("effector/after-file")
}

// launch makes one attempt in its own goroutine; its answer comes by mail.
func (o *owner) launch(op *opened) {
	a, r, instants, flight := *op.attempt(), op.record, o.time, o.inflight
	flight.n.Add(1)
	o.u.metrics.attempted()
	call := adapter.Call{
		Key: r.Key, Attempt: a.N, EffectType: r.Identity.EffectType, Scope: r.Request.Scope,
		Payload: []byte(r.Request.Payload), Expect: r.Request.Expect, TraceParent: traceParent(r.Key, a.N),
		MaySend: func() bool {
			if failpoint.Hit("effector/first-byte") != nil {
				return false
			}
			return !flight.over.Load() && ledger.MaySend(&a, instants.now(), instants.wall())
		},
	}
	u, sending, release := o.u, o.sending, o.releaseSends
	u.sends.Go(func() {
		answer := op.via.client.Send(sending, call)
		op.permit.End(answer.Class, answer.RetryAfter)
		if failpoint.Hit("effector/response") == nil { // else the answer is lost on its way
			u.answers.put(answered{key: r.Key, epoch: a.Epoch, attempt: a.N, answer: answer})
		}
		flight.n.Add(-1)
		poke(u.answers.wake) // who drains looks whether this was the last one
		release()
	})
}

// drain waits for open attempts and commits their answers. What is still open at the end
// becomes UNKNOWN at the next claim.
func (o *owner) drain(ctx context.Context) error {
	timer := o.u.clock.NewTimer(attemptsFor)
	defer timer.Stop()
	cut := false
	for {
		if _, err := o.turn(ctx); err != nil {
			return err
		}
		if o.inflight.n.Load() == 0 && len(o.answers) == 0 {
			_, err := o.turn(ctx) // an answer may have come between
			return err
		}
		o.beat.Beat()
		select {
		case <-o.u.answers.wake:
		case <-timer.C():
			if cut {
				return nil
			}
			cut = true
			o.cancelSends()
			timer.Reset(time.Second)
		case <-ctx.Done():
			return nil
		}
	}
}

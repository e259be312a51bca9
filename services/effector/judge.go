package effector

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/effectrule"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// waitKey names what waits for provenance: the newest revision of a projection, for one
// effect type.
type waitKey struct{ effectType, projection string }

// wait is a revision whose rule holds and whose provenance is not met yet.
type wait struct {
	feed  *feed
	seq   uint64 // of the revision
	batch uint64 // of the first message of its batch
	end   envelope.EventTime

	switched bool // like the revision's
}

// judgePending lets the active policies judge the batches that arrived, in order. A batch
// may take several commits; judging a revision twice changes nothing.
func (o *owner) judgePending(ctx context.Context, d *draft) error {
	for _, a := range o.pending {
		if err := failpoint.Hit("effector/before-judge"); err != nil {
			return err
		}
		n := a.judged
		for ; n < len(a.in) && !d.full(); n++ {
			o.recent.add(a.in[n])
			for _, p := range o.book.ofJob(a.feed.job) {
				if err := o.judge(ctx, d, p, a.feed, a.in[n], a.first); err != nil {
					return err
				}
			}
		}
		whole := n == len(a.in)
		d.then(func() { o.judged(a, n, whole) })
		if !whole {
			return nil
		}
		d.next[a.feed] = a.fence + 1
	}
	return nil
}

// judged notes that the first n revisions of a batch are in accepted commits, or changed
// nothing.
func (o *owner) judged(a *arrival, n int, whole bool) {
	a.judged = n
	if !whole {
		return
	}
	o.pending = o.pending[1:] // batches become whole in order
	f := a.feed
	f.next = max(f.next, a.fence+1)
	if a.commit != nil {
		f.wdata = max(f.wdata, a.commit.Wdata)
	}
	if f.mode != walkNone && f.next > f.target {
		f.mode = walkNone
		o.look, o.walked = true, true
	}
}

// judge lets one policy say what it makes of a revision.
func (o *owner) judge(ctx context.Context, d *draft, p *ruled, f *feed, in incoming, batch uint64) error {
	id, err := p.identity(o.u.part, in.rev)
	if err != nil {
		o.complain(err, p, in)
		return nil
	}
	if p.sessions() {
		return o.judgeSession(ctx, d, p, f, in, batch, id)
	}
	r, err := d.get(ledger.Key(&id))
	if err != nil {
		return err
	}
	_, err = o.judgeAs(ctx, d, p, f, in, batch, r, id, nil)
	return err
}

func (p *ruled) identity(part partition, rev *revision.Revision) (effect.Identity, error) {
	id := effect.Identity{
		Stream: part.stream, Job: rev.Job, EffectType: p.policy.EffectType, Key: rev.Key,
		LogicalWindowID: rev.LogicalWindowID, Window: rev.Window,
	}
	var err error
	id.Subject, err = p.rule.Subject(rev.Key, rev.Window)
	return id, err
}

// judgeAs judges the effect r (nil = the key has none) by a revision, and answers what it
// is afterwards.
func (o *owner) judgeAs(ctx context.Context, d *draft, p *ruled, f *feed, in incoming, batch uint64, r *effect.Record, id effect.Identity, covered *revision.Window) (*effect.Record, error) {
	key := ledger.Key(&id)
	if r != nil {
		key = r.Key
	}
	j, err := o.judgement(d, p, f, in, key, r)
	if err != nil {
		return nil, err
	}
	if r == nil && j.Holds {
		if lost, found := o.lost[key]; found {
			if r, err = o.recoverLost(d, p, lost, id, covered, &j); err != nil {
				return nil, err
			}
		}
	}
	linked, err := d.linkedOf(r)
	if err != nil {
		return nil, err
	}
	next, why, err := d.decide(r, ledger.Judge{Identity: id, Covered: covered, Judgement: j, Linked: linked})
	if err != nil {
		return nil, err
	}
	at := waitKey{effectType: p.policy.EffectType, projection: in.rev.ProjectionID}
	switch why {
	case ledger.ProvenanceUnmet:
		w := wait{feed: f, seq: in.seq, batch: batch, end: in.rev.Window.End, switched: in.switched}
		d.waits[at] = w
		delete(d.waited, at)
		d.then(func() { o.waits[at] = w })
		return r, nil
	case ledger.Nondeterministic, ledger.PayloadEmpty, ledger.PayloadTooLarge, ledger.PayloadNoKey, ledger.Malformed:
		o.alarm("%s: effect type %s, revision at sequence %d: %s", o.u.part, p.policy.EffectType, in.seq, why.Why())
		o.u.metrics.refused(why)
	}
	if !d.waited[at] && max(o.waits[at].seq, d.waits[at].seq) <= in.seq {
		d.waited[at] = true
		delete(d.waits, at)
		d.then(func() { delete(o.waits, at) })
	}
	if next == nil {
		next = r
	}
	if next == nil || why == ledger.OlderRevision {
		return next, nil
	}
	return next, o.correct(ctx, d, p, f, in, next)
}

// judgement answers what a policy makes of a revision of its job's canonical generation. A
// rule that cannot be evaluated does not hold: nothing is sent under it, and what was
// prepared under an earlier revision is withdrawn.
func (o *owner) judgement(d *draft, p *ruled, f *feed, in incoming, key effect.EffectKey, r *effect.Record) (ledger.Judgement, error) {
	j, _, err := o.evaluate(d, p, f, in, key, r)
	return j, err
}

// evaluate is judgement, and tells whether the rule has a result.
func (o *owner) evaluate(d *draft, p *ruled, f *feed, in incoming, key effect.EffectKey, r *effect.Record) (j ledger.Judgement, sound bool, _ error) {
	rev := in.rev
	j = ledger.Judgement{
		Revision: effect.Bound{
			AliasEpoch: f.epoch, PolicyGeneration: rev.PolicyGeneration, ProjectionID: rev.ProjectionID,
			Revision: rev.Revision, Digest: rev.ComputeDigest(), Sequence: in.seq,
		},
		Canonical:  rev.PolicyGeneration == p.job.PolicyGeneration() && p.job.Generation == f.generation,
		Provenance: p.policy.RequireProvenance != policy.ProvenanceData || max(rev.Watermark.Data, f.wdata) >= rev.Window.End,
		Live:       rev.Origin == envelope.OriginLive,
		Switched:   in.switched && r == nil,
		Request:    effect.Request{Policy: p.policy.Ref()},
		Adapter:    p.provider.caps,
	}
	if !j.Canonical || rev.Op == revision.Retract {
		return j, true, nil
	}
	nth, err := d.nth(key, p.policy.EffectType, rev.PolicyGeneration)
	if err != nil {
		return j, false, err
	}
	judged, err := p.rule.Judge(effectrule.Input{
		Revision: rev, Key: key, WindowAge: int64(d.now) - int64(rev.Window.End), Nth: nth,
	})
	if err != nil {
		o.complain(err, p, in)
		return j, false, nil
	}
	if !judged.Holds {
		return j, true, nil
	}
	j.Holds, j.Airlock = true, judged.Airlock
	j.Request = effect.Request{
		Policy: p.policy.Ref(), Adapter: p.provider.doc.Ref(), Scope: p.provider.scope(),
		Payload: string(judged.Payload), Expect: judged.Expect,
	}
	return j, true, nil
}

// judgeWaiting judges revisions whose provenance is met by now.
func (o *owner) judgeWaiting(ctx context.Context, d *draft) error {
	list := slices.SortedFunc(maps.Keys(o.waits), func(a, b waitKey) int {
		return cmp.Or(cmp.Compare(o.waits[a].seq, o.waits[b].seq), cmp.Compare(a.effectType, b.effectType))
	})
	for _, at := range list {
		w := o.waits[at]
		if d.waited[at] || w.feed.wdata < w.end || o.feeds[w.feed.job] != w.feed {
			continue
		}
		if d.full() {
			return nil
		}
		if newer, again := d.waits[at]; again && newer.seq != w.seq {
			continue
		}
		p := o.book.types[at.effectType]
		if p == nil {
			continue
		}
		in, err := o.revision(ctx, w.seq)
		if err != nil {
			return err
		}
		in.switched = w.switched
		if err := o.judge(ctx, d, p, w.feed, in, w.batch); err != nil {
			return err
		}
	}
	return nil
}

// rejudge judges an effect again by the newest revision that it was judged by: after its
// outcome became known, and where an attempt turned out not to be sent.
func (o *owner) rejudge(ctx context.Context, d *draft, r *effect.Record) (*effect.Record, error) {
	if r.Correction != nil {
		return r, o.linkedMoved(ctx, d, r)
	}
	p, f := o.book.types[r.Identity.EffectType], o.feeds[r.Identity.Job]
	if p == nil || f == nil || r.Latest == nil || r.MergedInto != nil {
		return r, nil // a walk judges it, as it does what another generation said
	}
	in, err := o.revision(ctx, r.Latest.Revision.Sequence)
	if err != nil {
		return nil, err
	}
	return o.judgeAs(ctx, d, p, f, in, in.seq, r, r.Identity, nil)
}

// settled follows from an outcome that is known now.
func (o *owner) settled(ctx context.Context, d *draft, before, r *effect.Record) error {
	switch {
	case r.Correction != nil:
		return o.linkedMoved(ctx, d, r)
	case before != nil && before.State == effect.CompensationRequired && r.State != before.State:
		return o.review(ctx, d, r)
	}
	if before == nil || !doubtful(before.State) || doubtful(r.State) {
		return nil
	}
	if ledger.IsContradicted(r) || ledger.NeverSent(r) {
		var err error
		if r, err = o.rejudge(ctx, d, r); err != nil {
			return err
		}
	}
	if r.Covered == nil || r.MergedInto != nil {
		return nil
	}
	return o.rematch(ctx, d, r)
}

// doubtful tells whether an effect in this state must be settled before sessions merge.
func doubtful(s effect.State) bool {
	return s == effect.Dispatching || s == effect.Unknown || s == effect.Manual
}

// complain tells that a rule could not be evaluated. Neither key nor value is repeated.
func (o *owner) complain(err error, p *ruled, in incoming) {
	o.u.metrics.broken(p.policy.EffectType)
	o.alarm("%s: policy %s, revision at sequence %d of %s: %v; correct the policy in a new version", o.u.part, p.policy.Ref(), in.seq, subject.RevisionsStream(o.u.part.stream), err)
}

// revision answers the revision at a sequence of the revisions stream.
func (o *owner) revision(ctx context.Context, seq uint64) (incoming, error) {
	if in, found := o.recent.get(seq); found {
		return in, nil
	}
	stream := subject.RevisionsStream(o.u.part.stream)
	var rev *revision.Revision
	err := journal.ReadRange(ctx, o.u.js, stream, 0, seq, seq, func(m journal.Msg) (err error) {
		rev, err = revision.ParseJSON(m.Data)
		return err
	})
	if err == nil && rev == nil {
		err = damagef("stream %s: the revision at sequence %d, by which an effect was judged, is not there; restore the stream from a backup", stream, seq)
	}
	if err != nil {
		return incoming{}, err
	}
	in := incoming{rev: rev, seq: seq}
	o.recent.add(in)
	return in, nil
}

// recentRevisions keeps the revisions read last, so that a dispatch need not read its own
// again. Bounded.
type recentRevisions struct {
	by    map[uint64]*revision.Revision
	order []uint64
}

const recentMost = 2048

func newRecentRevisions() *recentRevisions {
	return &recentRevisions{by: make(map[uint64]*revision.Revision)}
}

func (c *recentRevisions) get(seq uint64) (incoming, bool) {
	rev := c.by[seq]
	return incoming{rev: rev, seq: seq}, rev != nil
}

func (c *recentRevisions) add(in incoming) {
	if c.by[in.seq] != nil {
		return
	}
	if len(c.order) == recentMost {
		delete(c.by, c.order[0])
		c.order = c.order[1:]
	}
	c.by[in.seq] = in.rev
	c.order = append(c.order, in.seq)
}

package effector

import (
	"context"

	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/effectrule"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// reviewMost is how many open corrections are looked at in one go.
const reviewMost = 256

// nothing is the amount where no action stands outside, or should.
const nothing = "0"

// unproven is an open correction that waits for its revision's provenance.
type unproven struct {
	feed *feed
	end  envelope.EventTime
}

// correct brings the linked effect of r's newest correction in line with r, after r was
// judged by in: it is made where the policy carries corrections out, follows newer
// revisions, and is withdrawn where it is not needed any more. What may have been sent
// stays as it is, and is settled first.
func (o *owner) correct(ctx context.Context, d *draft, p *ruled, f *feed, in incoming, r *effect.Record) error {
	if r.Corrections == 0 || r.Correction != nil {
		return nil
	}
	l, err := d.linkedOf(r)
	if err != nil || l == nil && p.correction == nil || l != nil && (l.Correction == nil || l.Outcome == effect.Applied) {
		return err
	}
	j, makes, err := o.correction(ctx, d, p, f, in, r, l)
	if err != nil {
		return err
	}
	var why ledger.Refusal
	switch {
	case l != nil:
		_, why, err = d.decide(l, ledger.Judge{Identity: l.Identity, Judgement: j, Makes: makes})
	case j.Holds:
		why, err = o.link(d, p, r, j, makes)
	}
	switch why {
	case ledger.Nondeterministic, ledger.PayloadEmpty, ledger.PayloadTooLarge, ledger.PayloadNoKey, ledger.Malformed:
		o.alarm("%s: effect %s: policy %s cannot correct it: %s", o.u.part, r.Key, p.policy.Ref(), why.Why())
		o.u.metrics.refused(why)
	}
	return err
}

// link makes the linked effect of r's open correction.
func (o *owner) link(d *draft, p *ruled, r *effect.Record, j ledger.Judgement, makes effect.Desire) (ledger.Refusal, error) {
	mode := p.correction.Mode()
	if _, lost := o.lost[ledger.CorrectionKey(mode, r.Key, r.Corrections)]; lost {
		o.alarm("%s: effect %s: the dispatch file knows an attempt of its correction %d that the journal lost; find out whether that ran, then waive the correction or record that it is compensated", o.u.part, r.Key, r.Corrections)
		return "", nil
	}
	_, why, err := d.decide(nil, ledger.Correct{Of: r, Mode: mode, Makes: makes, Judgement: j})
	return why, err
}

// linkedOf answers the effect that carries out r's newest correction, nil if there is none.
// A correction has at most one, whatever a later version of the policy says: under another
// mode it is withdrawn, and a person decides.
func (d *draft) linkedOf(r *effect.Record) (*effect.Record, error) {
	if r == nil || r.Corrections == 0 {
		return nil, nil
	}
	for _, mode := range []effect.Mode{effect.Compensate, effect.Adjust} {
		l, err := d.get(ledger.CorrectionKey(mode, r.Key, r.Corrections))
		if err != nil || l != nil {
			return l, err
		}
	}
	return nil, nil
}

// correction answers what the active policy makes of r's newest correction: the judgement
// of its linked effect l (nil = there is none yet), and what stands outside once that ran.
// It does not hold where nothing is to be corrected, and where only a person can: also
// where the rule has no result, which says nothing about what should stand outside.
func (o *owner) correction(ctx context.Context, d *draft, p *ruled, f *feed, in incoming, r, l *effect.Record) (ledger.Judgement, effect.Desire, error) {
	j, sound, err := o.evaluate(d, p, f, in, r.Key, r)
	if err != nil {
		return j, effect.Desire{}, err
	}
	makes, wanted := effect.Desire{}, nothing
	if r.MergedInto == nil && j.Holds {
		makes, wanted = ledger.Wants(r, &j), j.Request.Expect.Amount
	}
	j.Holds, j.Airlock, j.Switched = false, "", in.switched && l == nil
	j.Request = effect.Request{Policy: p.policy.Ref()}
	if !sound || !j.Canonical || !p.corrects(l) || !needsCorrection(r) {
		return j, effect.Desire{}, nil
	}
	j.Adapter = p.undo.caps
	if p.correction.Mode() == effect.Compensate {
		makes, wanted = effect.Desire{}, nothing
		j.Airlock, j.Provenance = ledger.LockLinked, true // a person approves it
	}
	switch {
	case makes == *r.Net:
		return j, makes, nil // nothing stands that could be undone
	case p.correction.Mode() == effect.Adjust && makes != r.Latest.Desire:
		return j, makes, nil // another version of the policy said what should stand
	case !j.Provenance:
		w := unproven{feed: f, end: in.rev.Window.End}
		d.then(func() { o.unproven[r.Key] = w })
		return j, makes, nil
	}
	return j, makes, o.fill(ctx, d, p, in, r, wanted, &j)
}

// corrects tells whether the policy carries corrections out as l does, nil for any way.
func (p *ruled) corrects(l *effect.Record) bool {
	return p.correction != nil && (l == nil || l.Correction.Mode == p.correction.Mode())
}

// needsCorrection tells whether r has an open correction that nothing took back.
func needsCorrection(r *effect.Record) bool {
	return r.State == effect.CompensationRequired && r.Net != nil && r.Latest != nil && r.Latest.Desire != *r.Net
}

// fill renders what the linked effect of r sends.
func (o *owner) fill(ctx context.Context, d *draft, p *ruled, in incoming, r *effect.Record, wanted string, j *ledger.Judgement) error {
	mode := p.correction.Mode()
	standing, err := o.standing(ctx, d, p, r)
	if err != nil {
		return err
	}
	if standing == "" && mode == effect.Adjust {
		o.alarm("%s: effect %s: its records do not say which amount stands outside, so that no difference can be sent; correct it by hand", o.u.part, r.Key)
		return nil
	}
	nth, err := d.nth(r.Key, r.Identity.EffectType, in.rev.PolicyGeneration)
	if err != nil {
		return err
	}
	window := r.Identity.Window
	if r.Covered != nil {
		window = *r.Covered
	}
	judged, err := p.correction.Judge(effectrule.CorrectionInput{
		Key: ledger.CorrectionKey(mode, r.Key, r.Corrections), Of: r.Key, Number: r.Corrections, RevisionKey: r.Identity.Key, Window: window,
		Standing: standing, Wanted: wanted, WindowAge: int64(d.now) - int64(window.End), Nth: nth,
	})
	if err != nil {
		o.complain(err, p, in)
		return nil
	}
	if !judged.Holds {
		return nil
	}
	j.Holds = true
	if j.Airlock == "" {
		j.Airlock = judged.Airlock
	}
	j.Request = effect.Request{
		Policy: p.policy.Ref(), Adapter: p.undo.doc.Ref(), Scope: p.undo.scope(),
		Payload: string(judged.Payload), Expect: judged.Expect,
	}
	return nil
}

// standing answers the amount that stands outside of r, "" where the records do not say.
func (o *owner) standing(ctx context.Context, d *draft, p *ruled, r *effect.Record) (string, error) {
	switch {
	case !r.Net.Holds:
		return nothing, nil
	case r.Net.Digest == r.Request.PayloadDigest:
		return r.Request.Expect.Amount, nil
	case r.Link == nil:
		return "", nil
	}
	// A linked effect brought it about, for the revision that it is bound to.
	l, err := d.get(*r.Link)
	if err != nil || l == nil || l.Correction == nil || l.Correction.Makes != *r.Net || l.Bound.PolicyGeneration != p.rule.Generation() {
		return "", err
	}
	in, err := o.revision(ctx, l.Bound.Sequence)
	if err != nil {
		return "", err
	}
	judged, err := p.rule.Judge(effectrule.Input{Revision: in.rev, Key: r.Key})
	if err != nil {
		o.complain(err, p, in)
		return "", nil
	}
	q := effect.Request{Adapter: r.Request.Adapter, Scope: r.Request.Scope, Payload: string(judged.Payload)}
	if !judged.Holds || ledger.PayloadDigest(r.Identity.EffectType, &q) != r.Net.Digest {
		return "", nil // another version of the policy brought it about
	}
	return judged.Expect.Amount, nil
}

// judgementOf answers what the active policy makes of an effect under a revision, and
// through which provider it goes; of a linked one by the effect that it corrects.
func (o *owner) judgementOf(ctx context.Context, d *draft, p *ruled, f *feed, in incoming, r *effect.Record) (ledger.Judgement, *provider, error) {
	if r.Correction == nil {
		j, err := o.judgement(d, p, f, in, r.Key, r)
		return j, p.provider, err
	}
	via := p.provider
	if p.undo != nil {
		via = p.undo
	}
	of, err := d.get(r.Correction.Of)
	if err != nil {
		return ledger.Judgement{}, via, err
	}
	j, _, err := o.correction(ctx, d, p, f, in, of, r)
	j.Holds = j.Holds && of.Corrections == r.Correction.Number
	return j, via, err
}

// review looks again at the newest correction of r, by the newest revision that either r or
// the linked effect was judged by.
func (o *owner) review(ctx context.Context, d *draft, r *effect.Record) error {
	p, f := o.book.types[r.Identity.EffectType], o.feeds[r.Identity.Job]
	if p == nil || f == nil || r.Latest == nil {
		return nil // a walk comes to it
	}
	l, err := d.linkedOf(r)
	if err != nil {
		return err
	}
	seq := r.Latest.Revision.Sequence
	if l != nil && l.Latest != nil {
		seq = max(seq, l.Latest.Revision.Sequence)
	}
	in, err := o.revision(ctx, seq)
	if err != nil {
		return err
	}
	if r.State == effect.CompensationRequired && r.MergedInto == nil && !needsCorrection(r) {
		_, err = o.judgeAs(ctx, d, p, f, in, in.seq, r, r.Identity, nil) // it may be right again
		return err
	}
	return o.correct(ctx, d, p, f, in, r)
}

// linkedMoved follows from a step of a linked effect.
func (o *owner) linkedMoved(ctx context.Context, d *draft, l *effect.Record) error {
	r, err := d.get(l.Correction.Of)
	switch {
	case err != nil:
		return err
	case ledger.NeverSent(l):
		return o.review(ctx, d, r)
	case l.Outcome != effect.Applied:
		return nil
	}
	next, why, err := d.decide(r, ledger.Compensated{Linked: l})
	if err != nil {
		return err
	}
	if why != "" {
		o.alarm("%s: effect %s ran, which corrects effect %s: %s", o.u.part, l.Key, r.Key, why.Why())
		o.u.metrics.refused(why)
		return nil
	}
	if ledger.IsContradicted(next) {
		_, err = o.rejudge(ctx, d, next)
	}
	return err
}

// reviewAll begins a look at every open correction: after a claim, and after versions,
// gates or an alias moved.
func (o *owner) reviewAll() { o.reviewed, o.reviewing = effect.EffectKey{}, true }

// reviewCorrections looks at open corrections whose provenance is met by now, and goes on
// with the look at all of them.
func (o *owner) reviewCorrections(ctx context.Context, d *draft) error {
	for _, key := range sortedKeys(o.unproven) {
		w := o.unproven[key]
		if d.full() {
			return nil
		}
		if o.feeds[w.feed.job] == w.feed && w.feed.wdata < w.end {
			continue
		}
		d.then(func() { delete(o.unproven, key) })
		if err := o.reviewKey(ctx, d, key); err != nil {
			return err
		}
	}
	if !o.reviewing {
		return nil
	}
	keys, err := o.view.inState(effect.CompensationRequired, o.reviewed, reviewMost)
	if err != nil {
		return err
	}
	done, over := o.reviewed, len(keys) < reviewMost
	for _, key := range keys {
		if d.full() {
			over = false
			break
		}
		if err := o.reviewKey(ctx, d, key); err != nil {
			return err
		}
		done = key
	}
	d.then(func() {
		o.reviewed, o.reviewing = done, !over
		o.look = o.look || !over
	})
	return nil
}

func (o *owner) reviewKey(ctx context.Context, d *draft, key effect.EffectKey) error {
	r, err := d.get(key)
	if err != nil {
		return err
	}
	return o.review(ctx, d, r)
}

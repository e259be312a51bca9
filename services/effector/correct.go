package effector

import (
	"context"

	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/effectrule"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// nothing is what stands outside, or should, where no action does.
const nothing = "0"

// correct makes, follows or withdraws the linked effect of a correction: of is the effect
// that is corrected, or was until now. One that may have been sent is left alone: what
// comes of it is known when it is settled.
func (o *owner) correct(ctx context.Context, d *draft, of *effect.Record) error {
	p, f := o.book.types[of.Identity.EffectType], o.feeds[of.Identity.Job]
	if p == nil || f == nil || p.correction == nil || of.Corrections == 0 || of.Latest == nil || of.Request == nil || of.Net == nil {
		return nil // for a person
	}
	key := ledger.CorrectionKey(p.correction.Mode(), of.Key, of.Corrections)
	l, err := d.get(key)
	if err != nil || l != nil && !ledger.NeverSent(l) {
		return err
	}
	j, makes, err := o.correction(ctx, d, p, f, of, key)
	if err != nil {
		return err
	}
	var why ledger.Refusal
	switch {
	case l != nil:
		_, why, err = d.decide(l, ledger.Judge{Identity: l.Identity, Judgement: j, Makes: makes})
	case j.Holds:
		_, why, err = d.decide(nil, ledger.Correct{Of: of, Mode: p.correction.Mode(), Makes: makes, Judgement: j})
	}
	if why != "" && why != ledger.NothingNew {
		o.u.metrics.refused(why)
	}
	return err
}

// correction answers what the active policy makes of a correction, and what stands outside
// once its linked effect ran. A correction that cannot be evaluated is a person's.
func (o *owner) correction(ctx context.Context, d *draft, p *ruled, f *feed, of *effect.Record, key effect.EffectKey) (ledger.Judgement, effect.Desire, error) {
	in, err := o.revision(ctx, of.Latest.Revision.Sequence)
	if err != nil {
		return ledger.Judgement{}, effect.Desire{}, err
	}
	j := ledger.Judgement{
		Revision: of.Latest.Revision, Canonical: true, Provenance: true, Live: in.rev.Origin == envelope.OriginLive,
		Request: effect.Request{Policy: p.policy.Ref()}, Adapter: p.undo.caps,
	}
	makes := effect.Desire{}
	if p.correction.Mode() == effect.Adjust {
		makes = of.Latest.Desire
	}
	if of.State != effect.CompensationRequired || p.correction.Mode() == effect.Compensate && !of.Net.Holds {
		return j, makes, nil // not needed any more, or there is nothing to undo
	}
	input := effectrule.CorrectionInput{
		Key: key, Of: of.Key, Number: of.Corrections, RevisionKey: of.Identity.Key, Window: of.Identity.Window,
	}
	if of.Covered != nil {
		input.Window = *of.Covered
	}
	input.WindowAge = int64(d.now) - int64(input.Window.End)
	if input.Nth, err = d.nth(of.Key, of.Identity.EffectType, of.Latest.Revision.PolicyGeneration); err != nil {
		return j, makes, err
	}
	if input.Standing, err = o.standing(ctx, d, p, f, of); err != nil {
		return j, makes, err
	}
	if input.Wanted, _, err = o.amount(d, p, f, in, of); err != nil {
		return j, makes, err
	}
	judged, err := p.correction.Judge(input)
	if err != nil {
		o.complain(err, p, in)
		return j, makes, nil
	}
	if judged.Holds {
		j.Holds, j.Airlock = true, judged.Airlock
		j.Request = effect.Request{
			Policy: p.policy.Ref(), Adapter: p.undo.doc.Ref(), Scope: p.undo.scope(), Payload: string(judged.Payload), Expect: judged.Expect,
		}
	}
	return j, makes, nil
}

// standing answers the amount that stands outside, "" where it is not known.
func (o *owner) standing(ctx context.Context, d *draft, p *ruled, f *feed, of *effect.Record) (string, error) {
	switch {
	case !of.Net.Holds:
		return nothing, nil
	case of.Net.Digest == of.Request.PayloadDigest:
		return of.Request.Expect.Amount, nil
	case of.Link == nil:
		return "", nil
	}
	// A linked effect brought it about, for the revision that it was bound to.
	l, err := d.get(*of.Link)
	if err != nil || l == nil || l.Bound == nil {
		return "", err
	}
	in, err := o.revision(ctx, l.Bound.Sequence)
	if err != nil {
		return "", err
	}
	amount, wanted, err := o.amount(d, p, f, in, of)
	if err != nil || wanted != *of.Net {
		return "", err
	}
	return amount, nil
}

// amount answers the amount that a revision asks for, and what it asks for.
func (o *owner) amount(d *draft, p *ruled, f *feed, in incoming, of *effect.Record) (string, effect.Desire, error) {
	j, err := o.judgement(d, p, f, in, of.Key, of)
	if err != nil || !j.Holds {
		return nothing, effect.Desire{}, err
	}
	return j.Request.Expect.Amount, ledger.Wants(of, &j), nil
}

// linked answers the effect that carries out the open correction of another, nil if there
// is none.
func (o *owner) linked(d *draft, of *effect.Record) (*effect.Record, error) {
	if of == nil || of.State != effect.CompensationRequired {
		return nil, nil
	}
	for _, mode := range []effect.Mode{effect.Compensate, effect.Adjust} {
		l, err := d.get(ledger.CorrectionKey(mode, of.Key, of.Corrections))
		if err != nil || l != nil {
			return l, err
		}
	}
	return nil, nil
}

// carriedOut follows from what became known of a linked effect.
func (o *owner) carriedOut(ctx context.Context, d *draft, l *effect.Record) error {
	of, err := d.get(l.Correction.Of)
	if err != nil || of == nil {
		return err
	}
	if l.Outcome != effect.Applied {
		return o.correct(ctx, d, of)
	}
	next, why, err := d.decide(of, ledger.Compensated{Linked: l})
	if err != nil {
		return err
	}
	if why != "" {
		o.alarm("%s: linked effect %s ran: %s", o.u.part, l.Key, why.Why())
		return nil
	}
	if ledger.IsContradicted(next) {
		_, err = o.rejudge(ctx, d, next)
	}
	return err
}

// evaluation is what the active policy makes of an effect at this moment.
type evaluation struct {
	judgement ledger.Judgement
	policy    *ruled
	via       *provider
	upTo      uint64 // every revision up to it was judged
}

// evaluate judges an effect by the newest revision that it was judged by, without writing
// anything; nil where nothing is active that could say, or a newer revision waits.
func (o *owner) evaluate(ctx context.Context, d *draft, r *effect.Record) (*evaluation, error) {
	p, f := o.book.types[r.Identity.EffectType], o.feeds[r.Identity.Job]
	if p == nil || f == nil || r.Latest == nil || o.waitsFor(r) {
		return nil, nil
	}
	e := &evaluation{policy: p, via: p.provider, upTo: f.next - 1}
	if r.Correction == nil {
		in, err := o.revision(ctx, r.Latest.Revision.Sequence)
		if err != nil {
			return nil, err
		}
		e.judgement, err = o.judgement(d, p, f, in, r.Key, r)
		return e, err
	}
	of, err := d.get(r.Correction.Of)
	if err != nil || of == nil || p.correction == nil || of.Latest == nil || of.Net == nil || of.Request == nil || of.Corrections != r.Correction.Number {
		return nil, err
	}
	e.via, e.upTo = p.undo, max(e.upTo, of.Latest.Revision.Sequence)
	e.judgement, _, err = o.correction(ctx, d, p, f, of, r.Key)
	return e, err
}

package effector

import (
	"context"
	"errors"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/effectrule"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

var errNoAdapter = errors.New("its adapter is not applied; apply the document again")

// refusalReceipt: the receipt was signed for another adapter than the effect goes through.
const refusalReceipt = ledger.EvidenceOfAnother

// obey carries out what stands in the journal without an answer: operators' commands and
// receipts, in order. Each has exactly one answer, in the commit of what it led to.
func (o *owner) obey(ctx context.Context, d *draft) error {
	for _, a := range o.view.state().Asked() {
		if d.full() {
			return nil
		}
		if d.answered[a.Seq] || o.queried[a.Seq] {
			continue
		}
		if err := o.obeyOne(ctx, d, &a); err != nil {
			return err
		}
	}
	return nil
}

func (o *owner) obeyOne(ctx context.Context, d *draft, a *effectlog.Asked) error {
	if a.Command != nil && a.Command.Act == effectlog.ActRecover {
		return o.recover(ctx, d, a)
	}
	r, err := d.get(a.Key())
	if err != nil {
		return err
	}
	if r == nil {
		return d.done(a, 0, ledger.NoEffect, "")
	}
	if a.Command != nil && a.Command.Act == effectlog.ActReconcile {
		return o.queryNow(d, a, r)
	}
	e, why, err := o.event(ctx, d, a, r)
	if err != nil {
		return err
	}
	var next *effect.Record
	if why == "" {
		if next, why, err = d.decide(r, e); err != nil {
			return err
		}
	}
	if why != "" {
		return d.done(a, 0, why, "")
	}
	if err := d.done(a, next.Step.N, "", ""); err != nil {
		return err
	}
	return o.settled(ctx, d, r, next)
}

// event answers what the ledger is asked for.
func (o *owner) event(ctx context.Context, d *draft, a *effectlog.Asked, r *effect.Record) (ledger.Event, ledger.Refusal, error) {
	if a.Evidence != nil {
		return o.receipt(a.Evidence, r)
	}
	c := a.Command
	who, reason := c.Stamp.Who, c.Stamp.Reason
	switch c.Act {
	case effectlog.ActApprove:
		return ledger.Approve{Sequence: a.Seq, Who: who, Reason: reason, Digest: c.Approve.Digest, Expires: c.Approve.Expires}, "", nil
	case effectlog.ActHold:
		return ledger.Hold{By: effect.Operator, Who: who, Reason: reason}, "", nil
	case effectlog.ActResolve:
		return ledger.Resolve{Applied: c.Resolve.Applied, Who: who, Reason: reason, Ref: c.Resolve.Ref, Evidence: c.Resolve.Evidence}, "", nil
	case effectlog.ActWaive:
		linked, err := d.linkedOf(r)
		return ledger.Waive{Who: who, Reason: reason, Linked: linked}, "", err
	case effectlog.ActCompensated:
		linked, err := d.linkedOf(r)
		return ledger.CompensatedOutside{Who: who, Reason: reason, Linked: linked}, "", err
	case effectlog.ActVoid:
		j, why, err := o.newest(ctx, d, r)
		return ledger.Void{Who: who, Reason: reason, Judgement: j}, why, err
	}
	return nil, ledger.Malformed, nil
}

// newest answers what the active policy makes of the newest revision of an effect.
func (o *owner) newest(ctx context.Context, d *draft, r *effect.Record) (ledger.Judgement, ledger.Refusal, error) {
	p, f := o.book.types[r.Identity.EffectType], o.feeds[r.Identity.Job]
	switch {
	case r.Latest == nil:
		return ledger.Judgement{}, ledger.PayloadUnknown, nil
	case p == nil || f == nil:
		return ledger.Judgement{}, ledger.InactivePolicy, nil
	}
	in, err := o.revision(ctx, r.Latest.Revision.Sequence)
	if err != nil {
		return ledger.Judgement{}, "", err
	}
	j, _, err := o.judgementOf(ctx, d, p, f, in, r)
	return j, "", err
}

// receipt answers the event of a receipt, whose signature was verified before it came into
// the journal.
func (o *owner) receipt(e *effectlog.Evidence, r *effect.Record) (ledger.Event, ledger.Refusal, error) {
	doc := o.library.adapters[e.Adapter]
	switch {
	case doc == nil:
		return nil, ledger.NoReceipts, nil
	case r.Request != nil && unversioned(r.Request.Adapter) != unversioned(e.Adapter):
		return nil, refusalReceipt, nil
	}
	return ledger.Receipt{Verified: true, Evidence: e.Receipt.Evidence(e.Digest), Adapter: effectrule.Capabilities(doc)}, "", nil
}

// queryNow asks the provider at once; the command is answered with what it finds.
func (o *owner) queryNow(d *draft, a *effectlog.Asked, r *effect.Record) error {
	caps, known := o.capabilities(r)
	if !known || !caps.Query {
		return d.done(a, 0, ledger.NotQueryable, "")
	}
	via, err := o.providerOf(r)
	if err != nil {
		return d.done(a, 0, ledger.NotQueryable, clipped(err.Error()))
	}
	o.queried[a.Seq] = true
	if w := o.watch[r.Key]; w != nil {
		w.asking = true
	}
	o.query(r, via)
	return nil
}

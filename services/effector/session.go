package effector

import (
	"context"

	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// judgeSession finds out which effect a session is, and judges it. Where outcomes must be
// known first nothing happens: rematch comes back to the session when they are.
func (o *owner) judgeSession(ctx context.Context, d *draft, p *ruled, f *feed, in incoming, batch uint64, id effect.Identity) error {
	records, err := o.sessionsOf(d, &id)
	if err != nil {
		return err
	}
	if in.rev.Op == revision.Retract {
		return o.judgeRetraction(ctx, d, p, f, in, batch, records)
	}
	m := ledger.MatchSession(records, &id)
	if len(m.Unsettled) > 0 {
		return nil
	}
	if m.Mint {
		covered := id.Window
		r, err := d.get(ledger.Key(&id)) // nil, or one that merged into another
		if err == nil {
			_, err = o.judgeAs(ctx, d, p, f, in, batch, r, id, &covered)
		}
		return err
	}
	for _, key := range m.Merged {
		if err := o.merge(ctx, d, key, m.Effect); err != nil {
			return err
		}
	}
	r, err := d.get(m.Effect)
	if err != nil {
		return err
	}
	if next, _, err := d.decide(r, ledger.Cover{Window: m.Cover}); err != nil {
		return err
	} else if next != nil {
		r = next
	}
	if r, err = o.judgeAs(ctx, d, p, f, in, batch, r, id, nil); err != nil || *r.Covered == id.Window {
		return err // no other current session is under it
	}
	current, err := o.currentSessions(ctx, f, id.Key)
	if err != nil {
		return err
	}
	if shared := ledger.Sharing(r, windowsOf(current)); len(shared) > 1 {
		_, _, err = d.decide(r, ledger.Clash{Sessions: shared})
	}
	return err
}

// judgeRetraction judges the effect that was judged by the session that goes. One that
// another session was judged for since stands on that one.
func (o *owner) judgeRetraction(ctx context.Context, d *draft, p *ruled, f *feed, in incoming, batch uint64, records []*effect.Record) error {
	for _, r := range records {
		if r.Latest == nil || r.Latest.Revision.ProjectionID != in.rev.ProjectionID {
			continue
		}
		if _, err := o.judgeAs(ctx, d, p, f, in, batch, r, r.Identity, nil); err != nil {
			return err
		}
	}
	return nil
}

func (o *owner) merge(ctx context.Context, d *draft, key, into effect.EffectKey) error {
	r, err := d.get(key)
	if err != nil {
		return err
	}
	next, why, err := d.decide(r, ledger.Merge{Into: into})
	if why != "" && why != ledger.MergedAway {
		o.alarm("%s: effect %s cannot merge into %s: %s", o.u.part, key, into, why.Why())
	}
	if err != nil || next == nil {
		return err
	}
	return o.review(ctx, d, next)
}

// sessionsOf answers the effects of one business subject.
func (o *owner) sessionsOf(d *draft, id *effect.Identity) (list []*effect.Record, err error) {
	keys, err := o.view.sessionsOf(id)
	if err != nil {
		return nil, err
	}
	known := make(map[effect.EffectKey]bool, len(keys))
	for _, key := range keys {
		known[key] = true
		r, err := d.get(key)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	for key, r := range d.records {
		if !known[key] && r.Covered != nil {
			list = append(list, r) // whoever looks through the list compares identities and sorts
		}
	}
	return list, nil
}

// currentSessions answers the sessions of a key that are current as far as the feed is
// judged, and those of batches that wait.
func (o *owner) currentSessions(ctx context.Context, f *feed, key string) ([]incoming, error) {
	upTo := f.next
	for _, a := range o.pending {
		if a.feed == f {
			upTo = max(upTo, a.fence)
		}
	}
	current := map[string]incoming{}
	var order []string
	stream := subject.RevisionsStream(f.part.stream)
	err := journal.ReadRange(ctx, o.u.js, stream, f.created, 1, upTo, func(m journal.Msg) error {
		r, err := f.parse(m)
		if err != nil {
			return err
		}
		if _, known := current[r.ProjectionID]; !known {
			order = append(order, r.ProjectionID)
		}
		current[r.ProjectionID] = incoming{rev: r, seq: m.Seq}
		return nil
	}, subject.Revision(f.part.stream, f.job, f.generation, f.part.number, key))
	var list []incoming
	for _, projection := range order {
		if in := current[projection]; in.rev.Op != revision.Retract {
			list = append(list, in)
		}
	}
	return list, err
}

func windowsOf(list []incoming) (windows []revision.Window) {
	for _, in := range list {
		windows = append(windows, in.rev.Window)
	}
	return windows
}

// rematch looks again which effects the sessions of a key are, after one of them was
// settled: a session may have waited for that.
func (o *owner) rematch(ctx context.Context, d *draft, r *effect.Record) error {
	p, f := o.book.types[r.Identity.EffectType], o.feeds[r.Identity.Job]
	if p == nil || f == nil || !p.sessions() {
		return nil
	}
	records, err := o.sessionsOf(d, &r.Identity)
	if err != nil || len(records) < 2 {
		return err
	}
	current, err := o.currentSessions(ctx, f, r.Identity.Key)
	if err != nil {
		return err
	}
	for _, in := range current {
		if err := o.judge(ctx, d, p, f, in, in.seq); err != nil {
			return err
		}
	}
	return nil
}

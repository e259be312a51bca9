package effectops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// InFlight is an attempt that was open when its gate closed.
type InFlight struct {
	Partition int              `json:"partition"`
	Key       effect.EffectKey `json:"effectKey"`
	Type      string           `json:"effectType"`
	Adapter   string           `json:"adapter,omitempty"`
	Attempt   uint32           `json:"attempt"`
	SendBy    effect.Time      `json:"sendBy"`
	Closed    bool             `json:"closed"` // its end is known; if not, its first byte cannot go out any more
	State     effect.State     `json:"state"`  // of the effect when the pause returned

	until time.Time // on our monotonic clock: no first byte after it
}

// Paused says what a pause did.
type Paused struct {
	Scope    effectlog.Scope `json:"scope"`
	Placed   []Placed        `json:"placed"` // one a key partition
	InFlight []InFlight      `json:"inFlight"`
}

// Pause closes the gate of a scope in every key partition. It returns when each has the
// CONTROL and every attempt that was open at it is closed, or its time to be sent has
// passed since the CONTROL was acknowledged, on this process's monotonic clock: after that
// nothing more of the scope reaches a provider. Attempts that are not closed may have been
// sent before; they are in the answer. Where it fails half-way the gates that closed stay
// closed, and the same pause may be given again.
func (o *Ops) Pause(ctx context.Context, scope effectlog.Scope, p Person) (*Paused, error) {
	if err := o.audit(ctx, "gate-pause", p, map[string]any{"scope": scope}); err != nil {
		return nil, err
	}
	placed, folds, err := o.move(ctx, effectlog.Gate{Scope: scope, Closed: true}, p)
	if err != nil {
		return nil, err
	}
	paused := &Paused{Scope: scope, Placed: placed, InFlight: []InFlight{}}
	open, errs := make([][]InFlight, o.partitions), make([]error, o.partitions)
	var all sync.WaitGroup
	for pp, l := range folds {
		open[pp] = openAttempts(l, scope, placed[pp].acknowledged)
		all.Go(func() { errs[pp] = o.quiet(ctx, l, open[pp]) })
	}
	all.Wait()
	for _, list := range open {
		paused.InFlight = append(paused.InFlight, list...)
	}
	details := map[string]any{"scope": scope, "inFlight": len(paused.InFlight), "placed": placed}
	if err := errors.Join(errs...); err != nil {
		return paused, fmt.Errorf("the gate is closed, but attempts may still be sent for a while: %w", err)
	}
	return paused, o.audit(ctx, "gate-pause", p, details)
}

// openAttempts answers the attempts that a scope's CONTROL found open, by key.
func openAttempts(l *ledgerOf, scope effectlog.Scope, acknowledged time.Time) (open []InFlight) {
	for _, item := range l.effects {
		r := item.Record
		i := slices.IndexFunc(r.Attempts, func(a effect.Attempt) bool { return a.Open() })
		if i < 0 || !covers(scope, r) {
			continue
		}
		a := &r.Attempts[i]
		f := InFlight{Partition: l.pp, Key: r.Key, Type: r.Identity.EffectType, Attempt: a.N, SendBy: a.SendBy, State: r.State}
		if r.Request != nil {
			f.Adapter = r.Request.Adapter
		}
		// The attempt began before the CONTROL: from its acknowledgement on, the whole of
		// sendWithin is more than is left of it.
		f.until = acknowledged.Add(time.Duration(a.SendBy-a.At) * time.Microsecond)
		open = append(open, f)
	}
	slices.SortFunc(open, func(a, b InFlight) int { return cmp.Compare(a.Key.String(), b.Key.String()) })
	return open
}

// quiet waits until nothing of open can be sent any more, and notes what became of it.
func (o *Ops) quiet(ctx context.Context, l *ledgerOf, open []InFlight) error {
	note := func() (all bool) {
		all = true
		for i := range open {
			f := &open[i]
			r := l.effects[f.Key].Record
			f.State = r.State
			f.Closed = !slices.ContainsFunc(r.Attempts, func(a effect.Attempt) bool { return a.N == f.Attempt && a.Open() })
			all = all && f.Closed
		}
		return all
	}
	return o.follow(ctx, l, note, func() (left time.Duration) {
		for i := range open {
			if !open[i].Closed {
				left = max(left, -o.clk.Since(open[i].until))
			}
		}
		return left
	})
}

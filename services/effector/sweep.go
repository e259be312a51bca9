package effector

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/effectrule"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adapter"
)

// watched is an open attempt or an unknown outcome.
type watched struct {
	state    effect.State
	attempt  uint32
	since    effect.Time // when the attempt was made
	deadline effect.Time // of resends; 0 = none
	due      effect.Time // when to look at it next
	tries    int         // questions asked
	asking   bool
	resend   bool // fit to be sent again
}

const askAtOnce = 8

// noticed keeps the watch list as a record says.
func (o *owner) noticed(r *effect.Record) {
	if r.State != effect.Prepared {
		delete(o.later, r.Key)
	}
	if r.State != effect.Dispatching && r.State != effect.Unknown {
		delete(o.watch, r.Key)
		return
	}
	w := o.watch[r.Key]
	if w == nil || w.attempt != r.LastAttempt || w.state != r.State {
		fresh := &watched{due: o.time.now()}
		if w != nil {
			fresh.asking = w.asking
		}
		w = fresh
		o.watch[r.Key] = w
	}
	w.state, w.attempt, w.deadline, w.resend = r.State, r.LastAttempt, r.ResendDeadline, false
	if n := len(r.Attempts); n > 0 {
		w.since = r.Attempts[n-1].At
		if r.State == effect.Dispatching {
			if caps, known := o.capabilities(r); known {
				w.due = caps.LostFrom(&r.Attempts[n-1])
			}
		}
	}
}

// sortedKeys answers the keys of a map in order.
func sortedKeys[V any](m map[effect.EffectKey]V) []effect.EffectKey {
	return slices.SortedFunc(maps.Keys(m), func(a, b effect.EffectKey) int { return bytes.Compare(a[:], b[:]) })
}

// capabilities answers what the adapter of an effect's request declares; false where its
// document is not applied.
func (o *owner) capabilities(r *effect.Record) (ledger.Adapter, bool) {
	if r.Request == nil {
		return ledger.Adapter{}, true // a lost attempt: nothing may be done automatically
	}
	doc := o.library.adapters[r.Request.Adapter]
	if doc == nil {
		return ledger.Adapter{}, false
	}
	return effectrule.Capabilities(doc), true
}

// sweep looks at what is overdue: attempts that nobody answers any more, and unknown
// outcomes about which something may be done.
func (o *owner) sweep(_ context.Context, d *draft) error {
	for _, key := range sortedKeys(o.watch) {
		w := o.watch[key]
		if w.due > d.now {
			continue
		}
		if d.full() {
			return nil
		}
		if err := o.sweepOne(d, key, w); err != nil {
			return err
		}
	}
	return nil
}

func (o *owner) sweepOne(d *draft, key effect.EffectKey, w *watched) error {
	r, err := d.get(key)
	if err != nil || r == nil {
		return err
	}
	caps, known := o.capabilities(r)
	if !known {
		o.alarm("%s: effect %s: its adapter %s is not applied; apply the document again", o.u.part, key, r.Request.Adapter)
		w.due = d.now.Add(time.Minute.Microseconds())
		return nil
	}
	if r.State == effect.Dispatching {
		_, why, err := d.decide(r, ledger.Lose{By: effect.Sweeper, Adapter: caps})
		if why != "" {
			w.due = d.now.Add(time.Second.Microseconds())
		}
		return err
	}
	action, until := ledger.Plan(r, &caps, d.now)
	switch action {
	case ledger.Ask:
		o.ask(r, w, d.now)
	case ledger.Resend:
		o.again(r, w, d.now)
	case ledger.Wait:
		w.due = until
	case ledger.GiveUp:
		_, _, err = d.decide(r, ledger.Escalate{Adapter: caps})
	case ledger.Nothing: // it was settled in this very draft
		w.due = d.now.Add(time.Second.Microseconds())
	}
	return err
}

// again marks an effect as fit to be sent again, not before the adapter's back-off.
func (o *owner) again(r *effect.Record, w *watched, now effect.Time) {
	retry := o.library.adapters[r.Request.Adapter].Retry
	last := &r.Attempts[len(r.Attempts)-1]
	n := len(r.Attempts) - 1
	first, most := time.Duration(retry.First)*time.Microsecond, time.Duration(retry.Most)*time.Microsecond
	if at := last.EndAt.Add(backOff(first, most, n).Microseconds()); now < at {
		w.due = at
		return
	}
	w.resend, o.look = true, true
	w.due = now.Add(time.Second.Microseconds()) // planned anew, should no gate let it go
}

// ask asks the provider for an effect, unless enough questions are under way.
func (o *owner) ask(r *effect.Record, w *watched, now effect.Time) {
	w.due = now.Add(lookEvery.Microseconds())
	if w.asking || o.asking >= askAtOnce {
		return
	}
	via, err := o.providerOf(r)
	if err != nil {
		o.alarm("%s: effect %s: %v", o.u.part, r.Key, err)
		w.due = now.Add(time.Minute.Microseconds())
		return
	}
	w.asking = true
	o.query(r, via)
}

func (o *owner) providerOf(r *effect.Record) (*provider, error) {
	doc := o.library.adapters[r.Request.Adapter]
	if doc == nil {
		return nil, errNoAdapter
	}
	return o.u.providers.of(doc)
}

// query asks in a goroutine of its own; the finding comes by mail.
func (o *owner) query(r *effect.Record, via *provider) {
	o.asking++
	question := adapter.Question{Key: r.Key, Scope: r.Request.Scope, Expect: r.Request.Expect}
	u, sending := o.u, o.sending
	u.sends.Go(func() {
		found, err := via.client.Query(sending, question)
		u.findings.put(finding{owner: o, key: question.Key, finding: found, err: err})
	})
}

package effector

import (
	"context"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adapter"
)

// answered is how an attempt of this process ended.
type answered struct {
	key     effect.EffectKey
	epoch   uint64
	attempt uint32
	answer  adapter.Answer
}

// finding is what a provider was found to have, or why it could not be asked.
type finding struct {
	owner   *owner // whose question it was
	key     effect.EffectKey
	finding adapter.Finding
	err     error
}

// takeAnswers makes records of answers. One that says that the effect ran counts whoever
// made the attempt; every other one ends the attempt that is open.
func (o *owner) takeAnswers(ctx context.Context, d *draft) error {
	n := 0
	for ; n < len(o.answers) && !d.full(); n++ {
		a := &o.answers[n]
		if err := failpoint.Hit("effector/before-ack"); err != nil {
			return err
		}
		r, err := d.get(a.key)
		if err != nil {
			return err
		}
		next, why, err := d.decide(r, ledger.Answer{Epoch: a.epoch, Attempt: a.attempt, Class: a.answer.Class, Evidence: a.answer.Evidence})
		if err != nil {
			return err
		}
		if why != "" {
			o.unheard(a, r, why)
			continue
		}
		o.u.log.Debug().Stringer("partition", o.u.part).Stringer("effect", a.key).Uint32("attempt", a.attempt).
			Str("class", string(a.answer.Class)).Str("state", string(next.State)).Str("detail", a.answer.Detail).Msg("effector: answered")
		if a.answer.Class.Unsent() {
			o.later[a.key] = d.now.Add(max(a.answer.RetryAfter, backOff(unsentFirst, unsentMost, int(next.LastAttempt)-1)).Microseconds())
		}
		if err := o.settled(ctx, d, r, next); err != nil {
			return err
		}
	}
	if n > 0 {
		d.then(func() { o.answers = o.answers[n:] })
	}
	return nil
}

// unheard notes an answer that changes nothing. One that says that the effect ran, where
// the ledger cannot believe it, is an alarm.
func (o *owner) unheard(a *answered, r *effect.Record, why ledger.Refusal) {
	o.u.metrics.refused(why)
	if a.answer.Class == effect.Executed && (r == nil || r.Outcome != effect.Applied) {
		o.alarm("%s: effect %s, attempt %d: the provider says that it ran: %s", o.u.part, a.key, a.attempt, why.Why())
	}
}

// takeFindings makes records of what queries found, and answers whoever asked for them.
func (o *owner) takeFindings(ctx context.Context, d *draft) error {
	n := 0
	for ; n < len(o.found) && !d.full(); n++ {
		if err := o.takeFinding(ctx, d, &o.found[n]); err != nil {
			return err
		}
	}
	if n > 0 {
		d.then(func() {
			for _, f := range o.found[:n] {
				o.asked(&f)
			}
			o.found = o.found[n:]
		})
	}
	return nil
}

func (o *owner) takeFinding(ctx context.Context, d *draft, f *finding) error {
	r, err := d.get(f.key)
	if err != nil || r == nil {
		return err
	}
	if f.err != nil {
		o.u.log.Info().Err(f.err).Stringer("partition", o.u.part).Stringer("effect", f.key).Msg("effector: the provider could not be asked")
		return o.reply(d, f.key, 0, "", "the provider could not be asked: "+f.err.Error())
	}
	caps, _ := o.capabilities(r)
	next, why, err := d.decide(r, ledger.Query{Found: f.finding.Found, Evidence: f.finding.Evidence, Adapter: caps})
	switch {
	case err != nil:
		return err
	case why != "":
		if f.finding.Found > 1 {
			o.alarm("%s: effect %s: the provider has %d executions under its key", o.u.part, f.key, f.finding.Found)
		}
		return o.reply(d, f.key, 0, why, "")
	}
	if err := o.reply(d, f.key, next.Step.N, "", ""); err != nil {
		return err
	}
	return o.settled(ctx, d, r, next)
}

// asked lets the next question about an effect be asked, later than the one before.
func (o *owner) asked(f *finding) {
	if f.owner == o {
		o.asking--
	}
	if w := o.watch[f.key]; w != nil {
		w.asking = false
		w.due = o.time.now().Add(backOff(o.u.askFirst, o.u.askMost, w.tries).Microseconds())
		w.tries++
	}
}

// reply answers the commands that asked for a query of an effect.
func (o *owner) reply(d *draft, key effect.EffectKey, step uint64, why ledger.Refusal, note string) error {
	for _, a := range o.view.state().Asked() {
		if a.Command == nil || a.Command.Act != effectlog.ActReconcile || a.Command.Key != key || d.answered[a.Seq] || !o.queried[a.Seq] {
			continue
		}
		if err := d.done(&a, step, why, clipped(note)); err != nil {
			return err
		}
		d.then(func() { delete(o.queried, a.Seq) })
	}
	return nil
}

// clipped cuts a note to what an answer may hold.
func clipped(note string) string {
	if len(note) > effect.MaxReason {
		return note[:effect.MaxReason]
	}
	return note
}

// Waits between attempts that were provably not sent.
const (
	unsentFirst = time.Second
	unsentMost  = time.Minute
)

// backOff answers first doubled n times, at most most.
func backOff(first, most time.Duration, n int) time.Duration {
	for ; n > 0 && first < most; n-- {
		first *= 2
	}
	return min(first, most)
}

package effectops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Order is one act upon some effects.
type Order struct {
	Act     effectlog.Act
	Expires time.Duration      // ActApprove: how long an approval may be used, from now
	Resolve *effectlog.Resolve // ActResolve
	Wait    time.Duration      // how long the owner's answers are waited for; default 10 s
}

// Meant answers the states that an act upon a filter without states is for; none = all.
func Meant(act effectlog.Act) []effect.State {
	switch act {
	case effectlog.ActApprove:
		return []effect.State{effect.Held}
	case effectlog.ActHold:
		return []effect.State{effect.Prepared}
	case effectlog.ActReconcile:
		return []effect.State{effect.Unknown, effect.Manual}
	case effectlog.ActWaive:
		return []effect.State{effect.CompensationRequired}
	}
	return nil
}

// Target is what a command is about. Digest is that of the payload that the operator was
// shown; an approval is bound to it.
type Target struct {
	Partition int
	Key       effect.EffectKey // none with ActRecover
	Digest    revision.Digest
}

// Targets answers the targets of effects as they were listed.
func Targets(items []Item) []Target {
	targets := make([]Target, len(items))
	for i, item := range items {
		targets[i] = Target{Partition: item.Partition, Key: item.Record.Key}
		if q := item.Record.Request; q != nil {
			targets[i].Digest = q.PayloadDigest
		}
	}
	return targets
}

// ShownAs answers ErrOtherDigest where the payload of item has another digest than the one
// that somebody was shown.
func ShownAs(item Item, digest revision.Digest) error {
	q := item.Record.Request
	if q == nil || q.PayloadDigest != digest {
		return fmt.Errorf("effect %s: %w; look at it again, then approve what you see", item.Record.Key, ErrOtherDigest)
	}
	return nil
}

// Outcomes of an item of a job.
const (
	ResultDone    = "done"
	ResultRefused = "refused"
	ResultWaiting = "waiting" // no owner has answered yet; the command stands in the journal
	ResultVoid    = "void"    // the command counts for nothing; give it again
)

// Result is what became of one command.
type Result struct {
	Job       string         `json:"job"`
	Partition int            `json:"partition"`
	Key       string         `json:"effectKey,omitempty"`
	Sequence  uint64         `json:"sequence,omitempty"` // of the command in the effects journal
	Result    string         `json:"result"`
	State     effect.State   `json:"state,omitempty"` // afterwards, where the effect moved
	Refusal   ledger.Refusal `json:"refusal,omitempty"`
	Why       string         `json:"why,omitempty"`
}

// jobChunk is how many commands are written before their answers are read.
const jobChunk = 128

// Run writes one command for each target, as one job, and tells the owner's answer to
// each. Effects whose owner does not answer in time are told as waiting: the command is
// in the journal and will be carried out. Commands about one partition are written in the
// order of targets. It fails where a command could not be written; what was told before
// stands.
func (o *Ops) Run(ctx context.Context, p Person, order Order, targets []Target, each func(Result) error) error {
	if err := order.check(targets); err != nil {
		return err
	}
	job := newID()
	details := map[string]any{"job": job, "effects": len(targets)}
	if len(targets) == 1 {
		details["effectKey"] = keyText(targets[0].Key)
	}
	verb := "effects-" + string(order.Act)
	if err := o.audit(ctx, verb, p, details); err != nil {
		return err
	}
	targets = slices.Clone(targets)
	slices.SortStableFunc(targets, func(a, b Target) int { return cmp.Compare(a.Partition, b.Partition) })
	counts := map[string]int{}
	err := o.runJob(ctx, job, p, &order, targets, func(r Result) error {
		counts[r.Result]++
		return each(r)
	})
	details["results"] = counts
	return errors.Join(err, o.audit(context.WithoutCancel(ctx), verb, p, details))
}

func (order *Order) check(targets []Target) error {
	if order.Wait <= 0 {
		order.Wait = 10 * time.Second
	}
	if order.Act == effectlog.ActApprove && order.Expires <= 0 {
		return errors.New("an approval needs a time at which it expires")
	}
	for _, t := range targets {
		if order.Act == effectlog.ActApprove && t.Digest.IsZero() {
			return fmt.Errorf("effect %s has no payload to approve", t.Key)
		}
	}
	return nil
}

func keyText(key effect.EffectKey) string {
	if key.IsZero() {
		return ""
	}
	return key.String()
}

func (o *Ops) runJob(ctx context.Context, job string, p Person, order *Order, targets []Target, each func(Result) error) error {
	for from := 0; from < len(targets); {
		to := from + 1
		for to < len(targets) && to-from < jobChunk && targets[to].Partition == targets[from].Partition {
			to++
		}
		step := &step{order: order, job: job, from: from, targets: targets[from:to], results: make([]Result, to-from), open: map[string]int{}}
		err := o.runStep(ctx, p, step)
		for _, r := range step.results[:step.written] {
			err = errors.Join(err, each(r))
		}
		if err != nil {
			return fmt.Errorf("after %d of %d commands: %w", from+step.written, len(targets), err)
		}
		from = to
	}
	return nil
}

// step is a chunk of a job: commands in one partition.
type step struct {
	order   *Order
	job     string
	from    int
	targets []Target
	results []Result
	written int
	open    map[string]int // by id of the command: which of results waits for it
}

// runStep writes the commands of a step, then reads the journal from where it stood until
// all are answered. A command may stand there twice; the first copy is the one that counts.
func (o *Ops) runStep(ctx context.Context, p Person, s *step) error {
	pp := s.targets[0].Partition
	id, err := o.identity(ctx, pp)
	if err != nil {
		return err
	}
	for i, t := range s.targets {
		command := s.command(i, t, o.stamp(fmt.Sprintf("%s-%d", s.job, s.from+i), id.Last, p))
		data, err := command.Encode()
		if err != nil {
			return err
		}
		if _, err := o.append(ctx, pp, data); err != nil {
			return err
		}
		s.open[command.Stamp.ID] = i
		s.results[i] = Result{
			Job: s.job, Partition: pp, Key: keyText(t.Key), Result: ResultWaiting,
			Why: "no effector has answered yet; the command stands in the journal and is carried out when one does",
		}
		s.written++
	}
	waiting, cancel := context.WithTimeout(ctx, s.order.Wait)
	defer cancel()
	reader, err := journal.Read(waiting, o.js, subject.EffectsStream(o.stream, pp), id.Created, id.Last+1)
	if err != nil {
		return unlessEnded(waiting, err)
	}
	defer reader.Close()
	for len(s.open) > 0 {
		m, err := reader.Next(waiting)
		if err != nil {
			return unlessEnded(waiting, err)
		}
		if err := s.hear(m); err != nil {
			return fmt.Errorf("stream %s, sequence %d: %w: %w", subject.EffectsStream(o.stream, pp), m.Seq, ErrDamaged, err)
		}
	}
	return nil
}

// unlessEnded forgives an error that comes from the end of waiting.
func unlessEnded(waiting context.Context, err error) error {
	if waiting.Err() != nil {
		return nil
	}
	return err
}

func (s *step) command(i int, t Target, stamp effectlog.Stamp) *effectlog.Command {
	c := &effectlog.Command{Stamp: stamp, Key: t.Key, Act: s.order.Act, Resolve: s.order.Resolve}
	if s.order.Act == effectlog.ActApprove {
		c.Approve = &effectlog.Approve{Digest: t.Digest, Expires: stamp.At.Add(s.order.Expires.Microseconds())}
	}
	return c
}

// hear takes one message: the place of a command, or the answer to it.
func (s *step) hear(m journal.Msg) error {
	e, err := journal.DecodeEntry(m.Seq, m.Data)
	if err != nil {
		return err
	}
	if e.Control != nil {
		f, err := effectlog.DecodeForeign(e.Control)
		if err == nil && f.Command != nil {
			s.place(m.Seq, f.Command)
		}
		return nil // what cannot be read is none of ours
	}
	states := map[effect.EffectKey]*effect.Record{}
	for _, data := range e.Records {
		o, err := effectlog.DecodeOwned(data)
		if err != nil {
			return err
		}
		if o.Effect != nil {
			states[o.Effect.Key] = o.Effect
			continue
		}
		s.answer(o.Done, states[o.Done.Key])
	}
	return nil
}

func (s *step) place(seq uint64, c *effectlog.Command) {
	i, ours := s.open[c.Stamp.ID]
	if !ours || s.results[i].Sequence != 0 {
		return
	}
	s.results[i].Sequence = seq
	if c.Stamp.Late(seq) {
		s.results[i].Result, s.results[i].Why = ResultVoid, "the journal moved too far while the command was written; give it again"
		delete(s.open, c.Stamp.ID)
	}
}

func (s *step) answer(d *effectlog.Done, r *effect.Record) {
	for id, i := range s.open {
		result := &s.results[i]
		if result.Sequence != d.Sequence {
			continue
		}
		delete(s.open, id)
		result.Result, result.Why = ResultDone, d.Note
		if r != nil && d.Step != 0 {
			result.State = r.State
		}
		if d.Refusal != "" {
			result.Result, result.Refusal = ResultRefused, ledger.Refusal(d.Refusal)
			result.Why = cmp.Or(d.Note, result.Refusal.Why())
		}
		return
	}
}

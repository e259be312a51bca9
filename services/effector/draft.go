package effector

import (
	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// draftBytes is when a draft takes in no more: what is left waits for the next commit.
const draftBytes = 256 << 10

// draft is a commit in the making. It sees the view as it stands and what it decided
// itself; dropping it leaves no trace, so that it can be made again behind a record that
// somebody else wrote.
type draft struct {
	view     *view
	now      effect.Time
	records  map[effect.EffectKey]*effect.Record
	ordinals map[effect.EffectKey]ordinal
	made     map[string]int
	answered map[uint64]bool // COMMAND and EVIDENCE records that have their Done here
	owned    [][]byte
	bytes    int
	next     map[*feed]uint64 // behind the last batch judged whole
	waits    map[waitKey]wait // revisions that wait for their provenance from now on
	waited   map[waitKey]bool // those that do not any more
	after    []func()         // what is done once the commit is accepted
}

func newDraft(v *view, now effect.Time) *draft {
	return &draft{
		view: v, now: now, records: map[effect.EffectKey]*effect.Record{}, ordinals: map[effect.EffectKey]ordinal{},
		made: map[string]int{}, answered: map[uint64]bool{}, next: map[*feed]uint64{}, waits: map[waitKey]wait{}, waited: map[waitKey]bool{},
	}
}

func (d *draft) full() bool { return d.bytes >= draftBytes }

// then runs f once the commit is accepted.
func (d *draft) then(f func()) { d.after = append(d.after, f) }

// settle does what follows from the draft, once its records are accepted or there are none.
func (d *draft) settle() {
	for _, f := range d.after {
		f()
	}
}

// get answers the effect as the draft leaves it, nil if there is none.
func (d *draft) get(key effect.EffectKey) (*effect.Record, error) {
	if r, ok := d.records[key]; ok {
		return r, nil
	}
	return d.view.effect(key)
}

// decide asks the ledger and keeps the record that follows, if one does.
func (d *draft) decide(r *effect.Record, e ledger.Event) (*effect.Record, ledger.Refusal, error) {
	next, why := ledger.Decide(r, e, d.now)
	if why != "" {
		return nil, why, nil
	}
	return next, "", d.put(next)
}

func (d *draft) put(r *effect.Record) error {
	data, err := r.Encode()
	if err != nil {
		return damagef("effect %s: %v", r.Key, err)
	}
	if r.Bound != nil && r.Correction == nil {
		if err := d.number(r); err != nil {
			return err
		}
	}
	d.records[r.Key] = r
	d.own(data)
	return nil
}

func (d *draft) own(data []byte) {
	d.owned = append(d.owned, data)
	d.bytes += len(data)
}

// done answers a COMMAND or EVIDENCE record.
func (d *draft) done(a *effectlog.Asked, step uint64, refusal ledger.Refusal, note string) error {
	answer := effectlog.Done{Schema: effectlog.DoneSchema, Sequence: a.Seq, Key: a.Key(), Step: step, Refusal: string(refusal), Note: note}
	data, err := answer.Encode()
	if err != nil {
		return damagef("answer to sequence %d: %v", a.Seq, err)
	}
	d.answered[a.Seq] = true
	d.own(data)
	return nil
}

// nth answers which effect of its type and generation a key is, or would be.
func (d *draft) nth(key effect.EffectKey, effectType, generation string) (int, error) {
	o, ok := d.ordinals[key]
	if !ok {
		var err error
		if o, err = d.view.ordinal(key); err != nil {
			return 0, err
		}
	}
	if o.Generation == generation {
		return o.N, nil
	}
	made := madeKey(effectType, generation)
	return d.view.at().Made[made] + d.made[made], nil
}

// number does to the draft what the fold will do to the view.
func (d *draft) number(r *effect.Record) error {
	generation := r.Bound.PolicyGeneration
	n, err := d.nth(r.Key, r.Identity.EffectType, generation)
	if err != nil {
		return err
	}
	o, ok := d.ordinals[r.Key]
	if !ok {
		if o, err = d.view.ordinal(r.Key); err != nil {
			return err
		}
	}
	if o.Generation != generation {
		d.made[madeKey(r.Identity.EffectType, generation)]++
	}
	d.ordinals[r.Key] = ordinal{Generation: generation, N: n}
	return nil
}

package window

import (
	"fmt"
	"slices"

	"github.com/tidemark-mesh/tidemark/internal/core/admission"
	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// grace is how far ingestNow may move before a REOPEN is stale, in microseconds. What one
// that is not could need is kept that long: final windows, and where REOPENs stood.
const grace = 60_000_000

// graceOver tells whether ingestNow moved by grace or more.
func graceOver(from, now envelope.IngestTime) bool {
	return now > from && uint64(now)-uint64(from) >= grace
}

// keyReopens is what is remembered of the REOPENs of one key.
type keyReopens struct {
	acted bool // one was acted on, within the grace
	place record.Place
	now   envelope.IngestTime // there

	parts   []*envelope.Reopen // of one that is not whole yet
	bodies  [][]byte           // as they stood in the journal
	values  []string           // value names of their frames
	changed bool               // since the last Delta
	stored  int                // pairs that Deltas wrote
}

// applyReopen takes in a REOPEN: rules 3 and 4 of the design's "Reopening". Its last part
// decides and acts.
func (o *Operator) applyReopen(body []byte) error {
	r, err := envelope.ParseReopen(body)
	if err != nil {
		return o.reopenBroken(err)
	}
	if r.PolicyGeneration != o.cfg.Policy.PolicyGeneration() || admission.KeyPartition(r.Key, o.cfg.Stream.Partitions) != o.cfg.Partition {
		return nil
	}
	whole := o.collect(r, body)
	fenced := r.Epoch < o.epoch
	o.epoch = max(o.epoch, r.Epoch)
	if r.Part < r.Parts {
		return nil
	}
	k := o.reopensOf(r.Key)
	if why := refusal(o, k, r, fenced, whole); why != "" {
		o.out.put(record.AppendRefused(o.out.bytes, &record.Refused{
			Key: r.Key, Epoch: r.Epoch, AsOf: record.Place{Seq: r.AsOf.Seq, Index: r.AsOf.Index}, Why: why,
		}))
		o.dropParts(r.Key)
		return nil
	}
	joined, err := envelope.JoinReopen(k.parts)
	if err != nil {
		return o.reopenBroken(err)
	}
	k.acted, k.place, k.now = true, record.Place{Seq: o.seq, Index: uint32(o.nextIndex)}, o.now
	o.dropParts(r.Key)
	return o.act(joined)
}

func (o *Operator) reopenBroken(err error) error {
	return fmt.Errorf("events journal %s/%02d, sequence %d, record %d: %w", o.cfg.Policy.Stream, o.cfg.Partition, o.seq, o.nextIndex, err)
}

// refusal answers why a REOPEN is refused, or "".
func refusal(o *Operator, k *keyReopens, r *envelope.Reopen, fenced, whole bool) string {
	switch {
	case fenced:
		return record.RefusedEpoch
	case k.acted && r.AsOf.Before(k.place.Seq, k.place.Index):
		return record.RefusedReopened
	case graceOver(r.AsOfNow, o.now):
		return record.RefusedStale
	case !whole:
		return record.RefusedParts
	}
	return ""
}

// reopensOf answers what is remembered of a key, which is made if there is nothing.
func (o *Operator) reopensOf(key string) *keyReopens {
	k := o.reopens[key]
	if k == nil {
		k = &keyReopens{}
		o.reopens[cloneString(key)] = k
	}
	k.changed = true
	return k
}

// collect keeps a part that is the first or follows the ones kept, and tells whether it
// makes them whole. A part that comes again is passed over; any other drops what was kept.
func (o *Operator) collect(r *envelope.Reopen, body []byte) (whole bool) {
	k := o.reopensOf(r.Key)
	have := len(k.parts)
	follows := have > 0 && envelope.SameReopen(k.parts[0], r) && slices.Equal(k.values, o.frame.values)
	switch {
	case r.Part <= 1:
		k.parts, k.bodies, k.values = nil, nil, cloneStrings(o.frame.values)
	case follows && int(r.Part) == have:
		return r.Part == r.Parts
	case !follows || int(r.Part) != have+1:
		o.dropParts(r.Key)
		return false
	}
	k.parts = append(k.parts, r)
	k.bodies = append(k.bodies, slices.Clone(body))
	return r.Part == r.Parts
}

// dropParts forgets the parts that were kept of a key.
func (o *Operator) dropParts(key string) {
	k := o.reopensOf(key)
	k.parts, k.bodies, k.values = nil, nil, nil
	o.forgetReopens(key, k)
}

// forgetReopens gives back what holds nothing any more.
func (o *Operator) forgetReopens(key string, k *keyReopens) {
	if k.acted || len(k.parts) > 0 {
		return
	}
	if k.stored > 0 {
		o.reopensGone = append(o.reopensGone, removedReopens{key: key, pairs: k.stored})
	}
	delete(o.reopens, key)
}

// sweepReopens forgets, after a mark, what no REOPEN that is not stale could need.
func (o *Operator) sweepReopens() {
	for key, k := range o.reopens {
		over := k.acted && graceOver(k.now, o.now)
		stale := len(k.parts) > 0 && graceOver(k.parts[0].AsOfNow, o.now)
		if !over && !stale {
			continue
		}
		k.changed = true
		k.acted = k.acted && !over
		if stale {
			k.parts, k.bodies, k.values = nil, nil, nil
		}
		o.forgetReopens(key, k)
	}
}

// removedReopens names what a Delta must delete of a key's REOPENs.
type removedReopens struct {
	key   string
	pairs int
}

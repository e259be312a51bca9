package oracle

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"sort"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// reopenGrace is how long a REOPEN may be on its way: as much as ingestNow moves.
const reopenGrace = 60 * 1_000_000

// Why a REOPEN was refused.
const (
	RefusedEpoch    = "epoch"    // a higher epoch of the reconciler was seen
	RefusedReopened = "reopened" // the key had a REOPEN after asOf
	RefusedStale    = "stale"    // ingestNow moved 60 s or more since asOf
	RefusedParts    = "parts"    // a part is missing
)

// Refused is the answer to a REOPEN that changed nothing.
type Refused struct {
	Key   string
	Epoch uint64
	AsOf  envelope.ReopenPlace
	Why   string
}

// position is where a record stands in the events journal.
type position struct {
	seq   uint64
	index uint32
}

// reopening is the last REOPEN of a key that was acted on. It is of interest for 60 s of
// ingestNow: one that does not know of it is stale then anyway.
type reopening struct {
	position
	now envelope.IngestTime
}

// refusal is an event that was TOO_LATE for some of its windows: what a REOPEN may take
// in, or out, later.
type refusal struct {
	key     string
	member  member    // for a retraction what it withdraws
	own     [2]string // source and id of the event itself
	retract bool
	windows []bounds
}

// reopen takes in a REOPEN, or one part of it. What it restores is of no interest here:
// nothing was forgotten. What it takes in and out is read from the journal again.
func (o *Oracle) reopen(where position, body []byte) error {
	r, err := envelope.ParseReopen(body)
	if err != nil {
		return err
	}
	if r.PolicyGeneration != o.policy.PolicyGeneration() {
		return nil
	}
	fenced := r.Epoch < o.epoch
	o.epoch = max(o.epoch, r.Epoch)
	whole := o.collect(r)
	if r.Part < r.Parts {
		return nil
	}
	parts := o.parts[r.Key]
	delete(o.parts, r.Key)
	if reason := o.refuses(r, fenced, whole); reason != "" {
		o.tell(Output{Refused: &Refused{r.Key, r.Epoch, r.AsOf, reason}})
		return nil
	}
	if r, err = envelope.JoinReopen(parts); err != nil {
		return err
	}
	o.reopened[r.Key] = reopening{where, o.now}
	for i := range r.Add {
		if err := o.handBack(r.Key, &r.Add[i], false); err != nil {
			return err
		}
	}
	for i := range r.Withdraw {
		if err := o.handBack(r.Key, &r.Withdraw[i], true); err != nil {
			return err
		}
	}
	o.fireFixed(true)
	o.fireSessions(o.clock.w, &r.Key)
	return nil
}

// collect keeps the parts of a key's REOPEN, each once and in order, and tells whether they
// are all there.
func (o *Oracle) collect(r *envelope.Reopen) (whole bool) {
	parts := o.parts[r.Key]
	switch {
	case r.Part <= 1:
		parts = []*envelope.Reopen{r}
	case len(parts) == 0 || !envelope.SameReopen(parts[0], r):
		parts = nil
	case int(r.Part) == len(parts)+1:
		parts = append(parts, r)
	case int(r.Part) != len(parts): // else the last one again
		parts = nil
	}
	o.parts[r.Key] = parts
	return len(parts) > 0 && len(parts) == int(max(r.Parts, 1))
}

// refuses answers why nothing may change, or "".
func (o *Oracle) refuses(r *envelope.Reopen, fenced, whole bool) string {
	last, had := o.reopened[r.Key]
	switch {
	case fenced:
		return RefusedEpoch
	case had && !o.graceOver(last.now) && r.AsOf.Before(last.seq, last.index):
		return RefusedReopened
	case o.graceOver(r.AsOfNow):
		return RefusedStale
	case !whole:
		return RefusedParts
	}
	return ""
}

// graceOver tells whether ingestNow moved 60 s or more since.
func (o *Oracle) graceOver(since envelope.IngestTime) bool {
	moved := new(big.Int).Sub(big.NewInt(int64(o.now)), big.NewInt(int64(since)))
	return moved.Cmp(big.NewInt(reopenGrace)) >= 0
}

// handBack takes one event in or out of the windows that had refused it.
func (o *Oracle) handBack(key string, e *envelope.ReopenEvent, retract bool) error {
	r := o.refusals[position{e.Seq, e.Index}]
	if r == nil || r.key != key || r.retract != retract || r.own != [2]string{e.Source, e.ID} {
		return fmt.Errorf("REOPEN of key %q names the event %s/%s at %d/%d: no such event was TOO_LATE there", key, e.Source, e.ID, e.Seq, e.Index)
	}
	moved := false
	for _, b := range r.windows {
		if o.holds(key, b, r.member) != retract {
			continue
		}
		moved = true
		n := news{any: true, asserted: !retract, reopened: true, origin: envelope.OriginRepair}
		if retract {
			o.exclude(key, b, r.member, n)
		} else {
			o.include(key, b, r.member, n)
		}
	}
	// An event that some window took in time counts as applied, and once.
	if moved && len(r.windows) == len(o.assign.windows(r.member.time)) {
		o.counts.Reopened++
		o.counts.IDDigest = addHash(o.counts.IDDigest, e.Source, e.ID)
	}
	return nil
}

// holds tells whether a window has a member.
func (o *Oracle) holds(key string, b bounds, m member) bool {
	if s := o.sessions[key]; s != nil {
		_, found := s.find(m)
		return found
	}
	w := o.windows[place{key, b}]
	if w == nil {
		return false
	}
	_, in := w.members[memberKey(m.source, m.id)]
	return in
}

// Member is where a member of a published window stands in the events journal.
type Member struct {
	Source, ID string
	Time       envelope.EventTime
	Seq        uint64
	Index      uint32
}

// Held answers the members that all sessions of a key have now, published or not, by time,
// source and id.
func (o *Oracle) Held(key string) (out []Member) {
	s := o.sessions[key]
	if s == nil {
		return nil
	}
	for _, m := range s.members {
		out = append(out, Member{m.source, m.id, m.time, m.at.seq, m.at.index})
	}
	return out
}

// Members answers the members of a window that readers see, by time, source and id: of a
// session those that were published, of another window those that it has now.
func (o *Oracle) Members(key string, start, end envelope.EventTime) (out []Member) {
	at := place{key, bounds{start, end}}
	var members map[string]member
	if p := o.projections[at]; p != nil && p.current() {
		members = p.members
	}
	if w := o.windows[at]; w != nil {
		members = w.members
	}
	list := slices.Collect(maps.Values(members))
	sort.Slice(list, func(i, j int) bool { return earlier(list[i], list[j]) })
	for _, m := range list {
		out = append(out, Member{m.source, m.id, m.time, m.at.seq, m.at.index})
	}
	return out
}

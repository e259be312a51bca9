package gates

import (
	"maps"
	"slices"

	"github.com/tidemark-mesh/tidemark/internal/core/identity"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// compareMembers checks that every event that sessions hold stands in exactly one of those
// that readers see. What belongs to a session that has not fired yet is excused: none
// begins before the COMMIT's openFrom.
func (u *unit) compareMembers(t *tally, o *Options) {
	if u.entry.Policy.Window.Kind != policy.Session {
		return
	}
	openFrom := envelope.MaxEventTime
	if u.proposed.commit != nil {
		openFrom = u.proposed.commit.OpenFrom
	}
	for _, key := range slices.Sorted(maps.Keys(u.keys)) {
		if o.Key == "" || o.Key == key {
			u.compareKey(t, key, openFrom)
		}
	}
}

// compareKey counts the events of one key into the sessions that readers see.
func (u *unit) compareKey(t *tally, key string, openFrom envelope.EventTime) {
	list := u.accepted.sessions[key]
	counts, sums := make([]uint64, len(list)), make([][16]byte, len(list))
	for _, m := range u.oracle.Held(key) {
		t.members.look(1)
		at, held := list.holder(m.Time)
		switch {
		case held:
			counts[at]++
			sums[at] = identity.Sum128(sums[at], identity.EventHash(m.Source, m.ID))
		case m.Time < openFrom:
			t.members.fail("%s: key %q: event %s/%s of %s stands in no session that readers see", u.name(), key, m.Source, m.ID, m.Time)
		}
	}
	for i, w := range list {
		if w.End > openFrom {
			continue // its successor, which may hold more, has not fired
		}
		in := u.accepted.rows[rowKey{key, w.Start, w.End}].Inputs
		if in.Events != counts[i] || in.IDDigest != sums[i] {
			t.members.fail("%s: key %q session %s to %s: it counts %d events, of which not all are the %d that fall into it", u.name(), key, w.Start, w.End, in.Events, counts[i])
		}
	}
}

// compareRefused holds the answers to REOPENs against the oracle's, in order.
func (u *unit) compareRefused(t *tally) {
	compareLists(&t.refused, u.name()+": REFUSED record", u.proposed.refused, u.refused)
}

package leases

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// candidate is a member that takes part in the spread.
type candidate struct {
	instance string
	wants    func(key string) bool
}

// candidates answers who counts, besides ourselves: alive, long enough here, and wanting
// something.
func (v *view) candidates() []candidate {
	var out []candidate
	for instance, m := range v.members {
		if m.settled && !v.silent(m) && len(m.wants) > 0 {
			out = append(out, candidate{instance, func(key string) bool { return m.wants[unitHash(key)] }})
		}
	}
	return out
}

// spread answers which candidate should have each unit. The same units and candidates
// give the same answer everywhere.
//
// A unit goes to the candidate that rendezvous hashing ranks first for it among those that
// want it and have not their share yet, which is the number of units divided by that of
// candidates, rounded up. So the parts are even, and a member that comes or goes moves few
// other units. A unit that nobody wants is not in the answer.
func spread(units []string, all []candidate) map[string]string {
	out := make(map[string]string, len(units))
	if len(all) == 0 {
		return out
	}
	order := slices.Clone(units)
	slices.SortFunc(order, func(a, b string) int {
		return cmp.Or(cmp.Compare(mixed(a, ""), mixed(b, "")), cmp.Compare(a, b))
	})
	share := (len(units) + len(all) - 1) / len(all)
	load := make(map[string]int, len(all))
	for _, key := range order {
		if best := pick(key, all, func(c candidate) bool { return load[c.instance] < share }); best != "" {
			out[key] = best
		} else if best := pick(key, all, func(candidate) bool { return true }); best != "" {
			out[key] = best // only full ones want it
		}
		load[out[key]]++
	}
	return out
}

// pick answers the candidate ranked first for key among those that want it and are
// allowed, "" for none.
func pick(key string, all []candidate, allowed func(candidate) bool) (best string) {
	var top uint64
	for _, c := range all {
		if !c.wants(key) || !allowed(c) {
			continue
		}
		if rank := mixed(key, c.instance); best == "" || rank > top || rank == top && c.instance < best {
			best, top = c.instance, rank
		}
	}
	return best
}

// mixed hashes two texts. FNV alone spreads texts that differ in their last byte badly.
func mixed(a, b string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(a))
	h.Write([]byte{0})
	h.Write([]byte(b))
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

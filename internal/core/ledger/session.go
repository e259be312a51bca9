package ledger

import (
	"cmp"
	"slices"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Cover says that a canonical session interval is mapped to the effect.
type Cover struct {
	Window revision.Window
}

func (Cover) actor() effect.Actor { return effect.Effector }

// Clash says that several current sessions are mapped to the effect.
type Clash struct {
	Sessions []revision.Window
}

func (Clash) actor() effect.Actor { return effect.Effector }

// Merge says that another effect stands for this one's sessions from now on.
type Merge struct {
	Into effect.EffectKey
}

func (Merge) actor() effect.Actor { return effect.Effector }

var sessions = []Transition{
	rule("cover", effect.States(), effect.None, byEffector, nil, coverable, cover),
	rule("clash-held", waiting, effect.Held, byEffector, nil, clashing, clashHeld),
	rule("clash", effect.States(), effect.None, byEffector, nil, clashing, clash),

	rule("merge-void", waiting, effect.Voided, byEffector, nil, mergeable, merge),
	rule("merge-correct", settled, effect.CompensationRequired, byEffector, stands, mergeable, mergeCorrected),
	rule("merge", slices.Concat(settled, voided, corrected, []effect.State{effect.Rejected}), effect.None, byEffector, nil, mergeable, merge),
}

func coverable(c *change, e Cover) Refusal {
	switch w := c.r.Covered; {
	case c.r.MergedInto != nil:
		return MergedAway
	case w == nil:
		return NotASession
	case w.Start <= e.Window.Start && e.Window.End <= w.End:
		return CoveredAlready
	}
	return ""
}

func cover(c *change, e Cover) {
	w := union(*c.r.Covered, e.Window)
	c.next.Covered = &w
}

func clashing(c *change, e Clash) Refusal {
	switch {
	case c.r.MergedInto != nil:
		return MergedAway
	case c.r.Covered == nil:
		return NotASession
	case len(e.Sessions) < 2:
		return NoClash
	case slices.Equal(e.Sessions, c.r.Clash):
		return NothingNew
	}
	return ""
}

func clash(c *change, e Clash) {
	c.next.Clash = slices.Clone(e.Sessions)
}

func clashHeld(c *change, e Clash) {
	clash(c, e)
	if !slices.Contains([]string{LockOperator, LockEvidence, LockLinked}, c.r.Airlock) {
		c.next.Airlock = LockSessions
	}
}

func mergeable(c *change, e Merge) Refusal {
	switch {
	case c.r.Covered == nil:
		return NotASession
	case c.r.MergedInto != nil:
		return MergedAway
	case e.Into == c.r.Key:
		return IntoItself
	}
	return ""
}

// stands tells whether something of the effect is outside.
func stands(c *change, _ Merge) bool { return c.r.Net == nil || c.r.Net.Holds }

func merge(c *change, e Merge) {
	c.next.MergedInto = &e.Into
	c.next.Clash = nil
	if c.next.Latest != nil {
		c.next.Latest.Desire = effect.Desire{} // nothing of its own should be outside
	}
}

func mergeCorrected(c *change, e Merge) {
	merge(c, e)
	c.next.Corrections++
	c.next.CompensationPending = false
}

// union answers the least interval that holds a and b.
func union(a, b revision.Window) revision.Window {
	return revision.Window{Start: min(a.Start, b.Start), End: max(a.End, b.End)}
}

func intersects(a, b revision.Window) bool { return a.Start < b.End && b.Start < a.End }

// Sharing answers which of the current sessions are mapped to r: two or more are a Clash.
func Sharing(r *effect.Record, current []revision.Window) []revision.Window {
	var list []revision.Window
	for _, w := range current {
		if r.Covered != nil && r.MergedInto == nil && intersects(*r.Covered, w) {
			list = append(list, w)
		}
	}
	return list
}

// Match says which effect a session is.
type Match struct {
	Mint      bool               // none: the session mints its own key
	Unsettled []effect.EffectKey // these must be settled before anything else; sorted
	Effect    effect.EffectKey   // the one that it is
	Cover     revision.Window    // what that one covers afterwards
	Merged    []effect.EffectKey // these merge into it; sorted
}

// MatchSession answers which of the effects in records a session of that identity is:
// those of the same stream, key, type and subject, over all generations, whose covered
// interval has a part in [start, end). Of several, the one that ran first stands, or, if
// none ran, the one never sent with the lowest start. Records may hold other effects too.
func MatchSession(records []*effect.Record, id *effect.Identity) Match {
	candidates := touching(records, id)
	m := Match{Cover: id.Window}
	for _, r := range candidates {
		m.Cover = union(m.Cover, *r.Covered)
	}
	switch len(candidates) {
	case 0:
		m.Mint = true
		return m
	case 1:
		m.Effect = candidates[0].Key
		return m
	}
	for _, r := range candidates {
		if slices.Contains(inDoubt, r.State) {
			m.Unsettled = append(m.Unsettled, r.Key)
		}
	}
	if len(m.Unsettled) > 0 {
		slices.SortFunc(m.Unsettled, compareKeys)
		return m
	}
	m.Effect = slices.MinFunc(candidates, precedes).Key
	for _, r := range candidates {
		if r.Key != m.Effect {
			m.Merged = append(m.Merged, r.Key)
		}
	}
	slices.SortFunc(m.Merged, compareKeys)
	return m
}

func touching(records []*effect.Record, id *effect.Identity) []*effect.Record {
	var list []*effect.Record
	for _, r := range records {
		same := r.Identity.Stream == id.Stream && r.Identity.Key == id.Key &&
			r.Identity.EffectType == id.EffectType && r.Identity.Subject == id.Subject
		if same && r.Correction == nil && r.MergedInto == nil && r.Covered != nil && intersects(*r.Covered, id.Window) {
			list = append(list, r)
		}
	}
	return list
}

// precedes orders effects by who stands: those that ran, by when they could first have
// been sent; those never sent, by start; those that were rejected.
func precedes(a, b *effect.Record) int {
	return cmp.Or(
		cmp.Compare(rank(a), rank(b)),
		cmp.Compare(ranAt(a), ranAt(b)),
		cmp.Compare(a.Covered.Start, b.Covered.Start),
		compareKeys(a.Key, b.Key),
	)
}

func rank(r *effect.Record) int {
	switch {
	case r.Outcome == effect.Applied:
		return 0
	case NeverSent(r):
		return 1
	}
	return 2
}

func ranAt(r *effect.Record) effect.Time {
	if r.Outcome == effect.Applied {
		return r.FirstPossibleSendAt
	}
	return 0
}

func compareKeys(a, b effect.EffectKey) int { return slices.Compare(a[:], b[:]) }

package oracle

import (
	"maps"
	"slices"
	"sort"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// sessions is everything of one key: every member that was ever taken in and not
// withdrawn. What sessions there are follows from the members alone, whatever was
// published of them and whatever the engine has forgotten.
type sessions struct {
	key     string
	gap     int64
	members []*attendee // by time, source, id
	orphans []*stand    // published rows all of whose members are gone

	stirred bool               // something happened since the last look
	wake    envelope.EventTime // what waits to fire waits at least until then
}

// attendee is a member with what its session needs to know of it.
type attendee struct {
	member
	news news
	// succeeds holds the published rows whose place the session of this member takes.
	succeeds map[*stand]bool
}

// stand is a session as readers see it.
type stand struct {
	projection *projection
	members    map[string]member
	loss       news // of members that were withdrawn since
}

// session is a session as it would be if it fired now.
type session struct {
	bounds
	members  []*attendee
	news     news
	succeeds map[*stand]bool
}

func (o *Oracle) sessionsOf(key string) *sessions {
	s := o.sessions[key]
	if s == nil {
		s = &sessions{key: key, gap: int64(o.policy.Window.Gap)}
		o.sessions[key] = s
	}
	return s
}

func (s *sessions) find(m member) (at int, found bool) {
	return slices.BinarySearchFunc(s.members, m, func(a *attendee, m member) int {
		switch {
		case earlier(a.member, m):
			return -1
		case earlier(m, a.member):
			return 1
		}
		return 0
	})
}

// join takes a member in.
func (s *sessions) join(m member, n news) {
	s.stirred = true
	at, _ := s.find(m)
	s.members = slices.Insert(s.members, at, &attendee{member: m, news: n, succeeds: map[*stand]bool{}})
}

// leave takes a member out. Every part of its session has changed then, and each may be
// the one that takes over what was published of the whole.
func (s *sessions) leave(m member, n news) {
	at, found := s.find(m)
	if !found {
		return
	}
	s.stirred = true
	whole := s.around(s.members[at])
	s.members = slices.Delete(s.members, at, at+1)
	n = n.and(whole.news)
	for published := range whole.succeeds {
		if _, was := published.members[memberKey(m.source, m.id)]; was {
			published.loss = published.loss.and(n)
		}
		if len(whole.members) == 1 {
			s.orphans = append(s.orphans, published)
		}
	}
	for _, a := range whole.members {
		a.news = n
		a.succeeds = maps.Clone(whole.succeeds)
	}
}

// around answers the session that an attendee is in.
func (s *sessions) around(a *attendee) session {
	for _, x := range s.all() {
		if slices.Contains(x.members, a) {
			return x
		}
	}
	return session{}
}

// all answers the sessions by start: members whose stretches [t, t+G) overlap belong
// together; a distance of exactly G does not join.
func (s *sessions) all() (out []session) {
	for _, a := range s.members {
		own := bounds{a.time, a.time.Add(s.gap)}
		if len(out) == 0 || own.start >= out[len(out)-1].end {
			out = append(out, session{bounds: own, succeeds: map[*stand]bool{}})
		}
		x := &out[len(out)-1]
		x.end = max(x.end, own.end)
		x.members = append(x.members, a)
		x.news = x.news.and(a.news)
		maps.Copy(x.succeeds, a.succeeds)
	}
	return out
}

// group is what is published together: projections that go, and the one that comes.
type group struct {
	projection *projection // that comes, or the one that goes by itself
	members    map[string]member
	gone       []*stand // by start
	why        why
	alone      bool // nothing comes
}

// fireSessions publishes the changed sessions whose end the watermark has reached, and
// retracts those that lost a member. before is W before the mark. After a REOPEN, key is
// the one that it changed, and only what it changed is published.
func (o *Oracle) fireSessions(before envelope.EventTime, reopened *string) {
	var groups []group
	for key, s := range o.sessions {
		if reopened == nil && (s.stirred || o.clock.w >= s.wake) || reopened != nil && *reopened == key {
			groups = append(groups, s.due(o, before, reopened != nil)...)
		}
	}
	sort.SliceStable(groups, func(i, j int) bool {
		a, b := groups[i].projection, groups[j].projection
		if a.bounds != b.bounds {
			return a.before(b.bounds)
		}
		if a.key != b.key {
			return a.key < b.key
		}
		return groups[i].alone && !groups[j].alone
	})
	for i := range groups {
		o.publishGroup(&groups[i])
	}
}

// due lays out the groups of one key and takes them as published.
func (s *sessions) due(o *Oracle, before envelope.EventTime, reopened bool) (groups []group) {
	all := s.all()
	sort.SliceStable(all, func(i, j int) bool { return all[i].before(all[j].bounds) })
	s.stirred, s.wake = reopened, envelope.MaxEventTime
	taken := map[*stand]bool{}
	for _, x := range all {
		if !x.news.any {
			continue
		}
		if o.clock.w < x.end || reopened && !x.news.reopened {
			s.wake = min(s.wake, x.end)
			continue
		}
		p := o.projection(s.key, x.bounds)
		g := group{projection: p, members: map[string]member{}}
		successor := p.revision > 0
		for old := range x.succeeds {
			if taken[old] {
				continue
			}
			successor, taken[old] = true, true
			if old.projection != p {
				g.gone = append(g.gone, old)
			}
		}
		sort.Slice(g.gone, func(i, j int) bool { return g.gone[i].projection.start < g.gone[j].projection.start })
		g.why = x.news.reason(before < x.end && !successor, successor)
		if reopened {
			g.why = repaired()
		}
		now := &stand{projection: p, members: g.members}
		for _, a := range x.members {
			g.members[memberKey(a.source, a.id)] = a.member
			a.news, a.succeeds = news{}, map[*stand]bool{now: true}
		}
		groups = append(groups, g)
	}
	groups = append(groups, s.losses(taken, reopened)...)
	for _, a := range s.members {
		for old := range a.succeeds {
			if taken[old] {
				delete(a.succeeds, old)
			}
		}
	}
	s.orphans = slices.DeleteFunc(s.orphans, func(old *stand) bool { return taken[old] })
	return groups
}

// losses answers the rows that lost a member and that no successor takes over now.
func (s *sessions) losses(taken map[*stand]bool, reopened bool) (groups []group) {
	standing := map[*stand]bool{}
	for _, old := range s.orphans {
		standing[old] = true
	}
	for _, a := range s.members {
		maps.Copy(standing, a.succeeds)
	}
	for old := range standing {
		if taken[old] || !old.loss.any || reopened && !old.loss.reopened {
			continue
		}
		taken[old] = true
		g := group{projection: old.projection, alone: true, why: why{revision.Corrected, revision.FiringLate, revision.CauseRetraction, old.loss.origin}}
		if reopened {
			g.why = repaired()
		}
		groups = append(groups, g)
	}
	return groups
}

// publishGroup publishes what goes and what comes: more than 400 (fewer where 400 would
// not fit one message) in a chain of merges from left to right, each whole by itself.
func (o *Oracle) publishGroup(g *group) {
	if g.alone {
		o.retractRow(g.projection, g.why, "")
		return
	}
	most := o.policy.MergeLimit()
	for len(g.gone) > most {
		first, last := g.gone[0].projection, g.gone[most-1].projection
		merged := &stand{projection: o.projection(first.key, bounds{first.start, last.end}), members: map[string]member{}}
		for _, old := range g.gone[:most] {
			for name, m := range old.members {
				if _, in := o.sessionsOf(first.key).find(m); in { // not withdrawn since
					merged.members[name] = m
				}
			}
		}
		o.supersede(g.gone[:most], merged, g.why)
		g.gone = append([]*stand{merged}, g.gone[most:]...)
	}
	o.supersede(g.gone, &stand{projection: g.projection, members: g.members}, g.why)
}

// supersede retracts gone and publishes the one that takes their place.
func (o *Oracle) supersede(gone []*stand, comes *stand, w why) {
	var names []revision.Supersession
	by := o.projectionID(comes.projection.key, comes.projection.bounds)
	for _, old := range gone {
		o.retractRow(old.projection, w, by)
		names = append(names, revision.Supersession{ProjectionID: old.projection.row.ProjectionID, Revision: old.projection.revision})
	}
	o.upsert(comes.projection, comes.members, w, names)
}

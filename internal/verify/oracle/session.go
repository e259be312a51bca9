package oracle

import (
	"container/heap"
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

	touched []envelope.EventTime // where something changed that is not published yet
	losses  []*stand             // published rows that lost a member
	wake    envelope.EventTime   // when to look again
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
	gone       bool // retracted, or published anew
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
	at, _ := s.find(m)
	s.members = slices.Insert(s.members, at, &attendee{member: m, news: n, succeeds: map[*stand]bool{}})
	s.touched = append(s.touched, m.time)
}

// leave takes a member out. Every part of its session has changed then, and each may be
// the one that takes over what was published of the whole.
func (s *sessions) leave(m member, n news) {
	at, found := s.find(m)
	if !found {
		return
	}
	whole, _ := s.around(at)
	s.members = slices.Delete(s.members, at, at+1)
	n = n.and(whole.news)
	for published := range whole.succeeds {
		if _, was := published.members[memberKey(m.source, m.id)]; was {
			published.loss = published.loss.and(n)
			s.losses = append(s.losses, published)
		}
	}
	for _, a := range whole.members {
		a.news = n
		a.succeeds = maps.Clone(whole.succeeds)
	}
	s.touched = append(s.touched, m.time)
}

// around answers the session of the member at a place, and the place of its first member.
// Members whose stretches [t, t+G) overlap belong together; a distance of exactly G does
// not join.
func (s *sessions) around(at int) (x session, first int) {
	first, last := at, at
	for first > 0 && s.reaches(first-1) {
		first--
	}
	for last+1 < len(s.members) && s.reaches(last) {
		last++
	}
	x = session{
		bounds:   bounds{s.members[first].time, s.members[last].time.Add(s.gap)},
		members:  slices.Clone(s.members[first : last+1]),
		succeeds: map[*stand]bool{},
	}
	for _, a := range x.members {
		x.news = x.news.and(a.news)
		for old := range a.succeeds {
			if !old.gone {
				x.succeeds[old] = true
			}
		}
	}
	return x, first
}

// reaches tells whether a member and the one behind it are in one session.
func (s *sessions) reaches(at int) bool { return s.members[at].time.Add(s.gap) > s.members[at+1].time }

// changed answers the sessions in which something changed, by (end, start): at the places
// that were touched, and on both sides of where a member left.
func (s *sessions) changed() (out []session) {
	seen := map[int]bool{}
	for _, t := range s.touched {
		at := sort.Search(len(s.members), func(i int) bool { return s.members[i].time >= t })
		for _, near := range []int{at - 1, at} {
			if near < 0 || near >= len(s.members) {
				continue
			}
			if x, first := s.around(near); !seen[first] && x.news.any {
				seen[first] = true
				out = append(out, x)
			}
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].before(out[j].bounds) })
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
	for _, key := range o.toLookAt(reopened) {
		groups = append(groups, o.sessions[key].due(o, before, reopened != nil)...)
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

// toLookAt answers the keys of which something may be due.
func (o *Oracle) toLookAt(reopened *string) (keys []string) {
	if reopened != nil {
		if o.sessions[*reopened] != nil {
			keys = append(keys, *reopened)
		}
		return keys
	}
	look := o.stirred
	o.stirred = map[string]bool{}
	for len(o.alarms) > 0 && o.alarms[0].at <= o.clock.w {
		a := heap.Pop(&o.alarms).(alarm)
		if o.sessions[a.key].wake == a.at {
			look[a.key] = true
		}
	}
	return slices.Sorted(maps.Keys(look))
}

// due lays out the groups of one key and takes them as published.
func (s *sessions) due(o *Oracle, before envelope.EventTime, reopened bool) (groups []group) {
	all := s.changed()
	s.touched, s.wake = nil, envelope.MaxEventTime
	for _, x := range all {
		if o.clock.w < x.end || reopened && !x.news.reopened {
			s.touched = append(s.touched, x.start)
			s.wake = min(s.wake, x.end)
			continue
		}
		groups = append(groups, s.take(o, x, before, reopened))
	}
	var left []*stand
	for _, old := range s.losses {
		switch {
		case old.gone:
		case reopened && !old.loss.reopened:
			left = append(left, old)
			s.wake = envelope.MinEventTime
		default:
			old.gone = true
			groups = append(groups, s.lose(old, reopened))
		}
	}
	s.losses = left
	if s.wake < envelope.MaxEventTime {
		heap.Push(&o.alarms, alarm{s.wake, s.key})
	}
	return groups
}

// take answers the group that publishes a session.
func (s *sessions) take(o *Oracle, x session, before envelope.EventTime, reopened bool) group {
	p := o.projection(s.key, x.bounds)
	g := group{projection: p, members: map[string]member{}}
	successor := p.revision > 0
	for old := range x.succeeds {
		if old.gone { // another part of the same whole was first
			continue
		}
		successor, old.gone = true, true
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
	return g
}

// lose answers the group that retracts a row which no successor takes over now.
func (s *sessions) lose(old *stand, reopened bool) group {
	g := group{projection: old.projection, alone: true, why: why{revision.Corrected, revision.FiringLate, revision.CauseRetraction, old.loss.origin}}
	if reopened {
		g.why = repaired()
	}
	return g
}

// alarm is when to look at a key again.
type alarm struct {
	at  envelope.EventTime
	key string
}

// alarms are a heap, the earliest first.
type alarms []alarm

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].at < a[j].at }
func (a alarms) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *alarms) Push(x any)        { *a = append(*a, x.(alarm)) }

func (a *alarms) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
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

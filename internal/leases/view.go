package leases

import (
	"encoding/json"
	"time"
)

// member is another process as we see it. Times are on our own monotonic clock, from
// when the holder was made.
type member struct {
	entry    memberEntry
	wants    wants
	revision uint64
	since    time.Duration // its session was seen first
	changed  time.Duration // its heartbeat moved last
	settled  bool          // was there before we looked, or long enough since
}

// holding is one unit's lease as the bucket shows it.
type holding struct {
	entry    leaseEntry
	revision uint64
	held     bool          // false: given back
	free     bool          // nobody alive is behind it
	freeAt   time.Duration // when that was found
	orphanAt time.Duration // when it was found that it is in our name and nothing stands behind it
}

// view is the bucket as one process sees it. It does no I/O and has no clock: every
// method that needs the time is given it.
type view struct {
	ttl      time.Duration
	instance string
	session  string

	synced     bool // everything that was there at the start was seen
	members    map[string]*member
	leases     map[string]*holding
	own        uint64        // revision of our member entry
	superior   bool          // another process runs under our instance
	superiorAt time.Duration // when it was seen last

	begun bool          // our heartbeat was seen at least once
	first time.Duration // when
	echo  time.Duration // when last
}

func newView(ttl time.Duration, instance, session string) *view {
	return &view{ttl: ttl, instance: instance, session: session, members: map[string]*member{}, leases: map[string]*holding{}}
}

// memberSeen takes in a member entry; nil data means that it is gone.
func (v *view) memberSeen(instance string, data []byte, revision uint64, now time.Duration) {
	if instance == v.instance {
		v.ownSeen(data, revision, now)
		return
	}
	m := v.members[instance]
	if m != nil && revision <= m.revision {
		return // shown again by a watch that began anew
	}
	var e memberEntry
	if data == nil || json.Unmarshal(data, &e) != nil {
		delete(v.members, instance)
		return
	}
	// One that comes back after a silence is as fresh as one that starts.
	if m == nil || m.entry.Session != e.Session || v.silent(m) {
		m = &member{since: now, settled: !v.synced}
		v.members[instance] = m
	}
	if m.entry.Wants != e.Wants {
		m.wants = decodeWants(e.Wants)
	}
	m.entry, m.revision, m.changed = e, revision, now
}

// ownSeen takes in our own heartbeat. When it comes after a gap, we were blind in
// between: everybody's silence begins anew.
func (v *view) ownSeen(data []byte, revision uint64, now time.Duration) {
	if revision < v.own {
		return
	}
	v.own = revision
	var e memberEntry
	if data == nil || json.Unmarshal(data, &e) != nil || e.Session != v.session {
		v.superior, v.superiorAt = v.begun && data != nil, now
		return
	}
	v.superior = false
	if !v.begun {
		v.begun, v.first = true, now
	} else if now-v.echo >= v.ttl {
		for _, m := range v.members {
			m.changed = now
		}
	}
	v.echo = now
	for _, m := range v.members {
		m.settled = m.settled || v.echo-m.since >= v.ttl
	}
}

// leaseSeen takes in a lease entry; nil data means that it was given back.
func (v *view) leaseSeen(key string, data []byte, revision uint64) {
	l := v.leases[key]
	if l == nil {
		l = &holding{}
		v.leases[key] = l
	}
	if revision <= l.revision {
		return
	}
	l.revision, l.free = revision, false
	l.entry = leaseEntry{}
	l.held = data != nil && json.Unmarshal(data, &l.entry) == nil
}

// silent tells whether a member's heartbeat stood still for a ttl that we did see.
func (v *view) silent(m *member) bool { return v.echo-m.changed >= v.ttl }

// behind tells whether somebody alive is behind a lease.
func (v *view) behind(l *holding) bool {
	switch {
	case !l.held:
		return false
	case l.entry.Instance == v.instance:
		return l.entry.Session == v.session
	}
	m := v.members[l.entry.Instance]
	if m == nil {
		return false
	}
	if m.entry.Session != l.entry.Session {
		return v.echo-m.since < v.ttl // its process started again and takes it back at once, or does not
	}
	return !v.silent(m)
}

// freeFor answers for how long a unit was found without an owner; ok is false while it has one.
func (v *view) freeFor(key string, now time.Duration) (d time.Duration, ok bool) {
	l := v.leases[key]
	if l == nil {
		l = &holding{}
		v.leases[key] = l
	}
	if v.behind(l) {
		l.free = false
		return 0, false
	}
	if !l.free {
		l.free, l.freeAt = true, now
	}
	return now - l.freeAt, true
}

// alone tells whether no other process seems alive.
func (v *view) alone() bool {
	for _, m := range v.members {
		if !v.silent(m) {
			return false
		}
	}
	return true
}

// established tells whether we count ourselves: long enough here, or alone.
func (v *view) established() bool { return v.begun && v.echo-v.first >= v.ttl || v.alone() }

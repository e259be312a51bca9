package window

import (
	"slices"

	"github.com/tidemark-mesh/tidemark/internal/core/aggregate"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// sessions holds everything of a policy with session windows: per key the sessions that
// are held, what was published of them, and the numbers of bounds that were retracted.
//
// An event at t covers [t, t+G). Events whose stretches overlap are one session; a
// distance of exactly G does not join. A session keeps its members until
// W >= end + L + G: an accepted event at t has W < t+G+L and touches [s, e) only if
// t < e, so every session that it can touch is still held.
//
// What was published hangs on the sessions that succeed it (see publishedRow): a row stays
// current until the first of them fires, and goes in the same group.
type sessions struct {
	o          *Operator
	generation string
	gap        int64 // G, microseconds
	keep       int64 // L + G
	limit      int   // rows that one group retracts

	// Results are folded over the members when a session fires, so nothing is ever taken
	// out of a cell: the program is that of a stream without retractions.
	program []aggregate.Compiled
	args    []sessionArg // the distinct values that results take
	slots   []int        // per result: place in args, or -1
	sources []string     // of the policy, sorted: members hold places in it
	source  int          // place of the one that was looked for last

	table []session
	free  []uint32
	live  int
	keys  []sessionKey // by key number
	tails []sessionTail
	rows  []publishedRow
	spare []uint32 // rows to use again
	store blobs    // members and published values

	timers  timers   // sessions by when something is due
	stirred []uint32 // sessions that changed behind their own end
	lost    []uint32 // rows that lost a member
	finals  fifo     // sessions that are kept for the reconciler
	graves  timers   // keys by when a retracted row of theirs is final
	forgets fifo     // keys with retracted rows that are kept for the reconciler
	open    openHeap // sessions that wait to fire, by start
	plan    sessionPlan
	changed []uint32 // keys whose pair a Delta writes
	touched []uint32 // sessions whose pair a Delta writes, or deletes
	moved   []uint32 // slots whose pairs a Delta deletes: a restore numbered them anew
	scratch sessionScratch
}

// session is one session of one key: flat, without pointers but for successions.
type session struct {
	start, end envelope.EventTime
	opened     envelope.EventTime // start that stands for it in sessions.open
	members    blob               // see session_member.go; in no order
	due        int64              // bucket of its timer
	key        uint32
	count      uint32 // members
	flags      uint8
	origin     uint8    // least live of the events since it fired
	final      int64    // ingestNow of the mark that made it final; noFinal before
	rows       []uint32 // published rows whose place it takes
}

// Flags of a session.
const (
	sessionHeld     = 1 << iota // the slot is taken
	sessionDirty                // what it holds was not published yet
	sessionAsserted             // an event went in since it fired
	sessionReopened             // a REOPEN changed it since it fired
	sessionChanged              // stands in sessions.touched
	sessionStored               // a Delta wrote it
	sessionPlanned              // fires in the mark at hand
	sessionUnseen               // changed since it was shown as a preview
)

const noFinal = -1 << 63

// sessionKey is what is held of one key.
type sessionKey struct {
	list     []uint32 // sessions, by start; they do not overlap
	orphans  []uint32 // rows that lost all members and wait to be retracted
	graves   []grave  // by (start, end)
	number   uint32   // of the last row, to tell members which row holds them
	changed  bool     // stands in sessions.changed
	stored   bool     // a Delta wrote its pair
	retained bool     // holds a reference to the key
}

// sessionTail is where the last session of a key is, by key number: most events belong
// there, and what is looked at for each of them is small.
type sessionTail struct {
	start, end envelope.EventTime
	ref        uint32
	known      bool
}

// takes tells whether an event at t touches the last session, and so no other.
func (t *sessionTail) takes(at envelope.EventTime) bool {
	return t.known && t.start <= at && at < t.end
}

func (k *sessionKey) empty() bool {
	return len(k.list) == 0 && len(k.orphans) == 0 && len(k.graves) == 0
}

// newSessions answers the empty state of a policy with session windows.
func newSessions(o *Operator) (*sessions, error) {
	p := o.cfg.Policy
	stream := *o.cfg.Stream
	stream.Retractions = false
	program, err := aggregate.Compile(&stream, p)
	if err != nil {
		return nil, err
	}
	s := &sessions{
		o: o, generation: p.PolicyGeneration(), gap: int64(p.Window.Gap), limit: p.MergeLimit(), program: program,
		keep: int64(envelope.EventTime(p.AllowedLateness).Add(int64(p.Window.Gap))),
	}
	width := max(s.gap/64, 1000)
	s.plan.opened = envelope.MaxEventTime
	s.timers, s.graves = newTimers(width), newTimers(max(s.keep/1024, width))
	s.setArgs(stream.Values)
	for _, ref := range p.Sources {
		s.sources = append(s.sources, ref.Name)
	}
	slices.Sort(s.sources)
	return s, nil
}

// sessionArg is one declared value that members keep.
type sessionArg struct {
	name string
	text bool
	at   int // place in the open frame's values, or -1
}

// setArgs finds the values that members must keep: each once, however many results take it.
func (s *sessions) setArgs(values []policy.ValueSpec) {
	for i := range s.program {
		slot := -1
		if of := s.program[i].Value; of >= 0 {
			name := s.program[i].Arg
			slot = slices.IndexFunc(s.args, func(a sessionArg) bool { return a.name == name })
			if slot < 0 {
				slot = len(s.args)
				s.args = append(s.args, sessionArg{name: name, text: values[of].Type == policy.String, at: -1})
			}
		}
		s.slots = append(s.slots, slot)
	}
}

// view finds the values in the header of the open frame.
func (s *sessions) view(values []string) {
	for i := range s.args {
		s.args[i].at = slices.Index(values, s.args[i].name)
	}
}

// keyOf answers what is held of a key number, which must be retained by the caller's
// session or grave soon.
func (s *sessions) keyOf(n uint32) *sessionKey {
	if grow := int(n) + 1 - len(s.keys); grow > 0 {
		s.keys = append(s.keys, make([]sessionKey, grow)...)
		s.tails = append(s.tails, make([]sessionTail, grow)...)
	}
	return &s.keys[n]
}

// retain takes the key's reference when something of it is held now.
func (s *sessions) retain(n uint32) *sessionKey {
	k := s.keyOf(n)
	if !k.retained {
		k.retained = true
		s.o.keys.retain(n)
	}
	return k
}

// settleKey gives the key back when nothing of it is held any more.
func (s *sessions) settleKey(n uint32) {
	k := &s.keys[n]
	if !k.retained || !k.empty() {
		return
	}
	s.touchKey(n)
	k.retained, k.number = false, 0
	s.o.keys.release(n)
}

func (s *sessions) touchKey(n uint32) {
	if k := &s.keys[n]; !k.changed {
		k.changed = true
		s.changed = append(s.changed, n)
	}
}

func (s *sessions) touch(ref uint32) {
	if x := &s.table[ref]; x.flags&sessionChanged == 0 {
		x.flags |= sessionChanged
		s.touched = append(s.touched, ref)
	}
}

// add makes an empty session.
func (s *sessions) add(key uint32, start, end envelope.EventTime) uint32 {
	var ref uint32
	if last := len(s.free) - 1; last >= 0 {
		ref, s.free = s.free[last], s.free[:last]
	} else {
		ref = uint32(len(s.table))
		s.table = append(s.table, session{})
	}
	x := &s.table[ref]
	keep := x.flags & (sessionChanged | sessionStored)
	*x = session{start: start, end: end, key: key, final: noFinal, due: noTimer, flags: keep | sessionHeld, rows: x.rows[:0]}
	s.live++
	s.touch(ref)
	return ref
}

// drop gives a session's slot and memory back; its rows are the caller's.
func (s *sessions) drop(ref uint32) {
	s.touch(ref)
	x := &s.table[ref]
	s.store.release(&x.members)
	x.flags &= sessionChanged | sessionStored
	x.due, x.rows = noTimer, x.rows[:0]
	s.free = append(s.free, ref)
	s.live--
}

// touching answers which sessions of the list an event that covers [from, to) touches:
// those at places lo to hi-1.
func (s *sessions) touching(list []uint32, from, to envelope.EventTime) (lo, hi int) {
	hi = len(list)
	if hi > 0 && s.table[list[hi-1]].start >= to {
		hi, _ = slices.BinarySearchFunc(list, to, func(ref uint32, to envelope.EventTime) int {
			if s.table[ref].start < to {
				return -1
			}
			return 1
		})
	}
	lo = hi
	for lo > 0 && s.table[list[lo-1]].end > from {
		lo--
	}
	return lo, hi
}

package bench

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// visits expects sessions: it keeps every event, and every pair of bounds that readers
// have seen.
type visits struct {
	events  []visit
	batch   map[bounds]shown
	readers map[bounds]*seen
}

// visit is one event.
type visit struct {
	key   int
	at    envelope.EventTime
	cents int64
}

// bounds name one session of one key.
type bounds struct {
	key        int
	start, end envelope.EventTime
}

func (b bounds) compare(c bounds) int {
	return cmp.Or(cmp.Compare(b.key, c.key), cmp.Compare(b.start, c.start), cmp.Compare(b.end, c.end))
}

// seen is what readers have seen of one pair of bounds.
type seen struct {
	shown
	revision uint64
	current  bool
}

func newVisits(s Spec) *visits {
	return &visits{events: make([]visit, 0, s.Events), batch: map[bounds]shown{}, readers: map[bounds]*seen{}}
}

func (v *visits) put(ev *Event) { v.events = append(v.events, visit{ev.Key, ev.Time, ev.Cents}) }

// settle makes sessions of all events: sorted, cut where the gap is reached.
func (v *visits) settle() {
	slices.SortFunc(v.events, func(a, b visit) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.at, b.at)) })
	gap := sessionGap.Microseconds()
	for i := 0; i < len(v.events); {
		first := v.events[i]
		at, sum := bounds{first.key, first.at, first.at.Add(gap)}, shown{}
		for ; i < len(v.events) && v.events[i].key == at.key && v.events[i].at < at.end; i++ {
			at.end = v.events[i].at.Add(gap)
			sum.sum += v.events[i].cents
			sum.count++
		}
		v.batch[at] = sum
	}
	v.events = nil
}

func (v *visits) count() int { return len(v.batch) }

func (v *visits) note(key int, r *revision.Revision, now shown) error {
	at := bounds{key, r.Window.Start, r.Window.End}
	s := v.readers[at]
	if s == nil {
		s = &seen{}
		v.readers[at] = s
	}
	if r.Revision != s.revision+1 {
		return fmt.Errorf("key %q, session %s to %s: revision %d comes after revision %d", r.Key, r.Window.Start, r.Window.End, r.Revision, s.revision)
	}
	if r.Op == revision.Retract && !s.current {
		return fmt.Errorf("key %q, session %s to %s: revision %d retracts what is not current", r.Key, r.Window.Start, r.Window.End, r.Revision)
	}
	s.revision, s.shown, s.current = r.Revision, now, r.Op == revision.Upsert
	return nil
}

func (v *visits) judge(c *Check) {
	wrong := map[bounds]string{}
	for at, want := range v.batch {
		c.Checked++
		switch s := v.readers[at]; {
		case s == nil || !s.current:
			wrong[at] = fmt.Sprintf("readers see nothing, the batch has %d orders", want.count)
		case s.shown != want:
			wrong[at] = fmt.Sprintf("readers see %d orders and %d cents, the batch has %d and %d", s.count, s.sum, want.count, want.sum)
		}
	}
	for at, s := range v.readers {
		if _, had := v.batch[at]; s.current && !had {
			wrong[at] = fmt.Sprintf("readers see %d orders, the batch has no such session", s.count)
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(wrong), bounds.compare) {
		c.Fail(fmt.Sprintf("key %d, session %s to %s: %s", at.key, at.start, at.end, wrong[at]))
	}
}

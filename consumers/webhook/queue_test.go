package webhook

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever comes, fails and is sent again: of a projection one delivery flies at a time
// and none is overtaken, nothing that waits is lost, and the counts are right.
func TestQueueKeepsTheOrderOfProjections(t *testing.T) {
	for _, mode := range []string{ModeUpsert, ModeDelta} {
		t.Run(mode, func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { drive(t, mode) }) })
	}
}

func drive(t *rapid.T, mode string) {
	q, now, seq := newQueue(mode), start, uint64(0)
	var all, flying []*Delivery
	reached := map[string]uint64{}
	newest := map[string]uint64{}
	linked := uint64(0)
	t.Repeat(map[string]func(*rapid.T){
		"add": func(t *rapid.T) {
			seq++
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "projection")
			newest[name]++
			d := &Delivery{Sequence: seq, ID: fmt.Sprint(seq), ProjectionID: name, Revision: newest[name], State: StateQueued, QueuedAt: now, Due: now}
			if d.Linked = rapid.Bool().Draw(t, "linked"); d.Linked {
				if rapid.Bool().Draw(t, "group") {
					d.After = linked
				}
				linked = seq
			}
			for _, old := range q.add(d) {
				if mode == ModeDelta || old.Linked || old.ProjectionID != name {
					t.Fatalf("%+v was left out for %+v", old, d)
				}
			}
			all = append(all, d)
		},
		"launch": func(t *rapid.T) {
			d := q.next(now)
			if d == nil {
				return
			}
			for _, other := range flying {
				if other.ProjectionID == d.ProjectionID {
					t.Fatalf("%+v flies beside %+v", d, other)
				}
			}
			if before := q.open[d.After]; before != nil && !before.through() {
				t.Fatalf("%+v flies before %+v", d, before)
			}
			for _, other := range all {
				waits := other.waiting() || mode == ModeDelta && other.State == StateFailed
				if other.ProjectionID == d.ProjectionID && other.Sequence < d.Sequence && waits {
					t.Fatalf("%+v overtakes %+v", d, other)
				}
			}
			flying = append(flying, d)
		},
		"land": func(t *rapid.T) {
			if len(flying) == 0 {
				return
			}
			d := flying[0]
			flying = flying[1:]
			switch to := rapid.SampledFrom([]State{StateDelivered, StateAttempted, StateFailed}).Draw(t, "outcome"); to {
			case StateDelivered:
				reached[d.ProjectionID] = max(reached[d.ProjectionID], d.Revision)
				q.move(d, to)
				q.close(d, now)
			case StateAttempted:
				d.Failures++
				d.Due = now.Add(time.Minute)
				q.move(d, to)
			default:
				q.move(d, to)
			}
			q.landed(d)
		},
		"wait": func(*rapid.T) { now = now.Add(time.Minute) },
		"again": func(t *rapid.T) {
			if len(all) == 0 {
				return
			}
			d := rapid.SampledFrom(all).Draw(t, "delivery")
			if q.flying[d.Sequence] == nil && d.State != StateCoalesced {
				q.reopen(d, now)
			}
		},
		"": func(t *rapid.T) {
			waiting, counts := 0, map[State]int{}
			for _, d := range all {
				if d.waiting() {
					waiting++
				}
				if d.open() {
					counts[d.State]++
					if q.open[d.Sequence] != d {
						t.Fatalf("%+v is open and not in the queue", d)
					}
				}
			}
			if waiting != q.waiting {
				t.Fatalf("%d wait, the queue counts %d", waiting, q.waiting)
			}
			for _, state := range states {
				if counts[state] != q.counts[state] {
					t.Fatalf("%d %s, the queue counts %d", counts[state], state, q.counts[state])
				}
			}
		},
	})
	drain(t, q, all, flying, now)
	for name, revision := range newest {
		var last *Delivery
		for _, d := range all {
			if d.ProjectionID == name && d.State == StateDelivered && (last == nil || d.Revision > last.Revision) {
				last = d
			}
		}
		if last == nil || last.Revision != revision {
			t.Fatalf("of %s revision %d is not delivered but %+v", name, revision, last)
		}
	}
}

// drain delivers everything that is left, failed ones included.
func drain(t *rapid.T, q *queue, all, flying []*Delivery, now time.Time) {
	now = now.Add(time.Hour)
	for _, d := range flying {
		q.move(d, StateDelivered)
		q.close(d, now)
		q.landed(d)
	}
	for _, d := range all {
		if d.State == StateFailed {
			q.reopen(d, now)
		}
	}
	for d := q.next(now); d != nil; d = q.next(now) {
		q.move(d, StateDelivered)
		q.close(d, now)
		q.landed(d)
	}
	for _, d := range all {
		if d.open() {
			t.Fatalf("%+v is left", d)
		}
	}
	if len(q.lanes) != 0 || len(q.open) != 0 || len(q.flying) != 0 || q.waiting != 0 || len(q.behind) != 0 {
		t.Fatalf("left: %+v", q)
	}
}

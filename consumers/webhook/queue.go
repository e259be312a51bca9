package webhook

import (
	"container/heap"
	"slices"
	"time"
)

// queue is what is open, in memory. It belongs to the goroutine of Sender.loop.
type queue struct {
	mode    string
	open    map[uint64]*Delivery // by sequence
	lanes   map[string]*lane     // by projection; "" for generation.switched
	due     dueHeap
	behind  map[uint64][]*Delivery // wait for the delivery with that sequence
	flying  map[uint64]*Delivery   // an attempt is under way
	parked  []*Delivery            // wait until nothing flies
	waiting int                    // deliveries that wait for an attempt
	counts  map[State]int          // of what is open
	// fresh are DELIVERED and not overdue, late are overdue, each from the oldest on; what
	// has moved on is left out when it comes to the front.
	fresh, late []*Delivery
	overdue     int
}

// lane is a projection's deliveries in order: those that wait and those that failed.
type lane struct {
	line   []*Delivery
	flying *Delivery
}

func newQueue(mode string) *queue {
	return &queue{
		mode: mode, open: map[uint64]*Delivery{}, lanes: map[string]*lane{}, behind: map[uint64][]*Delivery{},
		flying: map[uint64]*Delivery{}, counts: map[State]int{},
	}
}

// restore takes in a delivery that was open when the process ended.
func (q *queue) restore(d *Delivery) {
	q.open[d.Sequence] = d
	q.counts[d.State]++
	switch {
	case d.State == StateDelivered && d.Overdue:
		q.late = append(q.late, d)
		q.overdue++
	case d.State == StateDelivered:
		q.fresh = append(q.fresh, d)
	default:
		q.line(d)
	}
}

// settle orders what restore took in by the time of delivery.
func (q *queue) settle() {
	byDelivery := func(a, b *Delivery) int { return a.DeliveredAt.Compare(b.DeliveredAt) }
	slices.SortStableFunc(q.fresh, byDelivery)
	slices.SortStableFunc(q.late, byDelivery)
}

// line puts a delivery into its lane.
func (q *queue) line(d *Delivery) {
	l := q.lanes[d.ProjectionID]
	if l == nil {
		l = &lane{}
		q.lanes[d.ProjectionID] = l
	}
	at := len(l.line)
	for at > 0 && l.line[at-1].Sequence > d.Sequence {
		at--
	}
	l.line = slices.Insert(l.line, at, d)
	if d.waiting() {
		q.waiting++
	}
	if q.head(l) == d {
		q.offer(l)
	}
}

// unline takes a delivery out of its lane.
func (q *queue) unline(d *Delivery, was State) {
	l := q.lanes[d.ProjectionID]
	if l == nil {
		return
	}
	at := slices.Index(l.line, d)
	if at < 0 {
		return
	}
	if at == 0 {
		l.line = l.line[1:]
	} else {
		l.line = slices.Delete(l.line, at, at+1)
	}
	if was == StateQueued || was == StateAttempted {
		q.waiting--
	}
	q.offer(l)
	if len(l.line) == 0 && l.flying == nil {
		delete(q.lanes, d.ProjectionID)
	}
}

// head answers the delivery of a lane that goes next, nil where none may.
func (q *queue) head(l *lane) *Delivery {
	for _, d := range l.line {
		if d.waiting() {
			return d
		}
		if q.mode == ModeDelta {
			return nil // a failed one stands in the way of all behind it
		}
	}
	return nil
}

// offer makes the head of a lane a candidate at its time.
func (q *queue) offer(l *lane) {
	if l.flying != nil {
		return
	}
	if d := q.head(l); d != nil {
		heap.Push(&q.due, dueItem{d.Due, d})
	}
}

// add takes in a new delivery. It answers those that it takes the place of.
func (q *queue) add(d *Delivery) (coalesced []*Delivery) {
	if l := q.lanes[d.ProjectionID]; l != nil && q.mode == ModeUpsert && !d.barrier() {
		for at := len(l.line) - 1; at >= 0; at-- {
			old := l.line[at]
			if old.Linked || old == l.flying {
				break
			}
			coalesced = append(coalesced, old)
		}
	}
	for _, old := range coalesced {
		if old.Failures > d.Failures && old.waiting() { // the receiver's troubles are not over because there is news
			d.Failures, d.Due = old.Failures, old.Due
		}
		q.move(old, StateCoalesced)
		q.close(old, d.QueuedAt)
	}
	q.open[d.Sequence] = d
	q.counts[d.State]++
	q.line(d)
	return coalesced
}

// move changes the state of a delivery and all that follows from it.
func (q *queue) move(d *Delivery, to State) {
	was, wasThrough := d.State, d.through()
	d.State = to
	if d.open() {
		q.counts[was]--
		q.counts[to]++
	}
	l := q.lanes[d.ProjectionID]
	lined := l != nil && slices.Contains(l.line, d)
	switch {
	case d.through() && lined:
		q.unline(d, was)
	case !d.through() && !lined:
		q.line(d)
	case lined && (was == StateFailed) != (to == StateFailed):
		if to == StateFailed {
			q.waiting--
		} else {
			q.waiting++
		}
		q.offer(l)
	case lined:
		q.offer(l)
	}
	if to == StateDelivered {
		q.fresh = append(q.fresh, d)
	} else if d.Overdue {
		d.Overdue = false
		q.overdue--
	}
	if d.through() && !wasThrough {
		for _, next := range q.behind[d.Sequence] {
			heap.Push(&q.due, dueItem{next.Due, next})
		}
		delete(q.behind, d.Sequence)
	}
}

// close ends a delivery.
func (q *queue) close(d *Delivery, now time.Time) {
	if !d.open() {
		return
	}
	d.ClosedAt = now
	q.counts[d.State]--
	delete(q.open, d.Sequence)
}

// reopen takes a delivery up again: it waits for an attempt at now.
func (q *queue) reopen(d *Delivery, now time.Time) {
	if !d.open() {
		d.ClosedAt = time.Time{}
		q.open[d.Sequence] = d
		q.counts[d.State]++
	}
	same := func(other *Delivery) bool { return other == d }
	q.fresh, q.late = slices.DeleteFunc(q.fresh, same), slices.DeleteFunc(q.late, same)
	d.Failures, d.Due, d.Problem = 0, now, ""
	q.move(d, StateQueued)
}

// next answers a delivery whose attempt is due, and counts it as flying.
func (q *queue) next(now time.Time) *Delivery {
	for q.due.Len() > 0 && !q.due[0].at.After(now) {
		d := heap.Pop(&q.due).(dueItem).d
		l := q.lanes[d.ProjectionID]
		if l == nil || l.flying != nil || q.head(l) != d || d.Due.After(now) {
			continue // an entry that was overtaken; its lane has been offered again
		}
		if before := q.open[d.After]; before != nil && !before.through() {
			q.behind[d.After] = append(q.behind[d.After], d)
			continue
		}
		if d.barrier() && len(q.flying) > 0 {
			q.parked = append(q.parked, d)
			continue
		}
		l.flying = d
		q.flying[d.Sequence] = d
		return d
	}
	return nil
}

// landed ends the flight of a delivery.
func (q *queue) landed(d *Delivery) {
	delete(q.flying, d.Sequence)
	if l := q.lanes[d.ProjectionID]; l != nil {
		l.flying = nil
		q.offer(l)
		if len(l.line) == 0 {
			delete(q.lanes, d.ProjectionID)
		}
	}
	if len(q.flying) == 0 {
		for _, p := range q.parked {
			heap.Push(&q.due, dueItem{p.Due, p})
		}
		q.parked = nil
	}
}

// nextDue answers when the next attempt may be due.
func (q *queue) nextDue() (time.Time, bool) {
	if q.due.Len() == 0 {
		return time.Time{}, false
	}
	return q.due[0].at, true
}

// oldestFresh answers the delivery that is DELIVERED longest without being overdue, nil
// where there is none.
func (q *queue) oldestFresh() *Delivery {
	q.fresh = current(q.fresh, false)
	if len(q.fresh) == 0 {
		return nil
	}
	return q.fresh[0]
}

// oldestUnapplied answers the delivery that is DELIVERED longest, nil where there is none.
func (q *queue) oldestUnapplied() *Delivery {
	q.late = current(q.late, true)
	if len(q.late) > 0 {
		return q.late[0]
	}
	return q.oldestFresh()
}

// outgrow makes the oldest fresh delivery overdue.
func (q *queue) outgrow(d *Delivery) {
	d.Overdue = true
	q.overdue++
	q.fresh = q.fresh[1:]
	q.late = append(q.late, d)
}

// current leaves out what has moved on at the front of a list.
func current(list []*Delivery, overdue bool) []*Delivery {
	for len(list) > 0 && (list[0].State != StateDelivered || !list[0].open() || list[0].Overdue != overdue) {
		list = list[1:]
	}
	return list
}

// dueHeap orders candidates by time, then by the order of the feed. It may hold entries
// that were overtaken.
type dueHeap []dueItem

type dueItem struct {
	at time.Time
	d  *Delivery
}

func (h dueHeap) Len() int { return len(h) }
func (h dueHeap) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].d.Sequence < h[j].d.Sequence
}
func (h dueHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)   { *h = append(*h, x.(dueItem)) }

func (h *dueHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = dueItem{}
	*h = old[:len(old)-1]
	return last
}

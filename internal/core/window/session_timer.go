package window

import (
	"math"
	"slices"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// timers answers what is due at a watermark. Entries stand in buckets of time and are
// looked at when the watermark reaches their bucket; one that is out of date is for the
// caller to know. Nothing of the order in a bucket may show in outputs.
type timers struct {
	width   int64 // of a bucket, microseconds
	buckets map[int64][]uint32
	order   []int64 // numbers of buckets that are not empty
}

// noTimer is no bucket's number; stirredTimer stands for sessions.stirred.
const (
	noTimer      = math.MinInt64
	stirredTimer = math.MinInt64 + 1
)

func newTimers(width int64) timers {
	return timers{width: width, buckets: make(map[int64][]uint32)}
}

func (t *timers) bucket(at envelope.EventTime) int64 { return floorDiv(int64(at), t.width) }

// add enters n into the bucket of a time and answers its number.
func (t *timers) add(at envelope.EventTime, n uint32) int64 {
	number := t.bucket(at)
	list, ok := t.buckets[number]
	if !ok {
		place, _ := slices.BinarySearch(t.order, number)
		t.order = slices.Insert(t.order, place, number)
	}
	t.buckets[number] = append(list, n)
	return number
}

// reach hands out every entry of the buckets that begin at w or before. Those for which
// take answers true are done; the others stay.
func (t *timers) reach(w envelope.EventTime, take func(bucket int64, n uint32) bool) {
	last, n := t.bucket(w), 0
	for n < len(t.order) && t.order[n] <= last {
		n++
	}
	if n == 0 {
		return
	}
	numbers := slices.Clone(t.order[:n])
	t.order = slices.Delete(t.order, 0, n)
	for _, number := range numbers {
		list := t.buckets[number]
		delete(t.buckets, number) // take may add to it again
		stay := list[:0]
		for _, n := range list {
			if !take(number, n) {
				stay = append(stay, n)
			}
		}
		if len(stay) == 0 {
			continue
		}
		if _, ok := t.buckets[number]; !ok {
			place, _ := slices.BinarySearch(t.order, number)
			t.order = slices.Insert(t.order, place, number)
		}
		t.buckets[number] = append(t.buckets[number], stay...)
	}
}

// fifo holds what is due at rising times of ingestNow.
type fifo struct {
	list []fifoEntry
	done int // entries before it are taken
}

type fifoEntry struct {
	at int64
	n  uint32
}

func (f *fifo) add(at int64, n uint32) { f.list = append(f.list, fifoEntry{at, n}) }

// next takes the first entry whose grace is over.
func (f *fifo) next(now envelope.IngestTime) (e fifoEntry, ok bool) {
	if f.done == len(f.list) || !graceOver(envelope.IngestTime(f.list[f.done].at), now) {
		return e, false
	}
	e = f.list[f.done]
	f.done++
	if f.done > 1024 && 2*f.done > len(f.list) {
		f.list, f.done = slices.Delete(f.list, 0, f.done), 0
	}
	return e, true
}

// openHeap answers the least start of the sessions that wait to fire. Entries may be out
// of date: they are passed over when they come up.
type openHeap struct{ list []openEntry }

type openEntry struct {
	start envelope.EventTime
	ref   uint32
}

func (h *openHeap) add(start envelope.EventTime, ref uint32) {
	h.list = append(h.list, openEntry{start, ref})
	for at := len(h.list) - 1; at > 0; {
		up := (at - 1) / 2
		if h.list[up].start <= start {
			break
		}
		h.list[at], h.list[up] = h.list[up], h.list[at]
		at = up
	}
}

func (h *openHeap) pop() {
	last := len(h.list) - 1
	h.list[0] = h.list[last]
	h.list = h.list[:last]
	for at := 0; ; {
		down := 2*at + 1
		if down >= last {
			return
		}
		if down+1 < last && h.list[down+1].start < h.list[down].start {
			down++
		}
		if h.list[at].start <= h.list[down].start {
			return
		}
		h.list[at], h.list[down] = h.list[down], h.list[at]
		at = down
	}
}

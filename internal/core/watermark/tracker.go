// Package watermark answers how far event time has come for one policy, as a pure
// function of the marks in one events journal (design: "Watermark").
//
// A Tracker reads no clock: silence and quiet time are measured in what the marks say.
package watermark

import (
	"math"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// silentAfter is how far another source partition's own ingestNow may move, within one
// epoch, before a source partition that did not mark counts as silent: in microseconds.
const silentAfter = 30_000_000

// Tracker holds what the marks said of every source partition of a policy.
// It is not safe for concurrent use.
type Tracker struct {
	outOfOrderness int64 // D, microseconds
	idleAfter      int64 // T, microseconds; 0 = idleness is off
	advanceIdle    bool  // all idle: advance instead of hold

	first map[string]int // source to the place of its partition 0 in parts
	parts []part         // in policy order
	// bases holds for the pair (p, q), at p*len(parts)+q, where q's ingestNow stood when
	// p marked last; it starts anew when q gets a new epoch.
	bases []base

	w, data envelope.EventTime
}

// part is one source partition of the policy.
type part struct {
	source string
	number uint32
	count  uint32 // partitions of the source, to check numbers against

	epoch, generation uint64 // the highest seen in any mark
	offset            uint64
	maxEventTime      envelope.EventTime
	quietForMs        uint64
	ingestNow         int64
	heard             uint64 // epoch of the last mark that counts

	marked   bool // has at least one mark that counts
	idle     bool // by its last mark
	silent   bool // latched until it marks again
	excluded bool // was idle, and has not caught up with W since
	finished bool // for good
}

// base is where the other partition's ingestNow stood.
type base struct {
	now int64
	set bool
}

// New answers a Tracker that has seen no mark: W and Wdata are at minus infinity.
func New(p *policy.StreamTimePolicy) *Tracker {
	t := &Tracker{
		outOfOrderness: int64(p.OutOfOrderness),
		idleAfter:      int64(p.IdleAfter),
		advanceIdle:    p.AllIdle == policy.Advance,
		first:          make(map[string]int, len(p.Sources)),
		w:              envelope.MinEventTime,
		data:           envelope.MinEventTime,
	}
	for _, s := range p.Sources {
		t.first[s.Name] = len(t.parts)
		for n := range s.Partitions {
			t.parts = append(t.parts, part{
				source: s.Name, number: uint32(n), count: uint32(s.Partitions),
				maxEventTime: envelope.MinEventTime,
			})
		}
	}
	t.bases = make([]base, len(t.parts)*len(t.parts))
	return t
}

// W answers the watermark: no further event with a time below it is expected.
func (t *Tracker) W() envelope.EventTime { return t.w }

// Data answers Wdata: the monotone minimum of W_p over all unfinished source partitions.
func (t *Tracker) Data() envelope.EventTime { return t.data }

// Take takes in one mark and answers whether it counts: marks of other sources, of
// partitions outside the policy, of finished ones and of an epoch or generation lower
// than one seen are ignored. extractor is the place of the policy's extractor in m.MaxEventTime; a mark
// without it (negative, or beyond the list) is ignored, but its epoch was seen.
func (t *Tracker) Take(m *envelope.Mark, extractor int) bool {
	at := t.find(m.Source, m.Partition)
	if at < 0 {
		return false
	}
	p := &t.parts[at]
	if p.finished || m.Epoch < p.epoch || m.Epoch == p.epoch && m.Generation < p.generation {
		return false
	}
	p.epoch, p.generation = m.Epoch, m.Generation
	if extractor < 0 || extractor >= len(m.MaxEventTime) {
		return false
	}
	t.hear(at, m)
	t.judge(p, m, m.MaxEventTime[extractor])
	t.rise()
	return true
}

// find answers the place of a source partition in parts, or -1.
func (t *Tracker) find(source string, number uint32) int {
	first, ok := t.first[source]
	if !ok || first >= len(t.parts) || number >= t.parts[first].count {
		return -1
	}
	return first + int(number)
}

// hear moves the pair bases for a mark of the partition at place at: it is silent no
// more, and the others are silent if its own clock moved too far since their last mark.
func (t *Tracker) hear(at int, m *envelope.Mark) {
	p, now, n := &t.parts[at], int64(m.IngestNow), len(t.parts)
	restart := !p.marked || p.heard != m.Epoch
	for other := range t.parts {
		if other == at {
			continue
		}
		b := &t.bases[other*n+at]
		if restart || !b.set {
			*b = base{now: now, set: true}
		} else if o := &t.parts[other]; o.marked && !o.finished && saturatingSub(now, b.now) > silentAfter {
			o.silent = true
		}
		mine := &t.bases[at*n+other]
		*mine = base{now: t.parts[other].ingestNow, set: t.parts[other].marked}
	}
	p.ingestNow, p.heard, p.silent, p.marked = now, m.Epoch, false, true
}

// judge sets what the mark says of its own partition. A new owner may resume from a
// checkpoint a second old: the maximum reached before stays a fact. One that resumes
// from idle stays excluded until its own watermark has reached W.
func (t *Tracker) judge(p *part, m *envelope.Mark, highest envelope.EventTime) {
	p.offset, p.quietForMs, p.finished = m.Offset, m.QuietForMs, m.Finished
	p.maxEventTime = max(p.maxEventTime, highest)
	p.idle = t.idleAfter > 0 && m.Pending == 0 && m.InFlight == 0 && !m.Paused &&
		micros(m.QuietForMs) >= t.idleAfter
	switch {
	case p.idle:
		p.excluded = true
	case p.excluded && t.own(p) >= t.w:
		p.excluded = false
	}
}

// own answers W_p, the watermark of one source partition.
func (t *Tracker) own(p *part) envelope.EventTime { return p.maxEventTime.Add(-t.outOfOrderness) }

// survey is what the source partitions say together.
type survey struct {
	unfinished, absent, silent, idle, counting int

	least    envelope.EventTime // W_p over the counting ones
	leastAll envelope.EventTime // W_p over the unfinished ones
	highest  envelope.EventTime // max event time over all, finished ones too
	quietMs  uint64             // least quiet time over the unfinished ones
}

func (t *Tracker) survey() survey {
	s := survey{
		least: envelope.MaxEventTime, leastAll: envelope.MaxEventTime,
		highest: envelope.MinEventTime, quietMs: math.MaxUint64,
	}
	for i := range t.parts {
		p := &t.parts[i]
		s.highest = max(s.highest, p.maxEventTime)
		if p.finished {
			continue
		}
		own := t.own(p)
		s.unfinished++
		s.leastAll = min(s.leastAll, own)
		s.quietMs = min(s.quietMs, p.quietForMs)
		switch {
		case !p.marked:
			s.absent++
		case p.silent:
			s.silent++
		case p.idle:
			s.idle++
		case !p.excluded:
			s.counting++
			s.least = min(s.least, own)
		}
	}
	return s
}

// rise moves W and Wdata as far as the marks allow; neither ever falls.
func (t *Tracker) rise() {
	s := t.survey()
	if s.unfinished == 0 {
		t.w, t.data = envelope.MaxEventTime, envelope.MaxEventTime
		return
	}
	t.data = max(t.data, s.leastAll)
	switch {
	case s.absent > 0 || s.silent > 0:
	case s.counting > 0:
		t.w = max(t.w, s.least)
	case s.idle == s.unfinished && t.advanceIdle:
		t.w = max(t.w, t.idleTarget(s))
	}
}

// idleTarget answers how far W may rise while every unfinished partition is idle: it
// moves with quiet time, not with a clock.
func (t *Tracker) idleTarget(s survey) envelope.EventTime {
	// Idle partitions have quiet >= T, so neither difference can wrap.
	return s.highest.Add(micros(s.quietMs) - t.idleAfter - t.outOfOrderness)
}

// micros answers milliseconds as microseconds, saturating.
func micros(ms uint64) int64 {
	if ms > math.MaxInt64/1000 {
		return math.MaxInt64
	}
	return int64(ms) * 1000
}

// saturatingSub answers a-b, saturating instead of wrapping.
func saturatingSub(a, b int64) int64 {
	d := a - b
	switch {
	case b < 0 && d < a:
		return math.MaxInt64
	case b > 0 && d > a:
		return math.MinInt64
	}
	return d
}

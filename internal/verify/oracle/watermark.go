package oracle

import (
	"math/big"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// silentAfter is how far another partition's ingestNow moves before one that does not
// mark is silent.
const silentAfter = 30 * 1_000_000

// watermark recomputes W and Wdata from marks, partition by partition, from the wording
// of the design.
type watermark struct {
	policy *policy.StreamTimePolicy
	parts  map[part]*partition
	w      envelope.EventTime
	data   envelope.EventTime
}

type part struct {
	source string
	number uint32
}

type partition struct {
	last       *envelope.Mark // nil before the first
	max        envelope.EventTime
	finished   bool
	silent     bool
	catchingUp bool
	wasIdle    bool
	others     map[part]sighting // of every other partition, at or after our last mark
}

type sighting struct {
	epoch uint64
	now   envelope.IngestTime
}

func newWatermark(p *policy.StreamTimePolicy) *watermark {
	w := &watermark{policy: p, parts: map[part]*partition{}, w: envelope.MinEventTime, data: envelope.MinEventTime}
	for _, s := range p.Sources {
		for n := 0; n < s.Partitions; n++ {
			w.parts[part{s.Name, uint32(n)}] = &partition{max: envelope.MinEventTime, others: map[part]sighting{}}
		}
	}
	return w
}

func (c *watermark) mark(m *envelope.Mark, max envelope.EventTime) {
	me := part{clone(m.Source), m.Partition}
	p := c.parts[me]
	if p.finished {
		return
	}
	if p.last != nil && (m.Epoch < p.last.Epoch || m.Epoch == p.last.Epoch && m.Generation < p.last.Generation) {
		return
	}
	copied := *m
	copied.Source, copied.Writer = me.source, clone(m.Writer)
	p.last, p.silent = &copied, false
	if max > p.max {
		p.max = max
	}
	p.finished = m.Finished
	c.see(me, m)
	idle := c.idle(p)
	if p.wasIdle && !idle {
		p.catchingUp = true
	}
	p.wasIdle = idle
	c.advance()
}

// see notes our ingestNow with every other partition and finds those that went silent.
func (c *watermark) see(me part, m *envelope.Mark) {
	p := c.parts[me]
	p.others = map[part]sighting{}
	for other, q := range c.parts {
		if other == me {
			continue
		}
		if q.last != nil {
			p.others[other] = sighting{q.last.Epoch, q.last.IngestNow}
		}
		if q.last == nil || q.finished {
			continue
		}
		base, known := q.others[me]
		if !known || base.epoch != m.Epoch {
			q.others[me] = sighting{m.Epoch, m.IngestNow}
			continue
		}
		if int64(m.IngestNow)-int64(base.now) > silentAfter {
			q.silent = true
		}
	}
}

func (c *watermark) idle(p *partition) bool {
	m := p.last
	if m == nil || p.finished || c.policy.IdleAfter == 0 {
		return false
	}
	quiet := new(big.Int).Mul(new(big.Int).SetUint64(m.QuietForMs), big.NewInt(1000))
	return m.Pending == 0 && m.InFlight == 0 && !m.Paused && quiet.Cmp(big.NewInt(int64(c.policy.IdleAfter))) >= 0
}

// own answers W_p.
func (c *watermark) own(p *partition) envelope.EventTime {
	return p.max.Add(-int64(c.policy.OutOfOrderness))
}

func (c *watermark) advance() {
	allFinished, allIdle, blocked := true, true, false
	data := envelope.MaxEventTime
	for _, p := range c.parts {
		if p.finished {
			continue
		}
		allFinished = false
		data = min(data, c.own(p))
		if p.last == nil || p.silent {
			blocked = true
		}
		if p.last == nil || p.silent || !c.idle(p) {
			allIdle = false
		}
	}
	if data > c.data {
		c.data = data
	}
	switch {
	case allFinished:
		c.w = envelope.MaxEventTime
	case blocked:
	case allIdle:
		if c.policy.AllIdle == policy.Advance {
			c.raise(c.idleBound())
		}
	default:
		c.raise(c.lowest())
	}
}

// lowest answers the minimum over counting partitions; MinEventTime if none counts.
func (c *watermark) lowest() envelope.EventTime {
	lowest, any := envelope.MaxEventTime, false
	for _, p := range c.parts {
		if p.finished || c.idle(p) {
			continue
		}
		if p.catchingUp {
			if c.own(p) < c.w {
				continue
			}
			p.catchingUp = false
		}
		lowest, any = min(lowest, c.own(p)), true
	}
	if !any {
		return envelope.MinEventTime
	}
	return lowest
}

// idleBound answers max(maxEventTime) + min(quietForMs) − D − T.
func (c *watermark) idleBound() envelope.EventTime {
	highest := envelope.MinEventTime
	var quiet *big.Int
	for _, p := range c.parts {
		highest = max(highest, p.max)
		if p.finished {
			continue
		}
		q := new(big.Int).Mul(new(big.Int).SetUint64(p.last.QuietForMs), big.NewInt(1000))
		if quiet == nil || q.Cmp(quiet) < 0 {
			quiet = q
		}
	}
	if highest == envelope.MinEventTime {
		return highest
	}
	bound := new(big.Int).Add(big.NewInt(int64(highest)), quiet)
	bound.Sub(bound, big.NewInt(int64(c.policy.OutOfOrderness)))
	bound.Sub(bound, big.NewInt(int64(c.policy.IdleAfter)))
	return clamp(bound)
}

func (c *watermark) raise(to envelope.EventTime) {
	if to > c.w {
		c.w = to
	}
}

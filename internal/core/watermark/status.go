package watermark

import "github.com/tidemark-mesh/tidemark/pkg/envelope"

// Statuses of a source partition.
const (
	Absent     = "absent"      // no mark yet: W stays at minus infinity
	Active     = "active"      // counts
	Idle       = "idle"        // excluded while it is quiet
	Silent     = "silent"      // did not mark while others did: W does not rise
	CatchingUp = "catching-up" // resumed from idle and is still below W
	Finished   = "finished"    // out of the minimum for good
)

// PartitionStatus is what explain and metrics show of one source partition.
type PartitionStatus struct {
	Source       string             `json:"source"`
	Partition    uint32             `json:"partition"`
	Status       string             `json:"status"` // absent, active, idle, silent, catching-up, finished
	MaxEventTime envelope.EventTime `json:"maxEventTime"`
	Watermark    envelope.EventTime `json:"watermark"` // W_p
	Epoch        uint64             `json:"epoch"`
	Generation   uint64             `json:"generation"`
	Offset       uint64             `json:"offset"`
	QuietForMs   uint64             `json:"quietForMs"`
	Holds        bool               `json:"holds"` // W does not rise because of this partition
}

// Status answers every source partition, in policy order, and who holds W: partitions
// without a mark if there are any, else silent ones, else the lowest of those that
// count, else (none counts) those that catch up, else (all idle) the least quiet ones,
// or all of them when the policy says hold.
func (t *Tracker) Status() []PartitionStatus {
	s := t.survey()
	out := make([]PartitionStatus, len(t.parts))
	for i := range t.parts {
		p := &t.parts[i]
		out[i] = PartitionStatus{
			Source: p.source, Partition: p.number, Status: p.status(),
			MaxEventTime: p.maxEventTime, Watermark: t.own(p),
			Epoch: p.epoch, Generation: p.generation, Offset: p.offset, QuietForMs: p.quietForMs,
		}
		out[i].Holds = t.holds(s, p, out[i].Status)
	}
	return out
}

// status answers the one word for a partition.
func (p *part) status() string {
	switch {
	case p.finished:
		return Finished
	case !p.marked:
		return Absent
	case p.silent:
		return Silent
	case p.idle:
		return Idle
	case p.excluded:
		return CatchingUp
	}
	return Active
}

func (t *Tracker) holds(s survey, p *part, status string) bool {
	switch {
	case s.absent > 0:
		return status == Absent
	case s.silent > 0:
		return status == Silent
	case s.counting > 0:
		return status == Active && t.own(p) == s.least
	case s.idle < s.unfinished:
		return status == CatchingUp
	}
	return status == Idle && (!t.advanceIdle || p.quietForMs == s.quietMs)
}

package window

import (
	"github.com/tidemark-mesh/tidemark/internal/core/watermark"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// PartitionStatus is what explain and metrics show of one source partition.
type PartitionStatus = watermark.PartitionStatus

// OpenWindow is what explain shows of a window that the operator holds.
type OpenWindow struct {
	Key      string               `json:"key"`
	Window   revision.Window      `json:"window"`
	Events   uint64               `json:"events"`
	Revision uint64               `json:"revision"` // 0 = never fired
	Dirty    bool                 `json:"dirty"`    // a correction waits for the next mark
	State    revision.OutputState `json:"state"`
}

// Status answers W, Wdata and every source partition of the policy, in policy order. W
// is that of the last mark, whether its outputs were all taken or not.
func (o *Operator) Status() (w, wdata envelope.EventTime, partitions []PartitionStatus) {
	return o.tracker.W(), o.tracker.Data(), o.tracker.Status()
}

// Find answers the window of key that holds t, if the operator holds it; of several
// hopping windows the one that starts last.
func (o *Operator) Find(key string, t envelope.EventTime) (OpenWindow, bool) {
	number, ok := o.keys.find(key)
	if o.sessions != nil {
		return o.sessions.find(key, t)
	}
	p := o.panes[int64(o.grid.last(t).Start)]
	if !ok || p == nil {
		return OpenWindow{}, false
	}
	place, ok := p.find(number)
	if !ok {
		return OpenWindow{}, false
	}
	w := &p.wins[place]
	found := OpenWindow{
		Key: key, Window: revision.Window{Start: p.start, End: p.end}, Events: w.events,
		Revision: uint64(w.revision), Dirty: w.flags&winDirty != 0, State: revision.Corrected,
	}
	switch {
	case w.revision == 0:
		found.State = revision.Open
	case w.revision == 1 && w.flags&winFirstLate == 0:
		found.State = revision.OnTimeEmitted
	}
	return found, true
}

// Sizes answers the numbers of windows, ids and keys held.
func (o *Operator) Sizes() (windows, ids, keys int) {
	for _, p := range o.order {
		windows += len(p.wins)
	}
	if o.sessions != nil {
		windows = o.sessions.live
	}
	return windows, o.ids.live, o.keys.count()
}

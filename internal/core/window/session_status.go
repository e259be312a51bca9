package window

import (
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// find answers the session of a key that holds t.
func (s *sessions) find(name string, t envelope.EventTime) (found OpenWindow, ok bool) {
	n, ok := s.o.keys.find(name)
	if !ok || int(n) >= len(s.keys) {
		return found, false
	}
	list := s.keys[n].list
	lo, hi := s.touching(list, t, t.Add(1))
	if lo == hi {
		return found, false
	}
	x := &s.table[list[lo]]
	found = OpenWindow{
		Key: name, Window: revision.Window{Start: x.start, End: x.end}, Events: uint64(x.count),
		Dirty: x.flags&sessionDirty != 0 && len(x.rows) > 0, State: revision.Corrected,
	}
	if len(x.rows) == 0 {
		found.State = revision.Open
	}
	for _, at := range x.rows {
		r := &s.rows[at]
		if r.start != x.start || r.end != x.end {
			continue
		}
		if found.Revision = r.revision; r.revision == 1 && r.flags&rowFirstLate == 0 {
			found.State = revision.OnTimeEmitted
		}
	}
	return found, true
}

package projector

import (
	"bytes"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// lookAtSessions looks once into a view ordered by key. What it takes of a key it takes
// whole, or as much as fits a page: a merge retracts rows of one key and puts another in
// their place, so a key that is read in two looks could show a session beside the one
// that it became.
func (l *lane) lookAtSessions() (err error) {
	s := sessionLook{lane: l}
	l.done = true
	l.commit, err = l.view.scan(l.from, l.to, s.visit)
	return err
}

// sessionLook is one look: the rows of the key under way begin at first.
type sessionLook struct {
	lane   *lane
	key    string
	begun  bool
	first  int // in lane.rows
	visits int
	bytes  int
}

func (s *sessionLook) visit(rowKey, value []byte) (skip []byte, more bool, err error) {
	l, q := s.lane, s.lane.query
	w, key := byKey.split(rowKey)
	if !s.begun || string(key) != s.key {
		if s.visits >= laneVisits || len(l.rows) >= laneRows {
			l.from, l.done = bytes.Clone(rowKey), false
			return nil, false, nil
		}
		s.key, s.begun, s.first = string(key), true, len(l.rows)
	}
	s.visits++
	switch {
	case w.End <= q.from:
		return byKey.rowKey(nil, s.key, revision.Window{Start: envelope.MinEventTime, End: q.from + 1}), true, nil
	case w.Start >= q.to:
		return pastKey(nil, s.key), true, nil
	case rowRetracted(value):
		return nil, true, nil
	case s.key == l.afterKey && w.Start < l.after.End:
		l.page.torn = true
		return nil, true, nil
	case s.bytes > replyBytes || len(l.rows) > q.limit:
		return s.full(rowKey)
	}
	l.rows = append(l.rows, change{key: string(rowKey), value: bytes.Clone(value)})
	s.bytes += len(value)
	return nil, true, nil
}

// full ends the look in the middle of a key: if others stand before it, it is left to the
// next look; if not, what is there fills a page.
func (s *sessionLook) full(rowKey []byte) (skip []byte, more bool, err error) {
	l := s.lane
	l.from, l.done = bytes.Clone(rowKey), false
	if s.first > 0 {
		l.from = []byte(l.rows[s.first].key)
		clear(l.rows[s.first:])
		l.rows = l.rows[:s.first]
	}
	return nil, false, nil
}

package projector

import (
	"bytes"

	"github.com/tidemark-mesh/tidemark/internal/httpx"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Rows that one look into a view collects and visits at most: while it looks, the view
// takes nothing in.
const (
	laneRows   = 128
	laneVisits = 4096
)

// lane reads the matching rows of one view in order, a bounded piece at a time.
type lane struct {
	view     *view
	query    *query
	from, to []byte // row keys; nil to = to the end
	rows     []change
	commit   *revision.Commit // of the moment at which rows were read
	done     bool
	page     *page
	after    revision.Window // of the last row of the page before
	afterKey string          // its key, "" = there is none
}

// newLane begins behind the row key after, nil at the beginning.
func newLane(v *view, q *query, p *page, after []byte) *lane {
	l := &lane{view: v, query: q, page: p}
	switch {
	case v.order == byKey && q.key != "":
		l.from, l.to = v.order.rowKey(nil, q.key, revision.Window{Start: envelope.MinEventTime, End: q.from}), pastKey(nil, q.key)
	case v.order == byWindow:
		l.from = appendTime(nil, q.from)
		if q.to != envelope.MaxEventTime {
			l.to = appendTime(nil, q.to)
		}
	}
	if after != nil {
		l.from = append(bytes.Clone(after), 0)
		w, key := v.order.split(after)
		l.after, l.afterKey = w, string(key)
	}
	return l
}

// head answers the next matching row, nil at the end.
func (l *lane) head() (*change, error) {
	for len(l.rows) == 0 && !l.done {
		look := l.lookAtWindows
		if l.view.order == byKey {
			look = l.lookAtSessions
		}
		if err := look(); err != nil {
			return nil, err
		}
	}
	if len(l.rows) == 0 {
		return nil, nil
	}
	return &l.rows[0], nil
}

// lookAtWindows looks once into a view ordered by window.
func (l *lane) lookAtWindows() (err error) {
	visits := 0
	l.done = true
	l.commit, err = l.view.scan(l.from, l.to, func(rowKey, value []byte) (skip []byte, more bool, err error) {
		if visits++; visits > laneVisits || len(l.rows) == laneRows {
			l.from, l.done = bytes.Clone(rowKey), false
			return nil, false, nil
		}
		if w, key := byWindow.split(rowKey); l.query.key != "" && string(key) != l.query.key {
			if string(key) > l.query.key {
				w.End++ // this window has no row of the key: on to the next one
			}
			return byWindow.rowKey(nil, l.query.key, w), true, nil
		}
		if !rowRetracted(value) {
			l.rows = append(l.rows, change{key: string(rowKey), value: bytes.Clone(value)})
		}
		return nil, true, nil
	})
	return err
}

// windows answers a page of current rows, ordered by job, window and key
// whatever the number of key partitions.
func (st *stream) windows(q *query) (*reply, error) {
	p := &page{limit: q.limit}
	next := q.cursor
	for ; next.At < len(q.targets); next.At, next.RowKey = next.At+1, nil {
		j := q.targets[next.At]
		var lanes []*lane
		for _, u := range q.units(j) {
			v := u.opened()
			if v == nil {
				return nil, httpx.Error{Code: codeStarting, Message: "the view of " + u.part.String() + " is not open", Hint: "ask again in a moment"}
			}
			lanes = append(lanes, newLane(v, q, p, next.RowKey))
		}
		for {
			l, row, err := least(lanes)
			if err != nil {
				return nil, err
			}
			if l == nil {
				break
			}
			text, err := renderCurrent(j.policy, l.commit, rowJSON(row.value))
			if err != nil {
				return nil, err
			}
			if !p.add(text) {
				return st.answer(q, p, &next), nil
			}
			next.RowKey = []byte(row.key)
			l.rows = l.rows[1:]
		}
	}
	return st.answer(q, p, nil), nil
}

// least answers the lane whose next row comes first, nil when all are at their end.
func least(lanes []*lane) (first *lane, row *change, err error) {
	for _, l := range lanes {
		head, err := l.head()
		if err != nil {
			return nil, nil, err
		}
		if head != nil && (row == nil || head.key < row.key) {
			first, row = l, head
		}
	}
	return first, row, nil
}

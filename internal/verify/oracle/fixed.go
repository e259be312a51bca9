package oracle

import (
	"sort"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// news is what happened to a window since its last revision.
type news struct {
	any      bool
	asserted bool // an event went in
	reopened bool // by a REOPEN
	origin   envelope.Origin
}

func (n news) and(m news) news {
	return news{n.any || m.any, n.asserted || m.asserted, n.reopened || m.reopened, max(n.origin, m.origin)}
}

// reason answers the why of a revision. first: W has just crossed the window's end;
// successor: something of it was published before.
func (n news) reason(first, successor bool) why {
	w := why{revision.Corrected, revision.FiringLate, revision.CauseRetraction, n.origin}
	switch {
	case first:
		w.state, w.firing, w.cause = revision.OnTimeEmitted, revision.FiringOnTime, revision.CauseOnTime
	case !successor:
		w.cause = revision.CauseLateWindow
	case n.asserted:
		w.cause = revision.CauseLateEvent
	}
	return w
}

// repaired is the why of a revision that a REOPEN makes.
func repaired() why {
	return why{revision.Corrected, revision.FiringReopened, revision.CauseReopened, envelope.OriginRepair}
}

// window is a tumbling, hopping or calendar window of one key. It is kept for ever: what
// the engine forgets and what a REOPEN hands back to it is here all the time.
type window struct {
	members map[string]member // memberKey → member
	late    bool              // made, or crossed by W, before
	news    news
}

// put takes a member into a window.
func (o *Oracle) put(key string, b bounds, m member, n news) {
	at := place{key, b}
	w := o.windows[at]
	if w == nil {
		w = &window{members: map[string]member{}, late: o.clock.w >= b.end}
		o.windows[at] = w
	}
	w.members[memberKey(m.source, m.id)] = m
	w.news = w.news.and(n)
	o.change(at, w)
}

func (o *Oracle) change(at place, w *window) {
	if o.changed[at.end] == nil {
		o.changed[at.end] = map[place]*window{}
	}
	o.changed[at.end][at] = w
}

// drop takes a member out of a window.
func (o *Oracle) drop(key string, b bounds, member string, n news) {
	at := place{key, b}
	w := o.windows[at]
	if w == nil {
		return
	}
	if _, in := w.members[member]; !in {
		return
	}
	delete(w.members, member)
	w.news = w.news.and(n)
	o.change(at, w)
}

// fireFixed publishes every changed window whose end the watermark has reached; after a
// REOPEN only those that it changed.
func (o *Oracle) fireFixed(reopened bool) {
	var due []place
	for end, windows := range o.changed {
		if o.clock.w < end {
			continue
		}
		for at, w := range windows {
			if !reopened || w.news.reopened {
				due = append(due, at)
			}
		}
	}
	sort.Slice(due, func(i, j int) bool { return due[i].before(due[j]) })
	for _, at := range due {
		w := o.changed[at.end][at]
		if delete(o.changed[at.end], at); len(o.changed[at.end]) == 0 {
			delete(o.changed, at.end)
		}
		p := o.projection(at.key, at.bounds)
		why := w.news.reason(!w.late, p.revision > 0)
		if reopened {
			why = repaired()
		}
		w.late, w.news.reopened = true, false
		switch {
		case len(w.members) > 0:
			o.upsert(p, w.members, why, nil)
			w.news = news{}
		case p.current():
			o.retractRow(p, why, "")
			w.news = news{}
		}
	}
}

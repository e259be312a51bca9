package policy

import "strings"

// Calendar units.
const (
	CalendarDay   = "day"
	CalendarWeek  = "week"
	CalendarMonth = "month"
)

// Longest answers the length of the longest window of this kind: the size, the gap, or a
// day, week or month with the hour that a change of the clocks adds.
func (w WindowSpec) Longest() Duration {
	switch w.Kind {
	case Session:
		return w.Gap
	case Calendar:
		switch w.Calendar {
		case CalendarWeek:
			return 7*Day + Hour
		case CalendarMonth:
			return 31*Day + Hour
		}
		return Day + Hour
	}
	return w.Size
}

// perEvent answers how many windows one event can fall into.
func (w WindowSpec) perEvent() int64 {
	if w.Kind != Hopping || w.Every <= 0 || w.Size <= 0 {
		return 1
	}
	return int64((w.Size-1)/w.Every) + 1
}

// window reads the map form, or the one-line form tumbling:1h:UTC; n may be nil.
func (r *reader) window(n *node) WindowSpec {
	w := WindowSpec{Kind: Tumbling, Size: Hour, Zone: "UTC"}
	if n == nil {
		return w
	}
	if n.shape == shapeText {
		return r.windowLine(n)
	}
	o := r.object(n, "window")
	if o == nil {
		return w
	}
	kind := r.windowKind(o)
	switch w.Kind = kind; kind {
	case Tumbling:
		w.Size = r.signed(o.optional("tumbling"), "window.tumbling", Hour)
		w.Offset = r.signed(o.optional("offset"), "window.offset", 0)
	case Hopping:
		w.Size = r.signed(o.optional("hopping"), "window.hopping", Hour)
		w.Every = r.signed(o.required("every", "10m"), "window.every", Hour)
		w.Offset = r.signed(o.optional("offset"), "window.offset", 0)
	case Session:
		w.Size = 0
		w.Gap = r.signed(o.optional("session"), "window.session", Hour)
		w.Rule = r.plain(o.required("rule", "gap-11-v2"), "window.rule")
	case Calendar:
		w.Size = 0
		w.Calendar = r.choice(o.optional("calendar"), "window.calendar", "", CalendarDay, CalendarWeek, CalendarMonth)
	default:
		return w
	}
	if zone := o.optional("zone"); zone != nil {
		w.Zone = r.text(zone, "window.zone")
	}
	o.finish()
	return w
}

// windowKind answers which of the four kinds the map names, or "" after a finding.
func (r *reader) windowKind(o *object) WindowKind {
	var kind WindowKind
	var named []string
	for _, f := range o.fields {
		named = append(named, f.name)
		switch k := WindowKind(f.name); k {
		case Tumbling, Hopping, Session, Calendar:
			if kind != "" {
				r.refuse(f.line, "bad-value", "window names two kinds, %s and %s; keep one", kind, k)
				return ""
			}
			kind = k
		}
	}
	if kind == "" {
		r.refuse(o.line, "missing-field", "window names no kind (fields: %s); write tumbling, hopping, session or calendar, for example {tumbling: 1h}", strings.Join(named, ", "))
	}
	return kind
}

// windowLine reads tumbling:1h or tumbling:1h:UTC.
func (r *reader) windowLine(n *node) WindowSpec {
	w := WindowSpec{Kind: Tumbling, Size: Hour, Zone: "UTC"}
	word, rest := colon(n.text)
	if word != string(Tumbling) || len(rest) < 1 || len(rest) > 2 {
		r.refuse(n.line, "bad-value", "window is %q; the one-line form is tumbling:1h:UTC, other windows are written as maps such as {hopping: 1h, every: 10m}", n.text)
		return w
	}
	w.Size = r.signed(&node{shape: shapeText, line: n.line, text: rest[0]}, "window", Hour)
	if len(rest) == 2 {
		w.Zone = rest[1]
	}
	for _, field := range []string{"window.tumbling", "window.zone"} {
		r.lines[field] = n.line
	}
	return w
}

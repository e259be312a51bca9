package cases

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidemark-mesh/tidemark/internal/core/admission"
	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// item is what came out, by field name, as JSON would show it.
type item map[string]any

// compare adds to the diff what is not as expected.
func (r *runner) compare(where string, e *Expect) {
	if e == nil {
		return
	}
	if e.Watermark != "" {
		w := envelope.MaxEventTime
		for _, l := range r.lanes {
			at, _, _, _ := l.op.Totals()
			w = min(w, at)
		}
		r.field(where+"watermark", e.Watermark, w.String())
	}
	if e.Windows != nil {
		r.list(where+"windows", e.Windows, r.windows())
	}
	if e.Revisions != nil {
		var got []item
		for i := range r.revisions {
			got = append(got, revisionItem(&r.revisions[i]))
		}
		r.list(where+"revisions", e.Revisions, got)
	}
	if e.Quarantine != nil {
		var got []item
		for _, q := range r.quarantine {
			got = append(got, item{"id": q.id, "reason": q.reason, "rule": q.rule, "source": q.source})
		}
		r.list(where+"quarantine", e.Quarantine, got)
	}
	if e.Late != nil {
		var got []item
		for i := range r.late {
			l := &r.late[i]
			it := refItem(&l.Event)
			it["start"], it["end"] = l.Window.Start.String(), l.Window.End.String()
			got = append(got, it)
		}
		r.list(where+"late", e.Late, got)
	}
	if e.Conflicts != nil {
		var got []item
		for i := range r.conflicts {
			it := refItem(&r.conflicts[i].Event)
			it["rule"] = r.conflicts[i].Rule
			got = append(got, it)
		}
		r.list(where+"conflicts", e.Conflicts, got)
	}
	counts := r.counts()
	for _, name := range slices.Sorted(maps.Keys(e.Counts)) {
		r.field(where+"counts."+name, fmt.Sprint(e.Counts[name]), fmt.Sprint(counts[name]))
	}
}

func (r *runner) counts() map[string]uint64 {
	sum := map[string]uint64{}
	for _, l := range r.lanes {
		_, _, counts, _ := l.op.Totals()
		for _, c := range counts {
			sum[c.Name] += c.N
		}
	}
	sum["quarantined"] = uint64(len(r.quarantine))
	return sum
}

func refItem(e *record.EventRef) item {
	return item{"id": e.ID, "source": e.Source, "key": e.Key, "time": e.EventTime.String()}
}

// windows answers the current rows as queries show them: final ones say so.
func (r *runner) windows() []item {
	var out []item
	for _, row := range r.current() {
		it := revisionItem(&row)
		w, _, _, _ := r.lanes[admission.KeyPartition(row.Key, len(r.lanes))].op.Totals()
		if w >= row.Window.End.Add(int64(r.c.time.AllowedLateness)) {
			it["state"] = string(revision.Finalized)
		}
		out = append(out, it)
	}
	return out
}

func revisionItem(v *revision.Revision) item {
	it := item{
		"key": v.Key, "start": v.Window.Start.String(), "end": v.Window.End.String(), "revision": v.Revision, "op": string(v.Op),
		"state": string(v.State), "firing": string(v.Firing), "cause": v.Cause, "valueChanged": v.ValueChanged, "events": v.Inputs.Events,
	}
	it["value"], it["delta"] = fields(v.Value), fields(v.Delta)
	return it
}

func fields(list []revision.Field) map[string]any {
	out := map[string]any{}
	for _, f := range list {
		if f.Quoted {
			out[f.Name] = f.Text
		} else {
			out[f.Name] = json.Number(f.Text)
		}
	}
	return out
}

func (r *runner) field(name, want, got string) {
	if want != got {
		r.result.Diff = append(r.result.Diff, "- "+name+": "+want, "+ "+name+": "+got)
	}
}

// list compares a list whole and in order.
func (r *runner) list(name string, want []map[string]any, got []item) {
	for i := range max(len(want), len(got)) {
		at := fmt.Sprintf("%s[%d]", name, i)
		switch {
		case i >= len(got):
			r.result.Diff = append(r.result.Diff, "- "+at+": "+text(want[i]))
		case i >= len(want):
			r.result.Diff = append(r.result.Diff, "+ "+at+": "+text(got[i]))
		case !matches(want[i], map[string]any(got[i])):
			r.result.Diff = append(r.result.Diff, "- "+at+": "+text(want[i]), "+ "+at+": "+text(narrow(want[i], got[i])))
		}
	}
}

// matches tells whether got has every field of want. Scalars are compared as text, so
// that "12.50" and a number that reads 12.50 are one, and 12.5 is another.
func matches(want, got any) bool {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return false
		}
		for name, v := range w {
			if other, there := g[name]; !there || !matches(v, other) {
				return false
			}
		}
		return true
	case nil:
		return got == nil
	}
	return fmt.Sprint(want) == fmt.Sprint(got)
}

// narrow answers the fields of got that want speaks of.
func narrow(want map[string]any, got item) map[string]any {
	out := map[string]any{}
	for name := range want {
		if v, there := got[name]; there {
			out[name] = v
		}
	}
	return out
}

// text writes an item in one line, key first as people read it.
func text(v map[string]any) string {
	order := []string{"key", "id", "start", "end", "revision"}
	names := slices.Sorted(maps.Keys(v))
	slices.SortStableFunc(names, func(a, b string) int {
		place := func(n string) int {
			if i := slices.Index(order, n); i >= 0 {
				return i
			}
			return len(order)
		}
		return place(a) - place(b)
	})
	parts := make([]string, len(names))
	for i, n := range names {
		switch inner := v[n].(type) {
		case map[string]any:
			parts[i] = n + ": " + text(inner)
		default:
			parts[i] = fmt.Sprintf("%s: %v", n, inner)
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

package policy

import (
	"slices"
)

// maxWindowsPerEvent bounds the work that one event can make.
const maxWindowsPerEvent = 1000

// Lint answers what is wrong with documents beyond their own fields: windows and times
// that cannot work, and policies that do not fit their stream or the generation before.
// Streams and earlier generations are looked for in docs first, then in applied.
func Lint(docs, applied []Document) []Finding {
	var out []Finding
	for i := range docs {
		doc := &docs[i]
		for _, other := range docs[:i] {
			if other.Kind() == doc.Kind() && other.Name() == doc.Name() && other.Digest() != doc.Digest() {
				out = append(out, doc.finding("", "duplicate-document", "%s %s is also described, differently, at %s:%d; keep one of the two", doc.Kind(), doc.Name(), other.File, other.Line))
			}
		}
		switch {
		case doc.Adapter != nil:
			out = append(out, lintAdapter(doc)...)
		case doc.Effect != nil:
			out = append(out, lintEffect(doc, docs, applied)...)
		}
		if doc.Policy == nil {
			continue
		}
		out = append(out, lintWindow(doc)...)
		out = append(out, lintTimes(doc)...)
		out = append(out, lintAgainstStream(doc, docs, applied)...)
		out = append(out, lintTopology(doc, docs, applied)...)
	}
	return out
}

func lintWindow(doc *Document) []Finding {
	var out []Finding
	w := doc.Policy.Window
	refuse := func(field, rule, format string, args ...any) {
		out = append(out, doc.finding("window."+field, rule, format, args...))
	}
	switch w.Kind {
	case Tumbling, Hopping:
		if w.Size <= 0 {
			refuse(string(w.Kind), "window-size-not-positive", "a window of %s holds no event; write a positive length such as 1h", w.Size)
			break
		}
		if w.Offset <= -w.Size || w.Offset >= w.Size {
			refuse("offset", "offset-out-of-range", "an offset of %s moves windows of %s by more than their length; write one between -%s and %s", w.Offset, w.Size, w.Size, w.Size)
		}
	case Session:
		if w.Gap <= 0 {
			refuse("session", "gap-not-positive", "a session gap of %s never joins two events; write a positive gap such as 30m", w.Gap)
		}
	}
	if w.Kind == Hopping && w.Size > 0 {
		switch {
		case w.Every <= 0:
			refuse("every", "slide-not-positive", "windows that start every %s never move on; write a positive step such as 10m", w.Every)
		case w.Every > w.Size:
			refuse("every", "slide-exceeds-size", "windows of %s that start every %s leave events out; every must be at most the window's length", w.Size, w.Every)
		case w.perEvent() > maxWindowsPerEvent:
			refuse("every", "too-many-windows", "every event would fall into %d windows, more than %d; make every longer or the windows shorter", w.perEvent(), maxWindowsPerEvent)
		}
	}
	if !knownZone(w.Zone) {
		refuse("zone", "unknown-zone", "%q is no IANA time zone; write for example UTC or Europe/Paris", w.Zone)
	}
	return out
}

func lintTimes(doc *Document) []Finding {
	var out []Finding
	p := doc.Policy
	if _, written := doc.lines["idle.after"]; (written || p.IdleAfter > 0) && p.IdleAfter < Second {
		out = append(out, doc.finding("idle.after", "idle-too-short", "a source partition idle after %s would be left out of the watermark between two marks; write at least 1s, or leave idle out", p.IdleAfter))
	}
	least := p.AllowedLateness.plus(p.Window.Longest())
	if p.RetainIDs < least {
		out = append(out, doc.finding("retention.ids", "ids-too-short", "ids are kept for %s, but an event can change a window for %s (allowedLateness %s + longest window %s): a repetition after that would count twice; write at least %s", p.RetainIDs, least, p.AllowedLateness, p.Window.Longest(), least))
	}
	return out
}

func findStream(name string, sets ...[]Document) *BusinessStream {
	for _, docs := range sets {
		for i := range docs {
			if docs[i].Stream != nil && docs[i].Stream.Name == name {
				return docs[i].Stream
			}
		}
	}
	return nil
}

func lintAgainstStream(doc *Document, docs, applied []Document) []Finding {
	p := doc.Policy
	bs := findStream(p.Stream, docs, applied)
	if bs == nil {
		return []Finding{doc.finding("stream", "unknown-stream", "there is no BusinessStream %s%s in these files or among the applied documents; give its file too, or apply it first", p.Stream, didYouMean(p.Stream, streamNames(docs, applied)))}
	}
	var out []Finding
	extractors := make([]string, len(bs.Extractors))
	for i, e := range bs.Extractors {
		extractors[i] = e.Name
	}
	if !slices.Contains(extractors, p.Extractor) {
		out = append(out, doc.finding("timestampExtractor", "unknown-extractor", "stream %s has no extractor %s%s; it has %s", bs.Name, p.Extractor, didYouMean(p.Extractor, extractors), oneOf(extractors)))
	}
	for _, a := range p.Aggregates {
		out = append(out, lintAggregate(doc, bs, a)...)
	}
	return out
}

func streamNames(sets ...[]Document) []string {
	var names []string
	for _, docs := range sets {
		for _, d := range docs {
			if d.Stream != nil {
				names = append(names, d.Stream.Name)
			}
		}
	}
	return sorted(names)
}

func lintAggregate(doc *Document, bs *BusinessStream, a AggregateSpec) []Finding {
	path := "aggregates." + a.Name
	function, known := findAggregate(a.Func)
	if !known {
		return []Finding{doc.finding(path, "bad-aggregate", "there is no function %s; the functions are %s", a.Func, oneOf(AggregateNames()))}
	}
	var out []Finding
	if bs.Retractions && !function.retractable {
		out = append(out, doc.finding(path, "aggregate-not-retractable", "stream %s allows retractions, but nothing can be withdrawn from %s; use another function or a stream without retractions", bs.Name, a))
	}
	if function.types == nil {
		return out
	}
	names := make([]string, len(bs.Values))
	for i, v := range bs.Values {
		names[i] = v.Name
		if v.Name == a.Arg && !slices.Contains(function.types, v.Type) {
			out = append(out, doc.finding(path, "aggregate-type", "%s needs a number, but value %s of stream %s is a %s; use count, or declare the value as decimal or int", a, a.Arg, bs.Name, v.Type))
		}
	}
	if !slices.Contains(names, a.Arg) {
		has := "it declares none"
		if len(names) > 0 {
			has = "it has " + oneOf(names)
		}
		out = append(out, doc.finding(path, "unknown-value", "stream %s has no value %s%s; %s", bs.Name, a.Arg, didYouMean(a.Arg, names), has))
	}
	return out
}

// lintTopology compares source partition counts with the nearest earlier generation.
func lintTopology(doc *Document, docs, applied []Document) []Finding {
	p := doc.Policy
	var before *StreamTimePolicy
	for _, set := range [][]Document{applied, docs} {
		for i := range set {
			q := set[i].Policy
			if q != nil && q.Stream == p.Stream && q.Job == p.Job && q.Generation < p.Generation && (before == nil || q.Generation >= before.Generation) {
				before = q
			}
		}
	}
	if before == nil || p.TopologyChange {
		return nil
	}
	var out []Finding
	for i, s := range p.Sources {
		for _, old := range before.Sources {
			if old.Name == s.Name && old.Partitions != s.Partitions {
				out = append(out, doc.finding(sourcePath(i)+".partitions", "topology-change", "source %s has %d partitions here and %d in %s; if the source really changed, add topologyChange: true", s.Name, s.Partitions, old.Partitions, before.PolicyGeneration()))
			}
		}
	}
	return out
}

package policy

import (
	"slices"
	"strconv"
)

// lintEffect checks an effect policy against the documents around it. Whether its
// expressions fit the job's results is for their compiler to say.
func lintEffect(doc *Document, docs, applied []Document) []Finding {
	p := doc.Effect
	var out []Finding
	refuse := func(path, rule, format string, args ...any) {
		out = append(out, doc.finding(path, rule, format, args...))
	}
	if findStream(p.Stream, docs, applied) == nil {
		refuse("stream", "unknown-stream", "there is no BusinessStream %s%s in these files or among the applied documents; give its file too, or apply it first", p.Stream, didYouMean(p.Stream, streamNames(docs, applied)))
	} else if jobs := jobNames(p.Stream, docs, applied); !slices.Contains(jobs, p.Job) {
		refuse("job", "unknown-job", "stream %s has no job %s%s in these files or among the applied documents; give its file too, or apply it first", p.Stream, p.Job, didYouMean(p.Job, jobs))
	}
	adapters := adapterNames(docs, applied)
	if !slices.Contains(adapters, p.Adapter) {
		refuse("adapter", "unknown-adapter", "there is no Adapter %s%s in these files or among the applied documents; give its file too, or apply it first", p.Adapter, didYouMean(p.Adapter, adapters))
	}
	if undo := p.Corrections.Adapter; undo != "" && !slices.Contains(adapters, undo) {
		refuse("corrections.adapter", "unknown-adapter", "there is no Adapter %s%s in these files or among the applied documents; give its file too, or apply it first", undo, didYouMean(undo, adapters))
	}
	lintCorrections(p, refuse)
	if a := p.Airlock; a.AmountField != "" && !slices.ContainsFunc(p.Payload, func(f PayloadField) bool { return f.Name == a.AmountField }) {
		refuse("airlock.amountAbove.field", "airlock-unknown-field", "the payload has no member %s%s, so that no amount would ever be above the limit", a.AmountField, didYouMean(a.AmountField, payloadNames(p.Payload)))
	}
	return append(out, lintIdentity(doc, docs, applied)...)
}

func lintCorrections(p *EffectPolicy, refuse refusal) {
	c := p.Corrections
	switch {
	case c.Mode == CorrectManual && (c.Adapter != "" || len(c.Payload) > 0):
		refuse("corrections", "correction-without-mode", "corrections are manual, so that nothing is sent for them; remove adapter and payload, or write mode: compensate")
	case c.Mode != CorrectManual && len(c.Payload) == 0:
		refuse("corrections", "correction-without-payload", "nothing says what is sent to %s an effect; write corrections: {mode: %s, payload: {…}}, or manual", c.Mode, c.Mode)
	}
}

// lintIdentity refuses what would give one business action a second effectKey.
func lintIdentity(doc *Document, docs, applied []Document) []Finding {
	p := doc.Effect
	before := true // of docs[i], that it stands before doc
	for i := range docs {
		q := docs[i].Effect
		if q == p {
			before = false
		}
		if q == nil || q.Name == p.Name && q.Version >= p.Version || q.Name != p.Name && !before {
			continue // the other one of the two is refused
		}
		if bad := sameIdentity(doc, q); bad != nil {
			return bad
		}
	}
	for i := range applied {
		if q := applied[i].Effect; q != nil && q.Ref() != p.Ref() {
			if bad := sameIdentity(doc, q); bad != nil {
				return bad
			}
		}
	}
	return nil
}

// sameIdentity checks a policy against one that made effects before it.
func sameIdentity(doc *Document, q *EffectPolicy) []Finding {
	p := doc.Effect
	switch {
	case q.Stream != p.Stream:
		return nil
	case q.Name != p.Name && q.EffectType == p.EffectType:
		return []Finding{doc.finding("effectType", "effect-type-taken", "effects of type %s on stream %s are made by %s; write another version of that policy, or another effectType", p.EffectType, p.Stream, q.Ref())}
	case q.Name != p.Name:
		return nil
	}
	for _, f := range []struct{ path, old, now string }{{"subject", q.Subject, p.Subject}, {"job", q.Job, p.Job}, {"effectType", q.EffectType, p.EffectType}} {
		if f.old != f.now {
			return []Finding{doc.finding(f.path, "effect-identity-changed", "%s is %s here and %s in %s: windows that had their effect would get a second one under a new key; keep it, or write a policy with another name and effectType", f.path, strconv.Quote(f.now), strconv.Quote(f.old), q.Ref())}
		}
	}
	return nil
}

// jobNames answers the jobs of a stream, sorted.
func jobNames(stream string, sets ...[]Document) []string {
	var names []string
	for _, docs := range sets {
		for i := range docs {
			if p := docs[i].Policy; p != nil && p.Stream == stream {
				names = append(names, p.Job)
			}
		}
	}
	return slices.Compact(sorted(names))
}

// adapterNames answers the adapters with their versions, sorted.
func adapterNames(sets ...[]Document) []string {
	var names []string
	for _, docs := range sets {
		for i := range docs {
			if a := docs[i].Adapter; a != nil {
				names = append(names, a.Ref())
			}
		}
	}
	return slices.Compact(sorted(names))
}

func payloadNames(fields []PayloadField) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return names
}

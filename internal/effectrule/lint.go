package effectrule

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// Lint answers what is wrong with the expressions of documents: each effect policy is
// checked against the highest generation of its job, and each generation that becomes the
// highest against the highest versions of the applied policies that read it. Documents
// that are missing are left to policy.Lint.
func Lint(docs, applied []policy.Document) []policy.Finding {
	var out []policy.Finding
	for i := range docs {
		switch doc := &docs[i]; {
		case doc.Effect != nil:
			out = append(out, lintPolicy(doc, docs, applied)...)
		case doc.Policy != nil:
			out = append(out, lintGeneration(doc, docs, applied)...)
		}
	}
	return out
}

func lintPolicy(doc *policy.Document, docs, applied []policy.Document) []policy.Finding {
	p := doc.Effect
	bs, job, a := streamOf(p, docs, applied), highest(p.Stream, p.Job, docs, applied), adapterOf(p.Adapter, docs, applied)
	if bs == nil || job == nil || a == nil {
		return nil
	}
	_, found := compile(doc, bs, job, a)
	if undo := adapterOf(cmp.Or(p.Corrections.Adapter, p.Adapter), docs, applied); undo != nil {
		_, more := compileCorrection(doc, job, a, undo)
		found = append(found, more...)
	}
	return found
}

// lintGeneration refuses a generation under which an applied policy could not be computed.
func lintGeneration(doc *policy.Document, docs, applied []policy.Document) []policy.Finding {
	p := doc.Policy
	if highest(p.Stream, p.Job, docs, applied) != p {
		return nil
	}
	var out []policy.Finding
	for i := range applied {
		q := applied[i].Effect
		if q == nil || q.Stream != p.Stream || q.Job != p.Job || !newest(q, docs, applied) {
			continue
		}
		bs, a := streamOf(q, docs, applied), adapterOf(q.Adapter, docs, applied)
		if bs == nil || a == nil {
			continue
		}
		if _, found := Compile(q, bs, p, a); len(found) > 0 {
			out = append(out, doc.Finding("aggregates", "effect-policy-breaks", fmt.Sprintf("the applied EffectPolicy %s does not fit this generation: %s; keep what it reads, or apply another version of it first", applied[i].Name(), found[0].Message)))
		}
	}
	return out
}

// newest tells whether no document has a higher version of the policy.
func newest(p *policy.EffectPolicy, sets ...[]policy.Document) bool {
	for _, docs := range sets {
		if slices.ContainsFunc(docs, func(d policy.Document) bool {
			q := d.Effect
			return q != nil && q.Stream == p.Stream && q.Name == p.Name && q.Version > p.Version
		}) {
			return false
		}
	}
	return true
}

func streamOf(p *policy.EffectPolicy, sets ...[]policy.Document) *policy.BusinessStream {
	for _, docs := range sets {
		for i := range docs {
			if bs := docs[i].Stream; bs != nil && bs.Name == p.Stream {
				return bs
			}
		}
	}
	return nil
}

func adapterOf(ref string, sets ...[]policy.Document) *policy.Adapter {
	for _, docs := range sets {
		for i := range docs {
			if a := docs[i].Adapter; a != nil && a.Ref() == ref {
				return a
			}
		}
	}
	return nil
}

// highest answers the highest generation of a job; of two documents for one generation
// the first.
func highest(stream, job string, sets ...[]policy.Document) *policy.StreamTimePolicy {
	var best *policy.StreamTimePolicy
	for _, docs := range sets {
		for i := range docs {
			p := docs[i].Policy
			if p != nil && p.Stream == stream && p.Job == job && (best == nil || p.Generation > best.Generation) {
				best = p
			}
		}
	}
	return best
}

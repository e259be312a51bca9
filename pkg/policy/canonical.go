package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// field is one field of a document's long form, in the order in which people read it.
// Its value is a string, an integer, a bool, []string, []field or [][]field.
type field struct {
	name  string
	value any
}

// long answers the document's long form with every default written out.
func (d *Document) long() []field {
	switch {
	case d.Stream != nil:
		return d.Stream.long()
	case d.Effect != nil:
		return d.Effect.long()
	case d.Adapter != nil:
		return d.Adapter.long()
	}
	return d.Policy.long()
}

func (bs *BusinessStream) long() []field {
	values := []field{}
	for _, v := range bs.Values {
		spec := []field{{"path", v.Path}, {"type", string(v.Type)}}
		if v.Type == Decimal {
			spec = append(spec, field{"scale", v.Scale})
		}
		values = append(values, field{v.Name, spec})
	}
	extractors := []field{}
	for _, e := range bs.Extractors {
		extractors = append(extractors, field{e.Name, []field{{"path", e.Path}, {"format", string(e.Format)}}})
	}
	return []field{
		{"apiVersion", APIVersion},
		{"kind", KindBusinessStream},
		{"name", bs.Name},
		{"partitions", bs.Partitions},
		{"key", bs.Key},
		{"values", values},
		{"eventTime", extractors},
		{"bounds", []field{{"maxFuture", bs.MaxFuture.String()}, {"notBefore", bs.NotBefore.String()}}},
		{"schemaGeneration", bs.SchemaGeneration},
		{"retractions", bs.Retractions},
		{"maxEventBytes", bs.MaxEventBytes},
	}
}

func (p *StreamTimePolicy) long() []field {
	sources := [][]field{}
	for _, s := range p.Sources {
		sources = append(sources, []field{{"name", s.Name}, {"partitions", s.Partitions}})
	}
	aggregates := []field{}
	for _, a := range p.Aggregates {
		aggregates = append(aggregates, field{a.Name, a.String()})
	}
	out := []field{
		{"apiVersion", APIVersion},
		{"kind", KindStreamTimePolicy},
		{"stream", p.Stream},
		{"job", p.Job},
		{"generation", p.Generation},
		{"sources", sources},
		{"timestampExtractor", p.Extractor},
		{"watermark", []field{{"boundedOutOfOrderness", p.OutOfOrderness.String()}}},
	}
	if p.IdleAfter > 0 {
		out = append(out, field{"idle", []field{{"after", p.IdleAfter.String()}, {"allIdle", string(p.AllIdle)}}})
	}
	out = append(out, field{"window", p.Window.long()}, field{"aggregates", aggregates})
	if p.Early > 0 {
		out = append(out, field{"trigger", []field{{"early", p.Early.String()}}})
	}
	raw := rawUnlimited
	if p.RetainRaw > 0 {
		raw = p.RetainRaw.String()
	}
	return append(out,
		field{"allowedLateness", p.AllowedLateness.String()},
		field{"late", p.Late},
		field{"retention", []field{{"ids", p.RetainIDs.String()}, {"raw", raw}}},
		field{"correctionMode", p.CorrectionMode},
		field{"rebuildLimit", p.RebuildLimit},
		field{"topologyChange", p.TopologyChange},
	)
}

func (w WindowSpec) long() []field {
	var out []field
	switch w.Kind {
	case Tumbling:
		out = []field{{"tumbling", w.Size.String()}, {"offset", w.Offset.String()}}
	case Hopping:
		out = []field{{"hopping", w.Size.String()}, {"every", w.Every.String()}, {"offset", w.Offset.String()}}
	case Session:
		out = []field{{"session", w.Gap.String()}, {"rule", w.Rule}}
	case Calendar:
		out = []field{{"calendar", w.Calendar}}
	}
	return append(out, field{"zone", w.Zone})
}

// Canonical answers the document as JSON: minified, keys sorted, no nulls, every default
// written out, durations in one spelling. It does not depend on the order of fields nor
// on long or short forms.
func (d *Document) Canonical() []byte { return appendCanonical(nil, d.long()) }

// Digest answers lowercase hex SHA-256 of Canonical.
func (d *Document) Digest() string {
	sum := sha256.Sum256(d.Canonical())
	return hex.EncodeToString(sum[:])
}

// appendCanonical appends a value of a long form as canonical JSON.
func appendCanonical(dst []byte, value any) []byte {
	switch v := value.(type) {
	case []field:
		ordered := slices.Clone(v)
		slices.SortFunc(ordered, func(a, b field) int { return cmp.Compare(a.name, b.name) })
		dst = append(dst, '{')
		for i, f := range ordered {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(envelope.AppendJSONString(dst, f.name), ':')
			dst = appendCanonical(dst, f.value)
		}
		return append(dst, '}')
	case [][]field:
		return appendItems(dst, v)
	case []string:
		return appendItems(dst, v)
	case string:
		return envelope.AppendJSONString(dst, v)
	}
	return fmt.Append(dst, value) // integers and bools are JSON as Go prints them
}

func appendItems[T any](dst []byte, items []T) []byte {
	dst = append(dst, '[')
	for i, item := range items {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendCanonical(dst, item)
	}
	return append(dst, ']')
}

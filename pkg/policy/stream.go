package policy

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// Defaults and bounds of a BusinessStream.
const (
	DefaultMaxFuture     = 5 * Minute
	DefaultNotBefore     = envelope.EventTime(0) // 1970-01-01
	DefaultMaxEventBytes = 256 << 10

	MaxPartitions      = 99
	MaxEventBytesLimit = 512 << 10 // a frame and a quarantine record must hold the event
	MaxScale           = 18
	maxSchemaGen       = 1 << 31
)

func (r *reader) stream(o *object) *BusinessStream {
	r.schema(o, "businessStream.v1")
	bs := &BusinessStream{
		Name:             r.plain(o.required("name", "orders"), "name"),
		Partitions:       int(r.integer(o.required("partitions", "8"), "partitions", 1, MaxPartitions, 1)),
		MaxFuture:        DefaultMaxFuture,
		NotBefore:        DefaultNotBefore,
		SchemaGeneration: int(r.integer(o.optional("schemaGeneration"), "schemaGeneration", 1, maxSchemaGen, 1)),
		Retractions:      r.boolean(o.optional("retractions"), "retractions"),
		MaxEventBytes:    r.size(o.optional("maxEventBytes"), "maxEventBytes"),
	}
	for i, item := range r.list(o.required("key", "[/order/region]"), "key") {
		bs.Key = append(bs.Key, r.pointer(item, "key["+strconv.Itoa(i)+"]"))
	}
	bs.Values = r.values(o.optional("values"))
	bs.Extractors = r.extractors(o.required("eventTime", "{order.occurred_at@1: {path: /occurred_at, format: rfc3339}}"))
	r.bounds(o.optional("bounds"), bs)
	return bs
}

func (r *reader) values(n *node) []ValueSpec {
	if n == nil {
		return nil
	}
	o := r.object(n, "values")
	if o == nil {
		return nil
	}
	var out []ValueSpec
	for _, f := range o.fields {
		path := o.at(f.name)
		r.checkFieldName(f.name, f.line, path)
		v := r.object(f.value, path)
		if v == nil {
			continue
		}
		spec := ValueSpec{
			Name: f.name,
			Path: r.pointer(v.required("path", "/order/amount"), path+".path"),
			Type: ValueType(r.choice(v.required("type", "decimal"), path+".type", "", string(Decimal), string(Int), string(String))),
		}
		if spec.Type == Decimal {
			spec.Scale = int(r.integer(v.required("scale", "2"), path+".scale", 0, MaxScale, 0))
		} else if scale := v.optional("scale"); scale != nil && spec.Type != "" {
			r.refuse(scale.line, "bad-value", "%s.scale: only decimals have a scale; remove it or write type: decimal", path)
		}
		v.finish()
		out = append(out, spec)
	}
	slices.SortFunc(out, func(a, b ValueSpec) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (r *reader) extractors(n *node) []Extractor {
	if n == nil {
		return nil
	}
	o := r.object(n, "eventTime")
	if o == nil {
		return nil
	}
	if len(o.fields) == 0 {
		r.refuse(n.line, "missing-field", "eventTime is empty; it needs at least one extractor, for example order.occurred_at@1: {path: /occurred_at, format: rfc3339}")
	}
	var out []Extractor
	for _, f := range o.fields {
		path := o.at(f.name)
		if !extractorName.MatchString(f.name) {
			r.refuse(f.line, "bad-name", "%s: an extractor's name ends in its version, because a changed extractor is another one; write for example %s@1 (letters, digits, _, -, .)", path, strings.TrimRight(f.name, "@"))
		}
		v := r.object(f.value, path)
		if v == nil {
			continue
		}
		out = append(out, Extractor{
			Name:   f.name,
			Path:   r.pointer(v.required("path", "/occurred_at"), path+".path"),
			Format: TimeFormat(r.choice(v.required("format", "rfc3339"), path+".format", "", string(RFC3339), string(UnixS), string(UnixMs), string(UnixUs))),
		})
		v.finish()
	}
	slices.SortFunc(out, func(a, b Extractor) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (r *reader) bounds(n *node, bs *BusinessStream) {
	if n == nil {
		return
	}
	o := r.object(n, "bounds")
	if o == nil {
		return
	}
	bs.MaxFuture = r.duration(o.optional("maxFuture"), "bounds.maxFuture", DefaultMaxFuture)
	if at := o.optional("notBefore"); at != nil {
		t, err := envelope.ParseEventTime(r.text(at, "bounds.notBefore"))
		switch {
		case at.shape != shapeText: // already said
		case err != nil || t == envelope.MinEventTime || t == envelope.MaxEventTime:
			r.refuse(at.line, "bad-value", "bounds.notBefore is %q; write an RFC 3339 time such as 2020-01-01T00:00:00Z", at.text)
		default:
			bs.NotBefore = t
		}
	}
	o.finish()
}

// size reads a number of bytes, plain or with a unit; n may be nil.
func (r *reader) size(n *node, path string) int64 {
	if n == nil {
		return DefaultMaxEventBytes
	}
	if n.shape != shapeInt && n.shape != shapeText {
		r.wrongShape(n, path, "a size such as 256KiB")
		return DefaultMaxEventBytes
	}
	digits, unit := n.text, int64(1)
	for _, u := range []struct {
		name string
		size int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"kB", 1000}, {"MB", 1000 * 1000}, {"B", 1}} {
		if head, found := strings.CutSuffix(n.text, u.name); found {
			digits, unit = head, u.size
			break
		}
	}
	count, err := strconv.ParseUint(digits, 10, 32)
	size := int64(count) * unit
	if err != nil || strconv.FormatUint(count, 10) != digits || size < 1 || size > MaxEventBytesLimit {
		r.refuse(n.line, "bad-value", "%s is %s; it must be a whole number with B, kB, KiB, MB or MiB, from 1B to %dKiB", path, n.text, MaxEventBytesLimit>>10)
		return DefaultMaxEventBytes
	}
	return size
}

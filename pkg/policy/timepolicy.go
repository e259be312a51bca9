package policy

import (
	"strconv"
)

// Defaults and bounds of a StreamTimePolicy.
const (
	DefaultRebuildLimit   = 1_000_000
	LateRebuild           = "rebuild"
	LateManual            = "manual"
	LateDeadLetter        = "deadLetter"
	UpsertRevision        = "UPSERT_REVISION"
	MaxSourcePartitions   = 4096
	maxGeneration         = 1 << 31
	maxRebuildLimit       = 1 << 53
	rawUnlimited          = "unlimited"
	boundedOutOfOrderness = "bounded-out-of-orderness"
)

func (r *reader) policy(o *object) *StreamTimePolicy {
	r.schema(o, "streamTimePolicy.v1")
	p := &StreamTimePolicy{
		Stream:  r.plain(o.required("stream", "orders"), "stream"),
		AllIdle: Hold,
	}
	p.Job, p.Generation = r.numbered(o, "job", "generation", "hourly-revenue")
	p.Sources = r.sources(o.required("sources", "[{name: shop, partitions: 1}]"))
	p.Extractor = r.extractorRef(o.required("timestampExtractor", "order.occurred_at@1"))
	p.OutOfOrderness = r.watermark(o.required("watermark", "{boundedOutOfOrderness: 5m}"))
	r.idle(o, p)
	p.Window = r.window(o.required("window", "{tumbling: 1h}"))
	p.Aggregates = r.aggregates(o.required("aggregates", "{orders: count()}"))
	p.Early = r.early(o.optional("trigger"))
	p.AllowedLateness = r.duration(o.optional("allowedLateness"), "allowedLateness", 0)
	p.Late = r.choice(o.optional("late"), "late", LateRebuild, LateRebuild, LateManual, LateDeadLetter)
	r.retention(o.optional("retention"), p)
	p.CorrectionMode = r.choice(o.optional("correctionMode"), "correctionMode", UpsertRevision, UpsertRevision)
	p.RebuildLimit = r.integer(o.optional("rebuildLimit"), "rebuildLimit", 1, maxRebuildLimit, DefaultRebuildLimit)
	p.TopologyChange = r.boolean(o.optional("topologyChange"), "topologyChange")
	return p
}

func (r *reader) sources(n *node) []SourceRef {
	var out []SourceRef
	for i, item := range r.list(n, "sources") {
		path := sourcePath(i)
		o := r.object(item, path)
		if o == nil {
			continue
		}
		r.lines[path] = item.line
		name := o.required("name", "shop")
		ref := SourceRef{
			Name:       r.text(name, path+".name"),
			Partitions: int(r.integer(o.optional("partitions"), path+".partitions", 1, MaxSourcePartitions, 1)),
		}
		if name != nil && name.shape == shapeText && !ValidSource(ref.Name) {
			r.refuse(name.line, "bad-name", "%s.name must have 1 to 256 bytes of UTF-8 text, not %d", path, len(ref.Name))
		}
		for _, other := range out {
			if other.Name == ref.Name {
				r.refuse(o.line, "duplicate-source", "source %q is listed twice; list it once with all its partitions", ref.Name)
			}
		}
		o.finish()
		out = append(out, ref)
	}
	return out
}

// extractorRef reads timestampExtractor: order.occurred_at@2, or {name: order.occurred_at, version: 2}.
func (r *reader) extractorRef(n *node) string {
	if n == nil {
		return ""
	}
	var text string
	line := n.line
	if n.shape == shapeMap {
		o := r.object(n, "timestampExtractor")
		name := r.text(o.required("name", "order.occurred_at"), "timestampExtractor.name")
		version := r.integer(o.required("version", "1"), "timestampExtractor.version", 1, 999_999, 1)
		o.finish()
		text = name + "@" + strconv.FormatInt(version, 10)
	} else {
		text = r.text(n, "timestampExtractor")
		if n.shape != shapeText {
			return ""
		}
	}
	if !extractorName.MatchString(text) {
		r.refuse(line, "bad-name", "timestampExtractor is %q; write the extractor's name with its version, for example order.occurred_at@2", text)
	}
	return text
}

// watermark reads {boundedOutOfOrderness: 5m} or bounded-out-of-orderness:5m.
func (r *reader) watermark(n *node) Duration {
	if n == nil {
		return 0
	}
	if n.shape == shapeText {
		word, rest := colon(n.text)
		if word != boundedOutOfOrderness || len(rest) != 1 {
			r.refuse(n.line, "bad-value", "watermark is %q; write {boundedOutOfOrderness: 5m} or %s:5m", n.text, boundedOutOfOrderness)
			return 0
		}
		return r.duration(&node{shape: shapeText, line: n.line, text: rest[0]}, "watermark", 0)
	}
	o := r.object(n, "watermark")
	if o == nil {
		return 0
	}
	d := r.duration(o.required("boundedOutOfOrderness", "5m"), "watermark.boundedOutOfOrderness", 0)
	o.finish()
	return d
}

// idle reads idle: {after: 15m, allIdle: advance} or idlePartitionAfter: 15m.
func (r *reader) idle(o *object, p *StreamTimePolicy) {
	n, short := o.optional("idle"), o.optional("idlePartitionAfter")
	if n != nil && short != nil {
		r.refuse(short.line, "duplicate-field", "idle and idlePartitionAfter say the same thing; keep one of the two")
		return
	}
	if short != nil {
		p.IdleAfter = r.duration(short, "idlePartitionAfter", Second)
		r.lines["idle.after"] = short.line
		return
	}
	if n == nil {
		return
	}
	i := r.object(n, "idle")
	if i == nil {
		return
	}
	p.IdleAfter = r.duration(i.required("after", "15m"), "idle.after", Second)
	p.AllIdle = AllIdle(r.choice(i.optional("allIdle"), "idle.allIdle", string(Hold), string(Hold), string(Advance)))
	i.finish()
}

func (r *reader) early(n *node) Duration {
	if n == nil {
		return 0
	}
	o := r.object(n, "trigger")
	if o == nil {
		return 0
	}
	every := o.required("early", "30s")
	d := r.duration(every, "trigger.early", Second)
	if every != nil && d == 0 {
		r.refuse(every.line, "bad-value", "trigger.early is 0; leave trigger out for no previews, or write an interval such as 30s")
	}
	o.finish()
	return d
}

// retention reads {ids: 48h, raw: unlimited}. Ids are kept by default as long as an
// event can still change a window.
func (r *reader) retention(n *node, p *StreamTimePolicy) {
	p.RetainIDs = p.AllowedLateness.plus(max(0, p.Window.Longest()))
	if n == nil {
		return
	}
	o := r.object(n, "retention")
	if o == nil {
		return
	}
	p.RetainIDs = r.duration(o.optional("ids"), "retention.ids", p.RetainIDs)
	raw := o.optional("raw")
	if raw != nil && raw.text != rawUnlimited {
		p.RetainRaw = r.duration(raw, "retention.raw", Day)
		if p.RetainRaw == 0 {
			r.refuse(raw.line, "bad-value", "retention.raw is %s; write a time such as 400d, or unlimited", raw.text)
		}
	}
	o.finish()
}

func sourcePath(i int) string { return "sources[" + strconv.Itoa(i) + "]" }

package policy

import (
	"cmp"
	"math/big"
	"regexp"
	"slices"
	"strings"
)

// Bounds of an EffectPolicy.
const (
	MaxExpression        = 4096 // bytes of one CEL expression
	MaxPayloadFields     = 64
	MaxFirstOfGeneration = 1_000_000
	// EffectKeyMember is the member that is added to every payload.
	EffectKeyMember = "effectKey"

	maxAmountDigits = 38
)

var (
	versionRef  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}@[1-9][0-9]{0,9}$`)
	plainAmount = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?$`)
)

func (r *reader) effect(o *object) *EffectPolicy {
	r.schema(o, "effectPolicy.v1")
	p := &EffectPolicy{}
	p.Name, p.Version = r.versioned(o, "reward")
	p.Stream = r.plain(o.required("stream", "orders"), "stream")
	p.Job = r.plain(o.required("job", "hourly-revenue"), "job")
	p.EffectType = r.plain(o.required("effectType", "issue-reward"), "effectType")
	p.Subject = r.expression(o.required("subject", "key"), "subject")
	p.When = r.expression(o.required("when", `value.revenue >= decimal("10000")`), "when")
	p.RequireProvenance = Provenance(r.choice(o.optional("requireProvenance"), "requireProvenance", string(ProvenanceAny), string(ProvenanceAny), string(ProvenanceData)))
	p.Payload = r.payload(o.required("payload", "{account: key}"), "payload")
	p.Adapter = r.versionRef(o.required("adapter", "rewards-api@1"), "adapter")
	p.Airlock = r.airlock(o.optional("airlock"))
	p.Corrections = r.corrections(o.optional("corrections"))
	return p
}

// versioned reads name and version, or their short form name: reward@3.
func (r *reader) versioned(o *object, example string) (name string, version int) {
	return r.numbered(o, "name", "version", example)
}

// numbered reads a name and its number, which may stand behind an @ in the name.
func (r *reader) numbered(o *object, nameField, numberField, example string) (name string, number int) {
	n := o.required(nameField, example+"@1")
	written := o.optional(numberField)
	if n == nil {
		return "", 0
	}
	bare := *n
	if at := strings.LastIndexByte(n.text, '@'); n.shape == shapeText && at >= 0 {
		if written != nil {
			r.refuse(written.line, "duplicate-field", "%s is said twice, in %s: %s and here; keep one of the two", numberField, nameField, n.text)
		}
		written = &node{shape: shapeInt, line: n.line, text: n.text[at+1:]}
		r.lines[numberField] = n.line
		bare.text = n.text[:at]
	}
	name = r.plain(&bare, nameField)
	if written == nil {
		r.refuse(n.line, "missing-field", "%s is missing; write %s: %s@1 or add %s: 1", numberField, nameField, name, numberField)
	}
	return name, int(r.integer(written, numberField, 1, maxGeneration, 1))
}

// versionRef reads <name>@<version>, or {name: …, version: …}; n may be nil.
func (r *reader) versionRef(n *node, path string) string {
	if n == nil {
		return ""
	}
	if n.shape == shapeMap {
		o := r.object(n, path)
		if o == nil {
			return ""
		}
		name := r.plain(o.required("name", "rewards-api"), path+".name")
		version := r.integer(o.required("version", "1"), path+".version", 1, maxGeneration, 1)
		o.finish()
		return PolicyGeneration(name, int(version))
	}
	text := r.text(n, path)
	if _, version, err := ParsePolicyGeneration(text); n.shape == shapeText && (!versionRef.MatchString(text) || err != nil || version > maxGeneration) {
		r.refuse(n.line, "bad-name", "%s is %q; write a name with its version, for example rewards-api@1", path, text)
	}
	return text
}

// expression reads CEL, which only its compiler can judge; a number or a boolean is a
// constant. n may be nil.
func (r *reader) expression(n *node, path string) string {
	if n == nil {
		return ""
	}
	if n.shape == shapeInt || n.shape == shapeBool {
		return n.text
	}
	text := r.text(n, path)
	trimmed := strings.TrimSpace(text)
	switch {
	case n.shape != shapeText: // already said
	case trimmed == "":
		r.refuse(n.line, "bad-value", "%s is empty; write a CEL expression, such as key or value.revenue", path)
	case len(text) > MaxExpression:
		r.refuse(n.line, "expression-too-long", "%s has %d bytes, more than the %d of an expression; compute it in the provider, or split it", path, len(text), MaxExpression)
	}
	return trimmed
}

// payload reads {member: expression}; n may be nil.
func (r *reader) payload(n *node, path string) []PayloadField {
	if n == nil {
		return nil
	}
	o := r.object(n, path)
	if o == nil {
		return nil
	}
	if len(o.fields) > MaxPayloadFields {
		r.refuse(n.line, "bad-value", "%s has %d members, more than %d; group them in a map, such as order: '{\"id\": key}'", path, len(o.fields), MaxPayloadFields)
	}
	var out []PayloadField
	for _, f := range o.fields {
		at := o.at(f.name)
		r.checkFieldName(f.name, f.line, at)
		if strings.EqualFold(f.name, EffectKeyMember) {
			r.refuse(f.line, "payload-effect-key", "%s: every payload gets the member %s by itself, since evidence is matched by it; remove it here", at, EffectKeyMember)
		}
		out = append(out, PayloadField{Name: f.name, Expr: r.expression(f.value, at)})
	}
	slices.SortFunc(out, func(a, b PayloadField) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (r *reader) airlock(n *node) Airlock {
	var a Airlock
	if n == nil {
		return a
	}
	o := r.object(n, "airlock")
	if o == nil {
		return a
	}
	if above := o.optional("amountAbove"); above != nil {
		if limit := r.object(above, "airlock.amountAbove"); limit != nil {
			field := limit.required("field", "points")
			a.AmountField = r.text(field, "airlock.amountAbove.field")
			if field != nil && field.shape == shapeText {
				r.checkFieldName(a.AmountField, field.line, "airlock.amountAbove.field")
			}
			a.AmountLimit = r.amount(limit.required("limit", "100000"), "airlock.amountAbove.limit")
			limit.finish()
		}
	}
	a.FirstOfGeneration = int(r.integer(o.optional("firstOfGeneration"), "airlock.firstOfGeneration", 0, MaxFirstOfGeneration, 0))
	if older := o.optional("windowOlderThan"); older != nil {
		a.OlderThan = r.duration(older, "airlock.windowOlderThan", Day)
		if a.OlderThan == 0 {
			r.refuse(older.line, "bad-value", "airlock.windowOlderThan is %s; every window is older than that: write a time such as 48h, or leave it out for the job's allowedLateness and a day", older.text)
		}
	}
	o.finish()
	return a
}

// amount reads an exact decimal, as a whole number or as text ("99.50"), and answers it
// without zeros at its end; n may be nil.
func (r *reader) amount(n *node, path string) string {
	if n == nil {
		return ""
	}
	if n.shape != shapeText && n.shape != shapeInt {
		r.wrongShape(n, path, "a whole number, or a decimal in quotes such as \"99.50\"")
		return ""
	}
	digits := len(strings.Trim(strings.ReplaceAll(n.text, ".", ""), "-"))
	if !plainAmount.MatchString(n.text) || digits > maxAmountDigits {
		r.refuse(n.line, "bad-value", "%s is %q; write a decimal of at most %d digits, such as 100000 or \"99.50\"", path, n.text, maxAmountDigits)
		return ""
	}
	text := n.text
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	if value, ok := new(big.Rat).SetString(text); ok && value.Sign() == 0 {
		return "0"
	}
	return text
}

// corrections reads a mode, or {mode: compensate, adapter: undo-api@1, payload: {…}}.
func (r *reader) corrections(n *node) Corrections {
	c := Corrections{Mode: CorrectManual}
	if n == nil {
		return c
	}
	modes := []string{string(CorrectManual), string(CorrectCompensate), string(CorrectAdjust)}
	if n.shape == shapeText {
		c.Mode = CorrectionMode(r.choice(n, "corrections", string(CorrectManual), modes...))
		return c
	}
	o := r.object(n, "corrections")
	if o == nil {
		return c
	}
	c.Mode = CorrectionMode(r.choice(o.required("mode", "manual"), "corrections.mode", string(CorrectManual), modes...))
	c.Adapter = r.versionRef(o.optional("adapter"), "corrections.adapter")
	c.Payload = r.payload(o.optional("payload"), "corrections.payload")
	o.finish()
	return c
}

func (p *EffectPolicy) long() []field {
	var airlock []field
	if a := p.Airlock; a.AmountField != "" {
		airlock = append(airlock, field{"amountAbove", []field{{"field", a.AmountField}, {"limit", a.AmountLimit}}})
	}
	airlock = append(airlock, field{"firstOfGeneration", p.Airlock.FirstOfGeneration})
	if p.Airlock.OlderThan > 0 {
		airlock = append(airlock, field{"windowOlderThan", p.Airlock.OlderThan.String()})
	}
	corrections := []field{{"mode", string(p.Corrections.Mode)}}
	if p.Corrections.Adapter != "" {
		corrections = append(corrections, field{"adapter", p.Corrections.Adapter})
	}
	if len(p.Corrections.Payload) > 0 {
		corrections = append(corrections, field{"payload", payloadLong(p.Corrections.Payload)})
	}
	return []field{
		{"apiVersion", APIVersion},
		{"kind", KindEffectPolicy},
		{"name", p.Name},
		{"version", p.Version},
		{"stream", p.Stream},
		{"job", p.Job},
		{"effectType", p.EffectType},
		{"subject", p.Subject},
		{"when", p.When},
		{"requireProvenance", string(p.RequireProvenance)},
		{"payload", payloadLong(p.Payload)},
		{"adapter", p.Adapter},
		{"airlock", airlock},
		{"corrections", corrections},
	}
}

func payloadLong(fields []PayloadField) []field {
	out := []field{}
	for _, f := range fields {
		out = append(out, field{f.Name, f.Expr})
	}
	return out
}

package oracle

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// reader reads event data again, from the raw JSON.
type reader struct {
	stream    *policy.BusinessStream
	policy    *policy.StreamTimePolicy
	extractor policy.Extractor
	specs     map[string]policy.ValueSpec
}

// datum is what the policy needs to know of one event's data.
type datum struct {
	digest string
	time   envelope.EventTime
	noTime bool
	values map[string]value
}

// value is a number scaled by 10^scale, or text.
type value struct {
	number *big.Int
	text   string
}

func newReader(stream *policy.BusinessStream, p *policy.StreamTimePolicy) (*reader, error) {
	r := &reader{stream: stream, policy: p, specs: map[string]policy.ValueSpec{}}
	found := false
	for _, e := range stream.Extractors {
		if e.Name == p.Extractor {
			r.extractor, found = e, true
		}
	}
	if !found {
		return nil, fmt.Errorf("stream %s has no extractor %s", stream.Name, p.Extractor)
	}
	for _, v := range stream.Values {
		r.specs[v.Name] = v
	}
	for _, a := range p.Aggregates {
		switch a.Func {
		case "count", "sum", "min", "max", "avg", "first", "last", "distinct":
		default:
			return nil, fmt.Errorf("the oracle does not know the aggregate %s", a.Func)
		}
	}
	return r, nil
}

func (r *reader) read(data []byte) (*datum, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return nil, fmt.Errorf("data is no JSON: %w", err)
	}
	out := &datum{values: map[string]value{}}
	digest := sha256.Sum256([]byte(canonical(tree)))
	out.digest = hex.EncodeToString(digest[:])
	at, ok := lookup(tree, r.extractor.Path)
	if !ok {
		out.noTime = true
		return out, nil
	}
	t, err := instant(at, r.extractor.Format)
	if err != nil {
		return nil, err
	}
	out.time = t
	for name, spec := range r.specs {
		raw, ok := lookup(tree, spec.Path)
		if !ok {
			continue // a value declared after this event
		}
		v, err := scaled(raw, spec)
		if err != nil {
			return nil, fmt.Errorf("value %s: %w", name, err)
		}
		out.values[name] = v
	}
	return out, nil
}

// canonical answers minified JSON with sorted keys, without null members, numbers as written.
func canonical(v any) string {
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k, member := range v {
			if member != nil {
				keys = append(keys, k)
			}
		}
		sort.Strings(keys)
		parts := make([]string, len(keys))
		for i, k := range keys {
			parts[i] = quoted(k) + ":" + canonical(v[k])
		}
		return "{" + strings.Join(parts, ",") + "}"
	case []any:
		parts := make([]string, len(v))
		for i, element := range v {
			parts[i] = canonical(element)
		}
		return "[" + strings.Join(parts, ",") + "]"
	case json.Number:
		return v.String()
	case string:
		return quoted(v)
	case bool:
		return strconv.FormatBool(v)
	}
	return "null"
}

func quoted(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return strconv.Quote(s)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// lookup follows a JSON Pointer.
func lookup(tree any, pointer string) (any, bool) {
	if pointer == "" {
		return tree, true
	}
	for _, token := range strings.Split(pointer, "/")[1:] {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		switch node := tree.(type) {
		case map[string]any:
			next, ok := node[token]
			if !ok || next == nil {
				return nil, false
			}
			tree = next
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(node) {
				return nil, false
			}
			tree = node[i]
		default:
			return nil, false
		}
	}
	return tree, true
}

func literal(raw any) (string, error) {
	switch raw := raw.(type) {
	case json.Number:
		return raw.String(), nil
	case string:
		return raw, nil
	}
	return "", fmt.Errorf("%v is neither a number nor a string", raw)
}

func instant(raw any, format policy.TimeFormat) (envelope.EventTime, error) {
	text, err := literal(raw)
	if err != nil {
		return 0, err
	}
	if format == policy.RFC3339 {
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return 0, err
		}
		return envelope.EventTime(t.Unix()*1_000_000 + int64(t.Nanosecond()/1000)), nil
	}
	n, ok := new(big.Rat).SetString(text)
	if !ok {
		return 0, fmt.Errorf("time %q is no number", text)
	}
	unit := map[policy.TimeFormat]int64{policy.UnixS: 1_000_000, policy.UnixMs: 1000, policy.UnixUs: 1}[format]
	n.Mul(n, new(big.Rat).SetInt64(unit))
	if !n.IsInt() || !n.Num().IsInt64() {
		return 0, fmt.Errorf("time %q is no whole number of microseconds", text)
	}
	return envelope.EventTime(n.Num().Int64()), nil
}

func scaled(raw any, spec policy.ValueSpec) (value, error) {
	if spec.Type == policy.String {
		s, ok := raw.(string)
		if !ok {
			return value{}, fmt.Errorf("%v is no string", raw)
		}
		return value{text: s}, nil
	}
	text, err := literal(raw)
	if err != nil {
		return value{}, err
	}
	n, ok := new(big.Rat).SetString(text)
	if !ok {
		return value{}, fmt.Errorf("%q is no number", text)
	}
	n.Mul(n, new(big.Rat).SetInt(pow10(spec.Scale)))
	if !n.IsInt() {
		return value{}, fmt.Errorf("%q has more than %d decimals", text, spec.Scale)
	}
	return value{number: n.Num()}, nil
}

func pow10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// aggregate answers every aggregate of the policy over members, as text. It knows no
// limit of distinct: a window above it halts the engine, and then there is no row.
func (r *reader) aggregate(members map[string]member) map[string]string {
	ordered := make([]member, 0, len(members))
	for _, m := range members {
		ordered = append(ordered, m)
	}
	sort.Slice(ordered, func(i, j int) bool { return earlier(ordered[i], ordered[j]) })
	out := map[string]string{}
	for _, a := range r.policy.Aggregates {
		if a.Func == "count" {
			out[a.Name] = strconv.Itoa(len(members))
			continue
		}
		var values []value
		for _, m := range ordered {
			if v, ok := m.values[a.Arg]; ok {
				values = append(values, v)
			}
		}
		out[a.Name] = r.fold(a, values)
	}
	return out
}

// earlier orders members by event time, then source, then id.
func earlier(a, b member) bool {
	switch {
	case a.time != b.time:
		return a.time < b.time
	case a.source != b.source:
		return a.source < b.source
	}
	return a.id < b.id
}

// fold answers one aggregate over the members' values, which are in the members' order.
func (r *reader) fold(a policy.AggregateSpec, values []value) string {
	spec := r.specs[a.Arg]
	scale := spec.Scale
	if spec.Type != policy.Decimal {
		scale = 0
	}
	switch {
	case a.Func == "sum":
		return decimal(total(values), scale)
	case a.Func == "distinct":
		seen := map[string]bool{}
		for _, v := range values {
			seen[r.show(v, scale)] = true
		}
		return strconv.Itoa(len(seen))
	case len(values) == 0:
		return ""
	}
	least, most := values[0], values[0]
	for _, v := range values {
		if less(v, least) {
			least = v
		}
		if less(most, v) {
			most = v
		}
	}
	switch a.Func {
	case "avg":
		scaledUp := new(big.Int).Mul(total(values), pow10(avgDigits))
		return decimal(halfEven(scaledUp, big.NewInt(int64(len(values)))), scale+avgDigits)
	case "first":
		return r.show(values[0], scale)
	case "last":
		return r.show(values[len(values)-1], scale)
	case "min":
		return r.show(least, scale)
	}
	return r.show(most, scale)
}

func total(values []value) *big.Int {
	sum := new(big.Int)
	for _, v := range values {
		if v.number != nil {
			sum.Add(sum, v.number)
		}
	}
	return sum
}

// avgDigits is how many digits an average has beyond its value's scale.
const avgDigits = 6

func less(a, b value) bool {
	if a.number != nil {
		return a.number.Cmp(b.number) < 0
	}
	return a.text < b.text
}

func (r *reader) show(v value, scale int) string {
	if v.number == nil {
		return v.text
	}
	return decimal(v.number, scale)
}

// decimal writes n / 10^scale with exactly scale digits.
func decimal(n *big.Int, scale int) string {
	if scale == 0 {
		return n.String()
	}
	digits := new(big.Int).Abs(n).String()
	if len(digits) <= scale {
		digits = strings.Repeat("0", scale-len(digits)+1) + digits
	}
	text := digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
	if n.Sign() < 0 {
		return "-" + text
	}
	return text
}

// halfEven answers a / b rounded to the nearest, ties to even; b > 0.
func halfEven(a, b *big.Int) *big.Int {
	q, rest := new(big.Int).DivMod(a, b, new(big.Int)) // floor, 0 <= rest < b
	switch twice := new(big.Int).Lsh(rest, 1); twice.Cmp(b) {
	case 1:
		return q.Add(q, big.NewInt(1))
	case 0:
		if q.Bit(0) == 1 {
			return q.Add(q, big.NewInt(1))
		}
	}
	return q
}

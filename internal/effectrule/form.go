package effectrule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// form is a payload whose members are still to be computed.
type form struct {
	members []member // sorted by name, effectKey among them
	amount  []string // path to what evidence must name again; nil = nothing
	subject []string
}

type member struct {
	name  string
	value *expression // nil for effectKey
}

// compileForm reads the members of a payload and where an adapter's evidence names them
// again.
func (f *findings) compileForm(c *compiler, path string, fields []policy.PayloadField, a *policy.Adapter) *form {
	out := &form{members: []member{{name: policy.EffectKeyMember}}}
	for _, field := range fields {
		at := path + "." + field.Name
		value := f.compile(c, at, field.Expr)
		if value != nil && !renderable(value.result) {
			f.refuse(at, "payload-type", fmt.Sprintf("a payload cannot hold a value of type %s; write text, an int, a decimal, a time, true or false, or a list or map of these", cel.FormatCELType(value.result)))
		}
		out.members = append(out.members, member{field.Name, value})
	}
	slices.SortFunc(out.members, func(x, y member) int { return strings.Compare(x.name, y.name) })
	out.amount = f.evidenced(out, path, "amount", a.Evidence.ExpectAmount, a, types.StringKind, types.IntKind)
	out.subject = f.evidenced(out, path, "subject", a.Evidence.ExpectSubject, a, types.StringKind, types.IntKind, types.TimestampKind)
	return out
}

// evidenced answers the path to the member that evidence names again.
func (f *findings) evidenced(out *form, path, what, pointer string, a *policy.Adapter, kinds ...types.Kind) []string {
	if pointer == "" {
		return nil
	}
	steps := strings.Split(pointer[1:], "/")
	for i, step := range steps {
		steps[i] = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
	}
	i := slices.IndexFunc(out.members, func(m member) bool { return m.name == steps[0] })
	if i < 0 {
		f.refuse(path, "evidence-not-in-payload", fmt.Sprintf("adapter %s says that its answers repeat the %s at %s of the payload, but there is no member %s; add it, or map evidence.%s in the adapter", a.Ref(), what, pointer, steps[0], what))
		return nil
	}
	if value := out.members[i].value; value != nil && len(steps) == 1 {
		t := value.result
		if !slices.Contains(kinds, t.Kind()) && t.TypeName() != decimalType.TypeName() {
			f.refuse(path+"."+steps[0], "evidence-type", fmt.Sprintf("adapter %s says that its answers repeat this as the %s, but it is of type %s; write a number or text", a.Ref(), what, cel.FormatCELType(t)))
		}
	}
	return steps
}

// filled is a payload with what evidence must name again.
type filled struct {
	payload []byte
	expect  effect.Expectation
	values  map[string]ref.Val
}

// fill computes the members in the order of their names.
func (m *form) fill(path string, key effect.EffectKey, input map[string]any) (*filled, error) {
	out := &filled{payload: []byte{'{'}, values: map[string]ref.Val{}}
	for i, member := range m.members {
		if i > 0 {
			out.payload = append(out.payload, ',')
		}
		out.payload = append(envelope.AppendJSONString(out.payload, member.name), ':')
		value := ref.Val(types.String(key.String()))
		if member.value != nil {
			var err error
			if value, err = member.value.eval(input); err != nil {
				return nil, err
			}
		}
		out.values[member.name] = value
		var err error
		if out.payload, err = appendValue(out.payload, value); err != nil {
			return nil, &evalError{path: path + "." + member.name, cause: err.Error()}
		}
		if len(out.payload) >= effect.MaxPayload {
			return nil, &evalError{path: path, cause: fmt.Sprintf("the payload has more than %d bytes", effect.MaxPayload)}
		}
	}
	out.payload = append(out.payload, '}')
	if !utf8.Valid(out.payload) {
		return nil, &evalError{path: path, cause: "the payload is no UTF-8"}
	}
	var err error
	if out.expect.Amount, err = out.at(path, "amount", m.amount); err != nil {
		return nil, err
	}
	if _, no := parseDecimal(out.expect.Amount); m.amount != nil && no != nil {
		return nil, &evalError{path: path, cause: "what evidence repeats as the amount is no decimal"}
	}
	out.expect.Subject, err = out.at(path, "subject", m.subject)
	return out, err
}

// at answers the text of what stands at a path of the payload.
func (f *filled) at(path, what string, steps []string) (string, error) {
	if steps == nil {
		return "", nil
	}
	value := f.values[steps[0]]
	for _, step := range steps[1:] {
		value = inside(value, step)
	}
	text, ok := plainText(value)
	if !ok || text == "" || len(text) > effect.MaxName {
		return "", &evalError{path: path, cause: fmt.Sprintf("what evidence repeats as the %s is missing, or no number or text of at most %d bytes", what, effect.MaxName)}
	}
	return text, nil
}

// inside answers a member of a map, or an item of a list; nil where there is none.
func inside(v ref.Val, step string) ref.Val {
	switch v := v.(type) {
	case traits.Mapper:
		if found, ok := v.Find(types.String(step)); ok {
			return found
		}
	case traits.Lister:
		n, err := strconv.ParseInt(step, 10, 32)
		size, isInt := v.Size().(types.Int)
		if err == nil && isInt && n >= 0 && n < int64(size) {
			return v.Get(types.Int(n))
		}
	}
	return nil
}

package effectrule

import (
	"fmt"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Airlock rules of a policy, as records name them.
const (
	LockAmount  = "amountAbove"
	LockFirst   = "firstOfGeneration"
	LockOldness = "windowOlderThan"
)

// Rule is a policy whose expressions are checked against a generation of its job. It can
// be used by several goroutines.
type Rule struct {
	policy  *policy.EffectPolicy
	job     *policy.StreamTimePolicy
	results map[string]*cel.Type // by the aggregate's name
	subject *expression
	when    *expression
	payload *form
	limit   *decimal // of the amount; nil = no cap
	oldest  int64    // microseconds after the end of a window
}

// Compile checks a policy against the generation of its job and the adapter that it
// names. The rule is nil where there are findings; each names its rule: expression-syntax,
// expression-type, unknown-field, subject-not-stable, condition-type, payload-type, ….
func Compile(p *policy.EffectPolicy, bs *policy.BusinessStream, job *policy.StreamTimePolicy, a *policy.Adapter) (*Rule, []policy.Finding) {
	doc := policy.Document{Effect: p}
	return compile(&doc, bs, job, a)
}

func compile(doc *policy.Document, bs *policy.BusinessStream, job *policy.StreamTimePolicy, a *policy.Adapter) (*Rule, []policy.Finding) {
	p, f := doc.Effect, &findings{doc: doc}
	r := &Rule{policy: p, job: job, results: map[string]*cel.Type{}, oldest: oldest(p, job)}
	all := revisionVariables(bs, job)
	for _, spec := range job.Aggregates {
		r.results[spec.Name] = all[prefix+spec.Name]
	}
	stable, err := newCompiler(stableVariables(job), all)
	if err != nil {
		f.refuse("", "expression-environment", err.Error())
		return nil, f.list
	}
	whole, err := newCompiler(all, all)
	if err != nil {
		f.refuse("", "expression-environment", err.Error())
		return nil, f.list
	}
	r.subject = f.compile(stable, "subject", p.Subject)
	f.want(r.subject, "subject", "subject-type", cel.StringType, "a subject is text, such as key")
	r.when = f.compile(whole, "when", p.When)
	f.want(r.when, "when", "condition-type", cel.BoolType, "a condition is true or false, such as value.orders > 10")
	r.payload = f.compileForm(whole, "payload", p.Payload, a)
	r.limit = f.limit(p.Airlock, r.payload)
	if len(f.list) > 0 {
		return nil, f.list
	}
	return r, nil
}

// limit answers the amount above which the airlock holds.
func (f *findings) limit(a policy.Airlock, payload *form) *decimal {
	if a.AmountField == "" {
		return nil
	}
	limit, err := parseDecimal(a.AmountLimit)
	if err != nil {
		f.refuse("airlock.amountAbove.limit", "bad-decimal", err.Error())
	}
	for _, m := range payload.members {
		if m.name != a.AmountField || m.value == nil {
			continue
		}
		if t := m.value.result; t.Kind() != types.IntKind && t.TypeName() != decimalType.TypeName() {
			f.refuse("airlock.amountAbove.field", "airlock-type", fmt.Sprintf("member %s is of type %s; only an int or a decimal can be above a limit", m.name, cel.FormatCELType(t)))
		}
	}
	return &limit
}

// findings collects what is wrong with a document's expressions.
type findings struct {
	doc  *policy.Document
	list []policy.Finding
}

func (f *findings) refuse(path, rule, message string) {
	if path != "" {
		message = path + ": " + message
	}
	f.list = append(f.list, f.doc.Finding(path, rule, message))
}

func (f *findings) compile(c *compiler, path, text string) *expression {
	x, problems := c.compile(path, text)
	for _, p := range problems {
		f.refuse(path, p.rule, p.message)
	}
	return x
}

func (f *findings) want(x *expression, path, rule string, t *cel.Type, message string) {
	if x != nil && !x.result.IsExactType(t) {
		f.refuse(path, rule, fmt.Sprintf("it is of type %s, but must be %s: %s", cel.FormatCELType(x.result), cel.FormatCELType(t), message))
	}
}

// Generation answers the policy generation whose revisions the rule reads.
func (r *Rule) Generation() string { return r.job.PolicyGeneration() }

// Subject answers the business subject of a window: text of 1 to 256 bytes. It is the
// same for every revision of the window. The error never repeats the key.
func (r *Rule) Subject(key string, w revision.Window) (string, error) {
	v, err := r.subject.eval(windowInput(key, w))
	if err != nil {
		return "", err
	}
	text, ok := v.(types.String)
	if !ok || text == "" || len(text) > effect.MaxName {
		return "", &evalError{path: "subject", cause: fmt.Sprintf("it is empty or longer than %d bytes", effect.MaxName)}
	}
	return string(text), nil
}

func windowInput(key string, w revision.Window) map[string]any {
	return map[string]any{nameKey: types.String(key), nameStart: timestamp(w.Start), nameEnd: timestamp(w.End)}
}

package effectrule

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// problem is why an expression is refused.
type problem struct {
	rule    string
	message string
}

// expression is a checked expression, ready to be computed.
type expression struct {
	path    string // of the field in the document
	program cel.Program
	result  *cel.Type
}

// compiler reads expressions over the same names.
type compiler struct {
	env   *cel.Env
	known variables
	all   variables // that other expressions of the document know
}

func newCompiler(known, all variables) (*compiler, error) {
	env, err := environment(known)
	if err != nil {
		return nil, fmt.Errorf("the expression language cannot be set up: %w", err)
	}
	return &compiler{env: env, known: known, all: all}, nil
}

// compile answers the checked expression, or everything that is wrong with it.
func (c *compiler) compile(path, text string) (*expression, []problem) {
	parsed, issues := c.env.Parse(text)
	if issues.Err() != nil {
		return nil, spoken("expression-syntax", issues)
	}
	if bad := c.strangers(parsed); len(bad) > 0 {
		return nil, bad
	}
	if bad := literals(parsed); len(bad) > 0 {
		return nil, bad
	}
	checked, issues := c.env.Check(parsed)
	if issues.Err() != nil {
		return nil, spoken("expression-type", issues)
	}
	if bad := mixtures(checked); len(bad) > 0 {
		return nil, bad
	}
	program, err := c.env.Program(checked, cel.CostLimit(costLimit))
	if err != nil {
		return nil, []problem{{"expression-type", err.Error()}}
	}
	return &expression{path: path, program: program, result: checked.OutputType()}, nil
}

var operatorName = regexp.MustCompile(`'_?([^'_ ]+)_'`)

// spoken answers what the checker says, in one line each.
func spoken(rule string, issues *cel.Issues) []problem {
	var out []problem
	for _, e := range issues.Errors() {
		message := operatorName.ReplaceAllString(strings.ReplaceAll(e.Message, "\n", " "), "'$1'")
		hint := ""
		if strings.Contains(message, "'/' applied to '(decimal") {
			hint = "; a quotient needs a scale: a.divide(b, 2), with decimal(…) around a whole number"
		}
		where := ""
		if column := e.Location.Column() + 1; column > 0 {
			where = fmt.Sprintf(" (column %d)", column)
		}
		out = append(out, problem{rule, message + where + hint})
	}
	return out
}

// strangers answers the names that the expression may not use.
func (c *compiler) strangers(parsed *cel.Ast) []problem {
	var out []problem
	var walk func(e ast.Expr)
	walk = func(e ast.Expr) {
		if name, ok := dotted(e); ok {
			if bad := c.stranger(name); bad != nil && !slices.Contains(out, *bad) {
				out = append(out, *bad)
			}
			return
		}
		for _, child := range children(e) {
			walk(child)
		}
	}
	walk(parsed.NativeRep().Expr())
	return out
}

func (c *compiler) stranger(name string) *problem {
	if has(c.known, name) {
		return nil
	}
	names := slices.Sorted(maps.Keys(c.known))
	if has(c.all, name) {
		return &problem{"subject-not-stable", fmt.Sprintf("%s can be another one in the next revision, and would give the same window a second effectKey; use %s and constants only", name, strings.Join(names, ", "))}
	}
	return &problem{"unknown-field", fmt.Sprintf("there is no %s; an expression here can use %s", name, strings.Join(names, ", "))}
}

// has tells whether name, or what it selects from, is known.
func has(known variables, name string) bool {
	for {
		if _, is := known[name]; is {
			return true
		}
		dot := strings.LastIndexByte(name, '.')
		if dot < 0 {
			return false
		}
		name = name[:dot]
	}
}

// dotted answers the name that identifiers joined by dots make.
func dotted(e ast.Expr) (string, bool) {
	switch e.Kind() {
	case ast.IdentKind:
		return e.AsIdent(), true
	case ast.SelectKind:
		head, ok := dotted(e.AsSelect().Operand())
		return head + "." + e.AsSelect().FieldName(), ok
	}
	return "", false
}

func children(e ast.Expr) []ast.Expr {
	switch e.Kind() {
	case ast.SelectKind:
		return []ast.Expr{e.AsSelect().Operand()}
	case ast.ListKind:
		return e.AsList().Elements()
	case ast.MapKind:
		var out []ast.Expr
		for _, entry := range e.AsMap().Entries() {
			out = append(out, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
		return out
	case ast.CallKind:
		out := e.AsCall().Args()
		if e.AsCall().IsMemberFunction() {
			out = append([]ast.Expr{e.AsCall().Target()}, out...)
		}
		return out
	}
	return nil
}

// literals refuses constants that are not exact, and constants that a function will
// refuse whatever the revision.
func literals(parsed *cel.Ast) []problem {
	var out []problem
	var walk func(e ast.Expr)
	walk = func(e ast.Expr) {
		switch e.Kind() {
		case ast.LiteralKind:
			out = append(out, literal(e.AsLiteral())...)
		case ast.CallKind:
			out = append(out, constantCall(e.AsCall())...)
		case ast.StructKind:
			out = append(out, problem{"expression-type", "expressions build no messages; write a map, such as {\"id\": key}"})
		}
		for _, child := range children(e) {
			walk(child)
		}
	}
	walk(parsed.NativeRep().Expr())
	return out
}

func literal(v ref.Val) []problem {
	switch v := v.(type) {
	case types.Double:
		return []problem{{"no-floats", "numbers with a point are exact decimals here; write decimal(\"1.5\") for 1.5"}}
	case types.Uint, types.Bytes, types.Null:
		return []problem{{"expression-type", fmt.Sprintf("there are no values of type %s here; numbers are int and decimal, text is string", v.Type().TypeName())}}
	}
	return nil
}

// mixtures keeps every operation typed: a list or map whose values are of several types
// may be written into a payload as it is, and nothing else may be done with it.
func mixtures(checked *cel.Ast) []problem {
	var out []problem
	tree := checked.NativeRep()
	var walk func(e ast.Expr)
	walk = func(e ast.Expr) {
		mixed := isMixed(tree.GetType(e.ID()))
		literal := e.Kind() == ast.ListKind || e.Kind() == ast.MapKind
		used := e.Kind() == ast.SelectKind || e.Kind() == ast.CallKind && e.AsCall().FunctionName() != operators.Conditional
		for _, child := range children(e) {
			t := tree.GetType(child.ID())
			switch {
			case used && isMixed(t):
				out = append(out, problem{"expression-type", "the values of this list or map are of several types, so that it can only be written into a payload as it is"})
			case literal && mixed && !isMixed(t) && !renderable(t):
				out = append(out, problem{"payload-type", "a payload cannot hold a value of type " + cel.FormatCELType(t)})
			}
			walk(child)
		}
	}
	walk(tree.Expr())
	return out
}

// isMixed tells whether a type leaves open what is inside.
func isMixed(t *cel.Type) bool {
	return t.IsDyn() || slices.ContainsFunc(t.Parameters(), isMixed)
}

func constantCall(call ast.CallExpr) []problem {
	args := call.Args()
	if len(args) != 1 || args[0].Kind() != ast.LiteralKind {
		return nil
	}
	text, isText := args[0].AsLiteral().(types.String)
	if !isText {
		return nil
	}
	switch call.FunctionName() {
	case "decimal":
		if _, err := parseDecimal(string(text)); err != nil {
			return []problem{{"bad-decimal", fmt.Sprintf("decimal(%q) is %v", string(text), err)}}
		}
	case "date", "month":
		if err := knownZone(string(text)); err != nil {
			return []problem{{"unknown-zone", err.Error()}}
		}
	}
	return nil
}

// ErrExpression is what errors of expressions at work unwrap to.
var ErrExpression = errors.New("an expression has no result")

// evalError says which field could not be computed, and never with which values.
type evalError struct {
	path  string
	cause string
}

func (e *evalError) Error() string {
	return fmt.Sprintf("%s has no result: %s; correct the expression in a new version of the policy", e.path, e.cause)
}

func (e *evalError) Unwrap() error { return ErrExpression }

// eval computes the expression.
func (x *expression) eval(input map[string]any) (ref.Val, error) {
	out, _, err := x.program.Eval(input)
	if err != nil {
		return nil, &evalError{path: x.path, cause: cause(err)}
	}
	return out, nil
}

// cause names what went wrong without the values, which are the customer's.
func cause(err error) string {
	for _, known := range []error{errNoDecimal, errDecimalWide, errDivideByZero, errScale, errIntWide, errZone} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	text := err.Error()
	for _, known := range []string{"cost limit exceeded", "division by zero", "modulus by zero", "integer overflow", "no such key", "index out of bounds"} {
		if strings.Contains(text, known) {
			return known
		}
	}
	return "a function refused its argument"
}

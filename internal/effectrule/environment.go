package effectrule

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/env"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"

	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// Bounds of an expression.
const (
	costLimit    = 50_000 // about a millisecond
	nestingLimit = 64
	nodeLimit    = 1000
)

// Names that every expression knows.
const (
	nameKey   = "key"
	nameStart = "window.start"
	nameEnd   = "window.end"
	prefix    = "value." // before a result of the job
)

// variables are the names that an expression may use, with their types.
type variables map[string]*cel.Type

// stableVariables are those that are the same in every revision of a window. A session
// that grows has other bounds, so that there only the key is stable.
func stableVariables(job *policy.StreamTimePolicy) variables {
	v := variables{nameKey: cel.StringType}
	if job.Window.Kind != policy.Session {
		v[nameStart], v[nameEnd] = cel.TimestampType, cel.TimestampType
	}
	return v
}

// revisionVariables are the key, the window and the job's results. A result whose type
// cannot be told, because its value is not declared, is left out: lint says why.
func revisionVariables(bs *policy.BusinessStream, job *policy.StreamTimePolicy) variables {
	v := variables{nameKey: cel.StringType, nameStart: cel.TimestampType, nameEnd: cel.TimestampType}
	for _, a := range job.Aggregates {
		if t := resultType(bs, a); t != nil {
			v[prefix+a.Name] = t
		}
	}
	return v
}

// resultType answers the type of an aggregate's result.
func resultType(bs *policy.BusinessStream, a policy.AggregateSpec) *cel.Type {
	switch a.Func {
	case "count", "distinct":
		return cel.IntType
	case "avg":
		return decimalType
	}
	for _, spec := range bs.Values {
		if spec.Name != a.Arg {
			continue
		}
		switch spec.Type {
		case policy.Decimal:
			return decimalType
		case policy.Int:
			return cel.IntType
		case policy.String:
			return cel.StringType
		}
	}
	return nil
}

// language is the part of CEL's standard library that is exact and the same everywhere:
// no floats, no bytes, no regular expressions, no clock, no zones of the machine.
var language = []struct {
	function  string
	overloads []string // none = all
}{
	{operators.Conditional, nil},
	{operators.LogicalAnd, nil},
	{operators.LogicalOr, nil},
	{operators.LogicalNot, nil},
	{operators.Equals, nil},
	{operators.NotEquals, nil},
	{operators.Add, []string{overloads.AddInt64, overloads.AddString, overloads.AddList, overloads.AddTimestampDuration, overloads.AddDurationTimestamp, overloads.AddDurationDuration}},
	{operators.Subtract, []string{overloads.SubtractInt64, overloads.SubtractTimestampDuration, overloads.SubtractTimestampTimestamp, overloads.SubtractDurationDuration}},
	{operators.Multiply, []string{overloads.MultiplyInt64}},
	{operators.Divide, []string{overloads.DivideInt64}},
	{operators.Modulo, []string{overloads.ModuloInt64}},
	{operators.Negate, []string{overloads.NegateInt64}},
	{operators.Less, []string{overloads.LessInt64, overloads.LessString, overloads.LessTimestamp, overloads.LessDuration}},
	{operators.LessEquals, []string{overloads.LessEqualsInt64, overloads.LessEqualsString, overloads.LessEqualsTimestamp, overloads.LessEqualsDuration}},
	{operators.Greater, []string{overloads.GreaterInt64, overloads.GreaterString, overloads.GreaterTimestamp, overloads.GreaterDuration}},
	{operators.GreaterEquals, []string{overloads.GreaterEqualsInt64, overloads.GreaterEqualsString, overloads.GreaterEqualsTimestamp, overloads.GreaterEqualsDuration}},
	{operators.In, []string{overloads.InList, overloads.InMap}},
	{operators.Index, []string{overloads.IndexList, overloads.IndexMap}},
	{overloads.Size, []string{overloads.SizeString, overloads.SizeStringInst}},
	{overloads.Contains, nil},
	{overloads.StartsWith, nil},
	{overloads.EndsWith, nil},
	{overloads.TypeConvertInt, []string{overloads.StringToInt, overloads.TimestampToInt}},
	{overloads.TypeConvertString, []string{overloads.IntToString, overloads.BoolToString}},
	{overloads.TypeConvertTimestamp, []string{overloads.StringToTimestamp}},
	{overloads.TypeConvertDuration, []string{overloads.StringToDuration}},
}

// environment answers CEL with those variables.
func environment(known variables) (*cel.Env, error) {
	subset := env.NewLibrarySubset().SetDisableMacros(true)
	for _, f := range language {
		included := make([]*env.Overload, len(f.overloads))
		for i, id := range f.overloads {
			included[i] = &env.Overload{ID: id}
		}
		subset.AddIncludedFunctions(env.NewFunction(f.function, included...))
	}
	options := []cel.EnvOption{
		cel.StdLib(cel.StdLibSubset(subset)),
		cel.EnableIdentifierEscapeSyntax(),
		cel.ParserRecursionLimit(nestingLimit),
		cel.ParserExpressionSizeLimit(policy.MaxExpression),
		cel.ExpressionNodeLimit(nodeLimit),
	}
	options = append(options, decimalOptions()...)
	options = append(options, calendarOptions()...)
	for name, t := range known {
		options = append(options, cel.Variable(name, t))
	}
	return cel.NewCustomEnv(options...)
}

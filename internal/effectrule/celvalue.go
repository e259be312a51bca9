package effectrule

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// decimalType is CEL's name for exact decimals. There are no floats beside it.
var decimalType = types.NewObjectType("decimal", traits.AdderType, traits.SubtractorType, traits.MultiplierType, traits.NegatorType, traits.ComparerType)

// celDecimal is a decimal in CEL.
type celDecimal struct{ decimal }

var errNoNative = errors.New("a decimal has no native form")

// ConvertToNative is not offered: a decimal would lose digits.
func (d celDecimal) ConvertToNative(reflect.Type) (any, error) { return nil, errNoNative }

// ConvertToType converts to text and to itself.
func (d celDecimal) ConvertToType(to ref.Type) ref.Val {
	switch to.TypeName() {
	case types.StringType.TypeName():
		return types.String(d.String())
	case decimalType.TypeName():
		return d
	}
	return types.NewErr("a decimal is no %s", to.TypeName())
}

// Equal compares by value: 1.5 is 1.50.
func (d celDecimal) Equal(other ref.Val) ref.Val {
	e, ok := asDecimal(other)
	return types.Bool(ok && d.compare(e) == 0)
}

// Type answers decimal.
func (d celDecimal) Type() ref.Type { return decimalType }

// Value answers the decimal itself.
func (d celDecimal) Value() any { return d.decimal }

// Compare orders by value.
func (d celDecimal) Compare(other ref.Val) ref.Val {
	e, ok := asDecimal(other)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	return types.Int(d.compare(e))
}

// Add answers the exact sum.
func (d celDecimal) Add(other ref.Val) ref.Val { return d.with(other, decimal.plus) }

// Subtract answers the exact difference.
func (d celDecimal) Subtract(other ref.Val) ref.Val { return d.with(other, decimal.minus) }

// Multiply answers the exact product.
func (d celDecimal) Multiply(other ref.Val) ref.Val { return d.with(other, decimal.times) }

// Negate answers the number with the other sign.
func (d celDecimal) Negate() ref.Val { return celOf(wholeDecimal(0).minus(d.decimal)) }

func (d celDecimal) with(other ref.Val, op func(a, b decimal) (decimal, error)) ref.Val {
	e, ok := asDecimal(other)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	return celOf(op(d.decimal, e))
}

// asDecimal takes decimals and ints.
func asDecimal(v ref.Val) (decimal, bool) {
	switch v := v.(type) {
	case celDecimal:
		return v.decimal, true
	case types.Int:
		return wholeDecimal(int64(v)), true
	}
	return decimal{}, false
}

func celOf(d decimal, err error) ref.Val {
	if err != nil {
		return types.WrapErr(err)
	}
	return celDecimal{d}
}

// decimalOptions declare what expressions can do with decimals. An int may stand on the
// right of one; there is no /, since a quotient needs a scale: a.divide(b, 2).
func decimalOptions() []cel.EnvOption {
	d, i := decimalType, cel.IntType
	pairs := func(name, id string, result *cel.Type) cel.EnvOption {
		return cel.Function(name,
			cel.Overload(id+"_decimal_decimal", []*cel.Type{d, d}, result),
			cel.Overload(id+"_decimal_int64", []*cel.Type{d, i}, result))
	}
	return []cel.EnvOption{
		pairs(operators.Add, "add", d),
		pairs(operators.Subtract, "subtract", d),
		pairs(operators.Multiply, "multiply", d),
		pairs(operators.Less, "less", cel.BoolType),
		pairs(operators.LessEquals, "less_equals", cel.BoolType),
		pairs(operators.Greater, "greater", cel.BoolType),
		pairs(operators.GreaterEquals, "greater_equals", cel.BoolType),
		cel.Function(operators.Negate, cel.Overload("negate_decimal", []*cel.Type{d}, d)),
		cel.Function("decimal",
			cel.Overload("string_to_decimal", []*cel.Type{cel.StringType}, d, cel.UnaryBinding(func(v ref.Val) ref.Val {
				return celOf(parseDecimal(string(v.(types.String))))
			})),
			cel.Overload("int64_to_decimal", []*cel.Type{i}, d, cel.UnaryBinding(func(v ref.Val) ref.Val {
				return celDecimal{wholeDecimal(int64(v.(types.Int)))}
			}))),
		cel.Function("int", cel.Overload("decimal_to_int64", []*cel.Type{d}, i, cel.UnaryBinding(func(v ref.Val) ref.Val {
			n, err := v.(celDecimal).truncated()
			if err != nil {
				return types.WrapErr(err)
			}
			return types.Int(n)
		}))),
		cel.Function("string", cel.Overload("decimal_to_string", []*cel.Type{d}, cel.StringType, cel.UnaryBinding(func(v ref.Val) ref.Val {
			return types.String(v.(celDecimal).String())
		}))),
		cel.Function("divide", cel.MemberOverload("decimal_divide", []*cel.Type{d, d, i}, d, cel.FunctionBinding(func(args ...ref.Val) ref.Val {
			return celOf(args[0].(celDecimal).divided(args[1].(celDecimal).decimal, int64(args[2].(types.Int))))
		}))),
		cel.Function("round", cel.MemberOverload("decimal_round", []*cel.Type{d, i}, d, cel.BinaryBinding(func(v, scale ref.Val) ref.Val {
			return celOf(v.(celDecimal).rounded(int64(scale.(types.Int))))
		}))),
	}
}

// calendarOptions declare the days and months of a time, in UTC or in a zone of the
// embedded database.
func calendarOptions() []cel.EnvOption {
	format := func(name, layout string) cel.EnvOption {
		return cel.Function(name,
			cel.MemberOverload("timestamp_"+name, []*cel.Type{cel.TimestampType}, cel.StringType, cel.UnaryBinding(func(at ref.Val) ref.Val {
				return types.String(at.(types.Timestamp).In(time.UTC).Format(layout))
			})),
			cel.MemberOverload("timestamp_"+name+"_zone", []*cel.Type{cel.TimestampType, cel.StringType}, cel.StringType, cel.BinaryBinding(func(at, zone ref.Val) ref.Val {
				location, err := policy.Location(string(zone.(types.String)))
				if err != nil {
					return types.WrapErr(errZone)
				}
				return types.String(at.(types.Timestamp).In(location).Format(layout))
			})))
	}
	return []cel.EnvOption{format("date", time.DateOnly), format("month", "2006-01")}
}

var errZone = errors.New("no IANA time zone of that name")

func knownZone(zone string) error {
	if _, err := policy.Location(zone); err != nil {
		return fmt.Errorf("%w; write for example Europe/Paris", err)
	}
	return nil
}

package policy

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Bounds of the limit that distinct declares: how many distinct values one window may hold.
const (
	DefaultDistinct = 10_000
	MaxDistinct     = 1_000_000
)

// aggregateFunc is what documents may know about one aggregate function.
type aggregateFunc struct {
	name        string
	types       []ValueType // of its argument; nil = it takes none
	retractable bool        // a member can be withdrawn from it again
	limit       int64       // what a limit left out means; 0 = it takes none
}

var (
	numbers = []ValueType{Decimal, Int}
	scalars = []ValueType{Decimal, Int, String}
)

// aggregateFuncs is every function that a document may name: one line each. All are
// retractable: those that are no sums keep multisets on a stream with retractions: true.
var aggregateFuncs = []aggregateFunc{
	{name: "sum", types: numbers, retractable: true},
	{name: "count", retractable: true},
	{name: "min", types: scalars, retractable: true},
	{name: "max", types: scalars, retractable: true},
	{name: "avg", types: numbers, retractable: true},
	{name: "first", types: scalars, retractable: true},
	{name: "last", types: scalars, retractable: true},
	{name: "distinct", types: scalars, retractable: true, limit: DefaultDistinct},
}

// aggregateCall is name(value) or name(value, limit).
var aggregateCall = regexp.MustCompile(`^ *([A-Za-z]+) *\( *([^(), ]*) *(?:, *([^(), ]*) *)?\) *$`)

// AggregateNames answers the functions that a document may name.
func AggregateNames() []string {
	names := make([]string, len(aggregateFuncs))
	for i, f := range aggregateFuncs {
		names[i] = f.name
	}
	return names
}

func findAggregate(name string) (aggregateFunc, bool) {
	for _, f := range aggregateFuncs {
		if f.name == name {
			return f, true
		}
	}
	return aggregateFunc{}, false
}

// String writes the aggregate as documents do, its limit written out: sum(amount),
// count(), distinct(user, 10000).
func (a AggregateSpec) String() string {
	if a.Limit == 0 {
		return a.Func + "(" + a.Arg + ")"
	}
	return a.Func + "(" + a.Arg + ", " + strconv.FormatInt(a.Limit, 10) + ")"
}

// aggregates reads {revenue: sum(amount), orders: count()}; n may be nil.
func (r *reader) aggregates(n *node) []AggregateSpec {
	if n == nil {
		return nil
	}
	o := r.object(n, "aggregates")
	if o == nil {
		return nil
	}
	if len(o.fields) == 0 {
		r.refuse(n.line, "missing-field", "aggregates is empty; a window needs at least one result, for example orders: count()")
	}
	var out []AggregateSpec
	for _, f := range o.fields {
		path := o.at(f.name)
		r.checkFieldName(f.name, f.line, path)
		text := r.text(f.value, path)
		if f.value.shape != shapeText {
			continue
		}
		if spec, ok := r.aggregate(f.name, text, f.line, path); ok {
			out = append(out, spec)
		}
	}
	slices.SortFunc(out, func(a, b AggregateSpec) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// ParseAggregate answers the result of that name from its text in a document, or what is
// wrong with it.
func ParseAggregate(name, text string) (AggregateSpec, error) {
	r := &reader{lines: map[string]int{}}
	spec, _ := r.aggregate(name, text, 0, "aggregates."+name)
	if len(r.findings) > 0 {
		return AggregateSpec{}, errors.New(r.findings[0].Message)
	}
	return spec, nil
}

// aggregate reads one result; ok is false when text cannot be taken apart.
func (r *reader) aggregate(name, text string, line int, path string) (spec AggregateSpec, ok bool) {
	call := aggregateCall.FindStringSubmatch(text)
	if call == nil && strings.Contains(text, "(") && !strings.Contains(text, ")") {
		r.refuse(line, "bad-aggregate", "%s is %q: inside {…} a comma ends the text; put it in quotes, for example {users: \"distinct(user, 5000)\"}", path, text)
		return spec, false
	}
	if call == nil {
		r.refuse(line, "bad-aggregate", "%s is %q; write a function over a declared value, for example sum(amount), or count()", path, text)
		return spec, false
	}
	spec = AggregateSpec{Name: name, Func: call[1], Arg: call[2]}
	r.checkAggregate(spec, line, path)
	spec.Limit = r.aggregateLimit(spec, text, call[3], line, path)
	return spec, true
}

func (r *reader) checkAggregate(spec AggregateSpec, line int, path string) {
	function, known := findAggregate(spec.Func)
	switch {
	case !known:
		r.refuse(line, "bad-aggregate", "%s: there is no function %s%s; the functions are %s", path, spec.Func, didYouMean(spec.Func, AggregateNames()), oneOf(AggregateNames()))
	case function.types == nil && spec.Arg != "":
		r.refuse(line, "bad-aggregate", "%s: %s counts events and takes no value; write %s()", path, spec.Func, spec.Func)
	case function.types != nil && spec.Arg == "":
		r.refuse(line, "bad-aggregate", "%s: %s needs a declared value; write for example %s(amount)", path, spec.Func, spec.Func)
	case spec.Arg != "" && !fieldName.MatchString(spec.Arg):
		r.refuse(line, "bad-aggregate", "%s: %q is no name of a value", path, spec.Arg)
	}
}

// aggregateLimit reads what stands behind the comma of text, or answers the default.
func (r *reader) aggregateLimit(spec AggregateSpec, text, written string, line int, path string) int64 {
	function, known := findAggregate(spec.Func)
	comma := strings.Contains(text, ",")
	switch {
	case !known || !comma:
		return function.limit
	case function.limit == 0:
		r.refuse(line, "bad-aggregate", "%s: %s takes no limit; write %s", path, spec.Func, spec)
		return 0
	}
	n, err := strconv.ParseInt(written, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != written {
		r.refuse(line, "bad-aggregate", "%s: the limit is %q; write a whole number, for example %s(%s, %d)", path, written, spec.Func, spec.Arg, function.limit)
		return function.limit
	}
	if n < 1 || n > MaxDistinct {
		r.refuse(line, "aggregate-limit", "%s: a window cannot hold up to %d distinct values; write a limit from 1 to %d", path, n, MaxDistinct)
		return function.limit
	}
	return n
}

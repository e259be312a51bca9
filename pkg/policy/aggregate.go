package policy

import (
	"cmp"
	"regexp"
	"slices"
)

// aggregateFunc is what documents may know about one aggregate function.
type aggregateFunc struct {
	name        string
	types       []ValueType // of its argument; nil = it takes none
	retractable bool        // a member can be withdrawn from it again
	runs        bool        // this version of the core computes it
}

// aggregateFuncs is every function that a document may name. All are retractable: those
// that are no sums keep multisets on a stream with retractions: true.
var aggregateFuncs = []aggregateFunc{
	{name: "sum", types: []ValueType{Decimal, Int}, retractable: true, runs: true},
	{name: "count", retractable: true, runs: true},
	{name: "min", types: []ValueType{Decimal, Int, String}, retractable: true, runs: true},
	{name: "max", types: []ValueType{Decimal, Int, String}, retractable: true, runs: true},
	{name: "avg", types: []ValueType{Decimal, Int}, retractable: true, runs: true},
	{name: "first", types: []ValueType{Decimal, Int, String}, retractable: true},
	{name: "last", types: []ValueType{Decimal, Int, String}, retractable: true},
	{name: "distinct", types: []ValueType{Decimal, Int, String}, retractable: true},
}

var aggregateCall = regexp.MustCompile(`^ *([A-Za-z]+) *\( *([^() ]*) *\) *$`)

func aggregateNames() []string {
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

// String writes the aggregate as documents do: sum(amount), count().
func (a AggregateSpec) String() string { return a.Func + "(" + a.Arg + ")" }

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
		call := aggregateCall.FindStringSubmatch(text)
		if call == nil {
			r.refuse(f.line, "bad-aggregate", "%s is %q; write a function over a declared value, for example sum(amount), or count()", path, text)
			continue
		}
		spec := AggregateSpec{Name: f.name, Func: call[1], Arg: call[2]}
		r.checkAggregate(spec, f.line, path)
		out = append(out, spec)
	}
	slices.SortFunc(out, func(a, b AggregateSpec) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (r *reader) checkAggregate(spec AggregateSpec, line int, path string) {
	function, known := findAggregate(spec.Func)
	switch {
	case !known:
		r.refuse(line, "bad-aggregate", "%s: there is no function %s%s; the functions are %s", path, spec.Func, didYouMean(spec.Func, aggregateNames()), oneOf(aggregateNames()))
	case function.types == nil && spec.Arg != "":
		r.refuse(line, "bad-aggregate", "%s: %s counts events and takes no value; write %s()", path, spec.Func, spec.Func)
	case function.types != nil && spec.Arg == "":
		r.refuse(line, "bad-aggregate", "%s: %s needs a declared value; write for example %s(amount)", path, spec.Func, spec.Func)
	case spec.Arg != "" && !fieldName.MatchString(spec.Arg):
		r.refuse(line, "bad-aggregate", "%s: %q is no name of a value", path, spec.Arg)
	}
}

// Package aggregate computes the named results of a window, exactly and independent of
// the order in which events arrive.
//
// A function (Func) holds no state; a window keeps one Cell per result, all of them in
// one slice. A new aggregate is one file in this package and one line in functions.
package aggregate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Errors of Add, Remove and Deltas. A Cell is unchanged after an error.
var (
	// ErrOverflow: a number left its range. The partition halts; nothing ever wraps.
	ErrOverflow = errors.New("aggregate overflow")
	// ErrNotHeld: Remove of a value that was never added. It means damage.
	ErrNotHeld = errors.New("aggregate does not hold the value to be withdrawn")
	// ErrNotRetractable: the function was compiled for a stream without retractions.
	ErrNotRetractable = errors.New("aggregate cannot withdraw values on a stream without retractions")
)

// Cell is the state of one result of one window. The zero Cell is the result of no event.
// What its fields mean is up to the function that owns it.
type Cell struct {
	Hi  int64  // with Lo: a 128-bit number, two's complement
	Lo  uint64 //
	N   int64  // events held
	Ext *Multiset
}

// Input is what one event brings to a function. Its strings may be parts of a frame: a
// function that keeps them keeps copies.
type Input struct {
	Value  envelope.Value // of the function's argument; zero when it takes none
	Time   envelope.EventTime
	Source string
	ID     string
}

// Func is one aggregate function bound to the type and scale of its value. Its methods
// are safe for concurrent use on different Cells.
type Func interface {
	// Name answers the function as written in a policy: sum, count, distinct.
	Name() string
	// Add takes one event in. It does not keep in, nor what its strings point to.
	Add(c *Cell, in *Input) error
	// Remove takes one event out again, whatever was added since: in is as it was for Add.
	Remove(c *Cell, in *Input) error
	// AppendResult appends the text of the result and tells whether it is quoted in
	// JSON. The Cell must hold at least one event.
	AppendResult(dst []byte, c *Cell) (text []byte, quoted bool)
	// Decimals answers how many digits a numeric result has after the point; numeric is
	// false for results that are text, which have no delta.
	Decimals() (digits int, numeric bool)
	// AppendState appends the Cell for a checkpoint: one state has one encoding.
	AppendState(dst []byte, c *Cell) []byte
	// DecodeState reads what AppendState wrote and answers what follows it.
	DecodeState(data []byte, c *Cell) (rest []byte, err error)
}

// declaration is what a document says about a result and its value.
type declaration struct {
	spec        policy.AggregateSpec
	value       *policy.ValueSpec // of its argument; nil when it has none
	retractions bool              // the stream allows them
}

// functions is every function: the name in documents and what binds it to a declaration.
var functions = []struct {
	name string
	bind func(declaration) (Func, error)
}{
	{"avg", newAvg},
	{"count", newCount},
	{"distinct", newDistinct},
	{"first", newFirst},
	{"last", newLast},
	{"max", newMax},
	{"min", newMin},
	{"sum", newSum},
}

// Names answers the functions that this package computes, sorted.
func Names() []string {
	names := make([]string, len(functions))
	for i, f := range functions {
		names[i] = f.name
	}
	return names
}

func find(name string) (bind func(declaration) (Func, error), known bool) {
	for _, f := range functions {
		if f.name == name {
			return f.bind, true
		}
	}
	return nil, false
}

// Compiled is one result of a policy, ready to be computed.
type Compiled struct {
	Func
	Result string // name in the result
	Value  int    // index into BusinessStream.Values; -1 when the function takes no value
	Arg    string // name of that value, to find it in Frame.Values; empty when none
}

// Pick answers the value that c takes from an event's values, which must be aligned with
// BusinessStream.Values.
func (c *Compiled) Pick(values []envelope.Value) envelope.Value {
	if c.Value < 0 {
		return envelope.Value{}
	}
	return values[c.Value]
}

// Compile binds every aggregate of the policy to the stream's values, in the policy's
// order (by name). It fails when a function is unknown, a value is not declared, or a
// function cannot take a value of that type.
func Compile(stream *policy.BusinessStream, p *policy.StreamTimePolicy) ([]Compiled, error) {
	compiled := make([]Compiled, 0, len(p.Aggregates))
	for _, spec := range p.Aggregates {
		c, err := compile(stream, spec)
		if err != nil {
			return nil, fmt.Errorf("aggregate %s: %s: %w", spec.Name, spec, err)
		}
		compiled = append(compiled, c)
	}
	return compiled, nil
}

func compile(stream *policy.BusinessStream, spec policy.AggregateSpec) (Compiled, error) {
	index, value, err := findValue(stream, spec.Arg)
	if err != nil {
		return Compiled{}, err
	}
	bind, known := find(spec.Func)
	if !known {
		return Compiled{}, fmt.Errorf("no such function; this version has %s", strings.Join(Names(), ", "))
	}
	f, err := bind(declaration{spec: spec, value: value, retractions: stream.Retractions})
	if err != nil {
		return Compiled{}, err
	}
	return Compiled{Func: f, Result: spec.Name, Value: index, Arg: spec.Arg}, nil
}

func findValue(stream *policy.BusinessStream, name string) (int, *policy.ValueSpec, error) {
	if name == "" {
		return -1, nil, nil
	}
	names := make([]string, len(stream.Values))
	for i := range stream.Values {
		if stream.Values[i].Name == name {
			return i, &stream.Values[i], nil
		}
		names[i] = stream.Values[i].Name
	}
	return 0, nil, fmt.Errorf("business stream %s declares no value %q; it declares: %s",
		stream.Name, name, strings.Join(names, ", "))
}

var errNoValue = errors.New("the function needs the name of a declared value")

// numberOf answers the scale of a numeric value, or why it is none.
func numberOf(value *policy.ValueSpec) (scale int, err error) {
	switch {
	case value == nil:
		return 0, errNoValue
	case value.Type == policy.Int:
		return 0, nil
	case value.Type == policy.Decimal:
		return value.Scale, nil
	}
	return 0, fmt.Errorf("value %s is of type %s; the function takes int or decimal", value.Name, value.Type)
}

// Results answers the value of a window: one field per result, sorted by name. Every
// cell must hold at least one event.
func Results(compiled []Compiled, cells []Cell) []revision.Field {
	var room [256]byte
	text := room[:0]
	fields := make([]revision.Field, len(compiled))
	for i := range compiled {
		from := len(text)
		text, fields[i].Quoted = compiled[i].AppendResult(text, &cells[i])
		fields[i].Name = compiled[i].Result
		fields[i].Text = string(text[from:])
	}
	return fields
}

// Deltas answers what changed from old to now, both answered by Results or empty (a
// window not published yet, or retracted): now minus old, an absent number counting as
// zero. So the deltas of a window's revisions always add up to its current value. Text
// results have no delta.
func Deltas(compiled []Compiled, old, now []revision.Field) ([]revision.Field, error) {
	deltas := make([]revision.Field, 0, len(compiled))
	for i := range compiled {
		digits, numeric := compiled[i].Decimals()
		if !numeric {
			continue
		}
		field, err := delta(digits, at(old, i), at(now, i))
		if err != nil {
			return nil, fmt.Errorf("delta of %s: %w", compiled[i].Result, err)
		}
		field.Name = compiled[i].Result
		deltas = append(deltas, field)
	}
	return deltas, nil
}

func at(fields []revision.Field, i int) *revision.Field {
	if len(fields) == 0 {
		return nil
	}
	return &fields[i]
}

func delta(digits int, old, now *revision.Field) (revision.Field, error) {
	var quoted bool
	var ends [2]int128
	for i, field := range []*revision.Field{old, now} {
		if field == nil {
			continue
		}
		n, err := parseDecimal(field.Text, digits)
		if err != nil {
			return revision.Field{}, err
		}
		ends[i], quoted = n, field.Quoted
	}
	diff, ok := ends[1].sub(ends[0])
	if !ok {
		return revision.Field{}, ErrOverflow
	}
	var room [64]byte
	return revision.Field{Text: string(diff.appendDecimal(room[:0], digits)), Quoted: quoted}, nil
}

package policy

import "fmt"

// Document is one parsed document of a file: exactly one of Stream, Policy,
// Effect and Adapter is set.
type Document struct {
	File    string
	Line    int // of its first field, from 1; 0 for a document that came from no file
	Stream  *BusinessStream
	Policy  *StreamTimePolicy
	Effect  *EffectPolicy
	Adapter *Adapter
	lines   map[string]int // path of a field ("window.tumbling") to its line, for lint
}

// Finding is one thing that lint refuses.
type Finding struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Rule    string `json:"rule"`    // name of the rule, e.g. ids-too-short
	Message string `json:"message"` // what, why and what to do
}

// String answers "file:line: rule: message".
func (f Finding) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.Rule, f.Message)
}

// Kinds of documents.
const (
	KindBusinessStream   = "BusinessStream"
	KindStreamTimePolicy = "StreamTimePolicy"
	KindEffectPolicy     = "EffectPolicy"
	KindAdapter          = "Adapter"
)

// Kinds answers every kind of document.
func Kinds() []string {
	return []string{KindBusinessStream, KindStreamTimePolicy, KindEffectPolicy, KindAdapter}
}

// Kind answers what the document is.
func (d *Document) Kind() string {
	switch {
	case d.Stream != nil:
		return KindBusinessStream
	case d.Effect != nil:
		return KindEffectPolicy
	case d.Adapter != nil:
		return KindAdapter
	}
	return KindStreamTimePolicy
}

// Name answers what no two documents of a kind share: "orders" for a stream,
// "orders/hourly-revenue@14" for a policy, "orders/reward@3" for an effect policy,
// "rewards-api@2" for an adapter.
func (d *Document) Name() string {
	switch {
	case d.Stream != nil:
		return d.Stream.Name
	case d.Effect != nil:
		return d.Effect.Stream + "/" + d.Effect.Ref()
	case d.Adapter != nil:
		return d.Adapter.Ref()
	}
	return d.Policy.Stream + "/" + d.Policy.PolicyGeneration()
}

// BusinessStream answers the name of the business stream that the document is about; ""
// for an adapter, which serves any.
func (d *Document) BusinessStream() string {
	switch {
	case d.Stream != nil:
		return d.Stream.Name
	case d.Effect != nil:
		return d.Effect.Stream
	case d.Adapter != nil:
		return ""
	}
	return d.Policy.Stream
}

// Finding answers a finding at the line of the field at path ("payload.points"), or at the
// document's own line where the field was not written. It is for checks that this package
// cannot make itself.
func (d *Document) Finding(path, rule, message string) Finding {
	return d.finding(path, rule, "%s", message)
}

// finding builds a Finding at the line of the field at path, or at the document's own
// line where the field was not written.
func (d *Document) finding(path, rule, format string, args ...any) Finding {
	line, written := d.lines[path]
	if !written {
		line = d.Line
	}
	return Finding{File: d.File, Line: line, Rule: rule, Message: fmt.Sprintf(format, args...)}
}

package policy

import "fmt"

// Document is one parsed document of a file: exactly one of Stream and Policy is set.
type Document struct {
	File   string
	Line   int // of its first field, from 1; 0 for a document that came from no file
	Stream *BusinessStream
	Policy *StreamTimePolicy
	lines  map[string]int // path of a field ("window.tumbling") to its line, for lint
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
)

// Kind answers what the document is.
func (d *Document) Kind() string {
	if d.Stream != nil {
		return KindBusinessStream
	}
	return KindStreamTimePolicy
}

// Name answers what no two documents of a kind share: "orders" for a stream,
// "orders/hourly-revenue@14" for a policy.
func (d *Document) Name() string {
	if d.Stream != nil {
		return d.Stream.Name
	}
	return d.Policy.Stream + "/" + d.Policy.PolicyGeneration()
}

// BusinessStream answers the name of the business stream that the document is about.
func (d *Document) BusinessStream() string {
	if d.Stream != nil {
		return d.Stream.Name
	}
	return d.Policy.Stream
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

package policy

// Document is one parsed document of a file: exactly one of Stream and Policy is set.
type Document struct {
	File   string
	Line   int // of its first line, from 1
	Stream *BusinessStream
	Policy *StreamTimePolicy
	lines  map[string]int // path of a field ("window.tumbling") to its line, for lint
}

// Finding is one thing that lint refuses.
type Finding struct {
	File    string
	Line    int
	Rule    string // name of the rule, e.g. ids-too-short
	Message string // what, why and what to do
}

// Kinds of documents.
const (
	KindBusinessStream   = "BusinessStream"
	KindStreamTimePolicy = "StreamTimePolicy"
)

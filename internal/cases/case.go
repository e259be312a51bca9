// Package cases runs test cases of documents: events in, windows, revisions and
// quarantine out, without a server and without waiting. Time and marks are driven by the
// case, so that a night of silence is one line.
//
// A case goes through the same pure code as a running installation: admission and the
// windows operator. Its results are then compared with an independent oracle.
package cases

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// Kind of a test case's document.
const Kind = "TestCase"

// maxBytes bounds the text of a file of cases.
const maxBytes = 16 << 20

// Case is one test case.
type Case struct {
	File string `yaml:"-"`
	Line int    `yaml:"-"`

	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Name       string   `yaml:"name"`
	Documents  []string `yaml:"documents"` // files beside this one
	Inline     string   `yaml:"inline"`    // documents as text
	Policy     string   `yaml:"policy"`    // job@generation; may be left out when there is one
	Now        string   `yaml:"now"`       // arrival time at the start
	Steps      []Step   `yaml:"steps"`
	Expect     *Expect  `yaml:"expect"` // after the last step

	stream *policy.BusinessStream
	time   *policy.StreamTimePolicy
	now    envelope.EventTime
}

// Step is one thing that happens. Marks of every source partition are written after it,
// as ingest does, unless it says marks: false.
type Step struct {
	Wait   string  `yaml:"wait"`   // time passes; nothing arrives
	Send   *Send   `yaml:"send"`   // events arrive
	Finish *Source `yaml:"finish"` // no event follows in this source partition
	Expect *Expect `yaml:"expect"` // what must hold now
	Marks  *bool   `yaml:"marks"`
}

// Source names a source partition.
type Source struct {
	Source    string `yaml:"source"`
	Partition int    `yaml:"partition"`
}

// Send is a request with events. An event is a map, which is taken as the event's JSON
// data, or text, which is taken byte by byte. With cloudEvents they are whole CloudEvents.
type Send struct {
	Source      string   `yaml:"source"`
	Partition   int      `yaml:"partition"`
	IDPath      string   `yaml:"idPath"`
	CloudEvents bool     `yaml:"cloudEvents"`
	Events      ast.Node `yaml:"events"`
}

// Expect is what must come out. A list that is written is compared whole and in order;
// of its items only the fields that are written.
type Expect struct {
	Watermark  string           `yaml:"watermark"`
	Windows    []map[string]any `yaml:"windows"`    // current rows by start, then key
	Revisions  []map[string]any `yaml:"revisions"`  // every revision, in order
	Quarantine []map[string]any `yaml:"quarantine"` // refused events in the order of arrival
	Late       []map[string]any `yaml:"late"`       // (event, window) pairs that were too late
	Conflicts  []map[string]any `yaml:"conflicts"`  // events whose id was taken
	Counts     map[string]int64 `yaml:"counts"`     // events by what became of them
}

var kindLine = regexp.MustCompile(`(?m)^kind:\s*` + Kind + `\s*(#.*)?$`)

// Holds tells whether a text is one of test cases.
func Holds(src []byte) bool { return kindLine.Match(src) }

// Parse answers the cases of a YAML text and what is wrong with them. Documents that a
// case names are read from beside file and checked too.
func Parse(file string, src []byte) (cases []*Case, findings []policy.Finding) {
	refuse := func(line int, rule, format string, args ...any) {
		findings = append(findings, policy.Finding{File: file, Line: line, Rule: rule, Message: fmt.Sprintf(format, args...)})
	}
	if len(src) > maxBytes {
		refuse(1, "too-large", "the file has %d bytes, more than the %d that cases may have", len(src), maxBytes)
		return nil, findings
	}
	docs, err := parseYAML(src)
	if err != nil {
		refuse(lineOf(err), "yaml-syntax", "this is no YAML: %s", firstLine(err))
		return nil, findings
	}
	names := map[string]bool{}
	for _, body := range docs {
		c := &Case{File: file, Line: body.GetToken().Position.Line}
		if m, ok := body.(*ast.MappingNode); ok && len(m.Values) > 0 {
			c.Line = m.Values[0].Key.GetToken().Position.Line
		}
		if err := decode(body, c); err != nil {
			refuse(max(lineOf(err), c.Line), "bad-case", "%s; `tidemark schema %s` says what may stand here", firstLine(err), Kind)
			continue
		}
		bad := c.check()
		if c.Name != "" && names[c.Name] {
			bad = append(bad, c.finding("duplicate-name", "another case of this file is named %q; give each its own name", c.Name))
		}
		names[c.Name] = true
		if findings = append(findings, bad...); len(bad) == 0 {
			cases = append(cases, c)
		}
	}
	if len(docs) == 0 {
		refuse(1, "no-document", "the file holds no case; `tidemark create %s` writes one", Kind)
	}
	return cases, findings
}

// decode reads a case. The decoder panics on some malformed documents, such as a tag
// without a value; that too is an error of the document.
func decode(body ast.Node, c *Case) (err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("this cannot be read; tags (!name) are not used here")
		}
	}()
	return yaml.NodeToValue(body, c, yaml.Strict())
}

// parseYAML answers the documents of a text. The parser has been seen to panic on
// hostile text, which is one more way of not being YAML.
func parseYAML(src []byte) (docs []ast.Node, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			docs, err = nil, fmt.Errorf("the parser gave up: %v", cause)
		}
	}()
	file, err := parser.ParseBytes(src, 0)
	if err != nil {
		return nil, err
	}
	for _, d := range file.Docs {
		if d.Body == nil {
			continue
		}
		if _, empty := d.Body.(*ast.NullNode); !empty {
			docs = append(docs, d.Body)
		}
	}
	return docs, nil
}

func lineOf(err error) int {
	line := 1
	if _, scan := fmt.Sscanf(err.Error(), "[%d:", &line); scan != nil {
		return 1
	}
	return line
}

func firstLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	if at := strings.Index(text, "] "); strings.HasPrefix(text, "[") && at > 0 {
		text = text[at+2:]
	}
	return text
}

func (c *Case) finding(rule, format string, args ...any) policy.Finding {
	return policy.Finding{File: c.File, Line: c.Line, Rule: rule, Message: fmt.Sprintf(format, args...)}
}

// check settles documents, policy and times.
func (c *Case) check() (bad []policy.Finding) {
	refuse := func(rule, format string, args ...any) { bad = append(bad, c.finding(rule, format, args...)) }
	switch {
	case c.Kind != Kind:
		refuse("bad-value", "kind is %q; cases stand in files of their own: it must be %s", c.Kind, Kind)
		return bad
	case c.APIVersion != "" && c.APIVersion != policy.APIVersion:
		refuse("bad-value", "apiVersion is %q; it must be %s", c.APIVersion, policy.APIVersion)
	case c.Name == "":
		refuse("missing-field", "name is missing; say in a few words what the case shows")
	case len(c.Steps) == 0:
		refuse("missing-field", "steps is missing; add for example - send: {source: shop, events: [{id: a}]}")
	}
	var err error
	if c.now, err = envelope.ParseEventTime(c.Now); err != nil {
		refuse("bad-value", "now: %v; write the time at which the first event arrives, such as 2026-11-30T12:00:00Z", err)
	}
	docs, found := c.documents()
	if bad = append(bad, found...); len(found) == 0 {
		bad = append(bad, c.choose(docs)...)
	}
	if c.time == nil || c.stream == nil {
		return bad
	}
	for i := range c.Steps {
		if why := c.checkStep(&c.Steps[i]); why != "" {
			refuse("bad-step", "step %d: %s", i+1, why)
		}
	}
	return bad
}

func (c *Case) documents() (docs []policy.Document, bad []policy.Finding) {
	take := func(file string, src []byte) {
		parsed, found := policy.Parse(file, src)
		docs, bad = append(docs, parsed...), append(bad, found...)
	}
	if c.Inline != "" {
		take(c.File+" (inline)", []byte(c.Inline))
	}
	for _, name := range c.Documents {
		path := filepath.Join(filepath.Dir(c.File), name)
		src, err := os.ReadFile(path)
		if err != nil {
			bad = append(bad, c.finding("missing-document", "documents: %v; name files from where the case stands", err))
			continue
		}
		take(path, bytes.TrimPrefix(src, []byte("\ufeff")))
	}
	if len(bad) == 0 {
		bad = policy.Lint(docs, nil)
	}
	return docs, bad
}

// choose finds the policy that the case is about, and its stream.
func (c *Case) choose(docs []policy.Document) []policy.Finding {
	var known []string
	for i := range docs {
		p := docs[i].Policy
		if p == nil {
			continue
		}
		known = append(known, p.PolicyGeneration())
		if c.Policy == "" || c.Policy == p.PolicyGeneration() {
			c.time = p
		}
	}
	if c.time == nil || c.Policy == "" && len(known) != 1 {
		c.time = nil
		return []policy.Finding{c.finding("unknown-policy", "policy %q: the documents hold %s; name one of them", c.Policy, orNone(known))}
	}
	for i := range docs {
		if s := docs[i].Stream; s != nil && s.Name == c.time.Stream {
			c.stream = s
		}
	}
	return nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "no policy"
	}
	return strings.Join(names, ", ")
}

// checkStep answers what is wrong with a step, "" if nothing is.
func (c *Case) checkStep(s *Step) string {
	given := 0
	for _, set := range []bool{s.Wait != "", s.Send != nil, s.Finish != nil, s.Expect != nil} {
		if set {
			given++
		}
	}
	if given != 1 {
		return "write exactly one of wait, send, finish and expect"
	}
	if s.Wait != "" {
		if d, err := policy.ParseDuration(s.Wait); err != nil || d < 0 {
			return fmt.Sprintf("wait: %q is no duration such as 15m", s.Wait)
		}
	}
	if s.Send != nil {
		if _, err := s.Send.items(); err != nil {
			return err.Error()
		}
	}
	if f := s.Finish; f != nil && !c.has(f.Source, f.Partition) {
		return fmt.Sprintf("finish: the policy has no source %q partition %d", f.Source, f.Partition)
	}
	return ""
}

func (c *Case) has(source string, partition int) bool {
	for _, s := range c.time.Sources {
		if s.Name == source && partition >= 0 && partition < s.Partitions {
			return true
		}
	}
	return false
}

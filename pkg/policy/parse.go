package policy

import (
	"errors"
	"strings"
)

// Parse answers the documents of a YAML text (one or more, separated by ---) and what is
// wrong with them. It is strict: unknown, doubled and missing fields, wrong types and
// values out of bounds are findings, all of them at once. A document with findings is
// left out; what needs other documents to judge is left to Lint.
func Parse(file string, src []byte) ([]Document, []Finding) {
	nodes, err := readYAML(src)
	if err != nil {
		var bad *sourceError
		if !errors.As(err, &bad) {
			bad = &sourceError{line: 1, rule: "yaml-syntax", text: err.Error()}
		}
		return nil, []Finding{{File: file, Line: bad.line, Rule: bad.rule, Message: bad.text}}
	}
	if len(nodes) == 0 {
		return nil, []Finding{{File: file, Line: 1, Rule: "no-document", Message: "the file holds no document; write one that begins with kind: " + oneOf(Kinds())}}
	}
	var docs []Document
	var findings []Finding
	for _, n := range nodes {
		doc, bad := parseNode(file, n)
		findings = append(findings, bad...)
		if len(bad) == 0 {
			docs = append(docs, doc)
		}
	}
	return docs, findings
}

// FromCanonical answers the document that Canonical wrote. It has no file and no lines.
func FromCanonical(src []byte) (*Document, error) {
	n, err := readJSON(src)
	if err != nil {
		return nil, err
	}
	doc, findings := parseNode("canonical", n)
	if len(findings) > 0 {
		return nil, errors.New("no canonical document: " + findings[0].Rule + ": " + findings[0].Message)
	}
	doc.File, doc.lines = "", nil
	return &doc, nil
}

func parseNode(file string, n *node) (Document, []Finding) {
	r := &reader{file: file, lines: map[string]int{}}
	doc := Document{File: file, Line: n.line, lines: r.lines}
	o := r.object(n, "")
	if o == nil {
		return doc, r.findings
	}
	r.choice(o.optional("apiVersion"), "apiVersion", APIVersion, APIVersion)
	kind := o.required("kind", KindBusinessStream)
	switch r.choice(kind, "kind", "", Kinds()...) {
	case KindBusinessStream:
		doc.Stream = r.stream(o)
	case KindStreamTimePolicy:
		doc.Policy = r.policy(o)
	case KindEffectPolicy:
		doc.Effect = r.effect(o)
	case KindAdapter:
		doc.Adapter = r.adapter(o)
	default:
		// Without a kind nothing tells which fields belong here.
		return doc, r.findings
	}
	o.finish()
	return doc, r.findings
}

// schema reads the optional name of the document's JSON Schema.
func (r *reader) schema(o *object, name string) {
	r.choice(o.optional("schema"), "schema", name, name)
}

// colon takes a one-line form "word:a:b" apart.
func colon(text string) (word string, rest []string) {
	parts := strings.Split(text, ":")
	return parts[0], parts[1:]
}

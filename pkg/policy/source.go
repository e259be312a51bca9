package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Bounds of a source text. The YAML parser needs time quadratic in the nesting, so text
// that nests deeper than any document can is refused before it is parsed.
const (
	maxSourceBytes  = 1 << 20
	maxSourceNested = 32
)

// shape is what a node of a source text is.
type shape string

// Shapes, named as messages name them.
const (
	shapeMap   shape = "a map"
	shapeList  shape = "a list"
	shapeText  shape = "text"
	shapeInt   shape = "a number"
	shapeFloat shape = "a number with a point"
	shapeBool  shape = "true or false"
	shapeNull  shape = "nothing"
)

// node is one value of a source text, YAML or canonical JSON, with its line.
type node struct {
	shape  shape
	line   int
	text   string // scalars, as written
	list   []*node
	fields []nodeField
}

type nodeField struct {
	name  string
	line  int
	value *node
}

// sourceError is a source text that cannot be read as documents at all.
type sourceError struct {
	line int
	rule string
	text string
}

func (e *sourceError) Error() string { return e.text }

func refuseSource(line int, rule, format string, args ...any) error {
	return &sourceError{line: line, rule: rule, text: fmt.Sprintf(format, args...)}
}

// readYAML answers the documents of a YAML text; empty documents are left out.
func readYAML(src []byte) (nodes []*node, err error) {
	if err := checkSource(src); err != nil {
		return nil, err
	}
	// The parser has been seen to panic on hostile text; for a reader of documents that
	// is one more way of not being YAML.
	defer func() {
		if cause := recover(); cause != nil {
			nodes, err = nil, refuseSource(1, "yaml-syntax", "this is no YAML: the parser gave up (%v); check quotes, brackets and indentation", cause)
		}
	}()
	file, err := parser.ParseBytes(src, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, syntaxError(err)
	}
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		n, err := fromYAML(doc.Body, 0)
		if err != nil {
			return nil, err
		}
		if n.shape == shapeNull {
			continue
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

func checkSource(src []byte) error {
	if len(src) > maxSourceBytes {
		return refuseSource(1, "too-large", "the file has %d bytes, more than the %d that documents may have; is this the right file?", len(src), maxSourceBytes)
	}
	depth := 0
	for i, line := range bytes.Split(src, []byte{'\n'}) {
		if !utf8.Valid(line) {
			return refuseSource(i+1, "not-utf8", "the line holds bytes that are not UTF-8; save the file as UTF-8")
		}
		for _, c := range line {
			switch c {
			case '[', '{':
				depth++
			case ']', '}':
				depth = max(0, depth-1)
			}
		}
		indicators := bytes.Count(line, []byte("- ")) + bytes.Count(line, []byte("? "))
		if depth > maxSourceNested || len(bytes.TrimLeft(line, " "))+256 < len(line) || indicators > 256 {
			return refuseSource(i+1, "too-deep", "the line nests deeper than any document does; is this the right file?")
		}
	}
	return nil
}

func syntaxError(err error) error {
	line := 1
	var located interface {
		GetMessage() string
	}
	text := err.Error()
	if errors.As(err, &located) {
		text = located.GetMessage()
	}
	// The parser's text begins with "[line:column] ".
	if _, scan := fmt.Sscanf(err.Error(), "[%d:", &line); scan != nil {
		line = 1
	}
	text, _, _ = strings.Cut(text, "\n")
	return refuseSource(line, "yaml-syntax", "this is no YAML: %s; check quotes, brackets and indentation", text)
}

func fromYAML(n ast.Node, depth int) (*node, error) {
	line := 1
	if t := n.GetToken(); t != nil && t.Position != nil {
		line = t.Position.Line
	}
	if depth > maxSourceNested {
		return nil, refuseSource(line, "too-deep", "the value nests deeper than any document does")
	}
	scalar := func(s shape, text string) (*node, error) { return &node{shape: s, line: line, text: text}, nil }
	switch v := n.(type) {
	case *ast.MappingNode:
		return mapFromYAML(v, line, depth)
	case *ast.SequenceNode:
		out := &node{shape: shapeList, line: line}
		for _, item := range v.Values {
			child, err := fromYAML(item, depth+1)
			if err != nil {
				return nil, err
			}
			out.list = append(out.list, child)
		}
		return out, nil
	case *ast.StringNode:
		return scalar(shapeText, v.Value)
	case *ast.LiteralNode:
		return scalar(shapeText, v.Value.Value)
	case *ast.IntegerNode:
		return scalar(shapeInt, v.Token.Value)
	case *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return scalar(shapeFloat, n.GetToken().Value)
	case *ast.BoolNode:
		return scalar(shapeBool, fmt.Sprint(v.Value))
	case *ast.NullNode:
		return scalar(shapeNull, "")
	}
	return nil, refuseSource(line, "yaml-feature", "anchors, aliases, merge keys and tags are not allowed in documents; write the value out")
}

func mapFromYAML(m *ast.MappingNode, line, depth int) (*node, error) {
	out := &node{shape: shapeMap, line: line}
	for i, entry := range m.Values {
		name, isText := "", true
		at := entry.Key.GetToken().Position.Line
		switch key := entry.Key.(type) {
		case *ast.StringNode:
			name = key.Value
		case *ast.IntegerNode:
			name = key.Token.Value
		case *ast.BoolNode, *ast.NullNode, *ast.FloatNode:
			name = entry.Key.GetToken().Value
		default:
			isText = false
		}
		if !isText {
			return nil, refuseSource(at, "yaml-feature", "a field's name must be plain text; merge keys, anchors and complex keys are not allowed")
		}
		if i == 0 {
			out.line = at
		}
		value, err := fromYAML(entry.Value, depth+1)
		if err != nil {
			return nil, err
		}
		out.fields = append(out.fields, nodeField{name: name, line: at, value: value})
	}
	return out, nil
}

// readJSON answers the one document of a canonical JSON text, with line 0 everywhere.
func readJSON(src []byte) (*node, error) {
	d := json.NewDecoder(bytes.NewReader(src))
	d.UseNumber()
	n, err := fromJSON(d, 0)
	if err != nil {
		return nil, fmt.Errorf("no canonical document: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("no canonical document: text follows its end")
	}
	return n, nil
}

func fromJSON(d *json.Decoder, depth int) (*node, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	if depth > maxSourceNested {
		return nil, errors.New("it nests too deep")
	}
	switch v := t.(type) {
	case json.Delim:
		return collectionFromJSON(d, v, depth)
	case string:
		return &node{shape: shapeText, text: v}, nil
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return &node{shape: shapeFloat, text: v.String()}, nil
		}
		return &node{shape: shapeInt, text: v.String()}, nil
	case bool:
		return &node{shape: shapeBool, text: fmt.Sprint(v)}, nil
	}
	return &node{shape: shapeNull}, nil
}

func collectionFromJSON(d *json.Decoder, open json.Delim, depth int) (*node, error) {
	out := &node{shape: shapeList}
	if open == '{' {
		out.shape = shapeMap
	}
	for d.More() {
		var name string
		if out.shape == shapeMap {
			t, err := d.Token()
			if err != nil {
				return nil, err
			}
			name = t.(string) // encoding/json answers nothing else in a key's place
		}
		child, err := fromJSON(d, depth+1)
		if err != nil {
			return nil, err
		}
		if out.shape == shapeMap {
			out.fields = append(out.fields, nodeField{name: name, value: child})
		} else {
			out.list = append(out.list, child)
		}
	}
	_, err := d.Token()
	return out, err
}

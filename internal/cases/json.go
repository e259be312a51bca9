package cases

import (
	"encoding/json"
	"fmt"

	"github.com/goccy/go-yaml/ast"
)

// items answers the events of a request as they would arrive: text byte by byte, anything
// else as JSON with the text of its numbers kept.
func (s *Send) items() ([][]byte, error) {
	list, ok := s.Events.(*ast.SequenceNode)
	if !ok {
		return nil, fmt.Errorf("send: events must be a list")
	}
	items := make([][]byte, len(list.Values))
	for i, n := range list.Values {
		switch v := n.(type) {
		case *ast.StringNode:
			items[i] = []byte(v.Value)
		case *ast.LiteralNode:
			items[i] = []byte(v.Value.Value)
		default:
			var err error
			if items[i], err = appendJSON(nil, n); err != nil {
				return nil, fmt.Errorf("send: event %d: %w", i+1, err)
			}
		}
	}
	return items, nil
}

// appendJSON writes a YAML node as JSON.
func appendJSON(dst []byte, n ast.Node) ([]byte, error) {
	switch v := n.(type) {
	case *ast.MappingNode:
		dst = append(dst, '{')
		for i, entry := range v.Values {
			if i > 0 {
				dst = append(dst, ',')
			}
			name := entry.Key.GetToken().Value
			dst = append(appendText(dst, name), ':')
			var err error
			if dst, err = appendJSON(dst, entry.Value); err != nil {
				return nil, err
			}
		}
		return append(dst, '}'), nil
	case *ast.SequenceNode:
		dst = append(dst, '[')
		for i, item := range v.Values {
			if i > 0 {
				dst = append(dst, ',')
			}
			var err error
			if dst, err = appendJSON(dst, item); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	case *ast.StringNode:
		return appendText(dst, v.Value), nil
	case *ast.LiteralNode:
		return appendText(dst, v.Value.Value), nil
	case *ast.IntegerNode, *ast.FloatNode:
		text := n.GetToken().Value
		if !json.Valid([]byte(text)) {
			return nil, fmt.Errorf("line %d: %s is no number in JSON; put it in quotes or write it in plain digits", n.GetToken().Position.Line, text)
		}
		return append(dst, text...), nil
	case *ast.BoolNode:
		return fmt.Append(dst, v.Value), nil
	case *ast.NullNode:
		return append(dst, "null"...), nil
	}
	return nil, fmt.Errorf("line %d: anchors, aliases and tags are not allowed in events; write the value out", n.GetToken().Position.Line)
}

func appendText(dst []byte, text string) []byte {
	out, err := json.Marshal(text)
	if err != nil {
		panic(fmt.Sprintf("cases: text is always JSON: %v", err))
	}
	return append(dst, out...)
}

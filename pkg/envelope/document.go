package envelope

import (
	"bytes"
	"strconv"
)

// Kind answers the JSON type of n.
func (d *Document) Kind(n Node) Kind { return d.nodes[n].kind }

// Raw answers n exactly as it stands in the source; it aliases the source.
func (d *Document) Raw(n Node) []byte { return d.src[d.nodes[n].start:d.nodes[n].end] }

// Text answers the decoded text of a String, else the raw text. The string aliases the
// source unless it had escapes.
func (d *Document) Text(n Node) string { return alias(d.TextBytes(n)) }

// TextBytes answers what Text answers; the bytes must not be written to.
func (d *Document) TextBytes(n Node) []byte {
	v := &d.nodes[n]
	if v.kind != String {
		return d.src[v.start:v.end]
	}
	inside := d.src[v.start+1 : v.end-1]
	if v.escaped {
		return appendUnescaped(nil, inside)
	}
	return inside
}

// Members calls each for every member of an Object, or element of an Array with an
// empty name, in the order of the source until it answers false.
func (d *Document) Members(n Node, each func(name string, value Node) bool) {
	if d.nodes[n].kind < Array {
		return
	}
	for i := int32(n) + 1; i < d.nodes[n].next; i = d.nodes[i].next {
		name := ""
		if d.nodes[i].nameEnd > 0 {
			name = alias(d.decodedName(i))
		}
		if !each(name, Node(i)) {
			return
		}
	}
}

// Pointer is a parsed JSON Pointer (RFC 6901). It remembers where it last found its
// target, since documents of one kind look alike, and so is not for concurrent use.
type Pointer struct {
	text   string
	tokens []pointerToken
}

type pointerToken struct {
	name   string
	prefix uint64 // as in node
	index  int    // as an array index; -1 if it is none
	hint   int32  // how far behind its object the member was found last
}

// ParsePointer reads a JSON Pointer: "" is the whole document, else every token is led
// by "/", with ~1 for "/" and ~0 for "~".
func ParsePointer(text string) (Pointer, error) {
	p := Pointer{text: text}
	if text == "" {
		return p, nil
	}
	if text[0] != '/' {
		return Pointer{}, &PointerError{text, "it must start with /"}
	}
	for _, raw := range bytes.Split([]byte(text[1:]), []byte("/")) {
		token := make([]byte, 0, len(raw))
		for i := 0; i < len(raw); i++ {
			c := raw[i]
			if c == '~' {
				i++
				if i == len(raw) || raw[i] != '0' && raw[i] != '1' {
					return Pointer{}, &PointerError{text, "~ must be followed by 0 or 1"}
				}
				c = "~/"[raw[i]-'0']
			}
			token = append(token, c)
		}
		index, err := strconv.Atoi(string(token))
		if err != nil || strconv.Itoa(index) != string(token) {
			index = -1
		}
		p.tokens = append(p.tokens, pointerToken{string(token), headOf(token), index, 1})
	}
	return p, nil
}

// PointerError says why a text is no JSON Pointer.
type PointerError struct{ Text, Why string }

// Error answers one sentence.
func (e *PointerError) Error() string {
	return strconv.Quote(e.Text) + " is no JSON Pointer such as /order/amount: " + e.Why
}

// String answers the pointer as it was written.
func (p Pointer) String() string { return p.text }

// Lookup answers the value that p points at, seen from n.
func (d *Document) Lookup(n Node, p *Pointer) (Node, bool) {
	at := int32(n)
	for i := range p.tokens {
		token := &p.tokens[i]
		switch d.nodes[at].kind {
		case Object:
			at = d.find(at, token)
		case Array:
			at = d.element(at, token.index)
		default:
			return 0, false
		}
		if at < 0 {
			return 0, false
		}
	}
	return Node(at), true
}

func (d *Document) find(object int32, token *pointerToken) int32 {
	end := d.nodes[object].next
	if i := object + token.hint; i < end && d.nodes[i].parent == object && d.named(i, token) {
		return i
	}
	for i := object + 1; i < end; i = d.nodes[i].next {
		if d.named(i, token) {
			token.hint = i - object
			return i
		}
	}
	return -1
}

func (d *Document) named(i int32, token *pointerToken) bool {
	n := &d.nodes[i]
	switch {
	case n.prefix != token.prefix:
		return false
	case n.nameEscaped:
		return string(d.decodedName(i)) == token.name
	}
	return string(d.src[n.nameStart:n.nameEnd]) == token.name
}

func (d *Document) element(array int32, index int) int32 {
	if index < 0 {
		return -1
	}
	end := d.nodes[array].next
	for i := array + 1; i < end; i = d.nodes[i].next {
		if index == 0 {
			return i
		}
		index--
	}
	return -1
}

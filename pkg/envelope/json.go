package envelope

import (
	"bytes"
	"fmt"
	"math"
	"unicode/utf8"
)

// MaxDepth is how deep the containers of an event's data may nest: [[1]] has depth 2.
const MaxDepth = 64

// Fault tells the ways apart in which JSON is refused.
type Fault uint8

// Faults. A document that has several is reported by the first that the reader meets,
// except that Duplicate is reported only if the document is otherwise well-formed.
const (
	Malformed Fault = 1 // no JSON by RFC 8259, or text that is not Unicode
	Duplicate Fault = 2 // a member name twice, or twice but for upper and lower case
	TooDeep   Fault = 3 // containers nest deeper than allowed
)

// JSONError says why JSON is refused and where.
type JSONError struct {
	Fault  Fault
	Offset int // of the offending byte, from 0
	What   string
}

// Error answers one sentence with the byte offset.
func (e *JSONError) Error() string { return fmt.Sprintf("%s at byte %d", e.What, e.Offset) }

// Kind is the JSON type of a node.
type Kind uint8

// Kinds of nodes.
const (
	Null Kind = iota + 1
	False
	True
	Number
	String
	Array
	Object
)

// Node names one value of a parsed Document; the root is node 0.
type Node int32

// node is one parsed value. The children of a container follow it directly; next is the
// node behind its whole subtree.
type node struct {
	prefix             uint64 // first eight bytes of the decoded member name, big-endian, zero-padded
	fold               uint32 // hash of the member name with upper and lower case made equal
	nameStart, nameEnd int32  // member name between its quotes; both 0 = no member
	start, end         int32  // the value, quotes and brackets included
	next               int32
	kind               Kind
	escaped            bool // a string whose text holds backslashes
	nameEscaped        bool
}

// Document is one strictly parsed JSON text. It keeps its memory from one Parse to the
// next and is not safe for concurrent use.
//
// Refused are: anything that RFC 8259 does not allow (NaN, comments, trailing bytes), a
// byte order mark, invalid UTF-8, lone surrogates, a member name that stands twice in
// one object, also when the two differ only in case (equal under Unicode simple case
// folding), and containers nested too deep. Numbers keep their text.
type Document struct {
	src     []byte
	pos     int
	nodes   []node
	order   []int32 // scratch: member nodes to be sorted
	text    []byte  // scratch: decoded or folded member name
	twin    int     // offset of the first duplicate member name, or -1
	twinOf  [2]string
	deepest int
}

// Parse reads src, which must stay unchanged while the Document is in use. maxDepth
// bounds the nesting of containers. The error is a *JSONError.
func (d *Document) Parse(src []byte, maxDepth int) error {
	d.src, d.pos, d.nodes, d.twin, d.deepest = src, 0, d.nodes[:0], -1, maxDepth
	if len(src) > math.MaxInt32-16 {
		return &JSONError{Malformed, 0, "JSON text beyond 2 GiB"}
	}
	if bytes.HasPrefix(src, []byte("\xef\xbb\xbf")) {
		return &JSONError{Malformed, 0, "a byte order mark is not allowed"}
	}
	d.space()
	if err := d.value(0); err != nil {
		return err
	}
	d.space()
	if d.pos < len(src) {
		return d.refuse("bytes after the end of the JSON text")
	}
	if d.twin >= 0 {
		what := fmt.Sprintf("member %.64q stands twice", d.twinOf[1])
		if d.twinOf[0] != d.twinOf[1] {
			what = fmt.Sprintf("member %.64q differs from %.64q only in case", d.twinOf[1], d.twinOf[0])
		}
		return &JSONError{Duplicate, d.twin, what}
	}
	return nil
}

func (d *Document) refuse(what string) error {
	if d.pos >= len(d.src) {
		return &JSONError{Malformed, len(d.src), "the JSON text ends too early"}
	}
	return &JSONError{Malformed, d.pos, what}
}

func (d *Document) space() {
	for d.pos < len(d.src) {
		switch d.src[d.pos] {
		case ' ', '\t', '\n', '\r':
			d.pos++
		default:
			return
		}
	}
}

// value reads one value at pos into a new node; depth counts the containers around it.
func (d *Document) value(depth int) error {
	self := len(d.nodes)
	start := d.pos
	d.nodes = append(d.nodes, node{start: int32(start)})
	if start >= len(d.src) {
		return d.refuse("")
	}
	var kind Kind
	var err error
	escaped := false
	switch c := d.src[start]; {
	case c == '"':
		kind = String
		escaped, err = d.string()
	case c == '-' || c >= '0' && c <= '9':
		kind = Number
		err = d.number()
	case c == '{':
		kind = Object
		err = d.object(self, depth+1)
	case c == '[':
		kind = Array
		err = d.array(depth + 1)
	case c == 't':
		kind = True
		err = d.literal("true")
	case c == 'f':
		kind = False
		err = d.literal("false")
	case c == 'n':
		kind = Null
		err = d.literal("null")
	default:
		err = d.refuse("no JSON value")
	}
	if err != nil {
		return err
	}
	n := &d.nodes[self]
	n.kind, n.escaped, n.end, n.next = kind, escaped, int32(d.pos), int32(len(d.nodes))
	return nil
}

func (d *Document) literal(word string) error {
	for i := range len(word) {
		if d.pos >= len(d.src) || d.src[d.pos] != word[i] {
			return d.refuse("no JSON value")
		}
		d.pos++
	}
	return nil
}

func (d *Document) array(depth int) error {
	if depth > d.deepest {
		return &JSONError{TooDeep, d.pos, fmt.Sprintf("containers nest deeper than %d", d.deepest)}
	}
	d.pos++
	d.space()
	if d.pos < len(d.src) && d.src[d.pos] == ']' {
		d.pos++
		return nil
	}
	for {
		d.space()
		if err := d.value(depth); err != nil {
			return err
		}
		d.space()
		if d.pos >= len(d.src) {
			return d.refuse("")
		}
		switch d.src[d.pos] {
		case ',':
			d.pos++
		case ']':
			d.pos++
			return nil
		default:
			return d.refuse("neither comma nor ] after an element")
		}
	}
}

func (d *Document) object(self, depth int) error {
	if depth > d.deepest {
		return &JSONError{TooDeep, d.pos, fmt.Sprintf("containers nest deeper than %d", d.deepest)}
	}
	d.pos++
	d.space()
	if d.pos < len(d.src) && d.src[d.pos] == '}' {
		d.pos++
		return nil
	}
	for members := 1; ; members++ {
		if err := d.member(depth); err != nil {
			return err
		}
		if d.pos < len(d.src) && d.src[d.pos] > ' ' {
			// the usual case: no space before the comma
		} else {
			d.space()
		}
		if d.pos >= len(d.src) {
			return d.refuse("")
		}
		switch d.src[d.pos] {
		case ',':
			d.pos++
		case '}':
			d.pos++
			d.checkTwins(self, members)
			return nil
		default:
			return d.refuse("neither comma nor } after a member")
		}
	}
}

func (d *Document) member(depth int) error {
	d.space()
	if d.pos >= len(d.src) || d.src[d.pos] != '"' {
		return d.refuse("no member name")
	}
	start := d.pos + 1
	escaped, err := d.string()
	if err != nil {
		return err
	}
	end := d.pos - 1
	if d.pos >= len(d.src) || d.src[d.pos] != ':' {
		d.space()
		if d.pos >= len(d.src) || d.src[d.pos] != ':' {
			return d.refuse("no colon after a member name")
		}
	}
	d.pos++
	d.space()
	self := len(d.nodes)
	if err := d.value(depth); err != nil {
		return err
	}
	n := &d.nodes[self]
	n.nameStart, n.nameEnd, n.nameEscaped = int32(start), int32(end), escaped
	n.prefix, n.fold = d.nameMarks(start, end, escaped)
	return nil
}

// number checks the grammar of RFC 8259; the text itself is the value.
func (d *Document) number() error {
	src, i := d.src, d.pos
	if src[i] == '-' {
		i++
	}
	whole := i
	i = digits(src, i)
	switch {
	case i == whole:
		d.pos = i
		return d.refuse("a number without digits")
	case src[whole] == '0' && i > whole+1:
		d.pos = whole
		return d.refuse("a number with a leading zero")
	}
	if i < len(src) && src[i] == '.' {
		fraction := i + 1
		if i = digits(src, fraction); i == fraction {
			d.pos = i
			return d.refuse("a number without digits after its point")
		}
	}
	if i < len(src) && src[i]|0x20 == 'e' {
		i++
		if i < len(src) && (src[i] == '+' || src[i] == '-') {
			i++
		}
		exponent := i
		if i = digits(src, i); i == exponent {
			d.pos = i
			return d.refuse("a number without digits in its exponent")
		}
	}
	d.pos = i
	return nil
}

func digits(src []byte, i int) int {
	for i < len(src) && src[i]-'0' <= 9 {
		i++
	}
	return i
}

// string reads from the opening quote to behind the closing one and answers whether
// there are backslashes between.
func (d *Document) string() (escaped bool, err error) {
	src, i := d.src, d.pos+1
	wide := false
	for {
		i = plainRun(src, i)
		if i >= len(src) {
			d.pos = i
			return false, d.refuse("")
		}
		switch c := src[i]; {
		case c == '"':
			if wide && !utf8.Valid(src[d.pos+1:i]) {
				return false, d.refuse("a string that is not valid UTF-8")
			}
			d.pos = i + 1
			return escaped, nil
		case c == '\\':
			escaped = true
			size := escapeLen(src[i:])
			if size == 0 {
				d.pos = i
				return false, d.refuse("a bad escape or a lone surrogate in a string")
			}
			i += size
		case c < ' ':
			d.pos = i
			return false, d.refuse("a control character in a string")
		default:
			wide = true
			for i < len(src) && src[i] >= 0x80 {
				i++
			}
		}
	}
}

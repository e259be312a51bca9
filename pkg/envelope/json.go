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
	parent             int32 // the container; -1 = none
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
	nodes   []node
	order   []int32 // scratch: member nodes to be sorted
	text    []byte  // scratch: decoded or folded member name
	twin    int     // offset of the first duplicate member name, or -1
	twinOf  [2]string
	deepest int
	fault   JSONError // of the Parse that failed
}

// Parse reads src, which must stay unchanged while the Document is in use. maxDepth
// bounds the nesting of containers. The error is a *JSONError.
func (d *Document) Parse(src []byte, maxDepth int) error {
	d.src, d.nodes, d.twin, d.deepest = src, d.nodes[:0], -1, maxDepth
	if len(src) > math.MaxInt32-16 {
		return &JSONError{Malformed, 0, "JSON text beyond 2 GiB"}
	}
	if bytes.HasPrefix(src, []byte("\xef\xbb\xbf")) {
		return &JSONError{Malformed, 0, "a byte order mark is not allowed"}
	}
	pos := d.value(skipSpace(src, 0), 0, node{parent: -1})
	if pos >= 0 {
		if pos = skipSpace(src, pos); pos < len(src) {
			pos = d.refuse(pos, "bytes after the end of the JSON text")
		}
	}
	if pos < 0 {
		fault := d.fault
		return &fault
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

// The functions below read something at pos and answer the position behind it, or -1
// with d.fault set.

func (d *Document) refuse(pos int, what string) int {
	d.fault = JSONError{Malformed, pos, what}
	if pos >= len(d.src) {
		d.fault = JSONError{Malformed, len(d.src), "the JSON text ends too early"}
	}
	return -1
}

// value reads one value and completes n, which brings the member name and the parent,
// to its node; depth counts the containers around it.
func (d *Document) value(pos, depth int, n node) int {
	if pos >= len(d.src) {
		return d.refuse(pos, "")
	}
	n.start = int32(pos)
	switch c := d.src[pos]; c {
	case '"':
		n.kind = String
		pos, n.escaped, _ = d.string(pos)
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		n.kind = Number
		pos = d.number(pos)
	case '{', '[':
		return d.container(pos, depth+1, n, c)
	case 't':
		n.kind = True
		pos = d.literal(pos, "true")
	case 'f':
		n.kind = False
		pos = d.literal(pos, "false")
	case 'n':
		n.kind = Null
		pos = d.literal(pos, "null")
	default:
		return d.refuse(pos, "no JSON value")
	}
	n.end, n.next = int32(pos), int32(len(d.nodes)+1)
	d.nodes = append(d.nodes, n)
	return pos
}

// container reads an object or an array; its node stands before those of its children.
func (d *Document) container(pos, depth int, n node, open byte) int {
	if depth > d.deepest {
		d.fault = JSONError{TooDeep, pos, fmt.Sprintf("containers nest deeper than %d", d.deepest)}
		return -1
	}
	self := len(d.nodes)
	if open == '{' {
		n.kind = Object
		d.nodes = append(d.nodes, n)
		pos = d.object(pos, depth, self)
	} else {
		n.kind = Array
		d.nodes = append(d.nodes, n)
		pos = d.array(pos, depth, self)
	}
	d.nodes[self].end, d.nodes[self].next = int32(pos), int32(len(d.nodes))
	return pos
}

func (d *Document) literal(pos int, word string) int {
	for i := range len(word) {
		if pos >= len(d.src) || d.src[pos] != word[i] {
			return d.refuse(pos, "no JSON value")
		}
		pos++
	}
	return pos
}

func (d *Document) array(pos, depth, self int) int {
	src := d.src
	pos = skipSpace(src, pos+1)
	if pos < len(src) && src[pos] == ']' {
		return pos + 1
	}
	for {
		if pos = d.value(skipSpace(src, pos), depth, node{parent: int32(self)}); pos < 0 {
			return pos
		}
		pos = skipSpace(src, pos)
		switch {
		case pos < len(src) && src[pos] == ',':
			pos++
		case pos < len(src) && src[pos] == ']':
			return pos + 1
		default:
			return d.refuse(pos, "neither comma nor ] after an element")
		}
	}
}

func (d *Document) object(pos, depth, self int) int {
	src := d.src
	pos = skipSpace(src, pos+1)
	if pos < len(src) && src[pos] == '}' {
		return pos + 1
	}
	for members := 1; ; members++ {
		if pos = d.member(skipSpace(src, pos), depth, self); pos < 0 {
			return pos
		}
		pos = skipSpace(src, pos)
		switch {
		case pos < len(src) && src[pos] == ',':
			pos++
		case pos < len(src) && src[pos] == '}':
			d.checkTwins(self, members)
			return pos + 1
		default:
			return d.refuse(pos, "neither comma nor } after a member")
		}
	}
}

func (d *Document) member(pos, depth, self int) int {
	src := d.src
	if pos >= len(src) || src[pos] != '"' {
		return d.refuse(pos, "no member name")
	}
	start := pos + 1
	prefix, fold, size := shortName(src, start)
	escaped := false
	if size >= 0 {
		pos = start + size + 1
	} else {
		wide := false
		if pos, escaped, wide = d.string(pos); pos < 0 {
			return pos
		}
		prefix, fold = d.nameMarks(src[start:pos-1], escaped, wide)
	}
	end := pos - 1
	if pos = skipSpace(src, pos); pos >= len(src) || src[pos] != ':' {
		return d.refuse(pos, "no colon after a member name")
	}
	return d.value(skipSpace(src, pos+1), depth, node{
		prefix: prefix, fold: fold, nameStart: int32(start), nameEnd: int32(end), nameEscaped: escaped, parent: int32(self),
	})
}

// number checks the grammar of RFC 8259; the text itself is the value.
func (d *Document) number(pos int) int {
	src, i := d.src, pos
	if src[i] == '-' {
		i++
	}
	whole := i
	i = digits(src, i)
	switch {
	case i == whole:
		return d.refuse(i, "a number without digits")
	case src[whole] == '0' && i > whole+1:
		return d.refuse(whole, "a number with a leading zero")
	}
	if i < len(src) && src[i] == '.' {
		fraction := i + 1
		if i = digits(src, fraction); i == fraction {
			return d.refuse(i, "a number without digits after its point")
		}
	}
	if i < len(src) && src[i]|0x20 == 'e' {
		i++
		if i < len(src) && (src[i] == '+' || src[i] == '-') {
			i++
		}
		exponent := i
		if i = digits(src, i); i == exponent {
			return d.refuse(i, "a number without digits in its exponent")
		}
	}
	return i
}

func digits(src []byte, i int) int {
	for i < len(src) && src[i]-'0' <= 9 {
		i++
	}
	return i
}

// string reads from the opening quote at pos to behind the closing one and answers
// whether there are backslashes (escaped) or bytes beyond ASCII (wide) between.
func (d *Document) string(pos int) (next int, escaped, wide bool) {
	src, i := d.src, pos+1
	for {
		i = plainRun(src, i)
		if i >= len(src) {
			return d.refuse(i, ""), false, false
		}
		switch c := src[i]; {
		case c == '"':
			if wide && !utf8.Valid(src[pos+1:i]) {
				return d.refuse(pos, "a string that is not valid UTF-8"), false, false
			}
			return i + 1, escaped, wide
		case c == '\\':
			escaped = true
			size := escapeLen(src[i:])
			if size == 0 {
				return d.refuse(i, "a bad escape or a lone surrogate in a string"), false, false
			}
			i += size
		case c < ' ':
			return d.refuse(i, "a control character in a string"), false, false
		default:
			wide = true
			for i < len(src) && src[i] >= 0x80 {
				i++
			}
		}
	}
}

// skipSpace is small enough to be inlined; most tokens have no space before them.
func skipSpace(src []byte, i int) int {
	if i < len(src) && src[i] > ' ' {
		return i
	}
	return skipSpaces(src, i)
}

func skipSpaces(src []byte, i int) int {
	for i < len(src) && isSpace(src[i]) {
		i++
	}
	return i
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

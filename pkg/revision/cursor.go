package revision

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// cursor reads JSON of a known shape, strictly: unknown, missing and repeated members,
// numbers of another form and trailing bytes are errors, since what is read here has a
// digest over all of it. The first error sticks; later reads answer zero values.
type cursor struct {
	what string // name of the schema, for errors
	text string
	pos  int
	err  error
}

func newCursor(what string, data []byte) *cursor {
	c := &cursor{what: what, text: string(data)}
	if !utf8.ValidString(c.text) {
		c.fail("is no valid UTF-8")
	}
	return c
}

func (c *cursor) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%s at byte %d: %s", c.what, c.pos, fmt.Sprintf(format, args...))
	}
}

// end checks that nothing follows and answers the first error.
func (c *cursor) end() error {
	c.space()
	if c.err == nil && c.pos < len(c.text) {
		c.fail("trailing bytes")
	}
	return c.err
}

func (c *cursor) space() {
	for c.pos < len(c.text) {
		switch c.text[c.pos] {
		case ' ', '\t', '\n', '\r':
			c.pos++
		default:
			return
		}
	}
}

// take moves over b if it stands next.
func (c *cursor) take(b byte) bool {
	c.space()
	if c.err != nil || c.pos >= len(c.text) || c.text[c.pos] != b {
		return false
	}
	c.pos++
	return true
}

func (c *cursor) expect(b byte) {
	if !c.take(b) {
		c.fail("want %q", b)
	}
}

// null moves over a null: the design allows one where a member may be left out.
func (c *cursor) null() bool {
	c.space()
	if c.err == nil && strings.HasPrefix(c.text[c.pos:], "null") {
		c.pos += len("null")
		return true
	}
	return false
}

// object reads an object whose members member knows; member answers false for a name it
// does not know. Members in required must be there.
func (c *cursor) object(required []string, member func(name string) bool) {
	var room [32]string
	seen := room[:0]
	c.members(func(name string) bool {
		if slices.Contains(seen, name) {
			c.fail("member %q stands there twice", name)
			return true
		}
		seen = append(seen, name)
		return member(name)
	})
	for _, name := range required {
		if c.err == nil && !slices.Contains(seen, name) {
			c.fail("member %q is missing", name)
		}
	}
}

func (c *cursor) members(member func(name string) bool) {
	c.expect('{')
	if c.take('}') {
		return
	}
	for c.err == nil {
		name := c.string()
		c.expect(':')
		if c.err == nil && !member(name) {
			c.fail("unknown member %q", name)
		}
		if c.take('}') {
			return
		}
		c.expect(',')
	}
}

func (c *cursor) array(element func()) {
	c.expect('[')
	if c.take(']') {
		return
	}
	for c.err == nil {
		element()
		if c.take(']') {
			return
		}
		c.expect(',')
	}
}

func (c *cursor) string() string {
	c.expect('"')
	if c.err != nil {
		return ""
	}
	from := c.pos
	if size := strings.IndexByte(c.text[from:], '"'); size >= 0 && plain(c.text[from:from+size]) {
		c.pos += size + 1
		return c.text[from : from+size]
	}
	for c.pos < len(c.text) {
		switch b := c.text[c.pos]; {
		case b == '"':
			c.pos++
			return c.text[from : c.pos-1]
		case b == '\\':
			return c.escaped(from)
		case b < ' ':
			c.fail("control character in a string")
			return ""
		}
		c.pos++
	}
	c.fail("string does not end")
	return ""
}

// escaped goes on with a string that began at from and has an escape at c.pos.
func (c *cursor) escaped(from int) string {
	out := []byte(c.text[from:c.pos])
	for c.err == nil {
		if c.pos >= len(c.text) {
			c.fail("string does not end")
			break
		}
		b := c.text[c.pos]
		c.pos++
		switch {
		case b == '"':
			return string(out)
		case b < ' ':
			c.fail("control character in a string")
		case b == '\\':
			out = utf8.AppendRune(out, c.escape())
		default:
			out = append(out, b)
		}
	}
	return ""
}

func (c *cursor) escape() rune {
	if c.pos >= len(c.text) {
		c.fail("string does not end")
		return 0
	}
	b := c.text[c.pos]
	c.pos++
	switch b {
	case '"', '\\', '/':
		return rune(b)
	case 'b':
		return '\b'
	case 't':
		return '\t'
	case 'n':
		return '\n'
	case 'f':
		return '\f'
	case 'r':
		return '\r'
	case 'u':
		r := c.hex4()
		if !utf16.IsSurrogate(r) {
			return r
		}
		if strings.HasPrefix(c.text[c.pos:], `\u`) {
			c.pos += 2
			if pair := utf16.DecodeRune(r, c.hex4()); pair != utf8.RuneError {
				return pair
			}
		}
		c.fail("half a surrogate pair")
		return 0
	}
	c.fail("unknown escape")
	return 0
}

func (c *cursor) hex4() rune {
	if c.pos+4 > len(c.text) {
		c.fail("string does not end")
		return 0
	}
	n, err := strconv.ParseUint(c.text[c.pos:c.pos+4], 16, 16)
	if err != nil {
		c.fail("bad escape")
	}
	c.pos += 4
	return rune(n)
}

// integer answers the text of an integer in its one canonical form.
func (c *cursor) integer() string {
	c.space()
	from := c.pos
	for c.err == nil && c.pos < len(c.text) && (c.text[c.pos] == '-' || c.text[c.pos] >= '0' && c.text[c.pos] <= '9') {
		c.pos++
	}
	text := c.text[from:c.pos]
	if c.err == nil && (!isInteger(text) || c.pos < len(c.text) && strings.IndexByte(".eE+", c.text[c.pos]) >= 0) {
		c.pos = from
		c.fail("want an integer")
		return ""
	}
	return text
}

// isInteger tells whether text is a JSON integer: no leading zero, no plus, no minus zero.
func isInteger(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	if digits == "" || digits[0] == '0' && len(text) > 1 {
		return false
	}
	for i := 0; i < len(digits); i++ {
		if digits[i] < '0' || digits[i] > '9' {
			return false
		}
	}
	return true
}

func (c *cursor) uint(size int) uint64 {
	text := c.integer()
	if c.err != nil {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, size)
	if err != nil {
		c.fail("%s is no unsigned integer of %d bits", text, size)
	}
	return n
}

func (c *cursor) int() int {
	text := c.integer()
	if c.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		c.fail("%s is no integer of 32 bits", text)
	}
	return int(n)
}

func (c *cursor) bool() bool {
	c.space()
	rest := c.text[c.pos:]
	switch {
	case c.err != nil:
	case strings.HasPrefix(rest, "true"):
		c.pos += len("true")
		return true
	case strings.HasPrefix(rest, "false"):
		c.pos += len("false")
	default:
		c.fail("want true or false")
	}
	return false
}

func (c *cursor) digest() (d Digest) {
	if text := c.string(); c.err == nil && !parseHex(d[:], text) {
		c.fail("%q is no digest", text)
	}
	return d
}

func (c *cursor) idDigest() (d [16]byte) {
	if text := c.string(); c.err == nil && !parseHex(d[:], text) {
		c.fail("%q is no idDigest", text)
	}
	return d
}

func (c *cursor) time() envelope.EventTime {
	text := c.string()
	if c.err != nil {
		return 0
	}
	if t, fine, ok := envelope.ParseRFC3339(text); ok && !fine {
		return t
	}
	t, err := envelope.ParseEventTime(text) // the bounds, and errors in words
	if err != nil {
		c.fail("%v", err)
	}
	return t
}

// schema reads the value of "schema", which must be want.
func (c *cursor) schema(want string) {
	if got := c.string(); c.err == nil && got != want {
		c.fail("schema is %q, this reader knows %q only", got, want)
	}
}

// fields reads an object of named results; the answer is sorted by name, in whatever
// order they stand, so that its digest is that of the content.
func (c *cursor) fields() []Field {
	var fields []Field
	c.members(func(name string) bool {
		f := Field{Name: name}
		c.space()
		if c.pos < len(c.text) && c.text[c.pos] == '"' {
			f.Quoted, f.Text = true, c.string()
		} else {
			f.Text = c.integer()
		}
		if slices.ContainsFunc(fields, func(other Field) bool { return other.Name == name }) {
			c.fail("member %q stands there twice", name)
		}
		if fields == nil {
			fields = make([]Field, 0, 4)
		}
		fields = append(fields, f)
		return true
	})
	slices.SortFunc(fields, func(a, b Field) int { return strings.Compare(a.Name, b.Name) })
	return fields
}

// optional reads a string that may be null.
func (c *cursor) optional() string {
	if c.null() {
		return ""
	}
	return c.string()
}

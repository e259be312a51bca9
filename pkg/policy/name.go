package policy

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// Names of streams and jobs become parts of NATS subjects and stream names; names of
// extractors carry their version; names of values and aggregates stand in "sum(amount)"
// and in JSON.
var (
	plainName     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)
	extractorName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}@[1-9][0-9]{0,5}$`)
	fieldName     = regexp.MustCompile(`^[\p{L}\p{N}_][\p{L}\p{N}_.-]{0,62}$`)
)

// plain reads the name of a stream or job; n may be nil.
func (r *reader) plain(n *node, path string) string {
	text := r.text(n, path)
	if n != nil && n.shape == shapeText && !plainName.MatchString(text) {
		r.refuse(n.line, "bad-name", "%s is %q; it must have 1 to 63 letters A-Z a-z, digits, _ or -, and begin with a letter or digit", path, text)
	}
	return text
}

func (r *reader) checkFieldName(name string, line int, path string) {
	if !fieldName.MatchString(name) {
		r.refuse(line, "bad-name", "%s: %q is no name; it must have 1 to 63 letters, digits, _, - or ., and begin with a letter, digit or _", path, name)
	}
}

// ValidSource tells whether text can name a source: 1 to 256 bytes of UTF-8.
func ValidSource(text string) bool {
	return text != "" && len(text) <= 256 && utf8.ValidString(text)
}

// pointer reads a JSON Pointer to a value inside an event's data; n may be nil.
func (r *reader) pointer(n *node, path string) string {
	text := r.text(n, path)
	if n == nil || n.shape != shapeText {
		return text
	}
	valid := strings.HasPrefix(text, "/") && len(text) <= 1024
	for rest := text; valid; {
		tilde := strings.IndexByte(rest, '~')
		if tilde < 0 {
			break
		}
		rest = rest[tilde+1:]
		valid = rest != "" && (rest[0] == '0' || rest[0] == '1')
	}
	if !valid {
		r.refuse(n.line, "bad-pointer", "%s is %q, which is no JSON Pointer; it must begin with / as in /order/region (~ is written ~0, / inside a name ~1)", path, text)
	}
	return text
}

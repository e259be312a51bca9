package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// reader collects what is wrong with one document while its fields are read. Reading
// goes on after a finding, so that one run names them all.
type reader struct {
	file     string
	findings []Finding
	lines    map[string]int
}

func (r *reader) refuse(line int, rule, format string, args ...any) {
	r.findings = append(r.findings, Finding{File: r.file, Line: line, Rule: rule, Message: fmt.Sprintf(format, args...)})
}

// object is a map whose fields are asked for one by one; finish refuses those that
// nobody asked for.
type object struct {
	r      *reader
	path   string
	line   int
	fields []nodeField
	asked  []string
}

// object answers the map n, or nil after a finding.
func (r *reader) object(n *node, path string) *object {
	if n.shape != shapeMap {
		r.wrongShape(n, path, "a map of fields")
		return nil
	}
	o := &object{r: r, path: path, line: n.line}
	for _, f := range n.fields {
		if twin := o.findFolded(f.name); twin != nil {
			what := "stands twice in this map"
			if twin.name != f.name {
				// Names of aggregates become members of published JSON, whose readers refuse them.
				what = fmt.Sprintf("differs from %q only in case", twin.name)
			}
			r.refuse(f.line, "duplicate-field", "%s %s; keep one of the two", o.at(f.name), what)
			continue
		}
		o.fields = append(o.fields, f)
		r.lines[o.at(f.name)] = f.line
	}
	return o
}

func (r *reader) wrongShape(n *node, path, want string) {
	if path == "" {
		path = "the document"
	}
	hint := ""
	if want == "text" && n.shape != shapeMap && n.shape != shapeList && n.shape != shapeNull {
		hint = "; put it in quotes"
	}
	r.refuse(n.line, "wrong-type", "%s must be %s, not %s%s", path, want, n.shape, hint)
}

func (o *object) at(name string) string {
	if o.path == "" {
		return name
	}
	return o.path + "." + name
}

func (o *object) find(name string) *nodeField {
	for i := range o.fields {
		if o.fields[i].name == name {
			return &o.fields[i]
		}
	}
	return nil
}

// findFolded answers the field whose name is equal, case set aside.
func (o *object) findFolded(name string) *nodeField {
	for i := range o.fields {
		if strings.EqualFold(o.fields[i].name, name) {
			return &o.fields[i]
		}
	}
	return nil
}

// optional answers the value of a field, or nil where it was not written.
func (o *object) optional(name string) *node {
	o.asked = append(o.asked, name)
	if f := o.find(name); f != nil {
		return f.value
	}
	return nil
}

// required answers the value of a field, or nil after a finding that shows an example.
func (o *object) required(name, example string) *node {
	n := o.optional(name)
	if n == nil {
		o.r.refuse(o.line, "missing-field", "%s is missing; add for example %s: %s", o.at(name), name, example)
	}
	return n
}

// finish refuses the fields that were not asked for.
func (o *object) finish() {
	for _, f := range o.fields {
		if !slices.Contains(o.asked, f.name) {
			known := sorted(o.asked)
			o.r.refuse(f.line, "unknown-field", "%s is no field here%s; the fields are %s", o.at(f.name), didYouMean(f.name, known), oneOf(known))
		}
	}
}

// text reads text; n may be nil.
func (r *reader) text(n *node, path string) string {
	if n == nil {
		return ""
	}
	if n.shape != shapeText {
		r.wrongShape(n, path, "text")
		return ""
	}
	if !utf8.ValidString(n.text) {
		r.refuse(n.line, "not-utf8", "%s holds bytes that are not UTF-8", path)
		return ""
	}
	return n.text
}

// choice reads one of the words, or answers otherwise where n is nil.
func (r *reader) choice(n *node, path, otherwise string, words ...string) string {
	if n == nil {
		return otherwise
	}
	text := r.text(n, path)
	if n.shape == shapeText && !slices.Contains(words, text) {
		r.refuse(n.line, "bad-value", "%s is %q%s; it must be %s", path, text, didYouMean(text, words), oneOf(words))
		return otherwise
	}
	return text
}

// integer reads a decimal integer from least to most, or answers otherwise where n is nil.
func (r *reader) integer(n *node, path string, least, most, otherwise int64) int64 {
	if n == nil {
		return otherwise
	}
	if n.shape != shapeInt {
		r.wrongShape(n, path, "a whole number")
		return otherwise
	}
	value, err := strconv.ParseInt(n.text, 10, 64)
	if err != nil || value < least || value > most || strconv.FormatInt(value, 10) != n.text {
		r.refuse(n.line, "bad-value", "%s is %s; it must be a whole number from %d to %d in plain digits", path, n.text, least, most)
		return otherwise
	}
	return value
}

// boolean reads true or false; false where n is nil.
func (r *reader) boolean(n *node, path string) bool {
	if n == nil {
		return false
	}
	if n.shape != shapeBool {
		r.wrongShape(n, path, "true or false")
		return false
	}
	return n.text == "true"
}

// signed reads a duration of either sign, or answers otherwise where n is nil.
func (r *reader) signed(n *node, path string, otherwise Duration) Duration {
	if n == nil {
		return otherwise
	}
	if n.shape != shapeText && n.shape != shapeInt {
		r.wrongShape(n, path, "a duration such as 15m")
		return otherwise
	}
	d, err := ParseDuration(n.text)
	if err != nil {
		r.refuse(n.line, "bad-duration", "%s: %v", path, err)
		return otherwise
	}
	return d
}

// duration reads a duration that is not negative, or answers otherwise where n is nil.
func (r *reader) duration(n *node, path string, otherwise Duration) Duration {
	d := r.signed(n, path, otherwise)
	if d < 0 {
		r.refuse(n.line, "bad-duration", "%s is %s; it cannot be negative", path, d)
		return otherwise
	}
	return d
}

// list answers the items of a list with at least one; n may be nil.
func (r *reader) list(n *node, path string) []*node {
	if n == nil {
		return nil
	}
	if n.shape != shapeList {
		r.wrongShape(n, path, "a list")
		return nil
	}
	if len(n.list) == 0 {
		r.refuse(n.line, "bad-value", "%s is empty; it needs at least one item", path)
	}
	return n.list
}

package policy

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

// plainScalar is text that YAML reads as text without quotes.
var plainScalar = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./@+()-]*$`)

// YAML writes the document in its long form, with every default, in the order in which
// people read it. Parse reads it back to the same digest.
func (d *Document) YAML() []byte {
	var b bytes.Buffer
	for _, f := range d.long() {
		writeYAML(&b, f, "")
	}
	return b.Bytes()
}

func writeYAML(b *bytes.Buffer, f field, indent string) {
	b.WriteString(indent + yamlText(f.name) + ":")
	switch v := f.value.(type) {
	case []field:
		if len(v) == 0 {
			b.WriteString(" {}\n")
			return
		}
		b.WriteByte('\n')
		for _, child := range v {
			writeYAML(b, child, indent+"  ")
		}
	case [][]field:
		b.WriteByte('\n')
		for _, item := range v {
			for i, child := range item {
				lead := indent + "    "
				if i == 0 {
					b.WriteString(indent + "  - ")
					lead = ""
				}
				writeYAML(b, child, lead)
			}
		}
	case []string:
		b.WriteByte('\n')
		for _, item := range v {
			b.WriteString(indent + "  - " + yamlText(item) + "\n")
		}
	case string:
		b.WriteString(" " + yamlText(v) + "\n")
	default:
		fmt.Fprintf(b, " %v\n", v)
	}
}

// yamlText quotes text unless it is plain and no word that YAML takes for something else.
func yamlText(text string) string {
	switch strings.ToLower(text) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
	default:
		if plainScalar.MatchString(text) {
			return text
		}
		if _, err := ParseDuration(text); err == nil && text != "0" && text[0] != '+' {
			return text
		}
	}
	return string(appendCanonical(nil, text))
}

package adapters

import (
	"fmt"
	"strings"

	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// header is one header of a request, its secret put in.
type header struct{ name, value string }

// fixedHeaders answers the headers that the document gives every request. Secrets are
// read each time, so that a token may be replaced while the effector runs. The value is
// one line: neither the error nor anything else repeats it.
func fixedHeaders(doc *policy.Adapter, deps Deps) ([]header, error) {
	out := make([]header, 0, len(doc.Headers))
	for _, h := range doc.Headers {
		value := h.Value
		if h.SecretFile != "" {
			data, err := deps.secret(h.SecretFile)
			if err != nil {
				return nil, fmt.Errorf("header %s: %w", h.Name, err)
			}
			value = h.Prefix + strings.TrimSpace(string(data))
			if !isHeaderValue(value) {
				return nil, fmt.Errorf("header %s: secret file %s does not hold one line of visible ASCII", h.Name, h.SecretFile)
			}
		}
		out = append(out, header{h.Name, value})
	}
	return out, nil
}

func isHeaderValue(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s != ""
}

// isTraceParent tells whether s has the form of W3C Trace Context, version 00.
func isTraceParent(s string) bool {
	if len(s) != 55 || s[:3] != "00-" || s[35] != '-' || s[52] != '-' {
		return false
	}
	return strings.Trim(s[3:35]+s[36:52]+s[53:], "0123456789abcdef") == ""
}

package adapters

import (
	"crypto/sha256"
	"strings"
	"unicode/utf8"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Bounds of a provider's answer.
const (
	maxAnswer = 1 << 20 // bytes
	maxDepth  = 64
	maxListed = 1000 // executions of one query
)

// root is the whole of a parsed body.
const root = envelope.Node(0)

// parseBody reads JSON strictly: a member that stands twice may mean one thing to us and
// another to the provider, so such a body says nothing.
func parseBody(data []byte) (*envelope.Document, bool) {
	d := new(envelope.Document)
	return d, d.Parse(data, maxDepth) == nil
}

// at answers what a JSON Pointer leads to, seen from n.
func at(d *envelope.Document, n envelope.Node, pointer string) (envelope.Node, bool) {
	p, err := envelope.ParsePointer(pointer)
	if err != nil {
		return 0, false
	}
	return d.Lookup(n, &p)
}

// textAt answers the text or, written out, the number that stands at pointer.
func textAt(d *envelope.Document, n envelope.Node, pointer string) (string, bool) {
	node, ok := at(d, n, pointer)
	if !ok {
		return "", false
	}
	kind, text := d.Kind(node), strings.Clone(d.Text(node))
	if kind != envelope.String && kind != envelope.Number || len(text) > effect.MaxName || !utf8.ValidString(text) {
		return "", false
	}
	return text, true
}

// readEvidence answers what the value n names; whole says whether it names all that the
// document declares, with a well-formed effectKey. Ref may be missing.
func readEvidence(m *policy.EvidenceMap, d *envelope.Document, n envelope.Node) (e effect.Evidence, whole bool) {
	text, ok := textAt(d, n, m.Key)
	if m.Key == "" || !ok {
		return e, false
	}
	key, err := effect.ParseEffectKey(text)
	if err != nil {
		return e, false
	}
	e.Key, whole = key, true
	if m.Amount != "" {
		if text, ok = textAt(d, n, m.Amount); ok {
			e.Amount, ok = plainAmount(text)
		}
		whole = whole && ok
	}
	if m.Subject != "" {
		e.Subject, ok = textAt(d, n, m.Subject)
		whole = whole && ok
	}
	if m.Ref != "" {
		e.Ref, _ = textAt(d, n, m.Ref)
	}
	return e, whole
}

func digestOf(data []byte) revision.Digest { return revision.Digest(sha256.Sum256(data)) }

package effectlog

import (
	"fmt"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// EvidenceSchema names the JSON form of an EVIDENCE record.
const EvidenceSchema = "effectEvidence.v1"

// Evidence is a receipt whose signature was verified before it was written.
type Evidence struct {
	Schema  string          `json:"schema"`
	Adapter string          `json:"adapter"` // "<name>@<version>" whose secret verified it
	Digest  revision.Digest `json:"digest"`  // of the bytes that were signed
	Receipt effect.Receipt  `json:"receipt"`
}

// Validate answers which rule the record breaks, or nil.
func (e *Evidence) Validate() error {
	if e.Schema != EvidenceSchema {
		return fmt.Errorf("%s: schema: want %s", EvidenceSchema, EvidenceSchema)
	}
	if err := checkVersion("adapter", e.Adapter); err != nil {
		return fmt.Errorf("%s: %w", EvidenceSchema, err)
	}
	if e.Digest.IsZero() {
		return fmt.Errorf("%s: digest: missing", EvidenceSchema)
	}
	if err := e.Receipt.Validate(); err != nil {
		return fmt.Errorf("%s: %w", EvidenceSchema, err)
	}
	return nil
}

package effectlog

import (
	"fmt"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// DoneSchema names the JSON form of the owner's answer.
const DoneSchema = "effectDone.v1"

// Done is the owner's one answer to a COMMAND or EVIDENCE record. It stands in the commit
// that holds the effect record it led to, behind that record.
type Done struct {
	Schema   string           `json:"schema"`
	Sequence uint64           `json:"sequence"`           // of what it answers
	Key      effect.EffectKey `json:"effectKey,omitzero"` // none for Recover
	Step     uint64           `json:"step,omitempty"`     // of the effect's record; 0 where nothing changed
	Refusal  string           `json:"refusal,omitempty"`  // why nothing changed
	Note     string           `json:"note,omitempty"`     // for the operator; no payload, no secret
}

// Validate answers which rule the record breaks, or nil.
func (d *Done) Validate() error {
	switch {
	case d.Schema != DoneSchema:
		return fmt.Errorf("%s: schema: want %s", DoneSchema, DoneSchema)
	case d.Sequence == 0:
		return fmt.Errorf("%s: sequence: missing", DoneSchema)
	case d.Step != 0 && d.Refusal != "":
		return fmt.Errorf("%s: step and refusal: not both", DoneSchema)
	case d.Step != 0 && d.Key.IsZero():
		return fmt.Errorf("%s: step without an effectKey", DoneSchema)
	}
	if d.Refusal != "" && (len(d.Refusal) > 64 || !isToken(d.Refusal)) {
		return fmt.Errorf("%s: refusal: no name", DoneSchema)
	}
	if d.Note == "" {
		return nil
	}
	if err := checkText("note", d.Note, effect.MaxReason); err != nil {
		return fmt.Errorf("%s: %w", DoneSchema, err)
	}
	return nil
}

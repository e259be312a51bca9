package effectrule

import (
	"cel.dev/cel-go/cel"

	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// Names that the payload of a correction knows beside the key and the window.
const (
	nameOf       = "correction.of"       // the effectKey that is corrected
	nameNumber   = "correction.number"   // which correction of it
	nameStanding = "correction.standing" // the amount that stands outside
	nameWanted   = "correction.wanted"   // the amount that should; 0 where nothing should
	nameDelta    = "correction.delta"    // wanted - standing
)

// lintCorrection checks what a policy says of its corrections, so that a version that is
// kept today can be carried out by a later binary. a is the adapter that they name, or the
// policy's own.
func lintCorrection(doc *policy.Document, a *policy.Adapter) []policy.Finding {
	c := doc.Effect.Corrections
	if c.Mode == policy.CorrectManual || len(c.Payload) == 0 {
		return nil
	}
	f := &findings{doc: doc}
	known := variables{
		nameKey: cel.StringType, nameStart: cel.TimestampType, nameEnd: cel.TimestampType,
		nameOf: cel.StringType, nameNumber: cel.IntType, nameStanding: decimalType, nameWanted: decimalType, nameDelta: decimalType,
	}
	compiler, err := newCompiler(known, known)
	if err != nil {
		f.refuse("", "expression-environment", err.Error())
		return f.list
	}
	f.compileForm(compiler, "corrections.payload", c.Payload, a)
	return f.list
}

package effectrule

import (
	"fmt"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Names that the payload of a correction knows beside the key and the window.
const (
	nameOf       = "correction.of"       // the effectKey that is corrected
	nameNumber   = "correction.number"   // which correction of it
	nameStanding = "correction.standing" // the amount that stands outside
	nameWanted   = "correction.wanted"   // the amount that should; 0 where nothing should
	nameDelta    = "correction.delta"    // wanted - standing
)

// Correction is what a policy sends to put an effect right. It can be used by several
// goroutines.
type Correction struct {
	mode    policy.CorrectionMode
	payload *form
}

// CompileCorrection checks the corrections of a policy against the adapter that carries
// them out: the one that they name, or the policy's own. The answer is nil where they are
// manual, and where there are findings.
func CompileCorrection(p *policy.EffectPolicy, job *policy.StreamTimePolicy, a *policy.Adapter) (*Correction, []policy.Finding) {
	doc := policy.Document{Effect: p}
	return compileCorrection(&doc, job, a)
}

func compileCorrection(doc *policy.Document, job *policy.StreamTimePolicy, a *policy.Adapter) (*Correction, []policy.Finding) {
	c := doc.Effect.Corrections
	if c.Mode == policy.CorrectManual || len(c.Payload) == 0 {
		return nil, nil
	}
	f := &findings{doc: doc}
	known := stableVariables(job)
	known[nameStart], known[nameEnd] = cel.TimestampType, cel.TimestampType
	known[nameOf], known[nameNumber] = cel.StringType, cel.IntType
	known[nameStanding], known[nameWanted], known[nameDelta] = decimalType, decimalType, decimalType
	compiler, err := newCompiler(known, known)
	if err != nil {
		f.refuse("", "expression-environment", err.Error())
		return nil, f.list
	}
	out := &Correction{mode: c.Mode, payload: f.compileForm(compiler, "corrections.payload", c.Payload, a)}
	if len(f.list) > 0 {
		return nil, f.list
	}
	return out, nil
}

// CorrectionInput is the effect that is corrected and what should stand outside.
type CorrectionInput struct {
	Key      effect.EffectKey // of the linked effect
	Of       effect.EffectKey
	Number   uint32
	Identity effect.Identity // of the effect that is corrected
	Covered  *revision.Window
	Standing string // decimal: the amount that stands outside
	Wanted   string // decimal: the amount that should; "" = nothing should
}

// Mode answers how the correction puts things right.
func (c *Correction) Mode() effect.Mode {
	if c.mode == policy.CorrectAdjust {
		return effect.Adjust
	}
	return effect.Compensate
}

// Fill answers the payload of a linked effect. Amounts that are no decimals, and
// expressions without a result, are errors that name no value.
func (c *Correction) Fill(in CorrectionInput) (Judged, error) {
	standing, err := parseDecimal(in.Standing)
	if err != nil {
		return Judged{}, fmt.Errorf("the amount that stands outside: %w", err)
	}
	wanted := wholeDecimal(0)
	if in.Wanted != "" {
		if wanted, err = parseDecimal(in.Wanted); err != nil {
			return Judged{}, fmt.Errorf("the amount that should stand outside: %w", err)
		}
	}
	delta, err := wanted.minus(standing)
	if err != nil {
		return Judged{}, err
	}
	window := in.Identity.Window
	if in.Covered != nil {
		window = *in.Covered
	}
	input := windowInput(in.Identity.Key, window)
	input[nameOf], input[nameNumber] = types.String(in.Of.String()), types.Int(in.Number)
	input[nameStanding], input[nameWanted], input[nameDelta] = celDecimal{standing}, celDecimal{wanted}, celDecimal{delta}
	body, err := c.payload.fill("corrections.payload", in.Key, input)
	if err != nil {
		return Judged{}, err
	}
	return Judged{Holds: true, Payload: body.payload, Expect: body.expect}, nil
}

package effectrule

import (
	"fmt"
	"math/big"

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

// Correction is what a policy sends to put right an effect that ran. It can be used by
// several goroutines.
type Correction struct {
	mode    policy.CorrectionMode
	payload *form
	airlock policy.Airlock
	limit   *decimal // nil = no cap
	oldest  int64    // microseconds after the end of a window
}

// CompileCorrection checks the corrections of a policy against the adapter of its effects
// and the one that carries the corrections out, which may be the same. The answer is nil
// where corrections are manual, and where there are findings.
func CompileCorrection(p *policy.EffectPolicy, job *policy.StreamTimePolicy, a, undo *policy.Adapter) (*Correction, []policy.Finding) {
	doc := policy.Document{Effect: p}
	return compileCorrection(&doc, job, a, undo)
}

func compileCorrection(doc *policy.Document, job *policy.StreamTimePolicy, a, undo *policy.Adapter) (*Correction, []policy.Finding) {
	c := doc.Effect.Corrections
	if c.Mode == policy.CorrectManual || len(c.Payload) == 0 {
		return nil, nil
	}
	f := &findings{doc: doc}
	known := variables{
		nameKey: cel.StringType, nameStart: cel.TimestampType, nameEnd: cel.TimestampType,
		nameOf: cel.StringType, nameNumber: cel.IntType,
	}
	switch amounts := a.Evidence.ExpectAmount != ""; {
	case amounts:
		known[nameStanding], known[nameWanted], known[nameDelta] = decimalType, decimalType, decimalType
	case c.Mode == policy.CorrectAdjust:
		f.refuse("corrections.mode", "adjust-without-amount", fmt.Sprintf("adapter %s does not say which member is the amount, so that there is no difference to send; map evidence.amount in the adapter, or write mode: compensate or manual", a.Ref()))
		return nil, f.list
	}
	compiler, err := newCompiler(known, known)
	if err != nil {
		f.refuse("", "expression-environment", err.Error())
		return nil, f.list
	}
	out := &Correction{mode: c.Mode, airlock: doc.Effect.Airlock, oldest: oldest(doc.Effect, job)}
	out.payload = f.compileForm(compiler, "corrections.payload", c.Payload, undo)
	if text := out.airlock.AmountLimit; out.airlock.AmountField != "" {
		if limit, err := parseDecimal(text); err == nil { // else the policy itself is refused
			out.limit = &limit
		}
	}
	if len(f.list) > 0 {
		return nil, f.list
	}
	return out, nil
}

// oldest answers how long after its end a window's effects go without approval.
func oldest(p *policy.EffectPolicy, job *policy.StreamTimePolicy) int64 {
	if p.Airlock.OlderThan != 0 {
		return int64(p.Airlock.OlderThan)
	}
	return int64(job.AllowedLateness + policy.Day)
}

// CorrectionInput is the effect that is corrected, and what should stand outside.
type CorrectionInput struct {
	Key         effect.EffectKey // of the linked effect
	Of          effect.EffectKey
	Number      uint32
	RevisionKey string          // that its revisions have
	Window      revision.Window // sessions: what the effect covers
	Standing    string          // decimal: the amount that stands outside; "" = not known
	Wanted      string          // decimal: the amount that should
	WindowAge   int64           // microseconds of effector time since the window's end
	Nth         int             // which of its generation and type the corrected effect is, from 0
}

// Mode answers how the correction puts things right.
func (c *Correction) Mode() effect.Mode {
	if c.mode == policy.CorrectAdjust {
		return effect.Adjust
	}
	return effect.Compensate
}

// Judge answers what a linked effect sends: the same input gives the same bytes
// everywhere. An adjustment between equal amounts does not hold: there is nothing to send.
// The error unwraps to ErrExpression or says which amount is none; it names no value.
func (c *Correction) Judge(in CorrectionInput) (Judged, error) {
	input := windowInput(in.RevisionKey, in.Window)
	input[nameOf], input[nameNumber] = types.String(in.Of.String()), types.Int(in.Number)
	delta, err := c.amounts(in, input)
	if err != nil || delta != nil && c.mode == policy.CorrectAdjust && delta.unscaled.Sign() == 0 {
		return Judged{}, err
	}
	body, err := c.payload.fill("corrections.payload", in.Key, input)
	if err != nil {
		return Judged{}, err
	}
	return Judged{Holds: true, Payload: body.payload, Expect: body.expect, Airlock: c.lock(body, delta, in)}, nil
}

// amounts adds the amounts to what expressions know, and answers their difference; nil
// where it is not known.
func (c *Correction) amounts(in CorrectionInput, input map[string]any) (*decimal, error) {
	if in.Standing == "" && c.mode != policy.CorrectAdjust {
		return nil, nil
	}
	standing, err := parseDecimal(in.Standing)
	if err != nil {
		return nil, &evalError{path: nameStanding, cause: err.Error()}
	}
	wanted, err := parseDecimal(in.Wanted)
	if err != nil {
		return nil, &evalError{path: nameWanted, cause: err.Error()}
	}
	delta, err := wanted.minus(standing)
	if err != nil {
		return nil, &evalError{path: nameDelta, cause: err.Error()}
	}
	input[nameStanding], input[nameWanted], input[nameDelta] = celDecimal{standing}, celDecimal{wanted}, celDecimal{delta}
	return &delta, nil
}

// lock answers the first rule that holds the linked effect. The cap is on what the
// payload's member of that name says, or, without one, on the difference; either way
// without its sign. Where neither is known the cap holds.
func (c *Correction) lock(body *filled, delta *decimal, in CorrectionInput) string {
	if c.limit != nil {
		amount, known := asDecimal(body.values[c.airlock.AmountField])
		if !known && delta != nil {
			amount, known = *delta, true
		}
		if !known || amount.magnitude().compare(*c.limit) > 0 {
			return LockAmount
		}
	}
	switch {
	case in.Nth < c.airlock.FirstOfGeneration:
		return LockFirst
	case in.WindowAge > c.oldest:
		return LockOldness
	}
	return ""
}

// magnitude answers the number without its sign.
func (d decimal) magnitude() decimal {
	return decimal{unscaled: new(big.Int).Abs(d.unscaled), scale: d.scale}
}

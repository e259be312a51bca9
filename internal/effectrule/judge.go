package effectrule

import (
	"fmt"
	"strconv"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Input is a revision and what an airlock must know beside it.
type Input struct {
	Revision  *revision.Revision
	Key       effect.EffectKey
	WindowAge int64 // microseconds of effector time since the window's end
	Nth       int   // effects of this generation and type prepared so far
}

// Judged is what a rule makes of a revision.
type Judged struct {
	Holds   bool
	Payload []byte             // with Holds only: canonical JSON, always with the member effectKey
	Expect  effect.Expectation // with Holds only: what evidence must name again
	Airlock string             // with Holds only: the rule that holds the effect, "" is none
}

// Judge answers what should be outside under a revision: the same revision gives the same
// answer everywhere. A retracted window has nothing outside. The error unwraps to
// ErrExpression, names the field and no value; it stays until the policy changes.
func (r *Rule) Judge(in Input) (Judged, error) {
	rev := in.Revision
	if rev.PolicyGeneration != r.Generation() {
		return Judged{}, fmt.Errorf("the rule reads revisions of %s, not of %s; compile it for that generation", r.Generation(), rev.PolicyGeneration)
	}
	if rev.Op == revision.Retract {
		return Judged{}, nil
	}
	input := windowInput(rev.Key, rev.Window)
	for _, f := range rev.Value {
		v, err := r.result(f)
		if err != nil {
			return Judged{}, err
		}
		if v != nil {
			input[prefix+f.Name] = v
		}
	}
	holds, err := r.when.eval(input)
	if err != nil || holds != types.True {
		return Judged{}, err
	}
	body, err := r.payload.fill("payload", in.Key, input)
	if err != nil {
		return Judged{}, err
	}
	return Judged{Holds: true, Payload: body.payload, Expect: body.expect, Airlock: r.airlock(body, in)}, nil
}

// result answers a member of a revision's value with its declared type; nil where the
// rule knows no such result.
func (r *Rule) result(f revision.Field) (ref.Val, error) {
	t := r.results[f.Name]
	switch {
	case t == nil:
		return nil, nil
	case t.IsExactType(cel.StringType) && f.Quoted:
		return types.String(f.Text), nil
	case t.IsExactType(cel.IntType) && !f.Quoted:
		n, err := strconv.ParseInt(f.Text, 10, 64)
		if err != nil {
			return nil, &evalError{path: prefix + f.Name, cause: errIntWide.Error()}
		}
		return types.Int(n), nil
	case t.TypeName() == decimalType.TypeName() && f.Quoted:
		d, err := parseDecimal(f.Text)
		if err != nil {
			return nil, &evalError{path: prefix + f.Name, cause: err.Error()}
		}
		return celDecimal{d}, nil
	}
	return nil, &evalError{path: prefix + f.Name, cause: "the revision holds another type than the job declares"}
}

// airlock answers the first rule that holds the effect for approval.
func (r *Rule) airlock(body *filled, in Input) string {
	a := r.policy.Airlock
	if r.limit != nil {
		if amount, ok := asDecimal(body.values[a.AmountField]); ok && amount.compare(*r.limit) > 0 {
			return LockAmount
		}
	}
	switch {
	case in.Nth < a.FirstOfGeneration:
		return LockFirst
	case in.WindowAge > r.oldest:
		return LockOldness
	}
	return ""
}

func timestamp(t envelope.EventTime) types.Timestamp {
	return types.Timestamp{Time: time.UnixMicro(int64(t)).UTC()}
}

// Package effectrule answers what an effect policy makes of a revision: whether its rule
// holds, which bytes are sent, what evidence must repeat, and whether an airlock holds
// the effect. Expressions are CEL, type-checked against the job's aggregates before any
// revision is seen; numbers are exact, and the same revision gives the same bytes on
// every machine.
//
// The signatures:
//
//	func Compile(p *policy.EffectPolicy, bs *policy.BusinessStream, job *policy.StreamTimePolicy, a *policy.Adapter) (*Rule, []policy.Finding)
//	func (r *Rule) Subject(key string, w revision.Window) (string, error)
//	func (r *Rule) Judge(in Input) (Judged, error)
//	type Input struct { Revision *revision.Revision; Key effect.EffectKey; WindowAge int64; Nth int }
//	type Judged struct { Holds bool; Payload []byte; Expect effect.Expectation; Airlock string }
package effectrule

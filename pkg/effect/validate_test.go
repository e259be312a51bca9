package effect_test

import (
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// What is changed in the example breaks one rule, and the error names it.
func TestEveryRuleIsEnforced(t *testing.T) {
	long := strings.Repeat("x", effect.MaxURL+1)
	for _, c := range []struct {
		rule   string // part of the error
		change func(*effect.Record)
	}{
		{"schema", func(r *effect.Record) { r.Schema = "effect.v2" }},
		{"effectKey is not named", func(r *effect.Record) { r.Key = effect.EffectKey{} }},
		{"key has 0 bytes", func(r *effect.Record) { r.Identity.Key = "" }},
		{"key has 257 bytes", func(r *effect.Record) { r.Identity.Key = long[:257] }},
		{"key has 1 bytes", func(r *effect.Record) { r.Identity.Key = "\xff" }},
		{"effectType", func(r *effect.Record) { r.Identity.EffectType = "" }},
		{"subject", func(r *effect.Record) { r.Identity.Subject = long }},
		{"logicalWindowId", func(r *effect.Record) { r.Identity.LogicalWindowID = "x" }},
		{"window must start", func(r *effect.Record) { r.Identity.Window.End = r.Identity.Window.Start }},

		{"numbered from 1", func(r *effect.Record) { r.Step.N = 0 }},
		{"first step", func(r *effect.Record) { r.Step.N = 1 }},
		{"first step", func(r *effect.Record) { r.Step.From = effect.None }},
		{"step.from", func(r *effect.Record) { r.Step.From = "SENT" }},
		{"no name", func(r *effect.Record) { r.Step.Name = "" }},
		{"no actor", func(r *effect.Record) { r.Step.By = "nobody" }},
		{"name the person", func(r *effect.Record) { r.Step.Who = "" }},
		{"step.reason", func(r *effect.Record) { r.Step.Reason = long }},
		{"step.at", func(r *effect.Record) { r.Step.At = -1 }},
		{"unknown source", func(r *effect.Record) { r.Step.Evidence.Source = "rumour" }},
		{"unknown class", func(r *effect.Record) { r.Step.Evidence.Class = "MAYBE" }},
		{"of evidence", func(r *effect.Record) { r.Step.Evidence.Ref = long }},

		{"stand together", func(r *effect.Record) { r.Bound = nil }},
		{"stand together", func(r *effect.Record) { r.Request = nil }},
		{"revisions and sequences", func(r *effect.Record) { r.Bound.Revision = 0 }},
		{"revisions and sequences", func(r *effect.Record) { r.Latest.Revision.Sequence = 0 }},
		{"projectionId", func(r *effect.Record) { r.Bound.ProjectionID = "" }},
		{"have its digest", func(r *effect.Record) { r.Bound.Digest = revision.Digest{} }},
		{"what should be", func(r *effect.Record) { r.Latest.Desire.Holds = true }},
		{"what should be", func(r *effect.Record) { r.Net = new(effect.Desire{Holds: true}) }},
		{"what should be", func(r *effect.Record) { r.Waived = new(effect.Desire{Holds: true}) }},

		{"policy and adapter", func(r *effect.Record) { r.Request.Policy = "" }},
		{"payload has 0 bytes", func(r *effect.Record) { r.Request.Payload = "" }},
		{"payload has 65600 bytes", func(r *effect.Record) { r.Request.Payload = keyText + strings.Repeat("x", effect.MaxPayload) }},
		{"does not carry", func(r *effect.Record) { r.Request.Payload = "{}" }},
		{"payload has no digest", func(r *effect.Record) { r.Request.PayloadDigest = revision.Digest{} }},
		{"scope", func(r *effect.Record) { r.Request.Scope.URL = long }},
		{"expected amount", func(r *effect.Record) { r.Request.Expect.Amount = long }},

		{"airlock", func(r *effect.Record) { r.Airlock = long }},
		{"an approval has", func(r *effect.Record) { r.Approval.Sequence = 0 }},
		{"approval expires", func(r *effect.Record) { r.Approval.Expires = effect.MaxTime + 1 }},
		{"used by an attempt", func(r *effect.Record) { r.Approval.Attempt = 3 }},

		{"more than 64", func(r *effect.Record) { r.Attempts = make([]effect.Attempt, effect.MaxAttempts+1) }},
		{"order of their numbers", func(r *effect.Record) { r.Attempts[1].N = 1 }},
		{"order of their numbers", func(r *effect.Record) { r.Attempts[0].N = 0 }},
		{"only the last", func(r *effect.Record) { r.Attempts[0].End, r.Attempts[0].EndAt = "", 0 }},
		{"ends with a class", func(r *effect.Record) { r.Attempts[1].End = "MAYBE" }},
		{"ends with a class", func(r *effect.Record) { r.Attempts[1].EndAt = 0 }},
		{"sendBy not before", func(r *effect.Record) { r.Attempts[1].SendBy = r.Attempts[1].At - 1 }},
		{"sendBy not before", func(r *effect.Record) { r.Attempts[1].Timeout = -1 }},
		{"digest of what it sent", func(r *effect.Record) { r.Attempts[1].Digest = revision.Digest{} }},
		{"lastAttempt is below", func(r *effect.Record) { r.LastAttempt, r.Approval = 1, nil }},
		{"must be times", func(r *effect.Record) { r.ResendDeadline = -1 }},

		{"state is none", func(r *effect.Record) { r.State = "SENT" }},
		{"outcome", func(r *effect.Record) { r.Outcome = effect.NotApplied }},
		{"attempt is open", func(r *effect.Record) { r.Attempts[1].End, r.Attempts[1].EndAt = "", 0 }},
		{"attempt is open", state(effect.Dispatching)},
		{"possibly sent", state(effect.Prepared)},
		{"possibly sent", state(effect.Voided)},
		{"no unknown outcome", func(r *effect.Record) { state(effect.Unknown)(r); r.Attempts = nil }},
		{"names the rule", func(r *effect.Record) { state(effect.Held)(r); r.Attempts, r.Airlock = nil, "" }},
		{"lost attempt alone", func(r *effect.Record) {
			state(effect.Prepared)(r)
			r.Attempts, r.Bound, r.Latest, r.Request = nil, nil, nil, nil
		}},
		{"settled stands", func(r *effect.Record) { r.Settled = "" }},
		{"neither ACKED nor", func(r *effect.Record) { r.Settled = effect.Held }},
		{"net stands", func(r *effect.Record) { r.Net = nil }},

		{"correction names", func(r *effect.Record) { r.Correction.Mode = "undo" }},
		{"correction names", func(r *effect.Record) { r.Correction.Of = effect.EffectKey{} }},
		{"correction makes", func(r *effect.Record) { r.Correction.Makes.Holds = true }},
		{"link names", func(r *effect.Record) { r.Link = new(effect.EffectKey) }},
		{"link names", func(r *effect.Record) { r.MergedInto = new(effect.EffectKey) }},
		{"into itself", func(r *effect.Record) { r.MergedInto = &r.Key }},
		{"covered interval", func(r *effect.Record) { r.Covered.End = r.Covered.Start }},
		{"clash names", func(r *effect.Record) { r.Clash = r.Clash[:1] }},
	} {
		r := example(t)
		c.change(r)
		_, err := r.Encode()
		if err == nil || !strings.Contains(err.Error(), c.rule) {
			t.Errorf("%s: error is %v", c.rule, err)
		}
	}
}

func state(s effect.State) func(*effect.Record) {
	return func(r *effect.Record) { r.State, r.Outcome = s, s.Outcome() }
}

func TestARecordOfALostAttemptAlone(t *testing.T) {
	r := example(t)
	state(effect.Unknown)(r)
	r.Bound, r.Latest, r.Request, r.Approval, r.Net, r.Settled, r.Waived = nil, nil, nil, nil, nil, effect.None, nil
	if _, err := r.Encode(); err != nil {
		t.Error(err)
	}
}

func TestEncodeRefusesTimesThatCannotBeWritten(t *testing.T) {
	r := example(t)
	r.Covered.End = envelope.MaxEventTime // is written +inf
	data, err := r.Encode()
	if err != nil || !strings.Contains(string(data), `"+inf"`) {
		t.Errorf("%s, %v", data, err)
	}
	r.Attempts[1].EndAt = effect.MaxTime + 1
	if _, err := r.Encode(); err == nil {
		t.Error("a time beyond the calendar is written")
	}
}

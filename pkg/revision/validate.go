package revision

import (
	"fmt"
	"unicode/utf8"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// Causes say what made the revision necessary.
const (
	CauseOnTime     = "ON_TIME"     // the watermark crossed the window's end
	CauseLateEvent  = "LATE_EVENT"  // an event was accepted after the window had fired
	CauseLateWindow = "LATE_WINDOW" // the window's first event came after its end
	CauseRetraction = "RETRACTION"  // an event was withdrawn
	CauseReopened   = "REOPENED"    // the reconciler handed the window back
)

// Validate answers which rule the revision breaks, or nil. It does not compute digests:
// compare ComputeDigest with the digest that came along, and ValueDigest(Value) with
// AggregateDigest.
func (r *Revision) Validate() error {
	for _, check := range []func(*Revision) string{
		(*Revision).brokenName, (*Revision).brokenNumber, (*Revision).brokenEnum, (*Revision).brokenValue, (*Revision).brokenInputs,
	} {
		if rule := check(r); rule != "" {
			return fmt.Errorf("revision %d of key %q, window [%s, %s), projection %q: %s",
				r.Revision, r.Key, r.Window.Start, r.Window.End, r.ProjectionID, rule)
		}
	}
	return nil
}

func (r *Revision) brokenName() string {
	switch {
	case r.Stream == "":
		return "the business stream is not named"
	case r.Job == "":
		return "the job is not named"
	case r.PolicyGeneration == "" || r.PolicyDigest == "":
		return "policy generation and policy digest must both be named"
	case len(r.Key) < 1 || len(r.Key) > 256:
		return fmt.Sprintf("the key has %d bytes; it must have 1 to 256", len(r.Key))
	case !utf8.ValidString(r.Key) || !utf8.ValidString(r.TraceParent):
		return "key and traceparent must be valid UTF-8"
	case r.Window.Start >= r.Window.End:
		return "the window must start before it ends"
	case !isID(r.LogicalWindowID):
		return "logicalWindowId must be 64 digits of lowercase hex"
	case !isID(r.ProjectionID):
		return "projectionId must be 64 digits of lowercase hex"
	case r.ResultID != "" && !isID(r.ResultID):
		return "resultId must be 64 digits of lowercase hex"
	}
	return ""
}

func (r *Revision) brokenNumber() string {
	p := r.Predecessor
	switch {
	case r.Revision < 1:
		return "revisions are numbered from 1"
	case r.Revision == 1 && p != nil:
		return "revision 1 has no predecessor"
	case r.Revision > 1 && p == nil:
		return "a revision above 1 must name its predecessor"
	case p != nil && p.Revision != r.Revision-1:
		return fmt.Sprintf("the predecessor is revision %d; it must be %d", p.Revision, r.Revision-1)
	case p != nil && p.Digest.IsZero():
		return "the predecessor has no digest"
	case r.Revision == 1 && r.Op == Retract:
		return "revision 1 cannot be a RETRACT: an empty window is never published"
	}
	return ""
}

func (r *Revision) brokenEnum() string {
	switch r.Op {
	case Upsert, Retract:
	default:
		return fmt.Sprintf("op %q is neither UPSERT nor RETRACT", r.Op)
	}
	switch r.State {
	case OnTimeEmitted, Corrected:
	default:
		return fmt.Sprintf("state %q is neither ON_TIME_EMITTED nor CORRECTED", r.State)
	}
	switch r.Firing {
	case FiringOnTime, FiringLate, FiringReopened:
	default:
		return fmt.Sprintf("firing %q is none of ON_TIME, LATE and REOPENED", r.Firing)
	}
	if r.Origin > envelope.OriginRepair {
		return fmt.Sprintf("origin %d is unknown", r.Origin)
	}
	if r.Cause == "" {
		return "the cause is not named"
	}
	return ""
}

func (r *Revision) brokenValue() string {
	if retract := r.Op == Retract; retract != (len(r.Value) == 0) {
		return "the value is empty if and only if op is RETRACT"
	}
	if rule := brokenFields("value", r.Value); rule != "" {
		return rule
	}
	return brokenFields("delta", r.Delta)
}

func brokenFields(what string, fields []Field) string {
	for i := range fields {
		switch f := &fields[i]; {
		case f.Name == "":
			return what + " holds a result without a name"
		case i > 0 && fields[i-1].Name >= f.Name:
			return fmt.Sprintf("%s: %q stands before %q; names must be sorted and distinct", what, fields[i-1].Name, f.Name)
		case !f.Quoted && !isInteger(f.Text):
			return fmt.Sprintf("%s: %s is %q, which must be quoted or an integer", what, f.Name, f.Text)
		}
	}
	return ""
}

func (r *Revision) brokenInputs() string {
	in := &r.Inputs
	switch {
	case in.Partition < 0:
		return "the key partition is negative"
	case in.First > in.Last:
		return "inputs begin after they end"
	case r.Op == Upsert && in.Events == 0:
		return "an UPSERT counts at least one event"
	case r.Op == Retract && in.Events != 0:
		return "a RETRACT counts no events"
	}
	for i := range in.Offsets {
		o := &in.Offsets[i]
		if o.First > o.Last {
			return fmt.Sprintf("offsets of %s/%d begin after they end", o.Source, o.Partition)
		}
		if i == 0 {
			continue
		}
		if q := &in.Offsets[i-1]; q.Source > o.Source || q.Source == o.Source && q.Partition >= o.Partition {
			return "offsets must be sorted by source and partition"
		}
	}
	return ""
}

func isID(text string) bool {
	if len(text) != DigestTextSize {
		return false
	}
	for i := 0; i < len(text); i++ {
		if unhex(text[i]) > 15 {
			return false
		}
	}
	return true
}

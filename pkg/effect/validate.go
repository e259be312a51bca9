package effect

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Bounds, in bytes where nothing else is said.
const (
	MaxPayload  = 64 << 10
	MaxKey      = 256
	MaxName     = 256 // names, references, subjects, amounts
	MaxURL      = 2048
	MaxReason   = 1024
	MaxAttempts = 64 // attempts that a record lists
	MaxClash    = 64 // sessions that a record lists
)

// Validate answers which rule the record breaks, or nil. It looks at this one record;
// whether it may follow another is not asked.
func (r *Record) Validate() error {
	for _, check := range []func(*Record) string{
		(*Record).brokenIdentity, (*Record).brokenStep, (*Record).brokenJudgement, (*Record).brokenDesire,
		(*Record).brokenRequest, (*Record).brokenApproval, (*Record).brokenAttempts, (*Record).brokenState, (*Record).brokenLinks,
	} {
		if rule := check(r); rule != "" {
			return fmt.Errorf("step %d of effect %s: %s", r.Step.N, r.Key, rule)
		}
	}
	return nil
}

func (r *Record) brokenIdentity() string {
	id := &r.Identity
	switch {
	case r.Schema != Schema:
		return "schema is not " + Schema
	case r.Key.IsZero():
		return "the effectKey is not named"
	case len(id.Key) < 1 || len(id.Key) > MaxKey || !utf8.ValidString(id.Key):
		return fmt.Sprintf("the key has %d bytes; it must have 1 to %d, in valid UTF-8", len(id.Key), MaxKey)
	case !isName(id.Stream) || !isName(id.Job) || !isName(id.EffectType) || !isName(id.Subject):
		return fmt.Sprintf("stream, job, effectType and subject must each have 1 to %d bytes, in valid UTF-8", MaxName)
	case !isID(id.LogicalWindowID):
		return "logicalWindowId must be 64 digits of lowercase hex"
	case id.Window.Start >= id.Window.End:
		return "the window must start before it ends"
	}
	return ""
}

func (r *Record) brokenStep() string {
	s := &r.Step
	switch {
	case s.N < 1:
		return "steps are numbered from 1"
	case (s.N == 1) != (s.From == None):
		return "the first step, and no other, comes from no state"
	case s.From != None && !s.From.Known():
		return "step.from is no state"
	case !isName(s.Name):
		return "the step has no name"
	case !slices.Contains(Actors(), s.By):
		return "step.by is no actor"
	case (s.By == Operator || s.By == Approver) && s.Who == "":
		return "a step of a person must name the person"
	case !isText(s.Who, MaxName) || !isText(s.Reason, MaxReason):
		return fmt.Sprintf("step.who may have %d bytes and step.reason %d, in valid UTF-8", MaxName, MaxReason)
	case !isTime(s.At):
		return "step.at is no time"
	case s.Evidence != nil:
		return s.Evidence.broken()
	}
	return ""
}

func (e *Evidence) broken() string {
	switch {
	case !slices.Contains([]Source{FromAnswer, FromReceipt, FromQuery, FromOperator, FromFile}, e.Source):
		return "evidence has an unknown source"
	case e.Class != "" && !slices.Contains(Classes(), e.Class):
		return "evidence has an unknown class"
	case !isText(e.Amount, MaxName) || !isText(e.Subject, MaxName) || !isText(e.Ref, MaxName):
		return fmt.Sprintf("amount, subject and ref of evidence may have %d bytes each, in valid UTF-8", MaxName)
	}
	return ""
}

func (r *Record) brokenJudgement() string {
	switch {
	case (r.Bound == nil) != (r.Latest == nil) || (r.Bound == nil) != (r.Request == nil):
		return "bound, latest and request stand together"
	case r.Bound == nil:
		return ""
	}
	for _, b := range []*Bound{r.Bound, &r.Latest.Revision} {
		switch {
		case b.Revision < 1 || b.Sequence < 1:
			return "revisions and sequences are numbered from 1"
		case !isID(b.ProjectionID) || !isName(b.PolicyGeneration):
			return "a bound revision must name its projectionId and policyGeneration"
		case b.Digest.IsZero():
			return "a bound revision must have its digest"
		}
	}
	return ""
}

func (r *Record) brokenDesire() string {
	list := []*Desire{r.Net, r.Waived}
	if r.Latest != nil {
		list = append(list, &r.Latest.Desire)
	}
	for _, d := range list {
		if d != nil && d.Holds == d.Digest.IsZero() {
			return "what should be has a digest if and only if it holds"
		}
	}
	return ""
}

func (r *Record) brokenRequest() string {
	q := r.Request
	switch {
	case q == nil:
		return ""
	case !isName(q.Policy) || !isName(q.Adapter):
		return "policy and adapter must be named"
	case len(q.Payload) < 1 || len(q.Payload) > MaxPayload || !utf8.ValidString(q.Payload):
		return fmt.Sprintf("the payload has %d bytes; it must have 1 to %d, in valid UTF-8", len(q.Payload), MaxPayload)
	case !strings.Contains(q.Payload, r.Key.String()):
		return "the payload does not carry the effectKey"
	case q.PayloadDigest.IsZero():
		return "the payload has no digest"
	case !isText(q.Scope.URL, MaxURL) || !isText(q.Scope.Account, MaxName) || !isText(q.Scope.Environment, MaxName):
		return fmt.Sprintf("the scope may have %d bytes of url and %d of account and environment each, in valid UTF-8", MaxURL, MaxName)
	case !isText(q.Expect.Amount, MaxName) || !isText(q.Expect.Subject, MaxName):
		return fmt.Sprintf("the expected amount and subject may have %d bytes each, in valid UTF-8", MaxName)
	}
	return ""
}

func (r *Record) brokenApproval() string {
	a := r.Approval
	switch {
	case !isText(r.Airlock, MaxName) || !isText(r.Conflict, MaxReason):
		return fmt.Sprintf("airlock may have %d bytes and conflict %d, in valid UTF-8", MaxName, MaxReason)
	case a == nil:
		return ""
	case a.Sequence < 1 || !isName(a.By) || a.Digest.IsZero():
		return "an approval has a sequence, an approver and the digest that was shown"
	case !isTime(a.Expires):
		return "an approval expires at a time"
	case a.Attempt > r.LastAttempt:
		return "an approval was used by an attempt that is not there"
	}
	return ""
}

func (r *Record) brokenAttempts() string {
	if len(r.Attempts) > MaxAttempts {
		return fmt.Sprintf("%d attempts, more than %d", len(r.Attempts), MaxAttempts)
	}
	last := uint32(0)
	for i := range r.Attempts {
		a := &r.Attempts[i]
		switch {
		case a.N <= last:
			return "attempts must stand in the order of their numbers, from 1"
		case a.Open() && i < len(r.Attempts)-1:
			return "only the last attempt may be open"
		case a.Open() != (a.EndAt == 0) || !a.Open() && !slices.Contains(Classes(), a.End):
			return "an attempt ends with a class at a time, or is open"
		case !isTime(a.At) || !isTime(a.SendBy) || a.SendBy < a.At || !isTime(a.EndAt) || a.Timeout < 0 || a.Timeout > int64(MaxTime):
			return "an attempt has a time, a sendBy not before it, and a timeout"
		case a.Digest.IsZero():
			return "an attempt has the digest of what it sent"
		}
		last = a.N
	}
	switch {
	case last > r.LastAttempt:
		return "lastAttempt is below the number of an attempt"
	case !isTime(r.FirstPossibleSendAt) || !isTime(r.ResendDeadline) || !isTime(r.LastAbsence):
		return "firstPossibleSendAt, resendDeadline and lastAbsence must be times"
	}
	return ""
}

func (r *Record) brokenState() string {
	n := len(r.Attempts)
	open := n > 0 && r.Attempts[n-1].Open()
	switch {
	case !r.State.Known():
		return "state is none that there is"
	case r.Outcome != r.State.Outcome():
		return "the outcome is not that of the state"
	case (r.State == Dispatching) != open:
		return "an attempt is open if and only if the state is DISPATCHING"
	case slices.Contains([]State{Prepared, Held, Voided}, r.State) && n > 0:
		return "an effect that lists attempts was possibly sent; it is not PREPARED, HELD or VOIDED"
	case slices.Contains([]State{Unknown, Manual}, r.State) && n == 0:
		return "an effect without an attempt has no unknown outcome"
	case r.State == Held && r.Airlock == "":
		return "a HELD effect names the rule that holds it"
	case r.Bound == nil && slices.Contains([]State{Prepared, Held, Voided, Dispatching}, r.State):
		return "an effect known from a lost attempt alone has no such state"
	case (r.State.Outcome() == Applied) != (r.Settled != None):
		return "settled stands with states whose outcome is APPLIED, and with no other"
	case r.Settled != None && r.Settled != Acked && r.Settled != Reconciled:
		return "settled is neither ACKED nor RECONCILED"
	case r.Bound != nil && (r.Settled != None) != (r.Net != nil):
		return "net stands with settled"
	}
	return ""
}

func (r *Record) brokenLinks() string {
	c := r.Correction
	switch {
	case c != nil && (c.Of.IsZero() || c.Number < 1 || c.Mode != Compensate && c.Mode != Adjust):
		return "a correction names an effect, its number from 1, and its mode"
	case c != nil && c.Makes.Holds == c.Makes.Digest.IsZero():
		return "what a correction makes has a digest if and only if it holds"
	case r.Link != nil && r.Link.IsZero(), r.MergedInto != nil && r.MergedInto.IsZero():
		return "a link names an effect"
	case r.MergedInto != nil && *r.MergedInto == r.Key:
		return "an effect is not merged into itself"
	case r.Covered != nil && r.Covered.Start >= r.Covered.End:
		return "the covered interval must start before it ends"
	case len(r.Clash) == 1 || len(r.Clash) > MaxClash:
		return fmt.Sprintf("a clash names 2 to %d sessions", MaxClash)
	}
	return ""
}

// Validate answers which rule the receipt breaks, or nil.
func (r *Receipt) Validate() error {
	rule := ""
	switch {
	case r.Schema != ReceiptSchema:
		rule = "schema is not " + ReceiptSchema
	case r.Key.IsZero():
		rule = "the effectKey is not named"
	case !isName(r.Ref):
		rule = fmt.Sprintf("ref must have 1 to %d bytes, in valid UTF-8", MaxName)
	case !isText(r.Amount, MaxName) || !isText(r.Subject, MaxName):
		rule = fmt.Sprintf("amount and subject may have %d bytes each, in valid UTF-8", MaxName)
	case !isTime(r.AppliedAt) || r.AppliedAt == 0:
		rule = "appliedAt is no time"
	default:
		return nil
	}
	return fmt.Errorf("receipt for effect %s: %s", r.Key, rule)
}

func isName(s string) bool { return s != "" && isText(s, MaxName) }

func isText(s string, limit int) bool { return len(s) <= limit && utf8.ValidString(s) }

func isTime(t Time) bool { return t >= 0 && t <= MaxTime }

func isID(s string) bool {
	_, err := revision.ParseDigest(s)
	return err == nil
}

package effect

import (
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Schema names the JSON form of a record.
const Schema = "effect.v1"

// Record is an effect after its step number Step.N. What does not apply is left out.
type Record struct {
	Schema   string    `json:"schema"`
	Key      EffectKey `json:"effectKey"`
	Identity Identity  `json:"identity"`
	Step     Step      `json:"step"`
	State    State     `json:"state"`
	Outcome  Outcome   `json:"outcome"`

	// Bound is the revision that the request stands for; from the first byte on it is
	// frozen. Latest is the newest canonical revision that changed what should be.
	// Both are missing where nothing but a lost attempt is known of the effect.
	Bound   *Bound   `json:"bound,omitempty"`
	Latest  *Judged  `json:"latest,omitempty"`
	Request *Request `json:"request,omitempty"`

	Airlock  string    `json:"airlock,omitempty"` // the rule for which an approval is needed
	Approval *Approval `json:"approval,omitempty"`

	// Attempts are those that may have reached the provider and the open one, by number.
	// Attempts that were provably not sent are counted in LastAttempt alone.
	Attempts            []Attempt `json:"attempts,omitempty"`
	LastAttempt         uint32    `json:"lastAttempt"`
	FirstPossibleSendAt Time      `json:"firstPossibleSendAt,omitzero"` // set once, never moved
	ResendDeadline      Time      `json:"resendDeadline,omitzero"`      // no send from UNKNOWN after it; none = never resent

	Absences    uint32 `json:"absences,omitempty"` // "not found" answers since the last attempt
	LastAbsence Time   `json:"lastAbsence,omitzero"`
	Conflict    string `json:"conflict,omitempty"` // evidence that contradicts: an operator must look

	Settled             State   `json:"settled,omitempty"` // ACKED or RECONCILED: what evidence made of it
	Net                 *Desire `json:"net,omitempty"`     // what stands outside, corrections included
	Waived              *Desire `json:"waived,omitempty"`  // what an operator decided not to bring about
	CompensationPending bool    `json:"compensationPending,omitempty"`
	Corrections         uint32  `json:"corrections,omitempty"` // corrections opened so far

	Correction *Correction       `json:"correction,omitempty"` // linked effects: what they correct
	Link       *EffectKey        `json:"link,omitempty"`       // the linked effect that compensated this one
	MergedInto *EffectKey        `json:"mergedInto,omitempty"`
	Covered    *revision.Window  `json:"covered,omitempty"` // sessions: all canonical intervals mapped to it
	Clash      []revision.Window `json:"clash,omitempty"`   // current sessions that share it; none of them is sent
}

// Identity says which business action an effect is.
type Identity struct {
	Stream          string          `json:"stream"`
	Job             string          `json:"job"`
	EffectType      string          `json:"effectType"`
	Key             string          `json:"key"` // 1 to 256 bytes
	Subject         string          `json:"subject"`
	LogicalWindowID string          `json:"logicalWindowId"` // sessions: of the session that minted the key
	Window          revision.Window `json:"window"`
}

// Step says how the effect came to its state.
type Step struct {
	N        uint64    `json:"n"` // from 1, without a gap
	Name     string    `json:"name"`
	From     State     `json:"from,omitempty"` // none for the first
	By       Actor     `json:"by"`
	Who      string    `json:"who,omitempty"` // the person, for approver and operator
	Reason   string    `json:"reason,omitempty"`
	At       Time      `json:"at"`
	Evidence *Evidence `json:"evidence,omitempty"`
}

// Bound names an accepted canonical revision. Revisions of one projection are ordered by
// (AliasEpoch, Revision); those of different sessions by (AliasEpoch, Sequence).
type Bound struct {
	AliasEpoch       uint64          `json:"aliasEpoch"`
	PolicyGeneration string          `json:"policyGeneration"`
	ProjectionID     string          `json:"projectionId"`
	Revision         uint64          `json:"revision"`
	Digest           revision.Digest `json:"digest"`
	Sequence         uint64          `json:"sequence"` // in the revisions stream
}

// Desire is what should be outside: nothing, or the action with this payload digest.
type Desire struct {
	Holds  bool            `json:"holds"`
	Digest revision.Digest `json:"digest,omitzero"` // with Holds only
}

// Judged is what an effect policy makes of a revision.
type Judged struct {
	Revision Bound  `json:"revision"`
	Desire   Desire `json:"desire"`
}

// Request is what is sent, in its exact bytes: serialised once, never rendered again.
type Request struct {
	Policy        string          `json:"policy"`  // "<name>@<version>"
	Adapter       string          `json:"adapter"` // "<name>@<version>"
	Scope         Scope           `json:"scope"`
	Payload       string          `json:"payload"` // UTF-8, 1 to 64 KiB, holds the effectKey
	PayloadDigest revision.Digest `json:"payloadDigest"`
	Expect        Expectation     `json:"expect"`
}

// Scope is where a key of the provider is unique. It is frozen with the first attempt.
type Scope struct {
	URL         string `json:"url"`
	Account     string `json:"account,omitempty"`
	Environment string `json:"environment,omitempty"`
}

// Expectation is what evidence must repeat beside the effectKey; an empty one is not compared.
type Expectation struct {
	Amount  string `json:"amount,omitempty"` // decimal, compared by value
	Subject string `json:"subject,omitempty"`
}

// Approval is a person's consent to one dispatch of one payload.
type Approval struct {
	Sequence uint64          `json:"sequence"` // of its COMMAND in the effects journal
	By       string          `json:"by"`
	Digest   revision.Digest `json:"digest"` // as shown
	Expires  Time            `json:"expires"`
	Attempt  uint32          `json:"attempt,omitempty"` // the attempt that used it
	Void     bool            `json:"void,omitempty"`    // the payload changed after it
}

// Class is what an attempt ended with.
type Class string

// Classes. An answer that no rule of the adapter names is Ambiguous.
const (
	Executed   Class = "EXECUTED"    // the answer names our key, amount and subject
	Pending    Class = "PENDING"     // accepted, not done
	Refused    Class = "REFUSED"     // on the adapter's list of "refused before execution"
	Throttled  Class = "THROTTLED"   // a limiter that the adapter declares to stand before execution
	NotSent    Class = "NOT_SENT"    // provably: dial, TLS, DNS, or past sendBy before the first byte
	InFlight   Class = "IN_FLIGHT"   // the provider works on this key
	OtherBytes Class = "OTHER_BYTES" // the provider knows this key with another body
	Ambiguous  Class = "AMBIGUOUS"   // anything else
)

// Classes answers every class.
func Classes() []Class {
	return []Class{Executed, Pending, Refused, Throttled, NotSent, InFlight, OtherBytes, Ambiguous}
}

// Unsent tells whether an attempt that ended so provably did not run.
func (c Class) Unsent() bool { return c == NotSent || c == Throttled }

// Attempt is one try to have the effect executed.
type Attempt struct {
	N             uint32          `json:"n"`     // from 1
	Epoch         uint64          `json:"epoch"` // of the owner that made it
	Digest        revision.Digest `json:"digest"`
	RevisionsUpTo uint64          `json:"revisionsUpTo"` // sequence up to which the payload was judged
	At            Time            `json:"at"`
	SendBy        Time            `json:"sendBy"`  // no first byte after it
	Timeout       int64           `json:"timeout"` // microseconds from the first byte to the end of the answer
	Resend        bool            `json:"resend,omitempty"`
	Recovered     bool            `json:"recovered,omitempty"` // known from the dispatch file alone
	End           Class           `json:"end,omitempty"`       // none while it is open
	EndAt         Time            `json:"endAt,omitzero"`
}

// Open tells whether the attempt has no end yet.
func (a *Attempt) Open() bool { return a.End == "" }

// QuietFrom answers from when on the attempt can have no answer any more.
func (a *Attempt) QuietFrom() Time { return a.SendBy.Add(a.Timeout) }

// Correction says which correction of which effect a linked effect carries out.
type Correction struct {
	Of     EffectKey `json:"of"`
	Number uint32    `json:"number"`
	Mode   Mode      `json:"mode"`
	Makes  Desire    `json:"makes"` // what stands outside once it ran
}

// Mode says how a linked effect puts an effect right.
type Mode string

// Modes.
const (
	Compensate Mode = "compensate" // undo it
	Adjust     Mode = "adjust"     // send the difference
)

// Source says where evidence comes from.
type Source string

// Sources.
const (
	FromAnswer   Source = "answer"
	FromReceipt  Source = "receipt"
	FromQuery    Source = "query"
	FromOperator Source = "operator"
	FromFile     Source = "file" // the effector's dispatch file
)

// Evidence is what somebody said of the effect. Digest is that of the exact bytes.
type Evidence struct {
	Source  Source          `json:"source"`
	Attempt uint32          `json:"attempt,omitempty"` // answers: to which attempt
	Class   Class           `json:"class,omitempty"`   // answers
	Found   uint32          `json:"found,omitempty"`   // queries: how many the provider has under our key
	Key     EffectKey       `json:"effectKey,omitzero"`
	Amount  string          `json:"amount,omitempty"`
	Subject string          `json:"subject,omitempty"`
	Ref     string          `json:"ref,omitempty"` // the provider's own id
	Digest  revision.Digest `json:"digest,omitzero"`
}

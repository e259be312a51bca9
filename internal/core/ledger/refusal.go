package ledger

import (
	"slices"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// Refusal names why an event changes nothing; none is "".
type Refusal string

// Refusals that say where the effect stands: from there, nothing of the kind can happen.
const (
	NoEffect       Refusal = "no-effect"
	NotSent        Refusal = "not-sent"
	OnItsWay       Refusal = "in-flight"
	OutcomeUnknown Refusal = "outcome-unknown"
	InManual       Refusal = "manual"
	AlreadyApplied Refusal = "applied"
	RejectedFinal  Refusal = "rejected-is-final"
	IsVoided       Refusal = "voided"
	CorrectionOpen Refusal = "correction-open"
	IsCompensated  Refusal = "compensated"
	IsWaived       Refusal = "waived"
	IsHeld         Refusal = "held"
	NotHeld        Refusal = "not-held"
	KeyTaken       Refusal = "key-taken"
)

// Refusals of guards.
const (
	WrongActor Refusal = "wrong-actor"
	Malformed  Refusal = "malformed"

	NotCanonical     Refusal = "not-canonical"
	OlderRevision    Refusal = "older-revision"
	Nondeterministic Refusal = "nondeterministic"
	OtherPolicy      Refusal = "other-policy"
	NothingNew       Refusal = "nothing-new"
	RuleFalse        Refusal = "rule-false"
	RuleHolds        Refusal = "rule-still-holds"
	ProvenanceUnmet  Refusal = "provenance-not-met"
	KeyOfAnother     Refusal = "key-of-another"
	PayloadEmpty     Refusal = "payload-empty"
	PayloadTooLarge  Refusal = "payload-too-large"
	PayloadNoKey     Refusal = "payload-without-key"
	PayloadUnknown   Refusal = "payload-unknown"
	MergedAway       Refusal = "merged-away"
	Sent             Refusal = "sent"
	NoReason         Refusal = "no-reason"
	NoPerson         Refusal = "no-person"
	NoRule           Refusal = "no-rule"

	OtherDigest     Refusal = "other-digest"
	ApprovalMissing Refusal = "approval-missing"
	ApprovalUsed    Refusal = "approval-used"
	ApprovalExpired Refusal = "approval-expired"

	GateClosed       Refusal = "gate-closed"
	InactivePolicy   Refusal = "inactive-policy"
	InactiveAdapter  Refusal = "inactive-adapter"
	RevisionUnjudged Refusal = "revision-not-judged"
	RevisionsUnread  Refusal = "revisions-unread"
	DigestBroken     Refusal = "digest-broken"
	PayloadChanged   Refusal = "payload-changed"
	TwoSessions      Refusal = "two-sessions"
	BreakerOpen      Refusal = "breaker-open"
	RateLimited      Refusal = "rate-limited"
	NoSendWindow     Refusal = "no-send-window"

	NotIdempotent  Refusal = "not-idempotent"
	ScopeUnknown   Refusal = "scope-unknown"
	ScopeMoved     Refusal = "scope-moved"
	Contradicted   Refusal = "contradicted"
	InConflict     Refusal = "conflict"
	DeadlinePassed Refusal = "deadline-passed"
	StillAnswering Refusal = "attempt-may-be-answered"
	QueryFirst     Refusal = "query-first"
	AttemptsSpent  Refusal = "attempts-spent"

	AttemptUnknown      Refusal = "attempt-unknown"
	AttemptClosed       Refusal = "attempt-closed"
	OtherOwner          Refusal = "other-owner"
	ProvesNothing       Refusal = "proves-nothing"
	AbsenceProvesNought Refusal = "absence-proves-nothing"
	EvidenceOfAnother   Refusal = "evidence-of-another"
	EvidenceDiffers     Refusal = "evidence-differs"
	EvidenceContradicts Refusal = "evidence-contradicts"
	Unverified          Refusal = "signature-not-verified"
	NoReceipts          Refusal = "no-receipts"
	NotQueryable        Refusal = "not-queryable"
	NoAttempt           Refusal = "no-attempt"
	NoEvidence          Refusal = "no-evidence"
	SendWindowOpen      Refusal = "send-window-open"
	ActionLeft          Refusal = "action-left"

	NoCorrectionOpen Refusal = "no-correction-open"
	IsCorrection     Refusal = "is-a-correction"
	LinkOfAnother    Refusal = "link-of-another"
	LinkNotApplied   Refusal = "link-not-applied"
	LinkedSent       Refusal = "linked-effect-sent"
	IntoItself       Refusal = "merged-into-itself"
	CoveredAlready   Refusal = "covered-already"
	NotASession      Refusal = "not-a-session"
	NoClash          Refusal = "no-clash"
	JournalKnows     Refusal = "journal-knows"
)

// Why answers what the refusal means and what can be done, in one sentence.
func (r Refusal) Why() string { return reasons[r] }

var reasons = map[Refusal]string{
	NoEffect:       "there is no effect of this key",
	NotSent:        "nothing was sent, so there is nothing to settle",
	OnItsWay:       "an attempt is open; wait for its end",
	OutcomeUnknown: "an attempt may have run; settle that first, by a query, a receipt or an operator",
	InManual:       "an operator must first say what happened (effects resolve)",
	AlreadyApplied: "it ran already; what is wrong with it is a correction",
	RejectedFinal:  "it was rejected and is never sent again; record what is done outside as evidence",
	IsVoided:       "its rule held no more before anything was sent",
	CorrectionOpen: "a correction of it is open; compensate or waive it",
	IsCompensated:  "it was compensated",
	IsWaived:       "an operator waived its correction",
	IsHeld:         "it is held; it takes an approval",
	NotHeld:        "it is not held, so there is nothing to approve",
	KeyTaken:       "there is an effect of this key already",

	WrongActor: "this role may not do it",
	Malformed:  "the record would break a rule of the contract; the event holds a value out of bounds",

	NotCanonical:     "the revision is not of the canonical generation",
	OlderRevision:    "a newer revision has been judged",
	Nondeterministic: "one revision under one policy gave two payloads; look for a policy or engine that is no function of the revision",
	OtherPolicy:      "it was sent under another version of the policy; the new one judges it from the next revision on",
	NothingNew:       "the record says so already",
	RuleFalse:        "the rule is false for this revision",
	RuleHolds:        "the rule still holds; hold the effect instead",
	ProvenanceUnmet:  "the policy waits until every source has data up to the window's end (Wdata)",
	KeyOfAnother:     "the attempt is of another effect",
	PayloadEmpty:     "every request has a body",
	PayloadTooLarge:  "the payload is larger than 64 KiB",
	PayloadNoKey:     "every request body carries the effectKey",
	PayloadUnknown:   "only a lost attempt is known of the effect, not its payload; settle it by evidence",
	MergedAway:       "it was merged into another effect, which stands for it now",
	Sent:             "an attempt may have been sent",
	NoReason:         "give a reason",
	NoPerson:         "name the person",
	NoRule:           "name the airlock rule",

	OtherDigest:     "the payload is not the one that was shown; look at it again",
	ApprovalMissing: "an airlock rule matches and nobody approved this payload",
	ApprovalUsed:    "the approval was used; one approval is for one dispatch",
	ApprovalExpired: "the approval expired; approve again",

	GateClosed:       "a gate is closed",
	InactivePolicy:   "the policy version is not the active one; judge the effect again",
	InactiveAdapter:  "the adapter version is not the active one",
	RevisionUnjudged: "a newer revision was accepted; judge it first",
	RevisionsUnread:  "the revisions were not read up to the one that the payload stands for",
	DigestBroken:     "the stored bytes do not give the stored digest: the record is damaged",
	PayloadChanged:   "the revision gives another payload now; judge it first",
	TwoSessions:      "two current sessions share this effect; an operator must look",
	BreakerOpen:      "the adapter's circuit breaker is open",
	RateLimited:      "no rate token is free",
	NoSendWindow:     "the adapter has no sendWithin or timeout",

	NotIdempotent:  "the adapter cannot send the same key twice without a second execution",
	ScopeUnknown:   "an attempt is known from the dispatch file alone; where it went is not",
	ScopeMoved:     "url, account or environment are not those of the first attempt, so the provider would not know the key",
	Contradicted:   "a canonical revision contradicts what was sent",
	InConflict:     "evidence contradicts; an operator must look",
	DeadlinePassed: "the provider may forget the key before the bytes arrive",
	StillAnswering: "the last attempt may still be answered",
	QueryFirst:     "ask the provider first",
	AttemptsSpent:  "it was sent again five times",

	AttemptUnknown:      "there is no attempt of this number",
	AttemptClosed:       "the attempt ended before",
	OtherOwner:          "the attempt is of another owner",
	ProvesNothing:       "only proof that it ran is of use now",
	AbsenceProvesNought: "not found does not prove that it did not run",
	EvidenceOfAnother:   "the evidence names another key",
	EvidenceDiffers:     "the evidence names our key with another amount or subject",
	EvidenceContradicts: "the provider has several under our key, or one that differs; an operator must look",
	Unverified:          "the receipt's signature is not verified",
	NoReceipts:          "the adapter declares no receipts",
	NotQueryable:        "the adapter declares no query",
	NoAttempt:           "no attempt of it is recorded",
	NoEvidence:          "record the evidence: its digest is missing",
	SendWindowOpen:      "the attempt may still be sent or answered",
	ActionLeft:          "there is an automatic action left",

	NoCorrectionOpen: "no correction of the effect is open",
	IsCorrection:     "it carries out a correction; judge the effect that it corrects",
	LinkOfAnother:    "the linked effect is of another effect or correction",
	LinkNotApplied:   "the linked effect has not run",
	LinkedSent:       "the linked effect may have run; settle it first",
	IntoItself:       "an effect is not merged into itself",
	CoveredAlready:   "the effect covers the interval already",
	NotASession:      "only effects of sessions cover intervals",
	NoClash:          "a clash is of two sessions or more",
	JournalKnows:     "the journal knows the attempt, and what became of it",
}

// impossible answers the refusal where no transition has the event: it says where the
// effect stands.
func (c *change) impossible() Refusal {
	switch e := c.e.(type) {
	case Judge:
		if !e.Judgement.Holds && (c.r.State == effect.None || c.r.State == effect.Voided) {
			return RuleFalse
		}
	case Hold, Dispatch:
		if c.r.State == effect.Held {
			return IsHeld
		}
	case Approve:
		if c.r.State == effect.Prepared {
			return NotHeld
		}
	case Correct:
		return KeyTaken
	case Answer:
		if e.Class != effect.Executed && slices.Contains(provable, c.r.State) {
			return ProvesNothing
		}
		if slices.Contains(provable, c.r.State) {
			return proves(c.r, &e.Evidence)
		}
	case Query:
		if e.Found == 0 && slices.Contains(provable, c.r.State) {
			return AbsenceProvesNought
		}
	}
	return standing[c.r.State]
}

var standing = map[effect.State]Refusal{
	effect.None:                 NoEffect,
	effect.Prepared:             NotSent,
	effect.Held:                 NotSent,
	effect.Dispatching:          OnItsWay,
	effect.Acked:                AlreadyApplied,
	effect.Unknown:              OutcomeUnknown,
	effect.Reconciled:           AlreadyApplied,
	effect.Rejected:             RejectedFinal,
	effect.Voided:               IsVoided,
	effect.Manual:               InManual,
	effect.CompensationRequired: CorrectionOpen,
	effect.Compensated:          IsCompensated,
	effect.Waived:               IsWaived,
}

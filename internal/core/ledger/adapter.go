package ledger

import "github.com/tidemark-mesh/tidemark/pkg/effect"

const (
	second = int64(1_000_000)
	minute = 60 * second
	hour   = 60 * minute
)

// Limits of the design.
const (
	MaxResends  = 5 // sends from UNKNOWN that may have reached the provider
	MinAbsences = 3 // absences before one proves anything
)

// BodyRule says what a provider does with a known key and another body.
type BodyRule string

// Body rules.
const (
	BodyError   BodyRule = "error"
	BodyReplay  BodyRule = "replay"
	BodyExecute BodyRule = "execute" // the key protects nothing: as if not idempotent
)

// Adapter is what an adapter declares about its provider: it decides which transitions
// an effect has. Durations are microseconds; the zero Adapter allows nothing automatic.
type Adapter struct {
	Idempotent     bool
	OnBodyMismatch BodyRule
	Retention      int64 // how long the provider knows a key, whichever way it counts

	Query            bool  // by our own reference
	Authoritative    bool  // absence is declared to prove non-execution
	LateArrivalBound int64 // how long a request may be under way
	QueryFor         int64 // how long queries go on after the last attempt

	Receipts     bool // signed
	SendUnproven bool // the policy lets effects go that can be neither resent nor queried

	SendWithin       int64
	Timeout          int64
	Grace            int64 // added before an attempt counts as lost
	ClockUncertainty int64
}

// resendable tells whether the same key may be sent twice at all.
func (a *Adapter) resendable() bool {
	return a.Idempotent && a.OnBodyMismatch != BodyExecute && a.Retention > 0
}

// ResendDeadline answers until when a key that was first sent at first may be sent again;
// zero is never. It counts from the first send whatever the provider counts from, which
// is the earliest of all ways: a provider that counts from the last send or from the
// completion forgets later. Kept off the end are an hour, a twentieth of the retention or
// twice the uncertainty of the clocks, whichever is most. A retention below two hours is
// good for one minute, or half of it.
func (a *Adapter) ResendDeadline(first effect.Time) effect.Time {
	switch {
	case !a.resendable():
		return 0
	case a.Retention < 2*hour:
		return first.Add(min(minute, a.Retention/2))
	}
	margin := max(hour, a.Retention/20, 2*a.ClockUncertainty)
	return first.Add(max(0, a.Retention-margin))
}

// SendBy answers until when the first byte of an attempt committed at now may go out.
func (a *Adapter) SendBy(now effect.Time) effect.Time { return now.Add(a.SendWithin) }

// MaySend tells whether the first byte of an attempt may still go out: the connection
// asks on the effector's clock and on the wall clock, and both must say so.
func MaySend(a *effect.Attempt, effector, wall effect.Time) bool {
	return a.Open() && effector <= a.SendBy && wall <= a.SendBy
}

// LostFrom answers from when on an open attempt counts as lost: its sendBy, timeout and
// the adapter's grace are over.
func (a *Adapter) LostFrom(attempt *effect.Attempt) effect.Time {
	return attempt.QuietFrom().Add(a.Grace)
}

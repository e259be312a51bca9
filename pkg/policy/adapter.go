package policy

// AdapterType is the way to a provider.
type AdapterType string

// Adapter types.
const (
	AdapterHTTP AdapterType = "http" // POST of a JSON body
	AdapterNATS AdapterType = "nats" // request on a NATS subject
	AdapterLog  AdapterType = "log"  // writes a line; for trying out
)

// BodyMismatch says what a provider does with a known key and another body.
type BodyMismatch string

// Body mismatches.
const (
	MismatchError   BodyMismatch = "error"
	MismatchReplay  BodyMismatch = "replay"
	MismatchExecute BodyMismatch = "execute"
)

// Basis says from when a provider counts the retention of a key.
type Basis string

// Bases.
const (
	BasisFirstSeen  Basis = "firstSeen"
	BasisLastSeen   Basis = "lastSeen"
	BasisCompletion Basis = "completion"
)

// Absence says what it proves that a query finds nothing.
type Absence string

// Absences.
const (
	AbsenceUnproven      Absence = "unproven"
	AbsenceAuthoritative Absence = "authoritative"
)

// Header is one fixed header of every request: its value, or the file that holds it.
type Header struct {
	Name       string
	Value      string
	SecretFile string // absolute path; read when the adapter is made, never logged
	Prefix     string // stands before the secret, such as "Bearer "
}

// Idempotency is the provider's promise to execute a key once. The zero value is none.
type Idempotency struct {
	Header         string // that carries the effectKey; "" = no promise
	Retention      Duration
	Basis          Basis
	OnBodyMismatch BodyMismatch
}

// EvidenceMap says where answers, queries and receipts name what ran: JSON Pointers.
// ExpectAmount and ExpectSubject point into the payload, at what must be named again;
// without them in the document they are Amount and Subject.
type EvidenceMap struct {
	Key           string // of our effectKey; "" = answers prove nothing
	Amount        string // "" = not compared
	Subject       string // "" = not compared
	Ref           string // of the provider's own id; "" = none
	ExpectAmount  string
	ExpectSubject string
}

// Query is how the provider is asked by our own reference. URL (http) or Subject (nats)
// is "" where it cannot be asked.
type Query struct {
	URL              string // holds {effectKey}
	Subject          string // may hold {effectKey}; the request's body is {"effectKey": …} anyway
	List             string // JSON Pointer to a list of executions; "" = the answer is one
	Absent           []AnswerMatch
	Absence          Absence
	LateArrivalBound Duration // how long a request may be under way
	For              Duration // how long queries go on after the last attempt
}

// AnswerMatch is one answer of a provider: a status and, unless Code is "", that text or
// integer at the JSON Pointer At of the body. NATS answers have no status: Status is 0.
type AnswerMatch struct {
	Status int
	Code   string
	At     string
}

// Rate bounds sends to one provider and account.
type Rate struct {
	PerSecond   int
	Concurrency int
}

// Breaker stops sends, never queries: after Consecutive ambiguous answers, or when more
// than Percent of the last Window are. After Cooldown one canary goes.
type Breaker struct {
	Consecutive int
	Window      int
	Percent     int
	Cooldown    Duration
}

// Retry says whether an effect of unknown outcome is sent again under the same key.
type Retry struct {
	Auto  bool
	First Duration // wait before the first resend; doubled for each further one
	Most  Duration // longest wait
}

// Adapter is one version of the way to a provider and of what it promises. A version is
// immutable.
type Adapter struct {
	Name        string
	Version     int
	Type        AdapterType
	URL         string   // http
	Subject     string   // nats
	Account     string   // frozen with the first attempt, like URL and Environment
	Environment string   //
	Allow       []string // private CIDR ranges that this adapter may reach, sorted
	Headers     []Header // sorted by name

	Idempotency    Idempotency
	Evidence       EvidenceMap
	Query          Query
	ReceiptSecrets string // absolute path of a file with one or more whsec_ secrets, one a line; "" = no receipts

	Timeout          Duration // from the first byte to the end of the answer
	SendWithin       Duration // from the commit to the first byte
	Grace            Duration // added before an attempt counts as lost
	ClockUncertainty Duration
	Rate             Rate
	Breaker          Breaker
	Retry            Retry
	SendUnproven     bool // effects that can be neither resent nor queried go without approval

	Reject       []AnswerMatch // refused before execution
	Throttle     []AnswerMatch // a limiter that stands before execution
	InFlight     []AnswerMatch // the provider works on this key
	BodyMismatch []AnswerMatch // the provider knows this key with another body
	Pending      []AnswerMatch // accepted, not done
}

// Ref answers "<name>@<version>", the name under which records know the version.
func (a *Adapter) Ref() string { return PolicyGeneration(a.Name, a.Version) }

// Idempotent tells whether the provider's promise protects a resend: it has one, and
// does not execute another body under a known key.
func (a *Adapter) Idempotent() bool {
	return a.Idempotency.Header != "" && a.Idempotency.OnBodyMismatch != MismatchExecute
}

// Queryable tells whether the provider can be asked by our own reference.
func (a *Adapter) Queryable() bool { return a.Query.URL != "" || a.Query.Subject != "" }

// Scope answers where the provider's keys are unique: the URL, or nats:<subject>, or log:.
func (a *Adapter) Scope() (url, account, environment string) {
	switch a.Type {
	case AdapterNATS:
		url = "nats:" + a.Subject
	case AdapterLog:
		url = "log:"
	default:
		url = a.URL
	}
	return url, a.Account, a.Environment
}

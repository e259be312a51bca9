package policy

// Provenance is what must be known of a revision before an effect of it may go.
type Provenance string

// Provenances.
const (
	ProvenanceAny  Provenance = "any"
	ProvenanceData Provenance = "DATA" // data itself, not idleness, moved the watermark past the window's end
)

// CorrectionMode says what becomes of a correction that contradicts an effect that ran.
type CorrectionMode string

// Correction modes.
const (
	CorrectManual     CorrectionMode = "manual"     // open an item for an operator
	CorrectCompensate CorrectionMode = "compensate" // a linked effect that undoes it, held for approval
	CorrectAdjust     CorrectionMode = "adjust"     // a linked effect that sends the difference
)

// PayloadField is one member of a payload: Expr is CEL.
type PayloadField struct {
	Name string
	Expr string
}

// Airlock is when an effect is held for approval before it may go. Zero values are rules
// that are off, except OlderThan: there zero is the default, the job's allowedLateness
// and a day.
type Airlock struct {
	AmountField       string // member of the payload; "" = no cap
	AmountLimit       string // decimal; an amount above it is held
	FirstOfGeneration int    // the first effects of a type under a new policy generation
	OlderThan         Duration
}

// Corrections says how corrections are carried out. Adapter and Payload are those of the
// linked effect; both are empty for manual, and an empty Adapter is the policy's own.
type Corrections struct {
	Mode    CorrectionMode
	Adapter string
	Payload []PayloadField // sorted by name
}

// EffectPolicy is one version of the rule that makes effects of one type out of the
// revisions of a job. A version is immutable; one is active per (Stream, EffectType).
type EffectPolicy struct {
	Name              string
	Version           int
	Stream            string
	Job               string
	EffectType        string
	Subject           string // CEL over key, window and constants
	When              string // CEL over the revision: bool
	RequireProvenance Provenance
	Payload           []PayloadField // sorted by name; effectKey is added to every payload
	Adapter           string         // "<name>@<version>"
	Airlock           Airlock
	Corrections       Corrections
}

// Ref answers "<name>@<version>", the name under which records know the version.
func (p *EffectPolicy) Ref() string { return PolicyGeneration(p.Name, p.Version) }

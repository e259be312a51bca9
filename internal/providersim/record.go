package providersim

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Kind says what a line of the log is about.
type Kind string

// Kinds.
const (
	Execution Kind = "execution" // the action was carried out
	Held      Kind = "held"      // a request was taken, and is carried out when Due
	Delivered Kind = "receipt"   // the receipt of an execution was taken by its receiver
)

// Record is one line of the log. Amount and Subject are the JSON values that the request
// had at the pointers of Fields.
type Record struct {
	Kind           Kind              `json:"kind"`
	Time           time.Time         `json:"time"`
	ID             string            `json:"id"` // the provider's own; a held request keeps it when it is carried out
	EffectKey      string            `json:"effectKey"`
	IdempotencyKey string            `json:"idempotencyKey,omitempty"`
	BodyDigest     string            `json:"bodyDigest,omitempty"` // SHA-256 of the request's bytes
	Amount         json.RawMessage   `json:"amount,omitempty"`
	Subject        json.RawMessage   `json:"subject,omitempty"`
	Headers        map[string]string `json:"headers,omitempty"` // those that tell about the attempt
	Mode           Mode              `json:"mode,omitzero"`
	Due            time.Time         `json:"due,omitzero"`         // Held
	VisibleFrom    time.Time         `json:"visibleFrom,omitzero"` // queries and lists do not show it before
	ForgetAfter    Duration          `json:"forgetAfter,omitzero"` // instead of the retention of all keys
}

func (r *Record) encode() ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("a %s of the log: %w", r.Kind, err)
	}
	return append(text, '\n'), nil
}

// decode reads a line of the log.
func decode(line []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(line, &r); err != nil {
		return Record{}, errors.New("it is no JSON object of the log's form")
	}
	switch r.Kind {
	case Execution, Held, Delivered:
	default:
		return Record{}, fmt.Errorf("kind %q is none of execution, held and receipt", r.Kind)
	}
	if r.EffectKey == "" || r.ID == "" {
		return Record{}, errors.New("effectKey or id is missing")
	}
	return r, nil
}

// AmountText answers the amount, a string without its quotes.
func (r *Record) AmountText() string { return text(r.Amount) }

// SubjectText answers the subject, a string without its quotes.
func (r *Record) SubjectText() string { return text(r.Subject) }

// text answers a string's content, and any other JSON value as it stands.
func text(value json.RawMessage) string {
	var s string
	if json.Unmarshal(value, &s) == nil {
		return s
	}
	return string(value)
}

// Duration is a time.Duration whose JSON form is Go's text, such as "90s".
type Duration time.Duration

// MarshalText writes what time.Duration prints.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads a duration that is not negative.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil || parsed < 0 {
		return fmt.Errorf("%q is no duration such as 90s or 24h", text)
	}
	*d = Duration(parsed)
	return nil
}

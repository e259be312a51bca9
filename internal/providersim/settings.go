package providersim

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Settings say what kind of provider this is. The zero value knows keys for 24 hours from
// their first use, refuses another body under a known key, and looks for amount and
// subject at /amount and /subject.
type Settings struct {
	Idempotency Idempotency `json:"idempotency"`
	Fields      Fields      `json:"fields"`
	Receipts    Receipts    `json:"receipts"`
}

// Idempotency is what the provider does with keys.
type Idempotency struct {
	Off            bool     `json:"off,omitempty"`            // every request is a new action
	Header         string   `json:"header,omitempty"`         // which carries the key
	Retention      Duration `json:"retention,omitzero"`       // how long a key is known
	Basis          string   `json:"basis,omitempty"`          // from when: firstSeen, lastSeen or completion
	OnBodyMismatch string   `json:"onBodyMismatch,omitempty"` // error, replay, execute or ignore
}

// What a provider does with a known key and another body.
const (
	mismatchError   = "error"   // 422
	mismatchReplay  = "replay"  // the first answer again
	mismatchExecute = "execute" // a new action
	mismatchIgnore  = "ignore"  // an answer that repeats the new body, and no action
)

// From when the retention of a key counts.
const (
	fromFirst      = "firstSeen"
	fromLast       = "lastSeen"
	fromCompletion = "completion"
)

// Fields are JSON Pointers to members of requests; answers have the values in the same
// places.
type Fields struct {
	Amount  string `json:"amount,omitempty"`
	Subject string `json:"subject,omitempty"`
}

// Receipts says where signed receipts of executions are posted.
type Receipts struct {
	URL    string `json:"url,omitempty"` // none = no receipts
	Secret string `json:"-"`             // "whsec_" and base64 of 24 bytes or more
}

// complete fills in what was left out and refuses what cannot be.
func (s Settings) complete() (Settings, error) {
	i := &s.Idempotency
	if i.Header == "" {
		i.Header = "Idempotency-Key"
	}
	if i.Retention == 0 {
		i.Retention = Duration(24 * time.Hour)
	}
	if i.Basis == "" {
		i.Basis = fromFirst
	}
	if i.OnBodyMismatch == "" {
		i.OnBodyMismatch = mismatchError
	}
	if s.Fields.Amount == "" {
		s.Fields.Amount = "/amount"
	}
	if s.Fields.Subject == "" {
		s.Fields.Subject = "/subject"
	}
	switch i.Basis {
	case fromFirst, fromLast, fromCompletion:
	default:
		return s, fmt.Errorf("basis %q: choose firstSeen, lastSeen or completion", i.Basis)
	}
	switch i.OnBodyMismatch {
	case mismatchError, mismatchReplay, mismatchExecute, mismatchIgnore:
	default:
		return s, fmt.Errorf("onBodyMismatch %q: choose error, replay, execute or ignore", i.OnBodyMismatch)
	}
	for _, pointer := range []string{s.Fields.Amount, s.Fields.Subject} {
		if _, err := members(pointer); err != nil {
			return s, err
		}
	}
	return s, s.Receipts.check()
}

func (r *Receipts) check() error {
	if r.URL == "" {
		return nil
	}
	u, err := url.Parse(r.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("the receipts' URL is none that can be posted to; write http://host:port/path")
	}
	_, err = r.key()
	return err
}

// key answers the bytes of the secret.
func (r *Receipts) key() ([]byte, error) {
	coded, found := strings.CutPrefix(r.Secret, "whsec_")
	key, err := base64.StdEncoding.DecodeString(coded)
	if !found || err != nil || len(key) < 24 {
		return nil, errors.New("the receipts' secret must be whsec_ and the base64 of 24 bytes or more")
	}
	return key, nil
}

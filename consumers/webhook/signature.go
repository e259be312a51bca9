package webhook

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Headers of the Standard Webhooks rules.
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp"
	HeaderSignature = "webhook-signature"
)

// Tolerance is how far the timestamp of a signed message may be from the reader's clock.
const Tolerance = 5 * time.Minute

// Sizes of a secret, in bytes behind whsec_.
const (
	minSecret = 24
	maxSecret = 64
)

// Errors of Verify; use errors.Is.
var (
	ErrSignature = errors.New("no valid signature")
	ErrTimestamp = errors.New("timestamp is missing or too far from this clock")
)

// Secret is a signing key. It prints as nothing.
type Secret struct{ key []byte }

// String keeps the key out of logs.
func (Secret) String() string { return "[secret]" }

// GoString keeps the key out of logs.
func (Secret) GoString() string { return "[secret]" }

// ParseSecret reads a secret as Standard Webhooks writes it: whsec_ and 24 to 64 bytes in
// base64. Errors never repeat it.
func ParseSecret(text string) (Secret, error) {
	encoded, ok := strings.CutPrefix(strings.TrimSpace(text), "whsec_")
	if !ok {
		return Secret{}, errors.New("a secret begins with whsec_; make one with: echo whsec_$(openssl rand -base64 32)")
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	switch {
	case err != nil:
		return Secret{}, errors.New("what follows whsec_ is no base64")
	case len(key) < minSecret || len(key) > maxSecret:
		return Secret{}, fmt.Errorf("the secret has %d bytes; %d to %d are needed", len(key), minSecret, maxSecret)
	}
	return Secret{key}, nil
}

func (s Secret) sign(id, timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return mac.Sum(nil)
}

// Sign sets the three headers for a body sent at now, with one signature a secret.
func Sign(h http.Header, id string, now time.Time, body []byte, secrets ...Secret) {
	timestamp := strconv.FormatInt(now.Unix(), 10)
	list := make([]string, len(secrets))
	for i, s := range secrets {
		list[i] = "v1," + base64.StdEncoding.EncodeToString(s.sign(id, timestamp, body))
	}
	h.Set(HeaderID, id)
	h.Set(HeaderTimestamp, timestamp)
	h.Set(HeaderSignature, strings.Join(list, " "))
}

// Verify checks the signature of a message that was read at now against any of the
// secrets, and its timestamp against the tolerance.
func Verify(h http.Header, now time.Time, body []byte, secrets ...Secret) error {
	timestamp := h.Get(HeaderTimestamp)
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || seconds < now.Add(-Tolerance).Unix() || seconds > now.Add(Tolerance).Unix() {
		return ErrTimestamp
	}
	valid := 0
	for _, part := range strings.Fields(h.Get(HeaderSignature)) {
		text, ok := strings.CutPrefix(part, "v1,")
		if !ok {
			continue
		}
		given, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			continue
		}
		for _, s := range secrets {
			valid |= subtle.ConstantTimeCompare(given, s.sign(h.Get(HeaderID), timestamp, body))
		}
	}
	if valid != 1 || h.Get(HeaderID) == "" {
		return ErrSignature
	}
	return nil
}

// keyring holds the secrets of files that may be written anew while the process runs.
type keyring struct {
	files []string
	mu    sync.Mutex
	last  []Secret
}

func openKeyring(files []string) (*keyring, error) {
	k := &keyring{files: files}
	secrets, err := k.read()
	k.last = secrets
	return k, err
}

func (k *keyring) read() ([]Secret, error) {
	var out []Secret
	for _, name := range k.files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("secret: %w", err)
		}
		s, err := ParseSecret(string(bytes.TrimSpace(text)))
		if err != nil {
			return nil, fmt.Errorf("secret file %s: %w", name, err)
		}
		out = append(out, s)
	}
	return out, nil
}

// secrets answers what the files hold now. A file that cannot be read at this moment,
// because it is being replaced, leaves the last secrets in use; the error says so.
func (k *keyring) secrets() ([]Secret, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	fresh, err := k.read()
	if err == nil {
		k.last = fresh
	}
	return k.last, err
}

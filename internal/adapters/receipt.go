package adapters

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Headers of Standard Webhooks.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// Bounds of signed receipts.
const (
	MaxReceipt      = 64 << 10 // bytes of a body
	tolerance       = 5 * time.Minute
	minSecretBytes  = 24
	maxSecretBytes  = 64
	maxSecrets      = 8
	maxSignatures   = 16
	maxHeaderLength = 4 << 10
)

// Errors of Receipts.Verify. Who is asked to take a receipt answers none of them in more
// detail than that it was refused.
var (
	ErrUnsigned  = errors.New("the receipt has no valid signature")
	ErrStale     = errors.New("the receipt was signed too long ago, or in the future")
	ErrNoReceipt = errors.New("the signed body is no receipt")
)

// Receipts verifies the signed receipts of one adapter's provider: Standard Webhooks with
// v1 signatures. The secrets are read for every receipt, so that they can be rotated
// while the effector runs. It is safe for concurrent use.
type Receipts struct {
	doc   *policy.Adapter
	deps  Deps
	clock clock.Clock
}

// NewReceipts answers the verifier for doc. It fails if doc declares no receipts, or if
// its secrets cannot be read.
func NewReceipts(doc *policy.Adapter, deps Deps) (*Receipts, error) {
	if doc.ReceiptSecrets == "" {
		return nil, fmt.Errorf("adapter %s declares no receipts; add receipts: {secretFile: …}", doc.Ref())
	}
	r := &Receipts{doc: doc, deps: deps, clock: deps.clock()}
	if _, err := r.secrets(); err != nil {
		return nil, fmt.Errorf("adapter %s: receipts: %w", doc.Ref(), err)
	}
	return r, nil
}

// Verify answers the receipt that body is, and the digest of its exact bytes, if one of
// the secrets signed it within five minutes of now. Errors are ErrUnsigned, ErrStale and
// ErrNoReceipt, or say that the secrets cannot be read; none repeats the body.
func (r *Receipts) Verify(h http.Header, body []byte) (*effect.Receipt, revision.Digest, error) {
	if len(body) > MaxReceipt {
		return nil, revision.Digest{}, fmt.Errorf("%w: it has more than %d bytes", ErrNoReceipt, MaxReceipt)
	}
	secrets, err := r.secrets()
	if err != nil {
		return nil, revision.Digest{}, fmt.Errorf("adapter %s: receipts: %w", r.doc.Ref(), err)
	}
	signed, err := r.signedAt(h)
	if err != nil {
		return nil, revision.Digest{}, err
	}
	if !verified(secrets, h, body) {
		return nil, revision.Digest{}, ErrUnsigned
	}
	if age := r.clock.Now().Sub(signed); age > tolerance || age < -tolerance {
		return nil, revision.Digest{}, ErrStale
	}
	receipt, err := effect.DecodeReceipt(body)
	if err != nil {
		return nil, revision.Digest{}, fmt.Errorf("%w: %w", ErrNoReceipt, err)
	}
	return receipt, digestOf(body), nil
}

// signedAt reads when the message was signed.
func (r *Receipts) signedAt(h http.Header) (time.Time, error) {
	for _, name := range []string{headerID, headerTimestamp, headerSignature} {
		if v := h.Values(name); len(v) != 1 || v[0] == "" || len(v[0]) > maxHeaderLength {
			return time.Time{}, fmt.Errorf("%w: it needs the header %s once", ErrUnsigned, name)
		}
	}
	text := h.Get(headerTimestamp)
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || !allDigits(text) || seconds > 1<<40 {
		return time.Time{}, fmt.Errorf("%w: %s is no Unix time in seconds", ErrUnsigned, headerTimestamp)
	}
	return time.Unix(seconds, 0), nil
}

// verified tells whether any of the signatures is of any of the secrets. It tries all of
// them, each in constant time, so that the time it takes tells nothing of the secrets.
func verified(secrets [][]byte, h http.Header, body []byte) bool {
	var given [][]byte
	for _, text := range strings.Fields(h.Get(headerSignature)) {
		encoded, v1 := strings.CutPrefix(text, "v1,")
		if sum, err := base64.StdEncoding.DecodeString(encoded); v1 && err == nil && len(given) < maxSignatures {
			given = append(given, sum)
		}
	}
	ok := false
	for _, secret := range secrets {
		want := sign(secret, h.Get(headerID), h.Get(headerTimestamp), body)
		for _, sum := range given {
			if hmac.Equal(sum, want) {
				ok = true
			}
		}
	}
	return ok
}

func sign(secret []byte, id, timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return mac.Sum(nil)
}

// secrets reads the file of whsec_ secrets, one a line. Its errors name lines by number.
func (r *Receipts) secrets() ([][]byte, error) {
	data, err := r.deps.secret(r.doc.ReceiptSecrets)
	if err != nil {
		return nil, err
	}
	var out [][]byte
	for i, line := range strings.Split(string(data), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		encoded, ok := strings.CutPrefix(line, "whsec_")
		secret, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil || len(secret) < minSecretBytes || len(secret) > maxSecretBytes {
			return nil, fmt.Errorf("line %d of secret file %s is no whsec_ secret of %d to %d bytes in base64", i+1, r.doc.ReceiptSecrets, minSecretBytes, maxSecretBytes)
		}
		out = append(out, secret)
	}
	if len(out) == 0 || len(out) > maxSecrets {
		return nil, fmt.Errorf("secret file %s holds %d secrets; it must hold 1 to %d", r.doc.ReceiptSecrets, len(out), maxSecrets)
	}
	return out, nil
}

package adaptertest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// NewVerifier answers what verifies receipts that any of the secrets signed; it takes now
// for the time of day. Secrets have the form "whsec_" and base64.
type NewVerifier func(t *testing.T, secrets []string, now time.Time) Verify

// Verify answers the receipt in a signed body, and the digest of its exact bytes.
type Verify func(header http.Header, body []byte) (*effect.Receipt, revision.Digest, error)

// letter is a signed receipt.
type letter struct {
	header http.Header
	body   []byte
}

// write answers a receipt that is signed with each of the secrets.
func write(t *testing.T, at time.Time, secrets ...string) *letter {
	t.Helper()
	receipt := effect.Receipt{
		Schema: effect.ReceiptSchema, Key: sha256.Sum256([]byte(t.Name())), Ref: "prov-17", Amount: "12.50", Subject: "account-1",
		AppliedAt: effect.Time(at.UnixMicro()),
	}
	body, err := receipt.Encode()
	if err != nil {
		t.Fatal(err)
	}
	l := &letter{http.Header{}, body}
	l.header.Set("webhook-id", "msg_17")
	l.header.Set("webhook-timestamp", fmt.Sprint(at.Unix()))
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		signatures[i] = l.signature(t, secret)
	}
	l.header.Set("webhook-signature", strings.Join(signatures, " "))
	return l
}

func (l *letter) signature(t *testing.T, secret string) string {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", l.header.Get("webhook-id"), l.header.Get("webhook-timestamp"), l.body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func newSecret(seed string) string {
	sum := sha256.Sum256([]byte(seed))
	return "whsec_" + base64.StdEncoding.EncodeToString(sum[:])
}

// receipts tests that a provider's word is taken only with its signature.
func (s Suite) receipts(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	old, current, foreign := newSecret("old"), newSecret("current"), newSecret("foreign")
	verify := s.Verify(t, []string{current, old}, now)
	good := map[string]*letter{
		"the current secret":                  write(t, now, current),
		"the old secret while it is rotated":  write(t, now, old),
		"both secrets":                        write(t, now, old, current),
		"a secret beside an unknown one":      write(t, now, foreign, current),
		"the current secret four minutes ago": write(t, now.Add(-4*time.Minute), current),
	}
	for name, l := range good {
		t.Run("a receipt is taken that is signed with "+name, func(t *testing.T) {
			r, digest, err := verify(l.header, l.body)
			if err != nil {
				t.Fatal(err)
			}
			if r.Ref != "prov-17" || r.Amount != "12.50" || digest != sha256.Sum256(l.body) {
				t.Errorf("receipt is %+v with digest %s", r, digest)
			}
		})
	}
	spoil := func(change func(l *letter)) *letter {
		l := write(t, now, current)
		change(l)
		return l
	}
	bad := map[string]*letter{
		"signed with an unknown secret": write(t, now, foreign),
		"signed too long ago":           write(t, now.Add(-6*time.Minute), current),
		"signed in the future":          write(t, now.Add(6*time.Minute), current),
		"changed after it was signed":   spoil(func(l *letter) { l.body = []byte(strings.Replace(string(l.body), "12.50", "99.50", 1)) }),
		"given another id":              spoil(func(l *letter) { l.header.Set("webhook-id", "msg_18") }),
		"given another time":            spoil(func(l *letter) { l.header.Set("webhook-timestamp", fmt.Sprint(now.Unix()+1)) }),
		"without a signature":           spoil(func(l *letter) { l.header.Del("webhook-signature") }),
		"without a time":                spoil(func(l *letter) { l.header.Del("webhook-timestamp") }),
		"signed in another scheme": spoil(func(l *letter) {
			l.header.Set("webhook-signature", strings.Replace(l.header.Get("webhook-signature"), "v1,", "v0,", 1))
		}),
		"signed, but no receipt": spoil(func(l *letter) {
			l.body = []byte(`{"type":"payment.failed"}`)
			l.header.Set("webhook-signature", l.signature(t, current))
		}),
	}
	for name, l := range bad {
		t.Run("no receipt is taken that is "+name, func(t *testing.T) {
			if r, _, err := verify(l.header, l.body); err == nil || r != nil {
				t.Errorf("taken: %+v", r)
			} else if strings.Contains(err.Error(), "account-1") || strings.Contains(err.Error(), current) {
				t.Errorf("the error %q repeats the body or a secret", err)
			}
		})
	}
}

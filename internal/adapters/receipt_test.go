package adapters

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/providersim"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

var (
	noon       = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	signingKey = []byte("a signing key of thirty-two bytes")
)

// The example of the Standard Webhooks specification.
func TestTheSignatureIsThatOfStandardWebhooks(t *testing.T) {
	doc := &policy.Adapter{Name: "a", Version: 1, ReceiptSecrets: "/run/s"}
	at := time.Unix(1614265330, 0)
	r, err := NewReceipts(doc, Deps{Clock: clock.NewFake(at), Secrets: secretFiles(map[string]string{"/run/s": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"})})
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	h.Set("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek")
	h.Set("webhook-timestamp", "1614265330")
	h.Set("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	if _, _, err := r.Verify(h, []byte(`{"test": 2432232314}`)); !errors.Is(err, ErrNoReceipt) {
		t.Errorf("error is %v; want ErrNoReceipt, since the signature is right", err)
	}
	if _, _, err := r.Verify(h, []byte(`{"test": 2432232315}`)); !errors.Is(err, ErrUnsigned) {
		t.Errorf("error is %v; want ErrUnsigned", err)
	}
}

func receiptBody(t testing.TB) []byte {
	t.Helper()
	r := effect.Receipt{Schema: effect.ReceiptSchema, Key: someKey, Ref: "prov-1", AppliedAt: effect.Time(noon.UnixMicro())}
	body, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func receiptsWith(t testing.TB, secrets string) *Receipts {
	t.Helper()
	r, err := NewReceipts(&policy.Adapter{Name: "a", Version: 1, ReceiptSecrets: "/run/s"}, Deps{
		Clock: clock.NewFake(noon), Secrets: secretFiles(map[string]string{"/run/s": secrets}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func whsec(key string) string { return "whsec_" + base64Of(key) }

func TestHeadersOfAReceiptMustBeClear(t *testing.T) {
	verify := receiptsWith(t, whsec(string(signingKey))).Verify
	body := receiptBody(t)
	for name, change := range map[string]func(http.Header){
		"two ids":           func(h http.Header) { h.Add("webhook-id", "other") },
		"two times":         func(h http.Header) { h.Add("webhook-timestamp", "1") },
		"two signatures":    func(h http.Header) { h.Add("webhook-signature", "v1,AAAA") },
		"a signed time":     func(h http.Header) { h.Set("webhook-timestamp", "+"+h.Get("webhook-timestamp")) },
		"an endless time":   func(h http.Header) { h.Set("webhook-timestamp", strings.Repeat("9", 30)) },
		"an endless header": func(h http.Header) { h.Set("webhook-signature", strings.Repeat("v1,AAAA ", 1000)) },
		"many signatures": func(h http.Header) {
			h.Set("webhook-signature", strings.Repeat("v1,AAAA ", maxSignatures)+h.Get("webhook-signature"))
		},
	} {
		h := http.Header{}
		providersim.Sign(h, signingKey, "msg_1", noon, body)
		if _, _, err := verify(h, body); err != nil {
			t.Fatal(err)
		}
		change(h)
		if _, _, err := verify(h, body); !errors.Is(err, ErrUnsigned) {
			t.Errorf("%s: error is %v; want ErrUnsigned", name, err)
		}
	}
	h := http.Header{}
	big := make([]byte, MaxReceipt+1)
	providersim.Sign(h, signingKey, "msg_1", noon, big)
	if _, _, err := verify(h, big); !errors.Is(err, ErrNoReceipt) {
		t.Errorf("error is %v; want ErrNoReceipt", err)
	}
}

func TestSecretsOfReceiptsAreChecked(t *testing.T) {
	good := whsec(string(signingKey))
	for name, file := range map[string]string{
		"none": "\n\n", "without prefix": base64Of(string(signingKey)), "too short": whsec("short"), "too long": whsec(strings.Repeat("x", 65)),
		"no base64": "whsec_!!", "too many": strings.Repeat(good+"\n", maxSecrets+1), "one bad": good + "\nwhsec_bad!", "too big": strings.Repeat("\n", maxSecret+1),
	} {
		_, err := NewReceipts(&policy.Adapter{Name: "a", Version: 1, ReceiptSecrets: "/run/s"}, Deps{Secrets: secretFiles(map[string]string{"/run/s": file})})
		if err == nil || strings.Contains(err.Error(), "whsec_bad") || strings.Contains(err.Error(), base64Of("short")) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	if _, err := NewReceipts(&policy.Adapter{Name: "a", Version: 1}, Deps{}); err == nil {
		t.Error("an adapter without receipts has a verifier")
	}
}

func FuzzReceipt(f *testing.F) {
	r := receiptsWith(f, whsec(string(signingKey)))
	body := receiptBody(f)
	h := http.Header{}
	providersim.Sign(h, signingKey, "msg_1", noon, body)
	f.Add("msg_1", strconv.FormatInt(noon.Unix(), 10), h.Get("webhook-signature"), body)
	f.Add("msg_1", "0", "v1,AAAA v1a,BBBB", []byte("{}"))
	f.Fuzz(func(t *testing.T, id, timestamp, signature string, data []byte) {
		h := http.Header{}
		h.Set("webhook-id", id)
		h.Set("webhook-timestamp", timestamp)
		h.Set("webhook-signature", signature)
		receipt, digest, err := r.Verify(h, data)
		switch {
		case err != nil && receipt != nil:
			t.Error("an error comes with a receipt")
		case err == nil && (string(data) != string(body) || digest != digestOf(body) || id != "msg_1"):
			t.Errorf("a receipt was taken that nobody signed: %q", data)
		}
	})
}

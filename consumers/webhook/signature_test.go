package webhook

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func secretOf(t testing.TB, fill byte) Secret {
	t.Helper()
	s, err := ParseSecret(secretText(fill))
	must(t, err)
	return s
}

func secretText(fill byte) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune(fill)), 32)))
}

// The example that the Standard Webhooks libraries test themselves with.
func TestSignaturesAreThoseOfStandardWebhooks(t *testing.T) {
	s, err := ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
	must(t, err)
	h := http.Header{}
	Sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`), s)
	if got := h.Get(HeaderSignature); got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("signature %s", got)
	}
	if h.Get(HeaderTimestamp) != "1614265330" || h.Get(HeaderID) != "msg_p5jXN8AQM9LWM0D4loKWxJek" {
		t.Errorf("headers %v", h)
	}
}

func TestEitherSecretVerifiesDuringRotation(t *testing.T) {
	old, fresh, other := secretOf(t, 'a'), secretOf(t, 'b'), secretOf(t, 'c')
	now, body := time.Unix(1796032800, 0), []byte(`{"type":"x"}`)
	h := http.Header{}
	Sign(h, "crm_1", now, body, old, fresh)
	if parts := strings.Split(h.Get(HeaderSignature), " "); len(parts) != 2 || !strings.HasPrefix(parts[0], "v1,") || !strings.HasPrefix(parts[1], "v1,") {
		t.Fatalf("signatures %q", parts)
	}
	for _, keys := range [][]Secret{{old}, {fresh}, {other, fresh}} {
		if err := Verify(h, now, body, keys...); err != nil {
			t.Errorf("%d secrets: %v", len(keys), err)
		}
	}
	if err := Verify(h, now, body, other); !errors.Is(err, ErrSignature) {
		t.Errorf("another secret: %v", err)
	}
	if err := Verify(h, now, body); !errors.Is(err, ErrSignature) {
		t.Errorf("no secret: %v", err)
	}
}

func TestWhatWasChangedOrIsOldDoesNotVerify(t *testing.T) {
	s, now, body := secretOf(t, 'a'), time.Unix(1796032800, 0), []byte(`{"type":"x"}`)
	changes := map[string]func(h http.Header){
		"id":                func(h http.Header) { h.Set(HeaderID, "crm_2") },
		"no id":             func(h http.Header) { h.Del(HeaderID) },
		"timestamp":         func(h http.Header) { h.Set(HeaderTimestamp, strconv.FormatInt(now.Unix()+1, 10)) },
		"no signature":      func(h http.Header) { h.Del(HeaderSignature) },
		"version":           func(h http.Header) { h.Set(HeaderSignature, strings.Replace(h.Get(HeaderSignature), "v1,", "v2,", 1)) },
		"signature cut off": func(h http.Header) { h.Set(HeaderSignature, h.Get(HeaderSignature)[:20]) },
		"empty signature":   func(h http.Header) { h.Set(HeaderSignature, "v1,") },
	}
	for name, change := range changes {
		h := http.Header{}
		Sign(h, "crm_1", now, body, s)
		if change(h); !errors.Is(Verify(h, now, body, s), ErrSignature) {
			t.Errorf("%s: %v", name, Verify(h, now, body, s))
		}
	}
	h := http.Header{}
	Sign(h, "crm_1", now, body, s)
	if err := Verify(h, now, []byte(`{"type":"y"}`), s); !errors.Is(err, ErrSignature) {
		t.Errorf("another body: %v", err)
	}
	for _, c := range []struct {
		after time.Duration
		ok    bool
	}{{-Tolerance, true}, {-Tolerance - time.Second, false}, {Tolerance, true}, {Tolerance + time.Second, false}} {
		if err := Verify(h, now.Add(c.after), body, s); (err == nil) != c.ok || !c.ok && !errors.Is(err, ErrTimestamp) {
			t.Errorf("read %s later: %v", c.after, err)
		}
	}
	h.Set(HeaderTimestamp, "today")
	if err := Verify(h, now, body, s); !errors.Is(err, ErrTimestamp) {
		t.Errorf("no number: %v", err)
	}
}

func TestSecretsAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		"": "begins with whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw": "begins with whsec_", "whsec_???": "no base64",
		"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 23)): "23 bytes", "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65)): "65 bytes",
	} {
		_, err := ParseSecret(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if s := secretOf(t, 'a'); strings.Contains(fmt.Sprintf("%v %+v %#v %s", s, s, s, s), "97") || fmt.Sprint(s) != "[secret]" {
		t.Errorf("a secret prints as %#v", s)
	}
}

func TestSecretFilesMayBeReplacedWhileTheProcessRuns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(file, []byte(secretText('a')+"\n"), 0o600))
	k, err := openKeyring([]string{file})
	must(t, err)
	must(t, os.WriteFile(file, []byte(secretText('b')), 0o600))
	if got, err := k.secrets(); err != nil || len(got) != 1 || string(got[0].key) != string(secretOf(t, 'b').key) {
		t.Errorf("%v %v", got, err)
	}
	must(t, os.WriteFile(file, []byte("whsec_"), 0o600))
	got, err := k.secrets()
	if err == nil || strings.Contains(err.Error(), "whsec_Y") || len(got) != 1 || string(got[0].key) != string(secretOf(t, 'b').key) {
		t.Errorf("a file half written: %v %v", got, err)
	}
	if _, err := openKeyring([]string{file}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a bad file at the start: %v", err)
	}
}

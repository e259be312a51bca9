package effector

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/adapters"
	"github.com/tidemark-mesh/tidemark/internal/providersim"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adapter"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// spoken collects what is logged, by any goroutine.
type spoken struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (s *spoken) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(p)
}

func (s *spoken) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

func TestNoSecretAndNoPayloadIsLogged(t *testing.T) {
	const token, member = "token-5b1d0ca1f4", "iban-9f27c0de41"
	receipts := "whsec_" + base64.StdEncoding.EncodeToString([]byte("receipts-secret-of-24-by"))
	dir := t.TempDir()
	tokenFile, receiptsFile := filepath.Join(dir, "token"), filepath.Join(dir, "receipts")
	must(t, os.WriteFile(tokenFile, []byte(token+"\n"), 0o600))
	must(t, os.WriteFile(receiptsFile, []byte(receipts+"\n"), 0o600))
	w := newWorld(t, terms{
		adapter: idempotent + queryable + "receipts: {secretFile: " + receiptsFile + "}\nheaders: {Authorization: {secretFile: " + tokenFile + ", prefix: 'Bearer '}}\n",
	})
	log := &spoken{}
	n := w.node(t.TempDir())
	n.log = zerolog.New(log).Level(zerolog.TraceLevel)
	n.providers.make = func(doc *policy.Adapter) (adapter.Adapter, error) {
		return adapters.New(doc, adapters.Deps{Log: n.log})
	}
	// Between the doubtful ones some that are not, so that the breaker stays closed.
	modes := []string{"accept", "lose-answer", "accept", "execute-500", "accept", "half-body", "accept", "reject", "answer-401", "accept"}
	hour := 0
	for _, name := range modes {
		mode, err := providersim.ParseMode(name)
		if err != nil {
			continue // not every provider has it
		}
		must(t, w.sim.Set(providersim.Rule{Mode: mode, Key: w.keyOf(member, hour).String(), Nth: 1}))
		hour++
	}
	n.start()
	for n := range hour {
		w.sold(member, n, 250)
		eventually(t, func() string {
			if r := w.now(w.keyOf(member, n)); r == nil || r.State == effect.Prepared || r.State == effect.Dispatching {
				return "the effect was not sent yet"
			}
			return ""
		})
	}
	w.sold(member, 0, 40)
	w.await(w.keyOf(member, 0), effect.CompensationRequired)
	if hour < 6 {
		t.Errorf("only %d modes were tried", hour)
	}
	must(t, n.stop())

	p := w.process(t.TempDir())
	var answers strings.Builder
	eventually(t, func() string {
		code, body := p.get(t, "/v1/streams/"+w.name+"/effects?state=COMPENSATION_REQUIRED")
		answers.WriteString(body)
		if code != http.StatusOK || !strings.Contains(body, w.keyOf(member, 0).String()) {
			return body
		}
		return ""
	})
	for _, path := range []string{"/effects/" + w.keyOf(member, 0).String(), "/effects/" + w.keyOf(member, 1).String(), "/effector"} {
		_, body := p.get(t, "/v1/streams/"+w.name+path)
		answers.WriteString(body)
	}
	forged := httptest.NewRequest(http.MethodPost, p.http.URL+"/receipts/"+w.name+"/"+w.name+"-api", strings.NewReader(`{"account":"`+member+`"}`))
	forged.RequestURI = ""
	res, err := http.DefaultClient.Do(forged)
	must(t, err)
	var refused bytes.Buffer
	_, err = refused.ReadFrom(res.Body)
	must(t, err)
	must(t, res.Body.Close())

	if !strings.Contains(log.String(), "answered") {
		t.Fatal("nothing was logged of the answers")
	}
	for where, text := range map[string]string{"the log": log.String(), "the API": answers.String(), "a refused receipt": refused.String(), "the problems": strings.Join(p.Problems(), " ")} {
		secrets := []string{receipts, strings.TrimPrefix(receipts, "whsec_"), "receipts-secret-of-24-by"}
		if where != "the API" { // which shows an operator what is approved
			secrets = append(secrets, member)
		}
		for _, secret := range append(secrets, "Bearer "+token) {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("%s has %q: %s", where, secret, text[max(0, i-200):min(len(text), i+80)])
			}
		}
	}
}

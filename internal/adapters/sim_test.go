package adapters

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/providersim"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adapter"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// simulate starts a simulator in a mode, and an adapter to it.
func simulate(t *testing.T, settings providersim.Settings, mode string) (*providersim.Sim, *policy.Adapter, adapter.Adapter) {
	t.Helper()
	mix, err := providersim.ParseMix(mode)
	if err != nil {
		t.Fatal(err)
	}
	sim, err := providersim.Start(providersim.Options{Log: filepath.Join(t.TempDir(), "sim.ndjson"), Settings: settings, Mix: mix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := sim.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	doc := document(t, `kind: Adapter
name: rewards-api
version: 1
type: http
url: `+sim.URL()+`/v1/issue
allow: [127.0.0.0/8]
idempotency: {header: Idempotency-Key, retention: 24h, basis: firstSeen, onBodyMismatch: error}
evidence: {key: /effectKey, amount: /amount, subject: /subject, ref: /id}
query: {url: '`+sim.URL()+`/v1/by-ref/{effectKey}', absent: [{status: 404, code: not_found}], absence: authoritative, lateArrivalBound: 10m}
reject: [{status: 422, code: account_closed}]
throttle: [{status: 429, code: throttled}]
inFlight: [{status: 409, code: in_flight}]
receipts: {secretFile: /run/secrets/receipts}
`)
	return sim, doc, mustNew(t, doc, Deps{})
}

func TestTheSimulatorsAnswersAreClassified(t *testing.T) {
	for mode, want := range map[string]struct {
		class effect.Class
		found uint32
	}{
		"accept":      {effect.Executed, 1},
		"execute-201": {effect.Executed, 1},
		"lose-answer": {effect.Ambiguous, 1},
		"execute-500": {effect.Ambiguous, 1},
		"execute-502": {effect.Ambiguous, 1},
		"redirect":    {effect.Ambiguous, 1},
		"half-body":   {effect.Ambiguous, 1},
		"garbage":     {effect.Ambiguous, 1},
		"drop":        {effect.Ambiguous, 0},
		"answer-403":  {effect.Ambiguous, 0},
		"answer-503":  {effect.Ambiguous, 0},
		"pending:10m": {effect.Pending, 0},
		"in-flight":   {effect.InFlight, 0},
		"throttle:7s": {effect.Throttled, 0},
		"reject":      {effect.Refused, 0},
	} {
		t.Run(mode, func(t *testing.T) {
			sim, doc, a := simulate(t, providersim.Settings{}, mode)
			got := a.Send(t.Context(), callTo(doc.URL))
			if got.Class != want.class {
				t.Errorf("the attempt ended as %s (%s); want %s", got.Class, got.Detail, want.class)
			}
			if mode == "throttle:7s" && got.RetryAfter != 7*time.Second {
				t.Errorf("RetryAfter is %s; want 7s", got.RetryAfter)
			}
			if n := len(sim.Executions(someKey.String())); n != int(want.found) {
				t.Errorf("the simulator executed it %d times; want %d", n, want.found)
			}
			f, err := a.Query(t.Context(), adapter.Question{Key: someKey})
			if err != nil || f.Found != want.found {
				t.Errorf("found %d, error %v; want %d", f.Found, err, want.found)
			}
		})
	}
}

func TestSeveralExecutionsOfTheSimulatorAreCounted(t *testing.T) {
	_, doc, a := simulate(t, providersim.Settings{Idempotency: providersim.Idempotency{Off: true}}, "accept")
	for range 3 {
		a.Send(t.Context(), callTo(doc.URL))
	}
	if f, err := a.Query(t.Context(), adapter.Question{Key: someKey}); err != nil || f.Found != 3 {
		t.Errorf("found %d, error %v; want 3", f.Found, err)
	}
}

func TestTheSimulatorsReceiptsAreVerified(t *testing.T) {
	secret := whsec(string(signingKey))
	type taken struct {
		receipt *effect.Receipt
		err     error
	}
	arrived := make(chan taken, 8)
	var receipts *Receipts
	ready := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-ready
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		receipt, _, err := receipts.Verify(r.Header, body)
		arrived <- taken{receipt, err}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(server.Close)
	_, doc, a := simulate(t, providersim.Settings{Receipts: providersim.Receipts{URL: server.URL, Secret: secret}}, "lose-answer")
	var err error
	receipts, err = NewReceipts(doc, Deps{Clock: clock.System(), Secrets: secretFiles(map[string]string{"/run/secrets/receipts": secret})})
	if err != nil {
		t.Fatal(err)
	}
	close(ready)
	a.Send(t.Context(), callTo(doc.URL))
	select {
	case got := <-arrived:
		if got.err != nil || got.receipt.Key != someKey {
			t.Errorf("receipt %+v, error %v", got.receipt, got.err)
		}
	case <-time.After(time.Minute):
		t.Error("no receipt arrived")
	}
}

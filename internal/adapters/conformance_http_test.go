package adapters

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adapter"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adaptertest"
)

// httpBench is the provider on HTTP.
type httpBench struct {
	*provider
	server  *httptest.Server
	adapter adapter.Adapter
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

func openHTTP(t *testing.T, s adaptertest.Setup, overTLS bool) *httpBench {
	t.Helper()
	b := &httpBench{provider: newProvider(s.Capabilities)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /issue", b.issue)
	mux.HandleFunc("GET /by-ref/{key}", b.byRef)
	b.server = httptest.NewUnstartedServer(mux)
	b.server.Config.ErrorLog = quiet()
	deps := Deps{Allow: loopback, Secrets: secretFiles(map[string]string{"/run/secrets/token": token + "\n"})}
	if overTLS {
		b.server.StartTLS()
		deps.Roots = b.server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	} else {
		b.server.Start()
	}
	t.Cleanup(b.server.Close)
	var err error
	if b.adapter, err = New(document(t, b.yaml(s)), deps); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.adapter.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *httpBench) yaml(s adaptertest.Setup) string {
	text := fmt.Sprintf(`kind: Adapter
name: rewards-api
version: 1
type: http
url: %[1]s/issue
allow: [127.0.0.0/8]
headers: {Authorization: {secretFile: /run/secrets/token, prefix: "Bearer "}, X-Tenant: shop}
evidence: {key: /ref, amount: /points, subject: /account, ref: /id}
timeout: %[2]s
sendWithin: 10s
reject: [{status: 422, code: account_closed}]
throttle: [{status: 429}]
inFlight: [{status: 409, code: in_flight}]
bodyMismatch: [{status: 409, code: key_reused}]
`, b.server.URL, s.Timeout)
	if s.Idempotent {
		text += "idempotency: {header: Idempotency-Key, retention: 24h, basis: firstSeen, onBodyMismatch: error}\n"
	}
	if s.Query {
		text += "query: {url: '" + b.server.URL + "/by-ref/{effectKey}', list: /executions, absence: authoritative, lateArrivalBound: 10m}\n"
	}
	return text
}

func (b *httpBench) Adapter() adapter.Adapter { return b.adapter }

func (b *httpBench) Scope() effect.Scope { return effect.Scope{URL: b.server.URL + "/issue"} }

func (b *httpBench) Vanish() { b.server.Close() }

// issue answers requests as they were told to be.
func (b *httpBench) issue(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Header.Get("Authorization") != "Bearer "+token || r.Header.Get("X-Tenant") != "shop" || r.Header.Get("Traceparent") == "" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	behaviour, e, held := b.take(body, r.Header.Get("Idempotency-Key"))
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	switch behaviour {
	case adaptertest.LoseAnswer:
		panic(http.ErrAbortHandler)
	case adaptertest.FailAfter:
		w.WriteHeader(http.StatusInternalServerError)
	case adaptertest.Redirect:
		w.Header().Set("Location", b.server.URL+"/issue")
		w.WriteHeader(http.StatusTemporaryRedirect)
	case adaptertest.HoldAnswer:
		select {
		case <-held:
		case <-r.Context().Done():
		}
	case adaptertest.HalfAnswer:
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, e.shown())
		panic(http.ErrAbortHandler)
	case adaptertest.Accept:
		w.WriteHeader(http.StatusAccepted)
	case adaptertest.OtherType:
		w.Header().Set("Content-Type", "text/html")
	case adaptertest.Refuse:
		refuse(w, http.StatusUnprocessableEntity, "account_closed")
		return
	case adaptertest.Throttle:
		w.Header().Set("Retry-After", "999999999")
		refuse(w, http.StatusTooManyRequests, "slow_down")
		return
	case adaptertest.InFlight:
		refuse(w, http.StatusConflict, "in_flight")
		return
	case adaptertest.OtherBytes:
		refuse(w, http.StatusConflict, "key_reused")
		return
	case adaptertest.Unlisted:
		refuse(w, http.StatusUnprocessableEntity, "something_else")
		return
	}
	fmt.Fprint(w, e.answer(behaviour))
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"code":%q,"message":"%s"}`, code, token)
}

func (b *httpBench) byRef(w http.ResponseWriter, r *http.Request) {
	key, err := effect.ParseEffectKey(r.PathValue("key"))
	if err != nil || r.Header.Get("Authorization") != "Bearer "+token {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	behaviour, found := b.query(key)
	w.Header().Set("Content-Type", "application/json")
	switch behaviour {
	case adaptertest.QueryFails:
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, `{"executions":[]}`)
		return
	case adaptertest.QueryBreaks:
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, `{"executions":[]}`)
		panic(http.ErrAbortHandler)
	case adaptertest.QueryOther, adaptertest.QueryMangled:
		found = []execution{{key: key, amount: "1", subject: "a"}}
	}
	list := make([]string, len(found))
	for i, e := range found {
		list[i] = e.answer(behaviour)
	}
	fmt.Fprintf(w, `{"executions":[%s]}`, strings.Join(list, ","))
}

func TestHTTPConformance(t *testing.T) {
	adaptertest.Suite{
		Open:   func(t *testing.T, s adaptertest.Setup) adaptertest.Bench { return openHTTP(t, s, false) },
		Matrix: adaptertest.Matrix(),
		Verify: verifier,
	}.Run(t)
}

func TestHTTPConformanceOverTLS(t *testing.T) {
	adaptertest.Suite{
		Open:   func(t *testing.T, s adaptertest.Setup) adaptertest.Bench { return openHTTP(t, s, true) },
		Matrix: []adaptertest.Capabilities{{Idempotent: true, Query: true}},
	}.Run(t)
}

// verifier answers the verifier of an adapter whose secrets are in one file.
func verifier(t *testing.T, secrets []string, now time.Time) adaptertest.Verify {
	doc := document(t, `kind: Adapter
name: rewards-api
version: 1
type: http
url: https://rewards.example/issue
evidence: {key: /ref}
receipts: {secretFile: /run/secrets/receipts}
`)
	r, err := NewReceipts(doc, Deps{
		Clock:   clock.NewFake(now),
		Secrets: secretFiles(map[string]string{"/run/secrets/receipts": strings.Join(secrets, "\n") + "\n"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.Verify
}

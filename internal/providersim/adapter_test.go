package providersim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/adapters"
	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adapter"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// document answers the adapter of a simulator.
func (b *bench) document(more string) *policy.Adapter {
	b.t.Helper()
	text := strings.ReplaceAll(`
apiVersion: tidemark/v1
kind: Adapter
name: sim@1
type: http
url: URL/v1/issue
allow: [127.0.0.0/8]
idempotency: {header: Idempotency-Key, retention: 24h, onBodyMismatch: error}
evidence: {key: /effectKey, amount: /amount, subject: /subject, ref: /id}
timeout: 300ms
reject: [{status: 422, code: account_closed}]
bodyMismatch: [{status: 422, code: idempotency_mismatch}]
inFlight: [{status: 409, code: in_flight}]
pending: [{status: 202}]
throttle: [{status: 429}]
`+more, "URL", b.URL())
	docs, found := policy.Parse("sim.yaml", []byte(text))
	if len(found) == 0 {
		found = policy.Lint(docs, nil)
	}
	if len(found) > 0 {
		b.t.Fatal(found)
	}
	return docs[0].Adapter
}

const (
	byRef  = "query: {url: 'URL/v1/by-ref/{effectKey}', absence: authoritative, lateArrivalBound: 10m}\n"
	byList = "query: {url: 'URL/v1/executions?effectKey={effectKey}', list: /executions, absence: authoritative, lateArrivalBound: 10m}\n"
)

func (b *bench) adapter(doc *policy.Adapter) adapter.Adapter {
	b.t.Helper()
	a, err := adapters.New(doc, adapters.Deps{Log: zerolog.Nop()})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { a.Close() })
	return a
}

func parsedKey(t *testing.T, n int) effect.EffectKey {
	t.Helper()
	key, err := effect.ParseEffectKey(keyOf(n))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (b *bench) call(doc *policy.Adapter, n, amount int) adapter.Call {
	b.t.Helper()
	return adapter.Call{
		Key: parsedKey(b.t, n), Attempt: 1, EffectType: "grant", Scope: effect.Scope{URL: doc.URL},
		Payload: fmt.Appendf(nil, `{"amount":"%d","effectKey":%q,"subject":"ana"}`, amount, keyOf(n)),
		Expect:  effect.Expectation{Amount: fmt.Sprint(amount), Subject: "ana"},
		MaySend: func() bool { return true },
	}
}

func (b *bench) asked(a adapter.Adapter, doc *policy.Adapter, n int) (adapter.Finding, error) {
	b.t.Helper()
	return a.Query(b.deadline(), adapter.Question{Key: parsedKey(b.t, n), Scope: effect.Scope{URL: doc.URL}, Expect: effect.Expectation{Amount: "10", Subject: "ana"}})
}

// What an adapter makes of each mode, beside what the provider did: an answer that is
// called executed or refused is true, the lie of do-nothing aside.
func TestAnAdapterCallsEveryModeWhatItIs(t *testing.T) {
	for _, c := range []struct {
		mode     string
		class    effect.Class
		executed int
		found    uint32
	}{
		{"accept", effect.Executed, 1, 1},
		{"execute-201", effect.Executed, 1, 1},
		{"lose-answer", effect.Ambiguous, 1, 1},
		{"execute-500", effect.Ambiguous, 1, 1},
		{"execute-502", effect.Ambiguous, 1, 1},
		{"execute-404", effect.Ambiguous, 1, 1},
		{"redirect", effect.Ambiguous, 1, 1},
		{"half-body", effect.Ambiguous, 1, 1},
		{"garbage", effect.Ambiguous, 1, 1},
		{"delay:1h", effect.Ambiguous, 1, 1},
		{"forget:1h", effect.Ambiguous, 1, 1},
		{"hide:1h", effect.Ambiguous, 1, 0},
		{"hold:1h", effect.Ambiguous, 0, 0},
		{"pending:1h", effect.Pending, 0, 0},
		{"drop", effect.Ambiguous, 0, 0},
		{"answer-500", effect.Ambiguous, 0, 0},
		{"answer-302", effect.Ambiguous, 0, 0},
		{"in-flight", effect.InFlight, 0, 0},
		{"throttle:30s", effect.Throttled, 0, 0},
		{"reject", effect.Refused, 0, 0},
		{"do-nothing", effect.Executed, 0, 0},
	} {
		t.Run(c.mode, func(t *testing.T) {
			for _, query := range []string{byRef, byList} {
				b := start(t, Options{Mix: Mix{{mode(t, c.mode), 1}}})
				doc := b.document(query)
				a := b.adapter(doc)
				answer := a.Send(b.deadline(), b.call(doc, 1, 10))
				if answer.Class != c.class {
					t.Errorf("it is called %s (%s), want %s", answer.Class, answer.Detail, c.class)
				}
				if c.mode == "throttle:30s" && answer.RetryAfter != 30*time.Second {
					t.Errorf("it is to be left alone for %v", answer.RetryAfter)
				}
				if b.Requests(keyOf(1)) != 1 {
					t.Errorf("%d requests of one attempt", b.Requests(keyOf(1)))
				}
				b.executed(keyOf(1), c.executed)
				if f, err := b.asked(a, doc, 1); err != nil || f.Found != c.found {
					t.Errorf("the query finds %d, %v", f.Found, err)
				}
			}
		})
	}
}

func TestAnAdapterSeesWhatIsHiddenOrHeldOnceItIsThere(t *testing.T) {
	for _, text := range []string{"hide:1h", "hold:1h", "pending:1h"} {
		b := start(t, Options{Mix: Mix{{mode(t, text), 1}}})
		doc := b.document(byRef)
		a := b.adapter(doc)
		a.Send(b.deadline(), b.call(doc, 1, 10))
		if f, err := b.asked(a, doc, 1); err != nil || f.Found != 0 {
			t.Errorf("%s: at first %d are found, %v", text, f.Found, err)
		}
		b.fake.Advance(time.Hour)
		if err := b.AwaitExecutions(b.deadline(), keyOf(1), 1); err != nil {
			t.Fatal(err)
		}
		f, err := b.asked(a, doc, 1)
		if err != nil || f.Found != 1 || f.Evidence.Amount != "10" || f.Evidence.Subject != "ana" || f.Evidence.Ref == "" || f.Evidence.Key.String() != keyOf(1) {
			t.Errorf("%s: then %+v, %v", text, f, err)
		}
	}
}

func TestAnAdapterUnderKnownKeys(t *testing.T) {
	for _, c := range []struct {
		rule     string
		others   effect.Class
		amount   string // that the answer to other bytes names
		executed int
	}{
		{"error", effect.OtherBytes, "", 1},
		{"replay", effect.Executed, "10", 1}, // names the first amount, which proves nothing of the second
		{"ignore", effect.Executed, "99", 1}, // nobody could tell
		{"execute", effect.Executed, "99", 2},
	} {
		t.Run(c.rule, func(t *testing.T) {
			b := start(t, Options{Settings: Settings{Idempotency: Idempotency{OnBodyMismatch: c.rule}}})
			doc := b.document(byList)
			a := b.adapter(doc)
			a.Send(b.deadline(), b.call(doc, 1, 10))
			if again := a.Send(b.deadline(), b.call(doc, 1, 10)); again.Class != effect.Executed {
				t.Errorf("the same bytes are called %s", again.Class)
			}
			if others := a.Send(b.deadline(), b.call(doc, 1, 99)); others.Class != c.others || others.Evidence.Amount != c.amount {
				t.Errorf("other bytes are called %s with amount %s (%s)", others.Class, others.Evidence.Amount, others.Detail)
			}
			b.executed(keyOf(1), c.executed)
			if f, err := b.asked(a, doc, 1); err != nil || f.Found != uint32(c.executed) {
				t.Errorf("%d are found, %v", f.Found, err)
			}
		})
	}
}

// A provider that executed twice is never reported as one that executed once.
func TestAnAdapterIsNotFooledByTwoExecutions(t *testing.T) {
	b := start(t, Options{Settings: Settings{Idempotency: Idempotency{Off: true}}})
	b.issue(keyOf(1))
	b.issue(keyOf(1))
	for _, query := range []string{byRef, byList} {
		doc := b.document(query)
		if f, err := b.asked(b.adapter(doc), doc, 1); err != nil || f.Found != 2 {
			t.Errorf("%s finds %d, %v", query, f.Found, err)
		}
	}
}

func TestFailedQueriesAreNoAbsence(t *testing.T) {
	for _, text := range []string{"answer-500", "answer-302", "garbage", "drop", "delay:1h", "throttle"} {
		b := start(t, Options{QueryMix: Mix{{mode(t, text), 1}}})
		doc := b.document(byRef)
		if f, err := b.asked(b.adapter(doc), doc, 1); err == nil {
			t.Errorf("%s: learned that there are %d", text, f.Found)
		}
	}
}

// Before the first byte, a no is a no: nothing arrives.
func TestAnAdapterThatMayNotSendSendsNothing(t *testing.T) {
	b := start(t, Options{})
	doc := b.document("")
	call := b.call(doc, 1, 10)
	call.MaySend = func() bool { return false }
	if answer := b.adapter(doc).Send(b.deadline(), call); answer.Class != effect.NotSent {
		t.Errorf("it is called %s", answer.Class)
	}
	a := b.adapter(doc)
	b.close()
	if answer := a.Send(b.deadline(), b.call(doc, 1, 10)); answer.Class != effect.NotSent {
		t.Errorf("nobody listens: it is called %s (%s)", answer.Class, answer.Detail)
	}
	if b.Requests(keyOf(1)) != 0 {
		t.Error("a request arrived")
	}
}

// Receipts pass the verification that the effector makes, and only with the right secret.
func TestReceiptsAreVerified(t *testing.T) {
	var mu sync.Mutex
	var taken *effect.Receipt
	var digest revision.Digest
	var refused error
	var right, wrong *adapters.Receipts
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			refused = err
			return
		}
		if taken, digest, err = right.Verify(r.Header, body); err != nil {
			refused = err
		}
		if _, _, err := wrong.Verify(r.Header, body); !errors.Is(err, adapters.ErrUnsigned) {
			refused = fmt.Errorf("another secret: %v", err)
		}
	}))
	defer server.Close()
	b := start(t, Options{Clock: clock.System(), Settings: Settings{Receipts: Receipts{URL: server.URL, Secret: secret}}})
	doc := b.document("receipts: {secretFile: /secret}\n")
	mu.Lock()
	for into, text := range map[**adapters.Receipts]string{&right: secret, &wrong: "whsec_" + strings.Repeat("B", 32)} {
		made, err := adapters.NewReceipts(doc, adapters.Deps{Secrets: func(string) ([]byte, error) { return []byte(text), nil }})
		if err != nil {
			t.Fatal(err)
		}
		*into = made
	}
	mu.Unlock()
	if answer := b.adapter(doc).Send(context.Background(), b.call(doc, 1, 10)); answer.Class != effect.Executed {
		t.Fatalf("it is called %s (%s)", answer.Class, answer.Detail)
	}
	if err := b.AwaitReceipts(b.deadline()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if refused != nil || taken == nil || taken.Key.String() != keyOf(1) || digest.IsZero() {
		t.Errorf("taken %+v, refused %v", taken, refused)
	}
}

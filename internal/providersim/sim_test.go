package providersim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/clock"
)

var morning = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

// bench is a simulator and a client that never repeats a request by itself.
type bench struct {
	*Sim
	t      *testing.T
	fake   *clock.Fake
	log    string
	client *http.Client
}

// reply is what the client saw: an error where the answer was lost.
type reply struct {
	status   int
	header   http.Header
	body     []byte
	readErr  error // the body broke off
	lost     error // no answer at all
	members  map[string]any
	replayed bool
}

func (r reply) code() string {
	code, _ := r.members["code"].(string)
	return code
}

func start(t *testing.T, o Options) *bench {
	t.Helper()
	if o.Log == "" {
		o.Log = filepath.Join(t.TempDir(), "sim.ndjson")
	}
	fake, _ := o.Clock.(*clock.Fake)
	if o.Clock == nil {
		fake = clock.NewFake(morning)
		o.Clock = fake
	}
	s, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{Sim: s, t: t, fake: fake, log: o.Log, client: &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	t.Cleanup(func() { b.close() })
	return b
}

func (b *bench) close() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		b.t.Error(err)
	}
}

// reopen ends the simulator and starts another one on its log, later by d.
func (b *bench) reopen(d time.Duration, s Settings) *bench {
	b.t.Helper()
	b.close()
	b.fake.Advance(d)
	return start(b.t, Options{Log: b.log, Clock: b.fake, Settings: s})
}

func (b *bench) deadline() context.Context {
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	b.t.Cleanup(cancel)
	return ctx
}

func keyOf(n int) string { return fmt.Sprintf("%064x", n) }

// send issues an action; amount makes the body differ.
func (b *bench) send(ctx context.Context, key string, amount int) reply {
	b.t.Helper()
	body := fmt.Sprintf(`{"effectKey":%q,"amount":%d,"subject":"ana"}`, key, amount)
	return b.do(ctx, http.MethodPost, "/v1/issue", body, "Idempotency-Key", key, "Tidemark-Attempt", "1", "Authorization", "Bearer s3cret")
}

func (b *bench) issue(key string) reply { b.t.Helper(); return b.send(b.deadline(), key, 10) }

func (b *bench) get(path string) reply {
	b.t.Helper()
	return b.do(b.deadline(), http.MethodGet, path, "")
}

func (b *bench) do(ctx context.Context, method, path, body string, headers ...string) reply {
	b.t.Helper()
	q, err := http.NewRequestWithContext(ctx, method, b.URL()+path, strings.NewReader(body))
	if err != nil {
		b.t.Error(err)
		return reply{lost: err}
	}
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	response, err := b.client.Do(q)
	if err != nil {
		return reply{lost: err}
	}
	defer response.Body.Close()
	r := reply{status: response.StatusCode, header: response.Header, replayed: response.Header.Get("Idempotent-Replayed") == "true"}
	r.body, r.readErr = io.ReadAll(response.Body)
	json.Unmarshal(r.body, &r.members) // some modes answer no JSON
	return r
}

func (b *bench) set(r Rule) {
	b.t.Helper()
	if err := b.Set(r); err != nil {
		b.t.Fatal(err)
	}
}

func mode(t *testing.T, text string) Mode {
	t.Helper()
	m, err := ParseMode(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// executed checks the number of executions in memory and in the file.
func (b *bench) executed(key string, want int) {
	b.t.Helper()
	if got := len(b.Executions(key)); got != want {
		b.t.Errorf("%d executions of %s, want %d", got, key, want)
	}
	records, err := ReadLog(b.log)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range Judge(records) {
		if c.EffectKey == key {
			if c.Executions != want {
				b.t.Errorf("the log has %d executions of %s, want %d", c.Executions, key, want)
			}
			return
		}
	}
	if want != 0 {
		b.t.Errorf("the log does not name %s", key)
	}
}

// Modes that answer at once: what the caller sees, what was done, what a query finds.
func TestModesAnswerAndExecute(t *testing.T) {
	for _, c := range []struct {
		mode     string
		executed int
		found    int // status of the query
		ok       func(r reply) bool
	}{
		{"accept", 1, 200, func(r reply) bool { return r.status == 200 && r.members["effectKey"] == keyOf(1) }},
		{"lose-answer", 1, 200, func(r reply) bool { return r.lost != nil }},
		{"execute-500", 1, 200, func(r reply) bool { return r.status == 500 && r.members["effectKey"] == nil }},
		{"execute-502", 1, 200, func(r reply) bool { return r.status == 502 }},
		{"execute-201", 1, 200, func(r reply) bool { return r.status == 201 && r.members["effectKey"] == keyOf(1) }},
		{"redirect", 1, 200, func(r reply) bool { return r.status == 307 && r.header.Get("Location") == "/v1/issue" }},
		{"half-body", 1, 200, func(r reply) bool {
			return r.status == 200 && errors.Is(r.readErr, io.ErrUnexpectedEOF) && len(r.body) > 0
		}},
		{"garbage", 1, 200, func(r reply) bool { return r.status == 200 && r.members == nil }},
		{"hide:1m", 1, 404, func(r reply) bool { return r.lost != nil }},
		{"forget:1m", 1, 200, func(r reply) bool { return r.lost != nil }},
		{"do-nothing", 0, 404, func(r reply) bool { return r.status == 200 && r.members["effectKey"] == keyOf(1) }},
		{"drop", 0, 404, func(r reply) bool { return r.lost != nil }},
		{"answer-500", 0, 404, func(r reply) bool { return r.status == 500 }},
		{"answer-302", 0, 404, func(r reply) bool { return r.status == 302 }},
		{"in-flight", 0, 404, func(r reply) bool { return r.status == 409 && r.code() == "in_flight" }},
		{"throttle", 0, 404, func(r reply) bool { return r.status == 429 && r.header.Get("Retry-After") == "" }},
		{"throttle:30s", 0, 404, func(r reply) bool { return r.status == 429 && r.header.Get("Retry-After") == "30" }},
		{"reject", 0, 404, func(r reply) bool { return r.status == 422 && r.code() == "account_closed" }},
	} {
		t.Run(c.mode, func(t *testing.T) {
			b := start(t, Options{Mix: Mix{{mode(t, c.mode), 1}}})
			if r := b.issue(keyOf(1)); !c.ok(r) {
				t.Errorf("the caller saw %+v, body %s", r, r.body)
			}
			b.executed(keyOf(1), c.executed)
			if q := b.get("/v1/by-ref/" + keyOf(1)); q.status != c.found {
				t.Errorf("the query answers %d %s, want %d", q.status, q.body, c.found)
			}
		})
	}
}

func TestAnExecutionIsRecordedWithWhatTellsItApart(t *testing.T) {
	b := start(t, Options{Settings: Settings{Fields: Fields{Amount: "/data/points", Subject: "/account"}}})
	r := b.do(b.deadline(), http.MethodPost, "/v1/issue", `{"account":"ana","data":{"points":"12.50"},"effectKey":"`+keyOf(1)+`"}`,
		"Idempotency-Key", keyOf(1), "Tidemark-Attempt", "2", "Traceparent", "00-a-b-01", "Authorization", "Bearer s3cret")
	if r.status != 200 || r.members["account"] != "ana" || fmt.Sprint(r.members["data"]) != "map[points:12.50]" {
		t.Errorf("answered %d %s", r.status, r.body)
	}
	records, err := ReadLog(b.log)
	if err != nil || len(records) != 1 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	x := records[0]
	if x.Kind != Execution || !x.Time.Equal(morning) || x.EffectKey != keyOf(1) || x.IdempotencyKey != keyOf(1) || len(x.BodyDigest) != 64 ||
		text(x.Amount) != "12.50" || text(x.Subject) != "ana" || x.Mode != Accept || x.Headers["Tidemark-Attempt"] != "2" || x.Headers["Traceparent"] != "00-a-b-01" {
		t.Errorf("recorded %+v", x)
	}
	if _, kept := x.Headers["Authorization"]; kept {
		t.Error("a credential is in the log")
	}
}

func TestBodiesWithoutAnEffectKeyAreRefused(t *testing.T) {
	b := start(t, Options{})
	for _, body := range []string{"", "[]", "{}", `{"effectKey":7}`, `{"effectKey":""}`, `{"effectKey":"a"`} {
		if r := b.do(b.deadline(), http.MethodPost, "/v1/issue", body); r.status != 400 || r.code() != "bad_request" {
			t.Errorf("%q is answered %d %s", body, r.status, r.body)
		}
	}
	if len(b.All()) != 0 {
		t.Error("something was executed")
	}
}

func TestAKnownKeyIsAnsweredAgainUntilItIsForgotten(t *testing.T) {
	for _, c := range []struct {
		basis          string
		again, expired time.Duration // since the request before
	}{
		{"firstSeen", 40 * time.Minute, 20 * time.Minute},
		{"completion", 40 * time.Minute, 20 * time.Minute},
		{"lastSeen", 40 * time.Minute, 60 * time.Minute},
	} {
		t.Run(c.basis, func(t *testing.T) {
			b := start(t, Options{Settings: Settings{Idempotency: Idempotency{Retention: Duration(time.Hour), Basis: c.basis}}})
			first := b.issue(keyOf(1))
			b.fake.Advance(c.again)
			second := b.issue(keyOf(1))
			if !second.replayed || second.members["id"] != first.members["id"] {
				t.Errorf("again: %+v", second)
			}
			b.fake.Advance(c.expired - time.Second)
			if third := b.issue(keyOf(1)); !third.replayed {
				t.Errorf("a second before the key is forgotten: %+v", third)
			}
			b.fake.Advance(map[bool]time.Duration{true: time.Hour, false: time.Second}[c.basis == "lastSeen"])
			if fourth := b.issue(keyOf(1)); fourth.replayed || fourth.status != 200 {
				t.Errorf("after the key was forgotten: %+v", fourth)
			}
			b.executed(keyOf(1), 2)
		})
	}
}

func TestAKeyWhoseModeSaysSoIsForgottenEarly(t *testing.T) {
	b := start(t, Options{})
	b.set(Rule{Mode: mode(t, "forget:30s"), Times: 1})
	b.issue(keyOf(1))
	b.fake.Advance(29 * time.Second)
	if r := b.issue(keyOf(1)); !r.replayed {
		t.Errorf("before: %+v", r)
	}
	b = b.reopen(time.Second, Settings{})
	if r := b.issue(keyOf(1)); r.replayed {
		t.Errorf("after: %+v", r)
	}
	b.executed(keyOf(1), 2)
}

func TestAnotherBodyUnderAKnownKey(t *testing.T) {
	for _, c := range []struct {
		rule     string
		status   int
		amount   any // of the second answer
		executed int
	}{
		{"error", 422, nil, 1},
		{"replay", 200, 10.0, 1},
		{"ignore", 200, 99.0, 1},
		{"execute", 200, 99.0, 2},
	} {
		t.Run(c.rule, func(t *testing.T) {
			b := start(t, Options{Settings: Settings{Idempotency: Idempotency{OnBodyMismatch: c.rule}}})
			b.issue(keyOf(1))
			r := b.send(b.deadline(), keyOf(1), 99)
			if r.status != c.status || r.members["amount"] != c.amount || (c.rule == "error") != (r.code() == "idempotency_mismatch") {
				t.Errorf("answered %d %s", r.status, r.body)
			}
			b.executed(keyOf(1), c.executed)
			records, err := ReadLog(b.log)
			if err != nil || Judge(records)[0].Bodies != c.executed {
				t.Errorf("judged as %+v, %v", Judge(records), err)
			}
		})
	}
}

func TestWithoutIdempotencyEveryRequestIsAnAction(t *testing.T) {
	b := start(t, Options{Settings: Settings{Idempotency: Idempotency{Off: true}}})
	b.issue(keyOf(1))
	b.issue(keyOf(1))
	b.executed(keyOf(1), 2)
	q := b.get("/v1/by-ref/" + keyOf(1))
	var list []map[string]any
	if err := json.Unmarshal(q.body, &list); err != nil || len(list) != 2 || list[0]["id"] == list[1]["id"] {
		t.Errorf("the query answers %s", q.body)
	}
}

// A request is held, its caller leaves, the same key is in flight meanwhile, and when it
// is due it is carried out all the same.
func TestAHeldRequestIsCarriedOutAfterItsCallerLeft(t *testing.T) {
	b := start(t, Options{})
	b.set(Rule{Mode: mode(t, "hold:5m"), Times: 1})
	ctx, leave := context.WithCancel(b.deadline())
	gone := make(chan reply, 1)
	go func() { gone <- b.send(ctx, keyOf(1), 10) }()
	if err := b.AwaitHeld(b.deadline(), 1); err != nil {
		t.Fatal(err)
	}
	leave()
	if r := <-gone; r.lost == nil {
		t.Errorf("the caller was answered %+v", r)
	}
	if r := b.issue(keyOf(1)); r.status != 409 {
		t.Errorf("meanwhile: %d %s", r.status, r.body)
	}
	b.executed(keyOf(1), 0)
	if q := b.get("/v1/by-ref/" + keyOf(1)); q.status != 404 {
		t.Errorf("found before it ran: %s", q.body)
	}
	b.fake.Advance(5 * time.Minute)
	if err := b.AwaitExecutions(b.deadline(), keyOf(1), 1); err != nil {
		t.Fatal(err)
	}
	if r := b.issue(keyOf(1)); !r.replayed {
		t.Errorf("afterwards: %+v", r)
	}
	b.executed(keyOf(1), 1)
}

func TestAHeldRequestIsAnsweredToACallerWhoStays(t *testing.T) {
	b := start(t, Options{Mix: Mix{{mode(t, "hold:5m"), 1}}})
	answered := make(chan reply, 1)
	go func() { answered <- b.send(b.deadline(), keyOf(1), 10) }()
	if err := b.AwaitHeld(b.deadline(), 1); err != nil {
		t.Fatal(err)
	}
	b.fake.Advance(5 * time.Minute)
	if r := <-answered; r.status != 200 || r.members["effectKey"] != keyOf(1) {
		t.Errorf("answered %+v", r)
	}
	b.executed(keyOf(1), 1)
}

// What was held when the simulator ended is carried out by the next one, when it is due.
func TestHeldRequestsOutliveARestart(t *testing.T) {
	b := start(t, Options{Mix: Mix{{mode(t, "hold:5m"), 1}}})
	answered := make(chan reply, 1)
	go func() { answered <- b.send(b.deadline(), keyOf(1), 10) }()
	if err := b.AwaitHeld(b.deadline(), 1); err != nil {
		t.Fatal(err)
	}
	b = b.reopen(time.Minute, Settings{})
	if r := <-answered; r.lost == nil {
		t.Errorf("answered %+v", r)
	}
	if r := b.issue(keyOf(1)); r.status != 409 {
		t.Errorf("while it is held: %d %s", r.status, r.body)
	}
	b.fake.Advance(4 * time.Minute)
	if err := b.AwaitExecutions(b.deadline(), keyOf(1), 1); err != nil {
		t.Fatal(err)
	}
	if got := b.issue(keyOf(2)); got.members["id"] == b.Executions(keyOf(1))[0].ID {
		t.Error("an id was given twice")
	}
	b.executed(keyOf(1), 1)
}

func TestPendingIsAcceptedFirstAndCarriedOutLater(t *testing.T) {
	b := start(t, Options{Mix: Mix{{mode(t, "pending:1m"), 1}}})
	if r := b.issue(keyOf(1)); r.status != 202 || r.members["status"] != "processing" {
		t.Errorf("answered %d %s", r.status, r.body)
	}
	b.executed(keyOf(1), 0)
	b.fake.Advance(time.Minute)
	if err := b.AwaitExecutions(b.deadline(), keyOf(1), 1); err != nil {
		t.Fatal(err)
	}
	b.executed(keyOf(1), 1)
}

func TestADelayedAnswerIsToSomethingThatIsDone(t *testing.T) {
	b := start(t, Options{Mix: Mix{{mode(t, "delay:1m"), 1}}})
	answered := make(chan reply, 1)
	go func() { answered <- b.send(b.deadline(), keyOf(1), 10) }()
	if err := b.AwaitExecutions(b.deadline(), keyOf(1), 1); err != nil {
		t.Fatal(err)
	}
	b.fake.AwaitTimers(1)
	select {
	case r := <-answered:
		t.Fatalf("answered at once: %+v", r)
	default:
	}
	b.fake.Advance(time.Minute)
	if r := <-answered; r.status != 200 {
		t.Errorf("answered %+v", r)
	}
}

func TestWhatIsHiddenIsFoundAfterAWhile(t *testing.T) {
	b := start(t, Options{Mix: Mix{{mode(t, "hide:1m"), 1}}})
	b.issue(keyOf(1))
	b.executed(keyOf(1), 1)
	for _, c := range []struct {
		wait          time.Duration
		status, items int
	}{{0, 404, 0}, {59 * time.Second, 404, 0}, {time.Second, 200, 1}} {
		b.fake.Advance(c.wait)
		q := b.get("/v1/by-ref/" + keyOf(1))
		var page Page
		if err := json.Unmarshal(b.get("/v1/executions").body, &page); err != nil {
			t.Fatal(err)
		}
		if q.status != c.status || len(page.Executions) != c.items {
			t.Errorf("%v on: the query answers %d, the list has %d", c.wait, q.status, len(page.Executions))
		}
	}
}

func TestRulesByKeyByNumberAndByTimes(t *testing.T) {
	b := start(t, Options{})
	b.set(Rule{Mode: mode(t, "answer-500"), Every: 3})
	b.set(Rule{Mode: mode(t, "answer-503"), Nth: 5})
	b.set(Rule{Mode: mode(t, "reject"), Key: keyOf(7), Nth: 2})
	b.set(Rule{Mode: mode(t, "throttle"), Key: keyOf(8), Times: 2})
	var got []int
	for _, n := range []int{1, 2, 3, 7, 4, 7, 7, 8, 8, 8} { // the third, sixth and ninth of all would answer 500
		got = append(got, b.issue(keyOf(n)).status)
	}
	if want := "[200 200 500 200 503 422 200 429 429 200]"; fmt.Sprint(got) != want {
		t.Errorf("answered %v, want %s", got, want)
	}
	b.SetMix(nil, 0)
	for range 3 {
		if r := b.issue(keyOf(9)); r.status != 200 {
			t.Errorf("a rule stayed: %d", r.status)
		}
	}
	for _, r := range []Rule{{}, {Mode: Accept, Nth: -1}, {Mode: Accept, Nth: 1, Every: 1}} {
		if b.Set(r) == nil {
			t.Errorf("%+v was taken", r)
		}
	}
}

func TestQueriesHaveModesOfTheirOwn(t *testing.T) {
	b := start(t, Options{})
	b.issue(keyOf(1))
	for _, c := range []struct {
		mode   string
		status int
	}{{"answer-503", 503}, {"garbage", 200}, {"drop", 0}, {"throttle", 429}} {
		if err := b.SetQuery(Rule{Mode: mode(t, c.mode), Times: 1}); err != nil {
			t.Fatal(err)
		}
		if q := b.get("/v1/by-ref/" + keyOf(1)); q.status != c.status || q.members["effectKey"] != nil {
			t.Errorf("%s: answered %d %s", c.mode, q.status, q.body)
		}
	}
	if q := b.get("/v1/by-ref/" + keyOf(1)); q.members["effectKey"] != keyOf(1) {
		t.Errorf("afterwards: %s", q.body)
	}
	if err := b.AwaitQueries(b.deadline(), keyOf(1), 5); err != nil {
		t.Error(err)
	}
	if b.SetQuery(Rule{Mode: mode(t, "lose-answer")}) == nil {
		t.Error("a mode that executes was taken for queries")
	}
}

func TestTheListIsPagedAndHoldsWhatQueriesAnswer(t *testing.T) {
	b := start(t, Options{})
	for n := range 5 {
		b.issue(keyOf(n))
	}
	seen := 0
	for after, pages := 0, 0; ; pages++ {
		var page Page
		if err := json.Unmarshal(b.get(fmt.Sprintf("/v1/executions?limit=2&after=%d", after)).body, &page); err != nil {
			t.Fatal(err)
		}
		for _, x := range page.Executions {
			if x["effectKey"] != keyOf(seen) || x["amount"] != 10.0 || x["subject"] != "ana" {
				t.Errorf("item %d is %v", seen, x)
			}
			seen++
		}
		if after = page.Next; after == 0 {
			if pages != 2 {
				t.Errorf("%d pages behind the first", pages)
			}
			break
		}
	}
	if seen != 5 {
		t.Errorf("%d items", seen)
	}
	var one Page
	if err := json.Unmarshal(b.get("/v1/executions?effectKey="+keyOf(3)).body, &one); err != nil || len(one.Executions) != 1 || one.Executions[0]["effectKey"] != keyOf(3) {
		t.Errorf("of one key: %+v, %v", one, err)
	}
	for _, bad := range []string{"?limit=0", "?limit=x", "?after=-1", "?limit=10001"} {
		if r := b.get("/v1/executions" + bad); r.status != 400 {
			t.Errorf("%s is answered %d", bad, r.status)
		}
	}
}

// The same seed gives a key's requests the same faults, in whatever order keys arrive.
func TestARandomMixDependsOnSeedAndKeyAlone(t *testing.T) {
	mix, err := ParseMix("accept=60,answer-500=20,reject=20")
	if err != nil {
		t.Fatal(err)
	}
	run := func(seed uint64, backwards bool) (statuses map[string]int, counts map[int]int) {
		b := start(t, Options{Mix: mix, Seed: seed})
		statuses, counts = map[string]int{}, map[int]int{}
		for i := range 60 {
			if backwards {
				i = 59 - i
			}
			status := b.issue(keyOf(i)).status
			statuses[keyOf(i)] = status
			counts[status]++
		}
		return statuses, counts
	}
	first, counts := run(1, false)
	second, _ := run(1, true)
	other, _ := run(2, false)
	if fmt.Sprint(first) != fmt.Sprint(second) {
		t.Error("another order gave other faults")
	}
	if fmt.Sprint(first) == fmt.Sprint(other) {
		t.Error("another seed gave the same faults")
	}
	if counts[200] < 20 || counts[500] < 3 || counts[422] < 3 || counts[200]+counts[500]+counts[422] != 60 {
		t.Errorf("the mix gave %v", counts)
	}
}

func TestModesAreReadAsTheyAreWritten(t *testing.T) {
	for _, text := range []string{"accept", "lose-answer", "execute-502", "answer-404", "hold:2m0s", "throttle", "throttle:5s", "hide:1s"} {
		if m, err := ParseMode(text); err != nil || m.String() != text {
			t.Errorf("%q reads as %q, %v", text, m, err)
		}
	}
	for _, text := range []string{"", "acept", "accept:3s", "hold", "hold:", "hold:-1s", "hold:x", "execute", "execute-99", "execute-600", "answer-x", "accept=0", "accept=70000", "accept,"} {
		if m, err := ParseMix(text); err == nil {
			t.Errorf("%q reads as %q", text, m)
		}
	}
	for _, text := range []string{"accept", "accept=3,hold:2s=1"} {
		if m, err := ParseMix(text); err != nil || m.String() != text {
			t.Errorf("%q reads as %q, %v", text, m, err)
		}
	}
}

func TestControlOverHTTP(t *testing.T) {
	b := start(t, Options{})
	put := func(method, path, body string) reply { return b.do(b.deadline(), method, path, body) }
	if r := put("PUT", "/v1/control/mode", `{"mode":"answer-500","seed":3}`); r.status != 200 || r.members["mode"] != "answer-500" {
		t.Errorf("mode: %d %s", r.status, r.body)
	}
	if r := put("POST", "/v1/control/rules", `{"mode":"reject","effectKey":"`+keyOf(2)+`","times":1}`); r.status != 200 || r.members["rules"] == nil {
		t.Errorf("rule: %d %s", r.status, r.body)
	}
	if r := put("PUT", "/v1/control/mode", `{"mode":"answer-503","on":"query"}`); r.status != 200 || r.members["queryMode"] != "answer-503" {
		t.Errorf("query mode: %d %s", r.status, r.body)
	}
	if got := [3]int{b.issue(keyOf(1)).status, b.issue(keyOf(2)).status, b.get("/v1/by-ref/" + keyOf(1)).status}; got != [3]int{500, 422, 503} {
		t.Errorf("answered %v", got)
	}
	if r := put("PUT", "/v1/control/idempotency", `{"retention":"1m","onBodyMismatch":"replay"}`); r.status != 200 {
		t.Errorf("idempotency: %d %s", r.status, r.body)
	}
	put("DELETE", "/v1/control/rules", "")
	put("PUT", "/v1/control/mode", `{"mode":"accept"}`)
	b.issue(keyOf(3))
	b.fake.Advance(time.Minute)
	b.issue(keyOf(3))
	b.executed(keyOf(3), 2)
	var keys struct{ Keys []Count }
	if err := json.Unmarshal(b.get("/v1/keys").body, &keys); err != nil || len(keys.Keys) != 1 || keys.Keys[0].Executions != 2 {
		t.Errorf("keys: %+v, %v", keys, err)
	}
	if r := b.get("/v1/control"); r.members["executions"] != 2.0 || r.members["requests"] != 4.0 {
		t.Errorf("state: %s", r.body)
	}
	for _, c := range [][3]string{
		{"PUT", "/v1/control/mode", `{"mode":"nothing"}`},
		{"PUT", "/v1/control/mode", `{"mode":"accept","on":"mail"}`},
		{"PUT", "/v1/control/mode", `{"mode":"hold:3s","on":"query"}`},
		{"PUT", "/v1/control/mode", `{"mod":"accept"}`},
		{"POST", "/v1/control/rules", `{"nth":1}`},
		{"POST", "/v1/control/rules", `{"mode":"hold:3s","on":"query"}`},
		{"POST", "/v1/control/rules", `{"mode":"accept","on":"mail"}`},
		{"PUT", "/v1/control/idempotency", `{"basis":"never"}`},
		{"PUT", "/v1/control/idempotency", `{"onBodyMismatch":"never"}`},
	} {
		if r := put(c[0], c[1], c[2]); r.status != 400 || r.code() != "bad_request" {
			t.Errorf("%v is answered %d %s", c, r.status, r.body)
		}
	}
}

func TestSettingsThatCannotBeAreRefused(t *testing.T) {
	for _, s := range []Settings{
		{Idempotency: Idempotency{Basis: "x"}},
		{Idempotency: Idempotency{OnBodyMismatch: "x"}},
		{Fields: Fields{Amount: "amount"}},
		{Fields: Fields{Subject: ""}, Receipts: Receipts{URL: "http://127.0.0.1:1"}},
		{Receipts: Receipts{URL: "ftp://x", Secret: secret}},
		{Receipts: Receipts{URL: "http://127.0.0.1:1", Secret: "whsec_AAAA"}},
	} {
		if sim, err := Start(Options{Log: filepath.Join(t.TempDir(), "log"), Settings: s}); err == nil {
			sim.Close(t.Context())
			t.Errorf("%+v was taken", s)
		} else if strings.Contains(err.Error(), "AAAA") {
			t.Errorf("the secret is in the error: %v", err)
		}
	}
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	b := start(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.AwaitExecutions(ctx, keyOf(1), 1); !errors.Is(err, context.Canceled) || !bytes.Contains([]byte(err.Error()), []byte("1 executions of "+keyOf(1))) {
		t.Errorf("ended with %v", err)
	}
	b.issue(keyOf(1))
	if err := errors.Join(b.AwaitExecutions(ctx, keyOf(1), 1), b.AwaitRequests(ctx, keyOf(1), 1)); err != nil {
		t.Errorf("what is there already: %v", err)
	}
	if b.Requests(keyOf(1)) != 1 {
		t.Error("the request was not counted")
	}
}

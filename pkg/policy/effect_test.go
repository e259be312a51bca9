package policy

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const smallEffect = `
kind: EffectPolicy
name: reward
version: 3
stream: orders
job: hourly
effectType: issue-reward
subject: key
when: value.orders > 10
payload: {account: key, points: '7'}
adapter: rewards-api@2
`

const smallAdapter = `
kind: Adapter
name: rewards-api
version: 2
type: http
url: https://rewards.example/v1/issue
idempotency: {header: Idempotency-Key, retention: 24h, onBodyMismatch: error}
evidence: {key: /ref, amount: /points}
timeout: 20s
`

// effects answers all four small documents after edits, in the order policy, adapter,
// stream, job: lines of the first are those of smallEffect, of the second 12 more.
func effects(t testing.TB, edits ...string) []Document {
	t.Helper()
	return parsed(t, effectText(t, edits...))
}

func effectText(t testing.TB, edits ...string) string {
	t.Helper()
	src := smallEffect + "---" + smallAdapter + "---" + smallStream + "---" + smallPolicy
	for i := 0; i < len(edits); i += 2 {
		if !strings.Contains(src, edits[i]) {
			t.Fatalf("no such text: %s", edits[i])
		}
		src = strings.Replace(src, edits[i], edits[i+1], 1)
	}
	return src
}

func designEffects(t testing.TB) []Document {
	t.Helper()
	src, err := os.ReadFile("testdata/effect.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return parsed(t, string(src))
}

func TestParseDesignEffects(t *testing.T) {
	docs := designEffects(t)
	wantPolicy := &EffectPolicy{
		Name: "reward", Version: 3, Stream: "orders", Job: "hourly-revenue", EffectType: "issue-reward", Subject: "key",
		When: `value.revenue >= decimal("10000")`, RequireProvenance: ProvenanceData,
		Payload: []PayloadField{{"account", "key"}, {"month", "window.start"}, {"points", "int(value.revenue) / 100"}},
		Adapter: "rewards-api@2", Airlock: Airlock{AmountField: "points", AmountLimit: "100000", FirstOfGeneration: 10, OlderThan: 48 * Hour},
		Corrections: Corrections{Mode: CorrectManual},
	}
	wantAdapter := &Adapter{
		Name: "rewards-api", Version: 2, Type: AdapterHTTP, URL: "https://rewards.example/v1/issue",
		Idempotency: Idempotency{Header: "Idempotency-Key", Retention: Day, Basis: BasisFirstSeen, OnBodyMismatch: MismatchError},
		Evidence:    EvidenceMap{Key: "/ref", Amount: "/points", Subject: "/account", ExpectAmount: "/points", ExpectSubject: "/account"},
		Query: Query{
			URL: "https://rewards.example/v1/by-ref/{effectKey}", Absent: []AnswerMatch{{Status: 404}},
			Absence: AbsenceAuthoritative, LateArrivalBound: 10 * Minute, For: DefaultQueryFor,
		},
		ReceiptSecrets: "/run/secrets/receipts", Timeout: 20 * Second, SendWithin: 5 * Second, Grace: DefaultGrace, ClockUncertainty: DefaultClockUncertainty,
		Rate: Rate{PerSecond: 50, Concurrency: 8}, Breaker: Breaker{Consecutive: 3, Window: 50, Percent: 5, Cooldown: 30 * Second},
		Retry: Retry{Auto: true, First: 5 * Second, Most: Hour}, Reject: []AnswerMatch{{Status: 422, Code: "account_closed", At: "/code"}},
	}
	if !reflect.DeepEqual(docs[0].Effect, wantPolicy) {
		t.Errorf("effect policy\n got %+v\nwant %+v", docs[0].Effect, wantPolicy)
	}
	if !reflect.DeepEqual(docs[1].Adapter, wantAdapter) {
		t.Errorf("adapter\n got %+v\nwant %+v", docs[1].Adapter, wantAdapter)
	}
	if docs[0].Line != 1 || docs[1].Line != 15 {
		t.Errorf("lines %d and %d", docs[0].Line, docs[1].Line)
	}
	if docs[0].Name() != "orders/reward@3" || docs[0].BusinessStream() != "orders" || docs[1].Name() != "rewards-api@2" || docs[1].BusinessStream() != "" {
		t.Errorf("names %s, %s", docs[0].Name(), docs[1].Name())
	}
	if found := Lint(append(docs, design(t)...), nil); len(found) > 0 {
		t.Errorf("lint: %v", found)
	}
	for i, want := range []string{"3dafd278548e97b6e58156e9621c1d0a472e946351db7d4086ae2fd950cde6d0", "ed74f375f90bf82eaeb89d00fdf386e42751506b0c712098e075db12aa2ebaee"} {
		if got := docs[i].Digest(); got != want {
			t.Errorf("digest of %s is %s, want %s", docs[i].Name(), got, want)
		}
		again(t, docs[i])
	}
}

func TestFormsOfOneEffectDocument(t *testing.T) {
	want := effects(t)
	for _, change := range [][2]string{
		{"name: reward\nversion: 3", "name: reward@3"},
		{"adapter: rewards-api@2", "adapter: {version: 2, name: rewards-api}"},
		{"adapter: rewards-api@2", "adapter: rewards-api@2\ncorrections: {mode: manual}\nrequireProvenance: any\nairlock: {}"},
		{"adapter: rewards-api@2", "adapter: rewards-api@2\nairlock: {firstOfGeneration: 0}\nschema: effectPolicy.v1\napiVersion: tidemark/v1"},
		{"{account: key, points: '7'}", "{points: 7, account: ' key '}"},
		{"name: rewards-api\nversion: 2", "name: rewards-api@2"},
		{"amount: /points}", "amount: {answer: /points}}"},
		{"amount: /points}", "amount: {payload: /points, answer: /points}}"},
		{"timeout: 20s", "sendWithin: 5000ms\ngrace: 30s\nclockUncertainty: 5s\nrate: {}\nbreaker: {}\nretry: auto\nsendUnproven: false"},
		{"timeout: 20s", "retry: {mode: auto, first: 5s, most: 60m}\nbreaker: {consecutive: 3, percent: 5}\nrate: {concurrency: 4}"},
		{"retention: 24h", "basis: firstSeen, retention: 1d"},
	} {
		got := effects(t, change[0], change[1])
		for i := range want {
			if got[i].Digest() != want[i].Digest() {
				t.Errorf("%s: other document %s", change[1], got[i].Canonical())
			}
		}
	}
	for given, want := range map[string]string{"100": "100", "'99.50'": "99.5", "'0.00'": "0", "'-0'": "0", "'-5.0'": "-5", "'1000'": "1000"} {
		got := effects(t, "adapter: rewards-api@2", "adapter: rewards-api@2\nairlock: {amountAbove: {field: points, limit: "+given+"}}")
		if got[0].Effect.Airlock.AmountLimit != want {
			t.Errorf("limit %s is read as %s", given, got[0].Effect.Airlock.AmountLimit)
		}
	}
}

func TestEveryFieldOfEffectDocumentsIsInTheDigest(t *testing.T) {
	docs := effects(t)
	seen := map[string]string{docs[0].Digest(): "policy", docs[1].Digest(): "adapter"}
	policyField := func(text string) [2]string {
		return [2]string{"adapter: rewards-api@2", "adapter: rewards-api@2\n" + text}
	}
	adapterField := func(text string) [2]string { return [2]string{"timeout: 20s", "timeout: 20s\n" + text} }
	for _, change := range [][2]string{
		{"name: reward\n", "name: bonus\n"},
		{"version: 3", "version: 4"},
		{"stream: orders\njob: hourly\neffectType", "stream: order\njob: hourly\neffectType"},
		{"job: hourly\neffectType", "job: daily\neffectType"},
		{"issue-reward", "issue-bonus"},
		{"subject: key", "subject: '\"a\"'"},
		{"> 10", "> 11"},
		{"account: key", "account: '\"k\"'"},
		{"account: key", "customer: key"},
		{"adapter: rewards-api@2", "adapter: rewards-api@3"},
		policyField("requireProvenance: DATA"), policyField("airlock: {amountAbove: {field: points, limit: 1}}"), policyField("airlock: {amountAbove: {field: points, limit: 2}}"),
		policyField("airlock: {firstOfGeneration: 1}"), policyField("airlock: {windowOlderThan: 1h}"), policyField("corrections: compensate"), policyField("corrections: adjust"),
		policyField("corrections: {mode: adjust, payload: {a: key}}"), policyField("corrections: {mode: adjust, adapter: undo@1}"),
		{"name: rewards-api\n", "name: other-api\n"},
		{"version: 2", "version: 9"},
		{"type: http", "type: nats"},
		{"/v1/issue", "/v2/issue"},
		{"Idempotency-Key", "X-Key"},
		{"retention: 24h", "retention: 25h"},
		{"onBodyMismatch: error", "onBodyMismatch: replay"},
		{"retention: 24h", "retention: 24h, basis: lastSeen"},
		{"key: /ref", "key: /key"},
		{"amount: /points", "amount: /amount"},
		{"amount: /points", "amount: {answer: /points, payload: /p}"},
		{"amount: /points", "subject: /points"},
		{"amount: /points", "ref: /points"},
		{"timeout: 20s", "timeout: 21s"},
		adapterField("subject: a.b"), adapterField("account: a"), adapterField("environment: a"), adapterField("allow: [10.0.0.0/8]"), adapterField("allow: [10.0.0.0/8, 'fd00::/8']"),
		adapterField("headers: {X-A: b}"), adapterField("headers: {X-A: c}"), adapterField("headers: {X-A: {secretFile: /c}}"), adapterField("headers: {X-A: {secretFile: /c, prefix: d}}"),
		adapterField("query: {url: 'https://a/{effectKey}'}"), adapterField("query: {url: 'https://a/{effectKey}', list: /a}"), adapterField("query: {url: 'https://a/{effectKey}', absent: [{status: 410}]}"),
		adapterField("query: {url: 'https://a/{effectKey}', absence: authoritative}"), adapterField("query: {url: 'https://a/{effectKey}', lateArrivalBound: 1s}"), adapterField("query: {url: 'https://a/{effectKey}', for: 1s}"), adapterField("query: {subject: a}"),
		adapterField("receipts: {secretFile: /a}"), adapterField("sendWithin: 6s"), adapterField("grace: 6s"), adapterField("clockUncertainty: 6s"), adapterField("rate: {perSecond: 1}"), adapterField("rate: {concurrency: 1}"),
		adapterField("breaker: {consecutive: 9}"), adapterField("breaker: {window: 9}"), adapterField("breaker: {percent: 9}"), adapterField("breaker: {cooldown: 9s}"),
		adapterField("retry: manual"), adapterField("retry: {mode: auto, first: 9s}"), adapterField("retry: {mode: auto, most: 9s}"), adapterField("sendUnproven: true"),
		adapterField("reject: [{status: 422}]"), adapterField("throttle: [{status: 422}]"), adapterField("inFlight: [{status: 422}]"), adapterField("bodyMismatch: [{status: 422}]"), adapterField("pending: [{status: 422}]"),
		adapterField("reject: [{status: 422, code: a}]"), adapterField("reject: [{status: 422, code: a, at: /b}]"), adapterField("reject: [{code: a}]"),
	} {
		changed := 0
		for i, doc := range effects(t, change[0], change[1])[:2] {
			if doc.Digest() == docs[i].Digest() {
				continue
			}
			changed++
			if other, had := seen[doc.Digest()]; had {
				t.Errorf("%q has the digest of %q", change[1], other)
			}
			seen[doc.Digest()] = change[1]
			if len(Differing(docs[i], doc)) == 0 {
				t.Errorf("%q: Differing names no field", change[1])
			}
			again(t, doc)
		}
		if changed != 1 {
			t.Errorf("%q changed %d digests, want 1", change[1], changed)
		}
	}
}

func TestParseRefusesInEffectDocuments(t *testing.T) {
	policyField := func(text string) [2]string {
		return [2]string{"adapter: rewards-api@2", "adapter: rewards-api@2\n" + text}
	}
	adapterField := func(text string) [2]string { return [2]string{"timeout: 20s", "timeout: 20s\n" + text} }
	for _, tt := range []struct {
		change     [2]string
		line       int
		rule, says string
	}{
		{policyField("color: red"), 12, "unknown-field", "color"},
		{[2]string{"when:", "wen:"}, 9, "unknown-field", "did you mean when?"},
		{[2]string{"name: reward\n", "name: reward@2\n"}, 4, "duplicate-field", "version is said twice"},
		{[2]string{"version: 3\n", ""}, 3, "missing-field", "name: reward@1"},
		{[2]string{"adapter: rewards-api@2", "adapter: rewards-api"}, 11, "bad-name", "rewards-api@1"},
		{[2]string{"adapter: rewards-api@2", "adapter: rewards-api@99999999999"}, 11, "bad-name", "version"},
		{[2]string{"subject: key", "subject: ''"}, 8, "bad-value", "CEL"},
		{[2]string{"subject: key", "subject: [key]"}, 8, "wrong-type", "text"},
		{[2]string{"subject: key", "subject: '" + strings.Repeat("k", MaxExpression+1) + "'"}, 8, "expression-too-long", "4096"},
		{[2]string{"account: key", "effectkey: key"}, 10, "payload-effect-key", "by itself"},
		{[2]string{"account: key", "a b: key"}, 10, "bad-name", "a b"},
		{[2]string{"account: key", "Points: key"}, 10, "duplicate-field", "only in case"},
		{policyField("airlock: {windowOlderThan: 0s}"), 12, "bad-value", "48h"},
		{policyField("airlock: {amountAbove: {field: points, limit: 1.5}}"), 12, "wrong-type", "quotes"},
		{policyField("airlock: {amountAbove: {field: points, limit: '1e5'}}"), 12, "bad-value", "decimal"},
		{policyField("airlock: {amountAbove: {limit: 1}}"), 12, "missing-field", "field"},
		{policyField("corrections: undo"), 12, "bad-value", "manual"},
		{policyField("requireProvenance: data"), 12, "bad-value", "DATA"},
		{[2]string{"type: http", "type: https"}, 16, "bad-value", "did you mean http?"},
		{[2]string{"onBodyMismatch: error", "basis: firstSeen"}, 18, "missing-field", "onBodyMismatch"},
		{[2]string{"key: /ref, ", ""}, 19, "missing-field", "evidence.key"},
		{[2]string{"key: /ref", "key: ref"}, 19, "bad-pointer", "begin with /"},
		{adapterField("receipts: {}"), 21, "receipts-unsigned", "secretFile"},
		{adapterField("receipts: {secretFile: secrets}"), 21, "bad-value", "absolute path"},
		{adapterField("allow: [10.0.0.1/8]"), 21, "bad-value", "range"},
		{adapterField("allow: [10.0.0.1]"), 21, "bad-value", "range"},
		{adapterField("headers: {'X A': b}"), 21, "bad-name", "header"},
		{adapterField("headers: {X-A: \"a\\nb\"}"), 21, "bad-value", "control"},
		{adapterField("query: {}"), 21, "missing-field", "one of url"},
		{adapterField("query: {url: 'https://a/{effectKey}', subject: a}"), 21, "missing-field", "one of url"},
		{adapterField("reject: [{}]"), 21, "missing-field", "status, a code or both"},
		{adapterField("reject: [{status: 422, at: /code}]"), 21, "bad-value", "code"},
		{adapterField("reject: [{status: 422}, {status: 422}]"), 21, "duplicate-answer", "twice"},
		{adapterField("reject: [{status: 99}]"), 21, "bad-value", "100"},
		{adapterField("retry: always"), 21, "bad-value", "auto"},
		{adapterField("timeout: 5s"), 21, "duplicate-field", "timeout"},
	} {
		_, found := Parse("f.yaml", []byte(effectText(t, tt.change[0], tt.change[1])))
		i := slices.IndexFunc(found, func(f Finding) bool { return f.Rule == tt.rule })
		if i < 0 || found[i].Line != tt.line || !strings.Contains(found[i].Message, tt.says) {
			t.Errorf("%q: got %v, want %s in line %d with %q", tt.change[1], found, tt.rule, tt.line, tt.says)
		}
	}
}

func TestLintRefusesInEffectPolicies(t *testing.T) {
	for _, tt := range []struct {
		rule, says string
		line       int
		edits      []string
	}{
		{"unknown-stream", "did you mean orders?", 5, []string{"stream: orders\njob: hourly\neffectType", "stream: order\njob: hourly\neffectType"}},
		{"unknown-job", "did you mean hourly?", 6, []string{"job: hourly\neffectType", "job: hourl\neffectType"}},
		{"unknown-adapter", "did you mean rewards-api@2?", 11, []string{"adapter: rewards-api@2", "adapter: rewards-api@3"}},
		{"unknown-adapter", "undo@1", 12, []string{"adapter: rewards-api@2", "adapter: rewards-api@2\ncorrections: {mode: adjust, adapter: undo@1, payload: {a: key}}"}},
		{"airlock-unknown-field", "did you mean points?", 12, []string{"adapter: rewards-api@2", "adapter: rewards-api@2\nairlock: {amountAbove: {field: point, limit: 1}}"}},
		{"correction-without-payload", "compensate", 12, []string{"adapter: rewards-api@2", "adapter: rewards-api@2\ncorrections: compensate"}},
		{"correction-without-mode", "manual", 12, []string{"adapter: rewards-api@2", "adapter: rewards-api@2\ncorrections: {mode: manual, payload: {a: key}}"}},
	} {
		found := Lint(effects(t, tt.edits...), nil)
		if len(found) != 1 || found[0].Rule != tt.rule || found[0].Line != tt.line || !strings.Contains(found[0].Message, tt.says) {
			t.Errorf("%s: got %v, want %s in line %d with %q", tt.edits[1], found, tt.rule, tt.line, tt.says)
		}
	}
}

// A version that means another business action would give windows a second effect.
func TestLintKeepsTheIdentityOfEffects(t *testing.T) {
	applied := effects(t)
	for _, tt := range []struct {
		old, with, rule string
		line            int
	}{
		{"when: value.orders > 10", "when: value.orders > 20", "", 0},
		{"adapter: rewards-api@2", "adapter: rewards-api@2\nrequireProvenance: DATA", "", 0},
		{"subject: key", "subject: '\"all\"'", "effect-identity-changed", 8},
		{"job: hourly\neffectType", "job: daily\neffectType", "effect-identity-changed", 6},
		{"issue-reward", "issue-bonus", "effect-identity-changed", 7},
		{"name: reward\n", "name: bonus\n", "effect-type-taken", 7},
	} {
		for _, version := range []string{"version: 4", "version: 2"} {
			next := effects(t, tt.old, tt.with, "version: 3", version)[:1]
			checkIdentity(t, tt.with+" after it is applied", Lint(next, withJob(t, applied, "daily")), tt.rule, tt.line)
		}
		// Both in one file: the one of the two that comes later is refused.
		second := parsed(t, strings.NewReplacer(tt.old, tt.with, "version: 3", "version: 4").Replace(smallEffect))
		checkIdentity(t, tt.with+" beside it", Lint(append(withJob(t, effects(t), "daily"), second...), nil), tt.rule, tt.line)
		checkIdentity(t, tt.with+" before it", Lint(append(slices.Clone(second), withJob(t, effects(t), "daily")...), nil), tt.rule, tt.line)
	}
	other := parsed(t, strings.Replace(smallEffect, "stream: orders", "stream: others", 1))
	for _, f := range Lint(other, applied) {
		if f.Rule != "unknown-stream" {
			t.Errorf("an effect type of another stream: %v", f)
		}
	}
}

func withJob(t *testing.T, docs []Document, job string) []Document {
	t.Helper()
	return append(slices.Clone(docs), parsed(t, strings.Replace(smallPolicy, "job: hourly", "job: "+job, 1))...)
}

func checkIdentity(t *testing.T, what string, found []Finding, rule string, line int) {
	t.Helper()
	if rule == "" && len(found) > 0 || rule != "" && (len(found) != 1 || found[0].Rule != rule || found[0].Line != line) {
		t.Errorf("%s: got %v, want %q in line %d", what, found, rule, line)
	}
}

package effectrule

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// documents are those of the design: a stream, a job, an effect policy and an adapter.
type documents struct {
	all     []policy.Document
	stream  *policy.BusinessStream
	job     *policy.StreamTimePolicy
	effect  *policy.EffectPolicy
	adapter *policy.Adapter
}

// design answers the design's documents after edits: texts and what stands in their place.
func design(t testing.TB, edits ...string) documents {
	t.Helper()
	var src []byte
	for _, file := range []string{"effect.yaml", "design.yaml"} {
		text, err := os.ReadFile("../../pkg/policy/testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		src = append(append(src, text...), "\n---\n"...)
	}
	text := string(src)
	for i := 0; i < len(edits); i += 2 {
		if !strings.Contains(text, edits[i]) {
			t.Fatalf("no such text: %s", edits[i])
		}
		text = strings.Replace(text, edits[i], edits[i+1], 1)
	}
	docs, found := policy.Parse("design.yaml", []byte(text))
	if len(found) > 0 {
		t.Fatal(found)
	}
	out := documents{all: docs}
	for _, d := range docs {
		switch {
		case d.Stream != nil:
			out.stream = d.Stream
		case d.Policy != nil:
			out.job = d.Policy
		case d.Effect != nil:
			out.effect = d.Effect
		case d.Adapter != nil:
			out.adapter = d.Adapter
		}
	}
	return out
}

func compiled(t testing.TB, edits ...string) *Rule {
	t.Helper()
	d := design(t, edits...)
	r, found := Compile(d.effect, d.stream, d.job, d.adapter)
	if len(found) > 0 {
		t.Fatal(found)
	}
	return r
}

func at(t testing.TB, text string) envelope.EventTime {
	t.Helper()
	out, err := envelope.ParseEventTime(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// hour is the revision of the design's vectors with that revenue.
func hour(t testing.TB, revenue string) *revision.Revision {
	return &revision.Revision{
		Stream: "orders", Job: "hourly-revenue", PolicyGeneration: "hourly-revenue@14", Key: "eu-west",
		Window: revision.Window{Start: at(t, "2026-11-30T10:00:00Z"), End: at(t, "2026-11-30T11:00:00Z")},
		Op:     revision.Upsert, Revision: 1,
		Value: []revision.Field{{Name: "orders", Text: "412"}, {Name: "revenue", Text: revenue, Quoted: true}},
	}
}

func key(t testing.TB) effect.EffectKey {
	t.Helper()
	k, err := effect.ParseEffectKey("0cfe61ce6e9ea7be29b0c22a2fd646c020f12201de82bba34cb5017af9f7a613")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestTheDesignsPolicyRewardsAnHour(t *testing.T) {
	d := design(t)
	if found := append(policy.Lint(d.all, nil), Lint(d.all, nil)...); len(found) > 0 {
		t.Fatalf("lint: %v", found)
	}
	r := compiled(t)
	if subject, err := r.Subject("eu-west", hour(t, "1").Window); err != nil || subject != "eu-west" {
		t.Errorf("subject %q, %v", subject, err)
	}
	for revenue, want := range map[string]string{
		"12930.50": `{"account":"eu-west","effectKey":"0cfe61ce6e9ea7be29b0c22a2fd646c020f12201de82bba34cb5017af9f7a613","month":"2026-11-30T10:00:00Z","points":129}`,
		"10000.00": `{"account":"eu-west","effectKey":"0cfe61ce6e9ea7be29b0c22a2fd646c020f12201de82bba34cb5017af9f7a613","month":"2026-11-30T10:00:00Z","points":100}`,
		"9999.99":  "",
		"-1.00":    "",
	} {
		got, err := r.Judge(Input{Revision: hour(t, revenue), Key: key(t), Nth: 10})
		if err != nil || string(got.Payload) != want || got.Holds != (want != "") || got.Airlock != "" {
			t.Errorf("%s: %s, %+v, %v", revenue, got.Payload, got, err)
		}
	}
	got, err := r.Judge(Input{Revision: hour(t, "12930.50"), Key: key(t), Nth: 10})
	if err != nil || got.Expect != (effect.Expectation{Amount: "129", Subject: "eu-west"}) {
		t.Errorf("expects %+v, %v", got.Expect, err)
	}
	retracted := hour(t, "12930.50")
	retracted.Op, retracted.Value = revision.Retract, nil
	if got, err := r.Judge(Input{Revision: retracted, Key: key(t)}); err != nil || got.Holds || got.Payload != nil {
		t.Errorf("a retracted window gives %+v, %v", got, err)
	}
	other := hour(t, "12930.50")
	other.PolicyGeneration = "hourly-revenue@15"
	if _, err := r.Judge(Input{Revision: other, Key: key(t)}); err == nil || !strings.Contains(err.Error(), "hourly-revenue@15") {
		t.Errorf("a revision of another generation: %v", err)
	}
}

func TestAirlocksHold(t *testing.T) {
	r := compiled(t)
	day := int64(policy.Day)
	for _, tt := range []struct {
		name, revenue string
		nth           int
		age           int64
		want          string
	}{
		{"small and fresh", "12930.50", 10, 2 * day, ""},
		{"at the limit", "10000000.00", 10, 0, ""},
		{"points are whole", "10000099.99", 10, 0, ""},
		{"above the limit", "10000100.00", 10, 0, LockAmount},
		{"the tenth", "12930.50", 9, 0, LockFirst},
		{"the first", "12930.50", 0, 0, LockFirst},
		{"old", "12930.50", 10, 2*day + 1, LockOldness},
	} {
		got, err := r.Judge(Input{Revision: hour(t, tt.revenue), Key: key(t), Nth: tt.nth, WindowAge: tt.age})
		if err != nil || !got.Holds || got.Airlock != tt.want {
			t.Errorf("%s: %+v, %v; want %q", tt.name, got, err, tt.want)
		}
	}
	// Left out, a window is old a day after the last event that may change it.
	r = compiled(t, ", windowOlderThan: 48h", "")
	for age, want := range map[int64]string{2 * day: "", 2*day + 1: LockOldness} {
		if got, err := r.Judge(Input{Revision: hour(t, "12930.50"), Key: key(t), Nth: 10, WindowAge: age}); err != nil || got.Airlock != want {
			t.Errorf("age %d: %+v, %v", age, got, err)
		}
	}
}

const (
	payloadText = "{account: key, month: 'window.start', points: 'int(value.revenue) / 100'}"
	whenText    = `value.revenue >= decimal("10000")`
)

func TestPayloadsAreExactAndCanonical(t *testing.T) {
	for expr, want := range map[string]string{
		"value.revenue":                                             `"12930.50"`,
		"value.orders":                                              `412`,
		"value.revenue * 2":                                         `"25861.00"`,
		`value.revenue * decimal("0.015")`:                          `"193.95750"`,
		`value.revenue - decimal("12930.6")`:                        `"-0.10"`,
		`value.revenue + 1`:                                         `"12931.50"`,
		`-value.revenue`:                                            `"-12930.50"`,
		`value.revenue.divide(decimal("3"), 4)`:                     `"4310.1667"`,
		`value.revenue.divide(decimal(value.orders), 2)`:            `"31.38"`,
		`decimal("2.5").round(0)`:                                   `"2"`,
		`decimal("3.5").round(0)`:                                   `"4"`,
		`decimal("-2.5").round(0)`:                                  `"-2"`,
		`decimal("-0.04").round(1)`:                                 `"0.0"`,
		`int(decimal("-1.99"))`:                                     `-1`,
		`int(value.revenue)`:                                        `12930`,
		`string(value.revenue) + "!"`:                               `"12930.50!"`,
		`value.revenue == decimal("12930.5")`:                       `true`,
		`value.revenue > 12930 ? "much" : "little"`:                 `"much"`,
		`window.end`:                                                `"2026-11-30T11:00:00Z"`,
		`window.end - duration("1s")`:                               `"2026-11-30T10:59:59Z"`,
		`window.start.month()`:                                      `"2026-11"`,
		`window.start.date()`:                                       `"2026-11-30"`,
		`(window.start + duration("14h")).month("Europe/Paris")`:    `"2026-12"`,
		`(window.start + duration("13h30m")).month("Europe/Paris")`: `"2026-12"`,
		`(window.start + duration("13h30m")).date("Europe/Paris")`:  `"2026-12-01"`,
		`int(window.start)`:                                         `1796032800`,
		`["b", "a"]`:                                                `["b","a"]`,
		`[key, 1, [true, value.revenue], {}]`:                       `["eu-west",1,[true,"12930.50"],{}]`,
		`{"id": key, "lines": [{"sum": value.revenue, "n": 1}], "ok": true}`: `{"id":"eu-west","lines":[{"n":1,"sum":"12930.50"}],"ok":true}`,
		`value.orders > 1 ? {"id": key, "n": 1} : {"id": key, "n": 2}`:       `{"id":"eu-west","n":1}`,
		`{"z": {"n": 1}, "a": {"n": value.orders}}`:                          `{"a":{"n":412},"z":{"n":1}}`,
		`key.startsWith("eu") && key.contains("-") && key.endsWith("west")`:  `true`,
		`key in ["eu-west"]`: `true`,
		`size(key)`:          `7`,
		`"\"\\ü"`:            `"\"\\ü"`,
		`decimal("123456789012345678901234567890.12") + decimal("0.1")`: `"123456789012345678901234567890.22"`,
		`int(value.revenue) % 100`:                                      `30`,
		`timestamp("2026-11-30T10:00:00Z") == window.start`:             `true`,
		`window.end - window.start == duration("1h")`:                   `true`,
		`{"id": key}["id"]`:                                             `"eu-west"`,
		`[1, 2, 3][1]`:                                                  `2`,
		`true`:                                                          `true`,
		`7`:                                                             `7`,
		`value.revenue >= decimal("1e3".startsWith("1") ? "1" : "2") ? "a" : "b"`: `"a"`,
	} {
		quoted, err := json.Marshal(expr)
		if err != nil {
			t.Fatal(err)
		}
		r := compiled(t, payloadText, "{account: key, points: 1, x: "+string(quoted)+"}")
		got, err := r.Judge(Input{Revision: hour(t, "12930.50"), Key: key(t)})
		if err != nil || !strings.HasSuffix(string(got.Payload), `,"points":1,"x":`+want+"}") || !json.Valid(got.Payload) {
			t.Errorf("%s: %s, %v; want %s", expr, got.Payload, err, want)
		}
	}
}

// rules answers the names of the rules of findings, without repetitions.
func rules(found []policy.Finding) []string {
	var out []string
	for _, f := range found {
		if !slices.Contains(out, f.Rule) {
			out = append(out, f.Rule)
		}
	}
	return out
}

func TestLintRefusesExpressions(t *testing.T) {
	for _, tt := range []struct {
		rule, says string
		line       int
		edits      []string
	}{
		{"unknown-field", "value.revenue", 8, []string{whenText, `value.revenu >= decimal("1")`}},
		{"unknown-field", "now", 8, []string{whenText, `now > window.end`}},
		{"unknown-field", "revision", 10, []string{"month: 'window.start'", "month: 'revision.number'"}},
		{"subject-not-stable", "second effectKey", 7, []string{"subject: key ", "subject: string(value.orders) "}},
		{"subject-type", "string", 7, []string{"subject: key ", "subject: window.start "}},
		{"unknown-field", "key, window.end, window.start", 7, []string{"subject: key ", "subject: customer "}},
		{"condition-type", "bool", 8, []string{whenText, "value.orders"}},
		{"expression-type", "column", 8, []string{whenText, `value.revenue >= "10000"`}},
		{"expression-type", "scale", 10, []string{"'int(value.revenue) / 100'", "'value.revenue / 100'"}},
		{"expression-type", "int", 10, []string{"'int(value.revenue) / 100'", "'int(value.revenue) + key'"}},
		{"expression-syntax", "column", 8, []string{whenText, `value.revenue >=`}},
		{"no-floats", "decimal(\"1.5\")", 8, []string{whenText, `value.orders > 1 && 1.5 < 2.5`}},
		{"expression-type", "uint", 8, []string{whenText, `7u == 7u`}},
		{"expression-type", "null", 8, []string{whenText, `null == null`}},
		{"expression-type", "bytes", 8, []string{whenText, `b"a" == b"a"`}},
		{"expression-type", "double", 8, []string{whenText, `double("1") == double("2")`}},
		{"expression-type", "matches", 8, []string{whenText, `key.matches("a")`}},
		{"expression-type", "getHours", 8, []string{whenText, `window.start.getHours() == 1`}},
		{"bad-decimal", "1e4", 8, []string{whenText, `value.revenue >= decimal("1e4")`}},
		{"unknown-zone", "Europe/Pari", 10, []string{"month: 'window.start'", `month: 'window.start.month("Europe/Pari")'`}},
		{"payload-type", "duration", 10, []string{"month: 'window.start'", "month: 'window.end - window.start'"}},
		{"expression-type", "several types", 10, []string{"month: 'window.start'", `month: '{"a": key, "b": 1}["a"]'`}},
		{"expression-type", "several types", 10, []string{"month: 'window.start'", `month: '[key, 1] + [key]'`}},
		{"expression-type", "several types", 8, []string{whenText, `'{"a": key, "b": 1}.a == key'`}},
		{"payload-type", "duration", 10, []string{"month: 'window.start'", `month: '{"a": key, "b": window.end - window.start}'`}},
		{"payload-type", "map", 10, []string{"month: 'window.start'", `month: '{"a": key, "b": {1: key}}'`}},
		{"payload-type", "map", 10, []string{"month: 'window.start'", `month: '{1: key}'`}},
		{"evidence-not-in-payload", "/account", 10, []string{"account: key", "customer: key"}},
		{"evidence-type", "bool", 10, []string{"account: key", "account: 'true'"}},
		{"airlock-type", "string", 12, []string{"field: points", "field: account"}},
		{"expression-syntax", "recursion", 8, []string{whenText, strings.Repeat("(", 200) + "true" + strings.Repeat(")", 200)}},
	} {
		d := design(t, tt.edits...)
		found := Lint(d.all, nil)
		if got := rules(found); !slices.Equal(got, []string{tt.rule}) || found[0].Line != tt.line || found[0].File != "design.yaml" || !strings.Contains(found[0].Message, tt.says) {
			t.Errorf("%s: got %v, want %s in line %d with %q", tt.edits[1], found, tt.rule, tt.line, tt.says)
		}
	}
}

func TestASessionsSubjectIsItsKeyAlone(t *testing.T) {
	session := []string{"{tumbling: 1h, zone: UTC}", "{session: 11m, rule: gap-11-v2}", "subject: key ", "subject: key + string(int(window.start)) "}
	d := design(t, session...)
	if got := rules(Lint(d.all, nil)); !slices.Equal(got, []string{"subject-not-stable"}) {
		t.Errorf("a session's start in its subject: %v", got)
	}
	d = design(t, session[2:]...)
	if found := Lint(d.all, nil); len(found) > 0 {
		t.Errorf("an hour's start in its subject: %v", found)
	}
}

func TestLintReadsExpressionsAgainstTheHighestGeneration(t *testing.T) {
	d := design(t)
	next := design(t, "generation: 14", "generation: 15", "revenue: sum(amount), ", "")
	var job policy.Document
	for _, doc := range next.all {
		if doc.Policy != nil {
			job = doc
		}
	}
	found := Lint([]policy.Document{job}, d.all)
	if got := rules(found); !slices.Equal(got, []string{"effect-policy-breaks"}) || !strings.Contains(found[0].Message, "orders/reward@3") {
		t.Errorf("a generation without what an applied policy reads: %v", found)
	}
	if found := Lint(d.all, []policy.Document{job}); !slices.Equal(rules(found), []string{"unknown-field"}) {
		t.Errorf("a policy that does not fit the highest generation: %v", found)
	}
}

func TestExpressionsThatFailNameNoValue(t *testing.T) {
	for expr, want := range map[string]string{
		`1 / (value.orders - 412)`:              "division by zero",
		`1 % (value.orders - 412)`:              "modulus by zero",
		`value.orders * 9223372036854775807`:    "integer overflow",
		`value.revenue.divide(decimal("0"), 2)`: "division by zero",
		`value.revenue.round(40)`:               "scale",
		`decimal(key)`:                          "no decimal",
		`int(key)`:                              "refused",
		`int(decimal("99999999999999999999"))`:  "64 bits",
		`{"a": 1}[key]`:                         "no such key",
		`[1][value.orders]`:                     "index out of",
		`window.start.month(key)`:               "zone",
		`timestamp(key)`:                        "refused",
		"value.revenue" + strings.Repeat(" * value.revenue", 20): "77 digits",
	} {
		quoted, err := json.Marshal(expr)
		if err != nil {
			t.Fatal(err)
		}
		r := compiled(t, payloadText, "{account: key, points: 1, x: "+string(quoted)+"}")
		_, err = r.Judge(Input{Revision: hour(t, "12930.50"), Key: key(t)})
		if !errors.Is(err, ErrExpression) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "payload.x") || strings.Contains(err.Error(), "eu-west") || strings.Contains(err.Error(), "12930") {
			t.Errorf("%s: %v, want %q", expr, err, want)
		}
	}
	wide := hour(t, "12930.50")
	wide.Value[0].Text = "9223372036854775808"
	if _, err := compiled(t).Judge(Input{Revision: wide, Key: key(t)}); err == nil || !strings.Contains(err.Error(), "value.orders") {
		t.Errorf("a sum wider than 64 bits: %v", err)
	}
	quoted := hour(t, "12930.50")
	quoted.Value[0].Quoted = true
	if _, err := compiled(t).Judge(Input{Revision: quoted, Key: key(t)}); !errors.Is(err, ErrExpression) {
		t.Errorf("a result of another type: %v", err)
	}
	long := hour(t, "12930.50")
	long.Key = strings.Repeat("k", 300)
	if _, err := compiled(t).Subject(long.Key, long.Window); !errors.Is(err, ErrExpression) || strings.Contains(err.Error(), "kkk") {
		t.Errorf("a subject of 300 bytes: %v", err)
	}
}

func TestPayloadsAreBounded(t *testing.T) {
	many := "key"
	for range 8 {
		many = "(" + many + " + " + many + ")"
	}
	r := compiled(t, payloadText, "{account: key, points: 1, x: '"+many+"'}")
	rev := hour(t, "12930.50")
	rev.Key = strings.Repeat("k", 256)
	if _, err := r.Judge(Input{Revision: rev, Key: key(t)}); !errors.Is(err, ErrExpression) {
		t.Errorf("a payload of 64 KiB: %v", err)
	}
}

func TestEvidenceMayNameMembersElsewhere(t *testing.T) {
	r := compiled(t,
		"evidence: {key: /ref, amount: /points, subject: /account}", "evidence: {key: /ref, amount: {answer: /data/points, payload: /order/lines/1/amount}, subject: {answer: /who, payload: /order/who~1what}}",
		payloadText, `{points: 1, order: '{"lines": [{"amount": "1"}, {"amount": string(value.revenue)}], "who/what": [{"amount": key}]}'}`)
	_, err := r.Judge(Input{Revision: hour(t, "12930.50"), Key: key(t)})
	if !errors.Is(err, ErrExpression) || !strings.Contains(err.Error(), "subject") {
		t.Errorf("a subject that is a list: %v", err)
	}
	r = compiled(t,
		"evidence: {key: /ref, amount: /points, subject: /account}", "evidence: {key: /ref, amount: {answer: /data/points, payload: /lines/1}, subject: {answer: /who, payload: /order/who~1what}}",
		payloadText, `{points: 1, lines: '["1", string(value.revenue)]', order: '{"who/what": key}'}`)
	got, err := r.Judge(Input{Revision: hour(t, "12930.50"), Key: key(t)})
	if err != nil || got.Expect != (effect.Expectation{Amount: "12930.50", Subject: "eu-west"}) {
		t.Errorf("expects %+v, %v", got.Expect, err)
	}
}

func TestNamesThatAreNoIdentifiersAreEscaped(t *testing.T) {
	r := compiled(t, "revenue: sum(amount)", "net-revenue: sum(amount), a.b: max(amount)", whenText, "value.`net-revenue` >= decimal(\"1\")", "int(value.revenue)", "int(value.a.b)")
	rev := hour(t, "12930.50")
	rev.Value = []revision.Field{{Name: "a.b", Text: "500.00", Quoted: true}, {Name: "net-revenue", Text: "7.00", Quoted: true}, {Name: "orders", Text: "1"}}
	got, err := r.Judge(Input{Revision: rev, Key: key(t)})
	if err != nil || got.Expect.Amount != "5" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestCapabilitiesAreWhatTheDocumentDeclares(t *testing.T) {
	d := design(t)
	want := ledger.Adapter{
		Idempotent: true, OnBodyMismatch: ledger.BodyError, Retention: int64(policy.Day),
		Query: true, Authoritative: true, LateArrivalBound: int64(10 * policy.Minute), QueryFor: int64(policy.Day),
		Receipts: true, SendWithin: int64(5 * policy.Second), Timeout: int64(20 * policy.Second), Grace: int64(30 * policy.Second), ClockUncertainty: int64(5 * policy.Second),
	}
	if got := Capabilities(d.adapter); got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	for edit, check := range map[string]func(ledger.Adapter) bool{
		"timeout: 20s\nretry: manual":                  func(a ledger.Adapter) bool { return !a.Idempotent },
		"timeout: 20s\nretry: {mode: auto, first: 7s}": func(a ledger.Adapter) bool { return a.Idempotent },
	} {
		if got := Capabilities(design(t, "timeout: 20s", edit).adapter); !check(got) {
			t.Errorf("%s: %+v", edit, got)
		}
	}
	bare := Capabilities(&policy.Adapter{Type: policy.AdapterLog})
	if bare.Idempotent || bare.Query || bare.Authoritative || bare.Receipts || bare.SendUnproven {
		t.Errorf("an adapter that declares nothing can %+v", bare)
	}
}

func FuzzCompile(f *testing.F) {
	for _, seed := range []string{whenText, "key", "int(value.revenue) / 100", "window.start.month(\"Europe/Paris\")", "value.`a-b`", "{\"a\": [1, 2][0]}", "1.5", "decimal(\"1\").divide(decimal(\"3\"), 2)", "a.b.c[d](e)", "has(value.x)", "[1].all(x, x > 0)", "{\"a\": [key, 1, {}], \"b\": true ? [] : [2]}", "[[], {}, decimal(\"1\")]", "decimal{}"} {
		f.Add(seed)
	}
	d := design(f)
	f.Fuzz(func(t *testing.T, expr string) {
		p := *d.effect
		p.Payload = []policy.PayloadField{{Name: "account", Expr: "key"}, {Name: "points", Expr: "1"}, {Name: "x", Expr: expr}}
		r, found := Compile(&p, d.stream, d.job, d.adapter)
		if (r == nil) != (len(found) > 0) {
			t.Fatalf("%q: rule %v with findings %v", expr, r, found)
		}
		if r == nil {
			return
		}
		in := Input{Revision: hour(t, "12930.50"), Key: key(t)}
		got, err := r.Judge(in)
		if err != nil {
			if !errors.Is(err, ErrExpression) {
				t.Fatalf("%q: %v", expr, err)
			}
			return
		}
		again, err := r.Judge(in)
		if err != nil || string(again.Payload) != string(got.Payload) || !json.Valid(got.Payload) || len(got.Payload) > effect.MaxPayload {
			t.Fatalf("%q: %s and %s, %v", expr, got.Payload, again.Payload, err)
		}
	})
}

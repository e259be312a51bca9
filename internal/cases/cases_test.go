package cases

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const documents = `
inline: |
  kind: BusinessStream
  name: sales
  partitions: 3
  key: [/shop]
  values: {amount: {path: /amount, type: decimal, scale: 2}}
  eventTime: {at@1: {path: /at, format: rfc3339}}
  ---
  kind: StreamTimePolicy
  stream: sales
  job: hourly@1
  sources: [{name: till, partitions: 2}]
  timestampExtractor: at@1
  watermark: {boundedOutOfOrderness: 0s}
  idle: {after: 1m, allIdle: advance}
  window: {tumbling: 1h}
  aggregates: {total: sum(amount), sales: count()}
  allowedLateness: 2h
now: 2026-01-01T10:00:00Z
`

func parse(t *testing.T, text string) *Case {
	t.Helper()
	found, bad := Parse("case.yaml", []byte(text))
	if len(bad) > 0 || len(found) != 1 {
		t.Fatalf("%d cases, findings %v", len(found), bad)
	}
	return found[0]
}

func TestTimeIsDrivenByTheCase(t *testing.T) {
	c := parse(t, "kind: TestCase\nname: idle night\n"+documents+`
steps:
  - send: {source: till, events: [{id: a, shop: north, at: "2026-01-01T09:30:00Z", amount: 1.10}]}
  - wait: 59s
  - expect: {watermark: "-inf", windows: []}
  - wait: 90m
  - expect: {watermark: 2026-01-01T10:59:59Z}
  - send: {source: till, partition: 1, events: [{id: b, shop: north, at: "2026-01-01T09:40:00Z", amount: 2.20}]}
expect:
  revisions:
    - {key: north, revision: 1, firing: ON_TIME, value: {total: "1.10", sales: 1}}
    - {key: north, revision: 2, firing: LATE, value: {total: "3.30", sales: 2}, delta: {total: "2.20", sales: 1}}
`)
	if r := Run(c); !r.OK || r.Events != 2 || len(r.Notes) > 0 {
		t.Errorf("%+v", r)
	}
}

func TestSessionsMergeInOneGroup(t *testing.T) {
	text := strings.Replace(documents, "{tumbling: 1h}", "{session: 10m, rule: gap-10}", 1)
	c := parse(t, "kind: TestCase\nname: bridge\n"+text+`
steps:
  - send: {source: till, events: [{id: a, shop: north, at: "2026-01-01T08:00:00Z", amount: 1}, {id: b, shop: north, at: "2026-01-01T08:15:00Z", amount: 2}]}
  - finish: {source: till, partition: 1}
  - send: {source: till, events: [{id: z, shop: south, at: "2026-01-01T08:30:00Z", amount: 9}]}
  - send: {source: till, events: [{id: c, shop: north, at: "2026-01-01T08:07:00Z", amount: 4}]}
expect:
  revisions:
    - {key: north, start: 2026-01-01T08:00:00Z, end: 2026-01-01T08:10:00Z, revision: 1}
    - {key: north, start: 2026-01-01T08:15:00Z, end: 2026-01-01T08:25:00Z, revision: 1}
    - {key: north, start: 2026-01-01T08:00:00Z, end: 2026-01-01T08:10:00Z, revision: 2, op: RETRACT}
    - {key: north, start: 2026-01-01T08:15:00Z, end: 2026-01-01T08:25:00Z, revision: 2, op: RETRACT}
    - {key: north, start: 2026-01-01T08:00:00Z, end: 2026-01-01T08:25:00Z, revision: 1, op: UPSERT, value: {total: "7.00", sales: 3}}
`)
	if r := Run(c); !r.OK || len(r.Notes) > 0 {
		t.Errorf("%+v", r)
	}
}

func TestADiffShowsBothSides(t *testing.T) {
	c := parse(t, "kind: TestCase\nname: wrong\n"+documents+`
steps:
  - send: {source: till, events: [{id: a, shop: north, at: "2026-01-01T09:30:00Z", amount: 1.10}, nonsense]}
  - finish: {source: till}
  - finish: {source: till, partition: 1}
expect:
  watermark: -inf
  windows: [{key: north, value: {total: "1.1"}}, {key: south}]
  quarantine: []
  counts: {applied: 2}
`)
	r := Run(c)
	got := strings.Join(r.Diff, "\n")
	want := `- watermark: -inf
+ watermark: +inf
- windows[0]: {key: north, value: {total: 1.1}}
+ windows[0]: {key: north, value: {sales: 1, total: 1.10}}
- windows[1]: {key: south}
+ quarantine[0]: {id: , reason: malformed-json, rule: invalid character at byte 0, source: till}
- counts.applied: 2
+ counts.applied: 1`
	if r.OK || stripRule(got) != stripRule(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// stripRule leaves out the parser's words, which are its own business.
func stripRule(text string) string {
	from, to := strings.Index(text, "rule: "), strings.Index(text, ", source: till")
	if from < 0 || to < from {
		return text
	}
	return text[:from] + text[to:]
}

func TestCasesThatAreWrongNameTheRule(t *testing.T) {
	step := "steps: [{wait: 1s}]\n"
	for name, c := range map[string]struct{ text, rule string }{
		"no yaml":            {"kind: TestCase\n\tname: [", "yaml-syntax"},
		"unknown field":      {"kind: TestCase\nname: a\nstep: []\n" + documents + step, "bad-case"},
		"other kind":         {"kind: BusinessStream\nname: a\n" + step, "bad-value"},
		"no name":            {"kind: TestCase\n" + documents + step, "missing-field"},
		"no steps":           {"kind: TestCase\nname: a\n" + documents, "missing-field"},
		"missing file":       {"kind: TestCase\nname: a\nnow: 2026-01-01T00:00:00Z\ndocuments: [none.yaml]\n" + step, "missing-document"},
		"unknown policy":     {"kind: TestCase\nname: a\npolicy: daily@1\n" + documents + step, "unknown-policy"},
		"two things":         {"kind: TestCase\nname: a\n" + documents + "steps: [{wait: 1s, finish: {source: till}}]\n", "bad-step"},
		"bad wait":           {"kind: TestCase\nname: a\n" + documents + "steps: [{wait: soon}]\n", "bad-step"},
		"no such partition":  {"kind: TestCase\nname: a\n" + documents + "steps: [{finish: {source: till, partition: 9}}]\n", "bad-step"},
		"events are no list": {"kind: TestCase\nname: a\n" + documents + "steps: [{send: {source: till, events: {id: a}}}]\n", "bad-step"},
		"bad time":           {"kind: TestCase\nname: a\n" + strings.Replace(documents, "now: 2026", "now: x2026", 1) + step, "bad-value"},
		"twice":              {"kind: TestCase\nname: a\n" + documents + step + "---\nkind: TestCase\nname: a\n" + documents + step, "duplicate-name"},
		"bad document":       {"kind: TestCase\nname: a\n" + strings.Replace(documents, "partitions: 3", "partitons: 3", 1) + step, "unknown-field"},
	} {
		t.Run(name, func(t *testing.T) {
			_, bad := Parse("case.yaml", []byte(c.text))
			for _, f := range bad {
				if f.Rule == c.rule && f.Line > 0 && f.File != "" {
					return
				}
			}
			t.Errorf("findings %v, want %s", bad, c.rule)
		})
	}
}

func TestHolds(t *testing.T) {
	if !Holds([]byte("apiVersion: tidemark/v1\nkind: TestCase # so\n")) || Holds([]byte("kind: BusinessStream\n")) || Holds([]byte("# kind: TestCase\n")) {
		t.Error("cases are not told from documents")
	}
}

// The cases of the examples are part of the product.
func TestExamplesPass(t *testing.T) {
	files, err := filepath.Glob("../../examples/*/tests.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		src := readFile(t, file)
		found, bad := Parse(file, src)
		if len(bad) > 0 {
			t.Errorf("%v", bad)
		}
		for _, c := range found {
			if r := Run(c); !r.OK {
				t.Errorf("%s: %s", r.Name, strings.Join(r.Diff, "\n"))
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("kind: TestCase\nname: a\n" + documents + "steps:\n  - send: {source: till, events: [{id: a, shop: n, at: \"2026-01-01T09:30:00Z\", amount: 1}]}\n")
	f.Add("kind: TestCase\nsteps: [&a *a]\n")
	f.Add("kind: TestCase\nsteps: !![!!n")
	f.Add("kind: TestCase\nsteps: !0 ")
	f.Fuzz(func(t *testing.T, text string) {
		found, bad := Parse("case.yaml", []byte(text))
		if len(found)+len(bad) == 0 {
			t.Error("neither a case nor a finding")
		}
		for _, c := range found {
			if c.stream.Partitions <= 8 && len(c.Steps) < 20 {
				Run(c)
			}
		}
	})
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

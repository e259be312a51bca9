package policy

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

const goldenPolicy = `{"aggregates":{"orders":"count()","revenue":"sum(amount)"},"allowedLateness":"1d","apiVersion":"tidemark/v1","correctionMode":"UPSERT_REVISION","generation":14,"idle":{"after":"15m","allIdle":"advance"},"job":"hourly-revenue","kind":"StreamTimePolicy","late":"rebuild","rebuildLimit":1000000,"retention":{"ids":"2d","raw":"unlimited"},"sources":[{"name":"shop","partitions":4}],"stream":"orders","timestampExtractor":"order.occurred_at@2","topologyChange":false,"trigger":{"early":"30s"},"watermark":{"boundedOutOfOrderness":"5m"},"window":{"offset":"0s","tumbling":"1h","zone":"UTC"}}`

const goldenStream = `{"apiVersion":"tidemark/v1","bounds":{"maxFuture":"5m","notBefore":"2020-01-01T00:00:00Z"},"eventTime":{"order.occurred_at@2":{"format":"rfc3339","path":"/order/occurred_at"}},"key":["/order/region"],"kind":"BusinessStream","maxEventBytes":262144,"name":"orders","partitions":8,"retractions":true,"schemaGeneration":3,"values":{"amount":{"path":"/order/amount","scale":2,"type":"decimal"}}}`

func TestGoldenDigest(t *testing.T) {
	docs := design(t)
	for i, want := range []struct{ canonical, digest string }{
		{goldenStream, "cb1d121fb797db783591adc674aebba375e5a5a60faf12736c9d3104a7c30860"},
		{goldenPolicy, "8dc96cbc3477d158c40df5c71c6cbc5f19b0cde1c3d30bef7fffbbd68faebcab"},
	} {
		if got := string(docs[i].Canonical()); got != want.canonical {
			t.Errorf("canonical\n got %s\nwant %s", got, want.canonical)
		}
		if got := docs[i].Digest(); got != want.digest {
			t.Errorf("digest of %s is %s, want %s", docs[i].Name(), got, want.digest)
		}
	}
}

func TestFormsOfOneDocument(t *testing.T) {
	want := parsed(t, smallPolicy)[0]
	for _, change := range [][2]string{
		{"job: hourly\ngeneration: 1", "job: hourly@1"},
		{"timestampExtractor: at@1", "timestampExtractor: {name: at, version: 1}"},
		{"watermark: {boundedOutOfOrderness: 5m}", "watermark: bounded-out-of-orderness:5m"},
		{"watermark: {boundedOutOfOrderness: 5m}", "watermark: {boundedOutOfOrderness: 300s}"},
		{"idle: {after: 60m}", "idlePartitionAfter: 1h"},
		{"idle: {after: 60m}", "idle: {allIdle: hold, after: 3600s}"},
		{"window: {tumbling: 1h}", "window: tumbling:1h:UTC"},
		{"window: {tumbling: 1h}", "window: tumbling:60m"},
		{"window: {tumbling: 1h}", "window: {zone: UTC, offset: 0, tumbling: 60m}"},
		{"allowedLateness: 24h", "allowedLateness: 1d\napiVersion: tidemark/v1\nschema: streamTimePolicy.v1"},
		{"allowedLateness: 24h", "allowedLateness: 24h\nretention: {raw: unlimited, ids: 25h}"},
		{"{revenue: sum(amount), orders: count()}", "{orders: count( ), 'revenue': \"sum( amount )\"}"},
	} {
		if !strings.Contains(smallPolicy, change[0]) {
			t.Fatalf("no such text: %s", change[0])
		}
		got := parsed(t, strings.Replace(smallPolicy, change[0], change[1], 1))[0]
		if !reflect.DeepEqual(got.Policy, want.Policy) || got.Digest() != want.Digest() {
			t.Errorf("%s: other document %s", change[1], got.Canonical())
		}
	}
	a := parsed(t, smallStream)[0]
	b := parsed(t, strings.Replace(smallStream, "partitions: 2", "maxEventBytes: 262144B\npartitions: 2", 1))[0]
	if a.Digest() != b.Digest() {
		t.Errorf("a default written out changes the digest: %v", Differing(a, b))
	}
}

func TestEveryFieldIsInTheDigest(t *testing.T) {
	docs := parsed(t, smallStream+"---"+smallPolicy)
	seen := map[string]string{docs[0].Digest(): "stream", docs[1].Digest(): "policy"}
	for _, change := range [][2]string{
		{"name: orders", "name: order"},
		{"partitions: 2\nkey", "partitions: 3\nkey"},
		{"[/region]", "[/region, /shop]"},
		{"path: /amount", "path: /sum"},
		{"scale: 2", "scale: 3"},
		{"type: string", "type: int"},
		{"label:", "lable:"},
		{"at@1: {", "at@2: {"},
		{"path: /at", "path: /t"},
		{"rfc3339", "unix-us"},
		{"key: [", "bounds: {maxFuture: 6m}\nkey: ["},
		{"key: [", "bounds: {notBefore: 2001-01-01T00:00:00Z}\nkey: ["},
		{"key: [", "schemaGeneration: 2\nkey: ["},
		{"key: [", "retractions: true\nkey: ["},
		{"key: [", "maxEventBytes: 1KiB\nkey: ["},
		{"stream: orders", "stream: order"},
		{"job: hourly", "job: daily"},
		{"generation: 1", "generation: 2"},
		{"name: shop", "name: web"},
		{"shop, partitions: 2", "shop, partitions: 3"},
		{"timestampExtractor: at@1", "timestampExtractor: at@3"},
		{"Orderness: 5m", "Orderness: 6m"},
		{"after: 60m", "after: 61m"},
		{"after: 60m", "after: 60m, allIdle: advance"},
		{"tumbling: 1h", "tumbling: 2h"},
		{"tumbling: 1h", "tumbling: 1h, offset: -1m"},
		{"tumbling: 1h", "tumbling: 1h, zone: Europe/Paris"},
		{"tumbling: 1h", "hopping: 1h, every: 30m"},
		{"tumbling: 1h", "session: 1h, rule: a"},
		{"tumbling: 1h", "session: 1h, rule: b"},
		{"tumbling: 1h", "calendar: day"},
		{"revenue:", "money:"},
		{"sum(", "max("},
		{"sum(amount)", "sum(other)"},
		{"sum(amount)", "distinct(amount)"},
		{"sum(amount)", "'distinct(amount, 9999)'"},
		{"Lateness: 24h", "Lateness: 25h"},
		{"allowed", "late: manual\nallowed"},
		{"allowed", "trigger: {early: 1s}\nallowed"},
		{"allowed", "retention: {ids: 99h}\nallowed"},
		{"allowed", "retention: {raw: 99d}\nallowed"},
		{"allowed", "rebuildLimit: 5\nallowed"},
		{"allowed", "topologyChange: true\nallowed"},
	} {
		changed := 0
		for i, doc := range parsed(t, edit(change[0], change[1])) {
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

// A limit stands in the digest, also one that is left out.
func TestFormsOfALimit(t *testing.T) {
	want := parsed(t, edit("sum(amount)", "distinct(amount)"))[1]
	for _, form := range []string{"'distinct(amount, 10000)'", "'distinct( amount ,10000 )'", "\n  distinct( amount )"} {
		if got := parsed(t, edit("sum(amount)", form))[1]; got.Digest() != want.Digest() {
			t.Errorf("%s: other document %s", form, got.Canonical())
		}
	}
	if !strings.Contains(string(want.Canonical()), `"revenue":"distinct(amount, 10000)"`) {
		t.Errorf("canonical is %s", want.Canonical())
	}
	again(t, want)
}

func TestParseAggregate(t *testing.T) {
	for text, want := range map[string]AggregateSpec{
		"count()":                {Name: "n", Func: "count"},
		"sum(amount)":            {Name: "n", Func: "sum", Arg: "amount"},
		"distinct(user)":         {Name: "n", Func: "distinct", Arg: "user", Limit: DefaultDistinct},
		"distinct(user, 5000)":   {Name: "n", Func: "distinct", Arg: "user", Limit: 5000},
		"distinct(user,1000000)": {Name: "n", Func: "distinct", Arg: "user", Limit: MaxDistinct},
	} {
		got, err := ParseAggregate("n", text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if again, err := ParseAggregate("n", got.String()); err != nil || again != got {
			t.Errorf("%s is read back as %+v, %v", got, again, err)
		}
	}
	if _, err := ParseAggregate("n", "median(x)"); err == nil || !strings.Contains(err.Error(), "no function median") {
		t.Errorf("median: %v", err)
	}
}

// again checks that both written forms of doc are read back as the same document.
func again(t *testing.T, doc Document) {
	t.Helper()
	back, err := FromCanonical(doc.Canonical())
	if err != nil {
		t.Fatalf("%v\n%s", err, doc.Canonical())
	}
	if !bytes.Equal(back.Canonical(), doc.Canonical()) || back.Digest() != doc.Digest() || back.Line != 0 || back.File != "" {
		t.Fatalf("canonical\n was %s\n is %s", doc.Canonical(), back.Canonical())
	}
	if !json.Valid(doc.Canonical()) || bytes.Contains(doc.Canonical(), []byte("null")) && !bytes.Contains(doc.YAML(), []byte("null")) {
		t.Fatalf("no JSON without nulls: %s", doc.Canonical())
	}
	docs, findings := Parse("yaml", doc.YAML())
	if len(findings) > 0 || len(docs) != 1 || docs[0].Digest() != doc.Digest() {
		t.Fatalf("YAML is read back as another document: %v\n%s", findings, doc.YAML())
	}
}

func TestFromCanonicalRefuses(t *testing.T) {
	for _, src := range []string{"", "{", "[]", "null", "{} {}", `{"kind":"BusinessStream"}`, goldenStream[:len(goldenStream)-1], goldenStream + "x", strings.Replace(goldenStream, `"name"`, `"nam"`, 1), strings.Repeat("[", 1000)} {
		if doc, err := FromCanonical([]byte(src)); err == nil {
			t.Errorf("%.40q is read as %v", src, doc)
		}
	}
}

func TestDiffering(t *testing.T) {
	a := parsed(t, smallPolicy)[0]
	b := parsed(t, strings.NewReplacer("24h", "48h", "partitions: 2", "partitions: 3", "idle: {after: 60m}\n", "").Replace(smallPolicy))[0]
	want := []FieldDiff{
		{"allowedLateness", `"1d"`, `"2d"`},
		{"idle.after", `"1h"`, ""},
		{"idle.allIdle", `"hold"`, ""},
		{"retention.ids", `"1d1h"`, `"2d1h"`},
		{"sources[0].partitions", "2", "3"},
	}
	if got := Differing(a, b); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if got := Differing(a, a); got != nil {
		t.Errorf("a document differs from itself: %v", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(smallStream + "---" + smallPolicy)
	f.Add(goldenPolicy)
	f.Add(goldenStream)
	f.Add(smallEffect + "---" + smallAdapter)
	f.Add("kind: EffectPolicy\nname: a@1\nstream: s\njob: j\neffectType: e\nsubject: |\n  key +\n  'x'\nwhen: true\npayload: {é: 7, on: 'a\"b'}\nadapter: {name: b, version: 2}\nairlock: {amountAbove: {field: é, limit: '-00.5'}}\ncorrections: {mode: adjust, payload: {}}\n")
	f.Add("kind: Adapter\nname: b@2\ntype: nats\nsubject: 'a b'\nheaders: {'~': {secretFile: /x}, X: '# y'}\nquery: {subject: q, absent: [{code: 0, at: /~1}]}\nallow: ['::1/128', 10.0.0.0/8, 10.0.0.0/8]\nretry: {mode: auto}\nevidence: {key: /, amount: {answer: /a b}}\n")
	f.Add("kind: BusinessStream\nname: 'on'\npartitions: 1\nkey: [\"/a\\u2028~1 b\"]\neventTime: {\"1.0@1\": {path: /null, format: unix-s}}\nvalues: {1e3: {path: '/: #', type: int}, true: {path: /é, type: string}}\n")
	f.Add("kind: StreamTimePolicy\nstream: a\njob: b@1\nsources: [{name: \"\\0 x\"}]\ntimestampExtractor: t@1\nwatermark: bounded-out-of-orderness:0\nwindow: {session: -5m, rule: null1}\naggregates: {é: distinct(x.y), e: \"distinct(x, 7)\"}\n")
	f.Fuzz(func(t *testing.T, src string) {
		docs, _ := Parse("fuzz", []byte(src))
		for _, doc := range docs {
			again(t, doc)
		}
		Lint(docs, nil)
	})
}

package policy

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

const smallStream = `
kind: BusinessStream
name: orders
partitions: 2
key: [/region]
values:
  amount: {path: /amount, type: decimal, scale: 2}
  label: {path: /label, type: string}
eventTime: {at@1: {path: /at, format: rfc3339}}
`

const smallPolicy = `
kind: StreamTimePolicy
stream: orders
job: hourly
generation: 1
sources: [{name: shop, partitions: 2}]
timestampExtractor: at@1
watermark: {boundedOutOfOrderness: 5m}
idle: {after: 60m}
window: {tumbling: 1h}
aggregates: {revenue: sum(amount), orders: count()}
allowedLateness: 24h
`

func design(t testing.TB) []Document {
	t.Helper()
	src, err := os.ReadFile("testdata/design.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return parsed(t, string(src))
}

func parsed(t testing.TB, src string) []Document {
	t.Helper()
	docs, findings := Parse("test.yaml", []byte(src))
	if len(findings) > 0 {
		t.Fatalf("findings: %v", findings)
	}
	return docs
}

func TestParseDesign(t *testing.T) {
	docs := design(t)
	notBefore, err := envelope.ParseEventTime("2020-01-01T00:00:00Z")
	if err != nil {
		t.Fatal(err)
	}
	wantStream := &BusinessStream{
		Name: "orders", Partitions: 8, Key: []string{"/order/region"},
		Values:     []ValueSpec{{Name: "amount", Path: "/order/amount", Type: Decimal, Scale: 2}},
		Extractors: []Extractor{{Name: "order.occurred_at@2", Path: "/order/occurred_at", Format: RFC3339}},
		MaxFuture:  5 * Minute, NotBefore: notBefore, SchemaGeneration: 3, Retractions: true, MaxEventBytes: 262144,
	}
	wantPolicy := &StreamTimePolicy{
		Stream: "orders", Job: "hourly-revenue", Generation: 14,
		Sources:   []SourceRef{{Name: "shop", Partitions: 4}},
		Extractor: "order.occurred_at@2", OutOfOrderness: 5 * Minute, IdleAfter: 15 * Minute, AllIdle: Advance,
		Window:     WindowSpec{Kind: Tumbling, Size: Hour, Zone: "UTC"},
		Aggregates: []AggregateSpec{{Name: "orders", Func: "count"}, {Name: "revenue", Func: "sum", Arg: "amount"}},
		Early:      30 * Second, AllowedLateness: 24 * Hour, Late: LateRebuild, RetainIDs: 48 * Hour,
		CorrectionMode: UpsertRevision, RebuildLimit: DefaultRebuildLimit,
	}
	if !reflect.DeepEqual(docs[0].Stream, wantStream) {
		t.Errorf("stream\n got %+v\nwant %+v", docs[0].Stream, wantStream)
	}
	if !reflect.DeepEqual(docs[1].Policy, wantPolicy) {
		t.Errorf("policy\n got %+v\nwant %+v", docs[1].Policy, wantPolicy)
	}
	if docs[0].Line != 2 || docs[1].Line != 15 {
		t.Errorf("lines %d and %d, want 2 and 15", docs[0].Line, docs[1].Line)
	}
	if findings := Lint(docs, nil); len(findings) > 0 {
		t.Errorf("lint: %v", findings)
	}
	if docs[0].Name() != "orders" || docs[1].Name() != "orders/hourly-revenue@14" || docs[1].BusinessStream() != "orders" {
		t.Errorf("names %s, %s", docs[0].Name(), docs[1].Name())
	}
}

func TestDefaults(t *testing.T) {
	bs := parsed(t, "kind: BusinessStream\nname: a\npartitions: 1\nkey: [/k]\neventTime: {t@1: {path: /t, format: unix-ms}}\n")[0].Stream
	if bs.MaxFuture != 5*Minute || bs.NotBefore != 0 || bs.SchemaGeneration != 1 || bs.Retractions || bs.MaxEventBytes != 262144 || bs.Values != nil {
		t.Errorf("stream defaults: %+v", bs)
	}
	p := parsed(t, `
kind: StreamTimePolicy
stream: a
job: j@1
sources: [{name: s}]
timestampExtractor: t@1
watermark: {boundedOutOfOrderness: 0s}
window: {tumbling: 1h}
aggregates: {n: count()}
allowedLateness: 2h
`)[0].Policy
	if p.Sources[0].Partitions != 1 || p.IdleAfter != 0 || p.AllIdle != Hold || p.Window.Zone != "UTC" || p.Late != "rebuild" ||
		p.RetainIDs != 3*Hour || p.RetainRaw != 0 || p.CorrectionMode != UpsertRevision || p.RebuildLimit != 1_000_000 || p.TopologyChange {
		t.Errorf("policy defaults: %+v", p)
	}
}

// edit replaces one text in the small documents.
func edit(old, with string) string {
	src := smallStream + "---" + smallPolicy
	if !strings.Contains(src, old) {
		panic("no such text: " + old)
	}
	return strings.Replace(src, old, with, 1)
}

func TestParseFindings(t *testing.T) {
	tests := []struct {
		name, src  string
		line       int
		rule, says string
	}{
		{"unknown field", edit("key: [/region]", "key: [/region]\nretraction: true"), 6, "unknown-field", "did you mean retractions?"},
		{"unknown nested field", edit("path: /amount,", "paht: /x, path: /amount,"), 7, "unknown-field", "values.amount.paht"},
		{"duplicate key", edit("partitions: 2\nkey", "partitions: 2\npartitions: 3\nkey"), 5, "duplicate-field", "partitions"},
		{"duplicate nested key", edit("{after: 60m}", "{after: 60m, after: 1h}"), 18, "duplicate-field", "idle.after"},
		{"values that differ in case", edit("  label:", "  Amount:"), 8, "duplicate-field", `differs from "amount" only in case`},
		{"wrong type", edit("partitions: 2\nkey", "partitions: two\nkey"), 4, "wrong-type", "whole number"},
		{"number for text", edit("name: orders", "name: 12"), 3, "wrong-type", "quotes"},
		{"list for map", edit("idle: {after: 60m}", "idle: [60m]"), 18, "wrong-type", "idle must be"},
		{"null", edit("name: orders", "name:"), 3, "wrong-type", "nothing"},
		{"partitions too many", edit("partitions: 2\nkey", "partitions: 100\nkey"), 4, "bad-value", "99"},
		{"partitions octal", edit("partitions: 2\nkey", "partitions: 010\nkey"), 4, "bad-value", "plain digits"},
		{"missing", edit("partitions: 2\nkey", "key"), 2, "missing-field", "partitions"},
		{"missing in policy", edit("window: {tumbling: 1h}\n", ""), 11, "missing-field", "window"},
		{"missing generation", edit("generation: 1\n", ""), 13, "missing-field", "hourly@1"},
		{"generation twice", edit("job: hourly", "job: hourly@1"), 14, "duplicate-field", "twice"},
		{"generation zero", edit("generation: 1", "generation: 0"), 14, "bad-value", "generation"},
		{"no unit", edit("{after: 60m}", "{after: 60}"), 18, "bad-duration", "unit"},
		{"unknown unit", edit("{after: 60m}", "{after: 60min}"), 18, "bad-duration", `"min" is no unit`},
		{"negative", edit("allowedLateness: 24h", "allowedLateness: -1h"), 21, "bad-duration", "negative"},
		{"too fine", edit("{after: 60m}", "{after: 1.0000001s}"), 18, "bad-duration", "finer"},
		{"bad enum", edit("type: decimal", "type: decimals"), 7, "bad-value", "did you mean decimal?"},
		{"scale of int", edit("type: decimal", "type: int"), 7, "bad-value", "only decimals"},
		{"scale missing", edit(", scale: 2", ""), 7, "missing-field", "scale"},
		{"bad pointer", edit("key: [/region]", "key: [region]"), 5, "bad-pointer", "begin with /"},
		{"bad pointer escape", edit("key: [/region]", "key: [/a~2]"), 5, "bad-pointer", "~0"},
		{"bad stream name", edit("name: orders", "name: or.ders"), 3, "bad-name", "or.ders"},
		{"bad job name", edit("job: hourly", "job: höurly"), 13, "bad-name", "job"},
		{"unversioned extractor", edit("{at@1: {", "{at: {"), 9, "bad-name", "at@1"},
		{"empty key", edit("key: [/region]", "key: []"), 5, "bad-value", "empty"},
		{"not before", edit("partitions: 2\nkey", "partitions: 2\nbounds: {notBefore: yesterday}\nkey"), 5, "bad-value", "RFC 3339"},
		{"huge events", edit("partitions: 2\nkey", "partitions: 2\nmaxEventBytes: 2MiB\nkey"), 5, "bad-value", "512KiB"},
		{"aggregate", edit("sum(amount)", "summ(amount)"), 20, "bad-aggregate", "did you mean sum?"},
		{"aggregate form", edit("sum(amount)", "sum amount"), 20, "bad-aggregate", "sum(amount)"},
		{"count of value", edit("count()", "count(amount)"), 20, "bad-aggregate", "count()"},
		{"limit of sum", edit("sum(amount)", "'sum(amount, 3)'"), 20, "bad-aggregate", "sum takes no limit; write sum(amount)"},
		{"limit of count", edit("count()", "'count(, 3)'"), 20, "bad-aggregate", "count takes no limit; write count()"},
		{"limit is no number", edit("sum(amount)", "'distinct(amount, many)'"), 20, "bad-aggregate", "distinct(amount, 10000)"},
		{"limit in other digits", edit("sum(amount)", "'distinct(amount, 05)'"), 20, "bad-aggregate", "whole number"},
		{"limit left out behind its comma", edit("sum(amount)", "'distinct(amount,)'"), 20, "bad-aggregate", "whole number"},
		{"limit 0", edit("sum(amount)", "'distinct(amount, 0)'"), 20, "aggregate-limit", "from 1 to 1000000"},
		{"limit too high", edit("sum(amount)", "'distinct(amount, 1000001)'"), 20, "aggregate-limit", "from 1 to 1000000"},
		{"sum of nothing", edit("sum(amount)", "sum()"), 20, "bad-aggregate", "sum(amount)"},
		{"no aggregates", edit("{revenue: sum(amount), orders: count()}", "{}"), 20, "missing-field", "count()"},
		{"two kinds", edit("{tumbling: 1h}", "{tumbling: 1h, session: 5m}"), 19, "bad-value", "two kinds"},
		{"no kind", edit("{tumbling: 1h}", "{size: 1h}"), 19, "missing-field", "tumbling"},
		{"every on tumbling", edit("{tumbling: 1h}", "{tumbling: 1h, every: 5m}"), 19, "unknown-field", "every"},
		{"window line", edit("{tumbling: 1h}", "sliding:1h"), 19, "bad-value", "tumbling:1h:UTC"},
		{"watermark line", edit("{boundedOutOfOrderness: 5m}", "bounded:5m"), 17, "bad-value", "bounded-out-of-orderness:5m"},
		{"two idles", edit("idle: {after: 60m}", "idle: {after: 60m}\nidlePartitionAfter: 1h"), 19, "duplicate-field", "same thing"},
		{"source twice", edit("[{name: shop, partitions: 2}]", "[{name: shop}, {name: shop}]"), 15, "duplicate-source", "shop"},
		{"source empty", edit("{name: shop,", `{name: "",`), 15, "bad-name", "256"},
		{"kind", edit("kind: BusinessStream", "kind: BusinesStream"), 2, "bad-value", "did you mean BusinessStream?"},
		{"version", edit("kind: BusinessStream", "kind: BusinessStream\napiVersion: tidemark/v2"), 3, "bad-value", "tidemark/v1"},
		{"schema", edit("kind: StreamTimePolicy", "kind: StreamTimePolicy\nschema: streamTimePolicy.v2"), 12, "bad-value", "streamTimePolicy.v1"},
		{"alias", edit("name: orders", "name: *x"), 3, "yaml-feature", "anchors"},
		{"syntax", "kind: [\n", 1, "yaml-syntax", "no YAML"},
		{"tab", "kind: a\n\tb: c\n", 2, "yaml-syntax", "no YAML"},
		{"empty", "# nothing\n", 1, "no-document", "no document"},
		{"not a map", "hello\n", 1, "wrong-type", "the document"},
		{"not UTF-8", "kind: \xff\n", 1, "not-utf8", "UTF-8"},
		{"deep", strings.Repeat("[", 5000), 1, "too-deep", "nests"},
		{"deep blocks", strings.Repeat("- ", 5000), 1, "too-deep", "nests"},
		{"large", strings.Repeat("#\n", 1<<20), 1, "too-large", "bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, findings := Parse("f.yaml", []byte(tt.src))
			if len(findings) != 1 {
				t.Fatalf("%d findings, want 1: %v", len(findings), findings)
			}
			f := findings[0]
			if f.Rule != tt.rule || f.Line != tt.line || !strings.Contains(f.Message, tt.says) || f.File != "f.yaml" {
				t.Errorf("got %v, want line %d, %s, %q", f, tt.line, tt.rule, tt.says)
			}
		})
	}
}

func TestFindingsAreAllNamedAtOnce(t *testing.T) {
	src := strings.NewReplacer("partitions: 2\nkey", "key", "60m", "60", "late", "latex").Replace(smallStream + "---" + smallPolicy + "late: rebuild\n")
	docs, findings := Parse("f.yaml", []byte(src))
	if len(docs) != 0 || len(findings) != 3 {
		t.Errorf("%d documents, findings %v; want 0 and 3", len(docs), findings)
	}
}

func TestSourceNamesAreAnyText(t *testing.T) {
	for _, name := range []string{"shop", "Kasse 3.ü/a", strings.Repeat("x", 256)} {
		p := parsed(t, strings.Replace(smallPolicy, "name: shop", "name: \""+name+"\"", 1))[0].Policy
		if p.Sources[0].Name != name {
			t.Errorf("got %q", p.Sources[0].Name)
		}
	}
}

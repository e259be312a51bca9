package schema_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/schema"
)

// compiled answers every JSON Schema by name, formats asserted.
func compiled(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	var names []string
	for _, name := range schema.Names() {
		if strings.HasSuffix(name, ".proto") {
			continue
		}
		text, found := schema.Lookup(name)
		if !found {
			t.Fatalf("%s is listed but not found", name)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := c.AddResource(name+".json", doc); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		names = append(names, name)
	}
	out := map[string]*jsonschema.Schema{}
	for _, name := range names {
		s, err := c.Compile(name + ".json")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out[name] = s
	}
	return out
}

func validateJSON(t *testing.T, s *jsonschema.Schema, text string) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return s.Validate(v)
}

func TestLookup(t *testing.T) {
	for _, name := range []string{"businessStream.v1", "BusinessStream", "businessStream.v1.json", "StreamTimePolicy", "EffectPolicy", "Adapter", "revision.v1", "commit.v1", "claim.v1", "alias.v1", "envelope.v1", "quarantineRecord.v1", "frame.proto", "journal.proto"} {
		if text, found := schema.Lookup(name); !found || len(text) == 0 {
			t.Errorf("%s is not found", name)
		}
	}
	for _, name := range []string{"", "nothing", "../schema.go", "schema.go"} {
		if _, found := schema.Lookup(name); found {
			t.Errorf("%q is found", name)
		}
	}
	if names := schema.Names(); !slices.IsSorted(names) || !slices.Contains(names, "alias.v1") {
		t.Errorf("names %v", names)
	}
}

// beside answers the documents of the other files of an example: one may need another's stream.
func beside(t *testing.T, file string) (docs []policy.Document) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(filepath.Dir(file)) == "rewards" {
		files = append(files, "../../examples/orders/orders.yaml") // whose revisions are rewarded
	}
	if filepath.Base(file) == "effect.yaml" {
		files = []string{"../policy/testdata/design.yaml"}
	}
	for _, other := range files {
		if other == file || filepath.Base(other) == "tests.yaml" {
			continue
		}
		src, err := os.ReadFile(other)
		if err != nil {
			t.Fatal(err)
		}
		more, _ := policy.Parse(other, src) // its findings are its own
		docs = append(docs, more...)
	}
	return docs
}

// TestExamplesValidate checks every example document against its schema, as written and
// in canonical form.
func TestExamplesValidate(t *testing.T) {
	schemas := compiled(t)
	files, err := filepath.Glob("../../examples/*/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("examples %v, %v", files, err)
	}
	for _, file := range append(files, "../policy/testdata/design.yaml", "../policy/testdata/effect.yaml") {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(file) == "tests.yaml" {
			for i, text := range strings.Split(string(src), "\n---\n") {
				asJSON, err := yaml.YAMLToJSON([]byte(text))
				if err != nil {
					t.Fatal(err)
				}
				if err := validateJSON(t, schemas["testCase.v1"], string(asJSON)); err != nil {
					t.Errorf("%s case %d: %v", file, i+1, err)
				}
			}
			continue
		}
		docs, findings := policy.Parse(file, src)
		findings = append(findings, policy.Lint(docs, beside(t, file))...)
		if len(findings) > 0 {
			t.Errorf("%s: %v", file, findings)
		}
		for i, text := range strings.Split(string(src), "\n---\n") {
			kind := docs[i].Kind()
			s := schemas[strings.ToLower(kind[:1])+kind[1:]+".v1"]
			asJSON, err := yaml.YAMLToJSON([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if err := validateJSON(t, s, string(asJSON)); err != nil {
				t.Errorf("%s as written: %v", file, err)
			}
			if err := validateJSON(t, s, string(docs[i].Canonical())); err != nil {
				t.Errorf("%s in canonical form: %v", file, err)
			}
		}
	}
}

const stream = `{"kind":"BusinessStream","name":"orders","partitions":2,"key":["/region"],"values":{"amount":{"path":"/amount","type":"decimal","scale":2}},"eventTime":{"at@1":{"path":"/at","format":"rfc3339"}}}`

const timePolicy = `{"kind":"StreamTimePolicy","stream":"orders","job":"hourly","generation":1,"sources":[{"name":"shop","partitions":2}],"timestampExtractor":"at@1","watermark":{"boundedOutOfOrderness":"5m"},"idle":{"after":"60m"},"window":{"tumbling":"1h"},"aggregates":{"revenue":"sum(amount)","orders":"count()"},"allowedLateness":"24h"}`

const effectPolicy = `{"kind":"EffectPolicy","name":"reward","version":3,"stream":"orders","job":"hourly","effectType":"issue-reward","subject":"key","when":"value.orders > 10","payload":{"account":"key","points":"7"},"adapter":"rewards-api@2","airlock":{"amountAbove":{"field":"points","limit":100},"firstOfGeneration":10,"windowOlderThan":"48h"},"corrections":"manual"}`

const adapter = `{"kind":"Adapter","name":"rewards-api","version":2,"type":"http","url":"https://rewards.example/v1","idempotency":{"header":"Idempotency-Key","retention":"24h","basis":"firstSeen","onBodyMismatch":"error"},"evidence":{"key":"/ref","amount":"/points"},"query":{"url":"https://rewards.example/{effectKey}","absence":"authoritative","lateArrivalBound":"10m"},"receipts":{"secretFile":"/run/secrets/receipts"},"timeout":"20s","rate":{"perSecond":50},"reject":[{"status":422,"code":"account_closed"}]}`

// TestSchemaAgreesWithParse edits a valid document and asks both.
func TestSchemaAgreesWithParse(t *testing.T) {
	schemas := compiled(t)
	tests := []struct {
		base, old, with string
		valid           bool
	}{
		{stream, `"partitions":2`, `"partitions":99`, true},
		{stream, `"partitions":2`, `"partitions":100`, false},
		{stream, `"partitions":2`, `"partitions":"2"`, false},
		{stream, `"partitions":2,`, ``, false},
		{stream, `"partitions":2`, `"partitions":2,"schema":"businessStream.v1","apiVersion":"tidemark/v1"`, true},
		{stream, `"partitions":2`, `"partitions":2,"apiVersion":"tidemark/v2"`, false},
		{stream, `"partitions":2`, `"partitions":2,"color":"red"`, false},
		{stream, `"orders"`, `"or ders"`, false},
		{stream, `["/region"]`, `["/a~0b","/c/d e.é"]`, true},
		{stream, `["/region"]`, `["region"]`, false},
		{stream, `["/region"]`, `[]`, false},
		{stream, `["/region"]`, `"/region"`, false},
		{stream, `"scale":2`, `"scale":19`, false},
		{stream, `,"scale":2`, ``, false},
		{stream, `"decimal","scale":2`, `"int"`, true},
		{stream, `"decimal","scale":2`, `"string","scale":2`, false},
		{stream, `"decimal"`, `"float"`, false},
		{stream, `"amount":{`, `"Größe_1.a-b":{`, true},
		{stream, `"amount":{`, `"a b":{`, false},
		{stream, `"at@1"`, `"at"`, false},
		{stream, `"at@1"`, `"order.at@12"`, true},
		{stream, `"rfc3339"`, `"unix-ns"`, false},
		{stream, `"partitions":2`, `"partitions":2,"bounds":{"maxFuture":"1d","notBefore":"2001-01-01T00:00:00+01:00"}`, true},
		{stream, `"partitions":2`, `"partitions":2,"bounds":{"notBefore":"2001-01-01"}`, false},
		{stream, `"partitions":2`, `"partitions":2,"bounds":{"maxFuture":"-1d"}`, false},
		{stream, `"partitions":2`, `"partitions":2,"maxEventBytes":"64KiB"`, true},
		{stream, `"partitions":2`, `"partitions":2,"maxEventBytes":1024`, true},
		{stream, `"partitions":2`, `"partitions":2,"maxEventBytes":"64 KiB"`, false},
		{stream, `"partitions":2`, `"partitions":2,"maxEventBytes":0`, false},
		{stream, `"partitions":2`, `"partitions":2,"retractions":"yes"`, false},
		{stream, `"partitions":2`, `"partitions":2,"schemaGeneration":0`, false},
		{timePolicy, `"hourly","generation":1`, `"hourly@1"`, true},
		{timePolicy, `"hourly"`, `"hourly@1"`, false},
		{timePolicy, `"generation":1,`, ``, false},
		{timePolicy, `"generation":1`, `"generation":1.5`, false},
		{timePolicy, `"60m"`, `"1h30m"`, true},
		{timePolicy, `"60m"`, `"1.5d"`, true},
		{timePolicy, `"60m"`, `"60"`, false},
		{timePolicy, `"60m"`, `60`, false},
		{timePolicy, `"60m"`, `"60 m"`, false},
		{timePolicy, `"60m"`, `"sixty"`, false},
		{timePolicy, `"60m"`, `"-5m"`, false},
		{timePolicy, `"after":"60m"`, `"allIdle":"hold"`, false},
		{timePolicy, `"after":"60m"`, `"after":"60m","allIdle":"maybe"`, false},
		{timePolicy, `"idle":{"after":"60m"}`, `"idlePartitionAfter":"60m"`, true},
		{timePolicy, `"idle"`, `"idlePartitionAfter":"60m","idle"`, false},
		{timePolicy, `{"tumbling":"1h"}`, `"tumbling:1h:UTC"`, true},
		{timePolicy, `{"tumbling":"1h"}`, `"hopping:1h"`, false},
		{timePolicy, `{"tumbling":"1h"}`, `{"tumbling":"1h","offset":"-15m","zone":"UTC"}`, true},
		{timePolicy, `{"tumbling":"1h"}`, `{"tumbling":"1h","every":"15m"}`, false},
		{timePolicy, `{"tumbling":"1h"}`, `{"hopping":"1h","every":"10m"}`, true},
		{timePolicy, `{"tumbling":"1h"}`, `{"hopping":"1h"}`, false},
		{timePolicy, `{"tumbling":"1h"}`, `{"session":"11m","rule":"gap-11-v2"}`, true},
		{timePolicy, `{"tumbling":"1h"}`, `{"session":"11m"}`, false},
		{timePolicy, `{"tumbling":"1h"}`, `{"calendar":"week","zone":"Europe/Paris"}`, true},
		{timePolicy, `{"tumbling":"1h"}`, `{"calendar":"year"}`, false},
		{timePolicy, `{"tumbling":"1h"}`, `{"tumbling":"1h","session":"5m"}`, false},
		{timePolicy, `{"boundedOutOfOrderness":"5m"}`, `"bounded-out-of-orderness:5m"`, true},
		{timePolicy, `{"boundedOutOfOrderness":"5m"}`, `"bounded:5m"`, false},
		{timePolicy, `{"boundedOutOfOrderness":"5m"}`, `{}`, false},
		{timePolicy, `"at@1"`, `{"name":"at","version":1}`, true},
		{timePolicy, `"at@1"`, `"at"`, false},
		{timePolicy, `sum(amount)`, `distinct( amount )`, true},
		{timePolicy, `sum(amount)`, `distinct( amount ,1000000 )`, true},
		{timePolicy, `sum(amount)`, `distinct(amount, 1000001)`, false},
		{timePolicy, `sum(amount)`, `distinct(amount, 0)`, false},
		{timePolicy, `sum(amount)`, `distinct(amount, 07)`, false},
		{timePolicy, `sum(amount)`, `distinct(amount,)`, false},
		{timePolicy, `sum(amount)`, `sum(amount, 5)`, false},
		{timePolicy, `sum(amount)`, `first(amount)`, true},
		{timePolicy, `sum(amount)`, `median(amount)`, false},
		{timePolicy, `sum(amount)`, `sum()`, false},
		{timePolicy, `count()`, `count(amount)`, false},
		{timePolicy, `{"revenue":"sum(amount)","orders":"count()"}`, `{}`, false},
		{timePolicy, `"shop","partitions":2`, `"Kasse 3/ü"`, true},
		{timePolicy, `"shop","partitions":2`, `""`, false},
		{timePolicy, `"24h"`, `"24h","late":"manual","retention":{"ids":"48h","raw":"unlimited"},"trigger":{"early":"30s"},"rebuildLimit":7,"topologyChange":true,"correctionMode":"UPSERT_REVISION"`, true},
		{timePolicy, `"24h"`, `"24h","late":"drop"`, false},
		{timePolicy, `"24h"`, `"24h","retention":{"raw":"for ever"}`, false},
		{timePolicy, `"24h"`, `"24h","correctionMode":"OVERWRITE"`, false},
		{timePolicy, `"window"`, `"windows"`, false},
		{effectPolicy, `"reward","version":3`, `"reward@3"`, true},
		{effectPolicy, `"reward"`, `"reward@3"`, false},
		{effectPolicy, `"version":3,`, ``, false},
		{effectPolicy, `"version":3`, `"version":0`, false},
		{effectPolicy, `"version":3`, `"version":3,"schema":"effectPolicy.v1","apiVersion":"tidemark/v1","requireProvenance":"DATA"`, true},
		{effectPolicy, `"version":3`, `"version":3,"requireProvenance":"data"`, false},
		{effectPolicy, `"version":3`, `"version":3,"color":"red"`, false},
		{effectPolicy, `"issue-reward"`, `"issue reward"`, false},
		{effectPolicy, `"subject":"key"`, `"subject":" "`, false},
		{effectPolicy, `"subject":"key",`, ``, false},
		{effectPolicy, `"value.orders > 10"`, `true`, true},
		{effectPolicy, `"value.orders > 10"`, `1.5`, false},
		{effectPolicy, `"value.orders > 10"`, `["a"]`, false},
		{effectPolicy, `"points":"7"`, `"points":7,"ok":true,"größe":"1"`, true},
		{effectPolicy, `"points":"7"`, `"points":"7","a b":"1"`, false},
		{effectPolicy, `"points":"7"`, `"points":"7","EffectKey":"key"`, false},
		{effectPolicy, `"points":"7"`, `"points":null`, false},
		{effectPolicy, `"rewards-api@2"`, `{"name":"rewards-api","version":2}`, true},
		{effectPolicy, `"rewards-api@2"`, `"rewards-api"`, false},
		{effectPolicy, `"rewards-api@2"`, `{"name":"rewards-api"}`, false},
		{effectPolicy, `"limit":100`, `"limit":"-99.50"`, true},
		{effectPolicy, `"limit":100`, `"limit":"1e3"`, false},
		{effectPolicy, `"limit":100`, `"limit":1.5`, false},
		{effectPolicy, `,"limit":100`, ``, false},
		{effectPolicy, `"firstOfGeneration":10`, `"firstOfGeneration":-1`, false},
		{effectPolicy, `"48h"`, `"2 days"`, false},
		{effectPolicy, `"corrections":"manual"`, `"corrections":"undo"`, false},
		{effectPolicy, `"corrections":"manual"`, `"corrections":{"mode":"adjust","adapter":"undo@1","payload":{"a":"key"}}`, true},
		{effectPolicy, `"corrections":"manual"`, `"corrections":{"payload":{"a":"key"}}`, false},
		{adapter, `"rewards-api","version":2`, `"rewards-api@2"`, true},
		{adapter, `"version":2,`, ``, false},
		{adapter, `"http"`, `"ftp"`, false},
		{adapter, `"type":"http",`, ``, false},
		{adapter, `"https://rewards.example/v1"`, `""`, false},
		{adapter, `"timeout":"20s"`, `"timeout":"-20s"`, false},
		{adapter, `"timeout":"20s"`, `"timeout":"20s","sendWithin":"5s","grace":"1m","clockUncertainty":"0s","account":"a","environment":"live","sendUnproven":true,"retry":"manual"`, true},
		{adapter, `"timeout":"20s"`, `"timeout":"20s","account":""`, false},
		{adapter, `"timeout":"20s"`, `"timeout":"20s","retry":"always"`, false},
		{adapter, `"timeout":"20s"`, `"timeout":"20s","retry":{"mode":"auto","first":"5s","most":"1h"}`, true},
		{adapter, `"timeout":"20s"`, `"timeout":"20s","retry":{"first":"5s"}`, false},
		{adapter, `"timeout":"20s"`, `"timeout":"20s","allow":["10.0.0.0/8","fd00::/8"]`, true},
		{adapter, `"timeout":"20s"`, `"timeout":"20s","allow":["10.0.0.0"]`, false},
		{adapter, `"timeout":"20s"`, `"timeout":"20s","allow":[]`, false},
		{adapter, `"timeout":"20s"`, `"timeout":"20s","headers":{"X-A":"b","Authorization":{"secretFile":"/run/t","prefix":"Bearer "}}`, true},
		{adapter, `"timeout":"20s"`, `"timeout":"20s","headers":{"X A":"b"}`, false},
		{adapter, `"timeout":"20s"`, `"timeout":"20s","headers":{"X-A":{"secretFile":"run/t"}}`, false},
		{adapter, `"timeout":"20s"`, `"timeout":"20s","headers":{"X-A":{"prefix":"Bearer "}}`, false},
		{adapter, `"timeout":"20s"`, `"timeout":"20s","breaker":{"consecutive":5,"window":100,"percent":0,"cooldown":"1m"}`, true},
		{adapter, `"timeout":"20s"`, `"timeout":"20s","breaker":{"percent":101}`, false},
		{adapter, `"header":"Idempotency-Key",`, ``, false},
		{adapter, `,"onBodyMismatch":"error"`, ``, false},
		{adapter, `"error"`, `"ignore"`, false},
		{adapter, `"firstSeen"`, `"seen"`, false},
		{adapter, `"amount":"/points"`, `"amount":{"answer":"/data/points","payload":"/points"},"subject":"/a~1b","ref":"/id"`, true},
		{adapter, `"amount":"/points"`, `"amount":{"payload":"/points"}`, false},
		{adapter, `"amount":"/points"`, `"amount":"points"`, false},
		{adapter, `"key":"/ref",`, ``, false},
		{adapter, `"absence":"authoritative"`, `"absence":"maybe"`, false},
		{adapter, `"absence":"authoritative"`, `"list":"/data","absent":[{"status":410}],"for":"2d"`, true},
		{adapter, `"url":"https://rewards.example/{effectKey}",`, ``, false},
		{adapter, `"url":"https://rewards.example/{effectKey}"`, `"url":"https://a/{effectKey}","subject":"a"`, false},
		{adapter, `{"secretFile":"/run/secrets/receipts"}`, `{}`, false},
		{adapter, `"perSecond":50`, `"perSecond":0`, false},
		{adapter, `"perSecond":50`, `"concurrency":257`, false},
		{adapter, `"code":"account_closed"`, `"code":17,"at":"/error/code"`, true},
		{adapter, `"code":"account_closed"`, `"at":"/error/code"`, false},
		{adapter, `{"status":422,"code":"account_closed"}`, `{}`, false},
		{adapter, `"status":422`, `"status":600`, false},
		{adapter, `"reject":[{`, `"inFlight":[{"status":409}],"throttle":[{"status":429}],"pending":[{"status":202}],"bodyMismatch":[{"status":422,"code":"x"}],"reject":[{`, true},
	}
	for _, tt := range tests {
		if !strings.Contains(tt.base, tt.old) {
			t.Fatalf("no such text: %s", tt.old)
		}
		text := strings.Replace(tt.base, tt.old, tt.with, 1)
		s := schemas[map[string]string{stream: "businessStream.v1", timePolicy: "streamTimePolicy.v1", effectPolicy: "effectPolicy.v1", adapter: "adapter.v1"}[tt.base]]
		bySchema := validateJSON(t, s, text)
		_, findings := policy.Parse("x", []byte(text)) // JSON is YAML
		if (bySchema == nil) != tt.valid || (len(findings) == 0) != tt.valid {
			t.Errorf("%s: want valid %v; schema says %v, parse says %v", tt.with, tt.valid, bySchema, findings)
		}
	}
}

const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// TestRecords checks one good record of each kind, and what each must refuse.
func TestRecords(t *testing.T) {
	schemas := compiled(t)
	tests := []struct {
		name, good string
		bad        [][2]string // text of good and what stands in its place
	}{
		{"alias.v1", `{"schema":"alias.v1","job":"j","canonical":1,"epoch":1,"candidate":2,"candidatePercent":5,"switching":{"to":2}}`, [][2]string{
			{`"epoch":1`, `"epoch":0`}, {`"canonical":1,`, ``}, {`,"candidatePercent":5`, ``}, {`{"to":2}`, `2`}, {`"job":"j"`, `"job":"j","x":1`},
		}},
		{"claim.v1", `{"schema":"claim.v1","epoch":1,"owner":"a","coreVersion":1}`, [][2]string{
			{`"epoch":1`, `"epoch":0`}, {`"owner":"a"`, `"owner":""`}, {`claim.v1`, `claim.v2`}, {`,"coreVersion":1`, ``}, {`"epoch":1`, `"epoch":"1"`},
		}},
		{"commit.v1", `{"schema":"commit.v1","epoch":3,"inputs":[{"stream":"S","created":"2026-11-30T10:00:00.000000001Z","seq":2,"index":0,"outputs":1}],"w":"-inf","wdata":"2026-11-30T10:00:00.5Z","openFrom":"+inf","counts":{"applied":3},"idDigest":"0123456789abcdef0123456789abcdef","records":4,"recordsDigest":"` + digest + `","previous":"` + digest + `"}`, [][2]string{
			{`"seq":2,`, ``}, {`"-inf"`, `"never"`}, {`"applied":3`, `"applied":"3"`}, {`"records":4`, `"records":-4`}, {`0123456789abcdef"`, `0123456789ABCDEF"`},
		}},
		{"envelope.v1", `{"specversion":"1.0","id":"1","source":"shop","type":"order","data":{"a":1},"op":"retract","withdraws":"0","origin":"live","com":"x"}`, [][2]string{
			{`"1.0"`, `"0.3"`}, {`"id":"1",`, ``}, {`,"withdraws":"0"`, ``}, {`"retract"`, `"delete"`}, {`"live"`, `"dead"`}, {`,"data":{"a":1}`, ``},
		}},
		{"quarantineRecord.v1", `{"schema":"quarantineRecord.v1","writer":"w","number":1,"reason":"malformed-json","rule":"r","stream":"s","source":"x","partition":0,"format":"plain","ingestTime":"2026-11-30T10:00:00Z","bytes":"e30="}`, [][2]string{
			{`"malformed-json"`, `"other"`}, {`"number":1`, `"number":0`}, {`"bytes":"e30="`, `"bytes":1`}, {`"plain"`, `"xml"`}, {`,"rule":"r"`, ``},
		}},
		{"revision.v1", `{"schema":"revision.v1","stream":"orders","job":"j","policyGeneration":"j@1","policyDigest":"` + digest + `","key":"k","window":{"start":"2026-11-30T10:00:00Z","end":"2026-11-30T11:00:00Z"},"logicalWindowId":"` + digest + `","projectionId":"` + digest + `","op":"UPSERT","revision":2,"predecessor":{"revision":1,"digest":"` + digest + `"},"state":"CORRECTED","firing":"LATE","origin":"live","valueChanged":true,"value":{"revenue":"12.50","orders":4},"delta":{"revenue":"-1.00","orders":1},"inputs":{"journal":{"partition":3,"first":1,"last":9},"events":4,"idDigest":"0123456789abcdef0123456789abcdef"},"aggregateDigest":"` + digest + `","watermark":{"at":"2026-11-30T11:04:10.25Z","data":"-inf"},"cause":"LATE_EVENT","supersedes":[],"attempt":{"epoch":7}}`, [][2]string{
			{`"revision":2,`, `"revision":1,`}, {`"UPSERT"`, `"DELETE"`}, {`"orders":4`, `"orders":4.5`}, {`"j@1"`, `"j"`}, {`"key":"k"`, `"key":""`}, {`"supersedes":[]`, `"supersedes":null`},
		}},
	}
	for _, tt := range tests {
		if err := validateJSON(t, schemas[tt.name], tt.good); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		for _, bad := range tt.bad {
			if !strings.Contains(tt.good, bad[0]) {
				t.Fatalf("%s: no such text: %s", tt.name, bad[0])
			}
			if err := validateJSON(t, schemas[tt.name], strings.Replace(tt.good, bad[0], bad[1], 1)); err == nil {
				t.Errorf("%s accepts %s", tt.name, bad[1])
			}
		}
	}
}

// TestEncodersAgree validates what pkg/revision writes.
func TestEncodersAgree(t *testing.T) {
	schemas := compiled(t)
	r, err := revision.ParseJSON([]byte(strings.NewReplacer("DIGEST", digest).Replace(`{"schema":"revision.v1","stream":"orders","job":"j","policyGeneration":"j@1","policyDigest":"DIGEST","key":"k","window":{"start":"2026-11-30T10:00:00Z","end":"2026-11-30T11:00:00Z"},"logicalWindowId":"DIGEST","projectionId":"DIGEST","op":"UPSERT","revision":1,"state":"ON_TIME_EMITTED","firing":"ON_TIME","origin":"live","valueChanged":true,"value":{"orders":4},"delta":{"orders":4},"inputs":{"journal":{"partition":3,"first":1,"last":9},"events":4,"idDigest":"0123456789abcdef0123456789abcdef","offsets":[{"source":"s","partition":0,"first":1,"last":2}]},"aggregateDigest":"DIGEST","watermark":{"at":"2026-11-30T11:04:10.25Z","data":"2026-11-30T11:04:10.25Z"},"cause":"ON_TIME","supersedes":[],"attempt":{"epoch":7}}`)))
	if err != nil {
		t.Fatal(err)
	}
	commit := revision.NewCommit()
	commit.Epoch, commit.Counts = 1, []revision.Count{{Name: "applied", N: 2}}
	commit.Inputs = []revision.InputPosition{{Stream: "S", Created: 1, Seq: 1}}
	alias := revision.Alias{Job: "j", Canonical: 1, Candidate: 2, CandidatePercent: 0, Epoch: 3, Switching: 2}
	claim := revision.Claim{Epoch: 1, Owner: "o", CoreVersion: 1}
	preview := revision.Preview{
		Stream: r.Stream, Job: r.Job, PolicyGeneration: r.PolicyGeneration, Key: r.Key, Window: r.Window, LogicalWindowID: digest, ProjectionID: digest,
		Value: []revision.Field{{Name: "orders", Text: "4"}, {Name: "revenue", Text: "1.00", Quoted: true}}, Events: 4, Watermark: envelope.MinEventTime, IngestNow: 1,
	}
	for name, text := range map[string][]byte{
		"revision.v1": r.AppendJSON(nil), "early.v1": preview.AppendJSON(nil), "commit.v1": commit.AppendJSON(nil), "alias.v1": alias.AppendJSON(nil), "claim.v1": claim.AppendJSON(nil),
	} {
		if err := validateJSON(t, schemas[name], string(text)); err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tidemark-mesh/tidemark/internal/backup"
	"github.com/tidemark-mesh/tidemark/internal/cases"
	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/schema"
)

var update = flag.Bool("update", false, "write golden files")

// shapes are outputs with every field set: what scripts may lean on.
func shapes() []struct {
	schema string
	value  any
} {
	index, pp := 3, 5
	at := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	hour := &revision.Window{Start: envelope.EventTime(at.UnixMicro()), End: envelope.EventTime(at.Add(time.Hour).UnixMicro())}
	record := envelope.QuarantineRecord{
		Schema: envelope.QuarantineSchema, Writer: "w", Number: 7, ID: "o-1", Reason: "value-precision", Rule: "why", Stream: "orders", Source: "shop", Partition: 1,
		Offset: 1<<32 | 4, Generation: 1<<32 | 1, Format: "csv", Header: map[string]string{"id": "o-1"}, IDPath: "/id", Columns: []string{"id"}, IngestTime: at, Bytes: []byte("o-1"), Digests: []string{"aa", "bb"},
	}
	disposition := &envelope.QuarantineDisposition{Schema: envelope.DispositionSchema, Sequence: 9, Action: envelope.Replayed, By: "ann@host", Reason: "fixed", Job: "j", At: at, Source: "shop", ID: "o-1", KeyPartition: 5}
	return []struct {
		schema string
		value  any
	}{
		{"quarantineLine.v1", &quarantined{Sequence: 9, ID: record.ID, QuarantineRecord: record, Text: "o-1", Disposition: disposition}},
		{"quarantineResult.v1", &disposed{Job: "j", Sequence: 9, ID: "o-1", Source: "shop", Result: "refused", Reason: "value-precision", Rule: "why", KeyPartition: &pp}},
		{"traceStep.v1", &traceStep{
			Step: stepEvent, Stream: "orders", Journal: "TM_orders_EVT_05", Sequence: 12, Index: &index, ID: "o-1", Source: "shop", SourcePartition: "replay", SourceOffset: 9,
			Key: "eu-west", KeyPartition: &pp, EventTimes: map[string]envelope.EventTime{"at@1": hour.Start}, IngestTime: "2026-11-30T10:00:00Z", Op: "retract", Origin: "replay",
			Withdraws: "o-0", Digest: "00", Writer: "w", Frame: 4, Class: "first",
		}},
		{"traceStep.v1", &traceStep{
			Step: stepRevision, Stream: "orders", Journal: "TM_orders_REV", Sequence: 30, Key: "eu-west", KeyPartition: &pp, Reason: "r", Rule: "r", PolicyGeneration: "hourly-revenue@1",
			Window: hour, Revision: 2, Op: "UPSERT", Firing: "LATE", State: "CORRECTED", FirstIncluding: true, Value: map[string]json.RawMessage{"revenue": json.RawMessage(`"25.00"`)},
		}},
		{"doctorCheck.v1", &checkup{Check: "stream", Of: "TM_orders_REV", Result: checkFail, What: "it does not exist", Do: "restore it"}},
		{"stateFile.v1", &stateFile{
			File: "windower/orders/hourly.1.00.db", Size: 4096, Kind: "windower", Format: 1, Journal: "TM_orders_WIN_hourly_1_00", Created: "2026-11-30T10:00:00Z", Position: 17, Entries: 3,
			State: stateDamaged, Cache: true, What: "its checksums do not fit", MovedTo: "/data/a.damaged-1",
		}},
		{"testResult.v1", &cases.Result{File: "tests.yaml", Line: 3, Name: "a case", OK: false, Diff: []string{"- a", "+ b"}, Notes: []string{"n"}, Events: 4}},
		{"sourceGap.v1", &gapResult{Stream: "orders", Partition: 3, Writer: "w", First: 17, Last: 19, Missing: 2, Reason: "disk lost", Sequence: 40, DryRun: true}},
		{"backupManifest.v1", &backup.Manifest{
			Schema: backup.Schema, Stream: "orders", Complete: true, Started: at, Finished: &at, Documents: []config.Stored{{Key: "stream.orders", Value: []byte("{}")}},
			Journals: []backup.Journal{{Name: "TM_orders_REV", Role: "revisions", Created: at, First: 1, Last: 9, Messages: 9, File: "TM_orders_REV.snapshot", Size: 4096, SHA256: strings.Repeat("0a", 32), Config: jetstream.StreamConfig{Name: "TM_orders_REV"}}},
		}},
	}
}

// What scripts read does not change by accident, and is what the schemas say.
func TestShapesOfOutputs(t *testing.T) {
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	for _, name := range schema.Names() {
		text, _ := schema.Lookup(name)
		if strings.HasSuffix(name, ".proto") {
			continue
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := compiler.AddResource(name+".json", doc); err != nil {
			t.Fatal(err)
		}
	}
	var got bytes.Buffer
	for _, s := range append(shapes(), effectShapes()...) {
		var one bytes.Buffer
		if err := writeJSON(&one, s.value, "  "); err != nil {
			t.Fatal(err)
		}
		compiled, err := compiler.Compile(s.schema + ".json")
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(one.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if err := compiled.Validate(v); err != nil {
			t.Errorf("%s: %v", s.schema, err)
		}
		got.WriteString("// " + s.schema + "\n" + one.String())
	}
	const golden = "testdata/shapes.golden"
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the outputs are not those of %s: a change breaks scripts; run with -update if it is meant\n%s", golden, &got)
	}
}

func TestCreateVerb(t *testing.T) {
	for _, kind := range []string{"BusinessStream", "StreamTimePolicy", "EffectPolicy", "Adapter", "TestCase"} {
		out, _ := tidemark(t, exitOK, "", "create", kind)
		contains(t, out, "# yaml-language-server: $schema=", "kind: "+kind)
		tidemark(t, exitOK, out, "lint", "-")
	}
	out, _ := tidemark(t, exitOK, "", "create", "TestCase")
	verdict, _ := tidemark(t, exitOK, out, "test", "-")
	contains(t, verdict, "ok    a late order corrects its hour")
	out, _ = tidemark(t, exitOK, "", "create", "streamtimepolicy", "--stream", "clicks", "--job", "per-minute", "--window", "1m", "--source", "urn:web", "--key", "/user", "--time", "/at", "--time-format", "unix-ms", "--partitions", "3")
	contains(t, out, "name: clicks", "job: per-minute", "{tumbling: 1m}", `name: "urn:web"`, "key: [/user]", "format: unix-ms", "partitions: 3")
	tidemark(t, exitOK, out, "lint", "-")
	if out, _ = tidemark(t, exitOK, "", "create", "StreamTimePolicy", "--alone"); strings.Contains(out, "kind: BusinessStream") {
		t.Error("--alone printed the stream too")
	}
	if out, _ = tidemark(t, exitOK, "", "create", "effectpolicy", "--alone", "--job", "daily"); strings.Contains(out, "kind: Adapter") || !strings.Contains(out, "job: daily") {
		t.Errorf("--alone printed %s", out)
	}
	_, errOut := tidemark(t, exitUsage, "", "create", "Effect")
	contains(t, errOut, "BusinessStream", "TestCase")
	_, errOut = tidemark(t, exitUsage, "", "create", "BusinessStream", "--key", "region")
	contains(t, errOut, "JSON Pointer")
}

func TestTestVerb(t *testing.T) {
	out, _ := tidemark(t, exitOK, "", "test", "../../examples/orders", "../../examples/flights", "-o", "ndjson")
	if n := strings.Count(out, `"ok":true`); n < 4 {
		t.Errorf("%d cases passed: %s", n, out)
	}
	text, _ := tidemark(t, exitOK, "", "create", "TestCase")
	wrong := strings.Replace(text, `revenue: "26.50"`, `revenue: "26.51"`, 1)
	out, errOut := tidemark(t, exitFindings, wrong, "test", "-")
	contains(t, out, "FAIL", `- windows[0]: {key: eu-west, revision: 2, state: CORRECTED, value: {orders: 2, revenue: 26.51}}`, `+ windows[0]: {key: eu-west, revision: 2, state: CORRECTED, value: {orders: 2, revenue: 26.50}}`)
	contains(t, errOut, "1 cases, 1 failed")
	out, _ = tidemark(t, exitFindings, strings.Replace(text, "steps:", "stepps:", 1), "lint", "-")
	contains(t, out, ": bad-case: ", "stepps")
	tidemark(t, exitFindings, "kind: BusinessStream\n", "test", "-")
	tidemark(t, exitUsage, "", "test", t.TempDir())
	_, errOut = tidemark(t, exitUsage, text, "apply", "-f", "-", "--server", "nats://127.0.0.1:1")
	contains(t, errOut, "tidemark test")
}

package webhook

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/schema"
)

var update = flag.Bool("update", false, "write golden files")

// shapes are outputs and messages with every member set: what receivers and scripts may
// lean on.
func shapes(t *testing.T) []struct {
	schema string
	value  any
} {
	id, digest := projectionOf(1, "eu"), strings.Repeat("0a", 32)
	e, err := Parse([]byte(document + "mode: delta\n"))
	must(t, err)
	d, err := revision.ParseDigest(digest)
	must(t, err)
	_, upsert, err := e.deliveryOf(&revision.Revision{
		Stream: "orders", Job: "hourly", PolicyGeneration: "hourly@3", PolicyDigest: digest, Key: "eu", Window: revision.Window{Start: base, End: base + hour},
		LogicalWindowID: digest, ProjectionID: id, Op: revision.Upsert, Revision: 2, Predecessor: &revision.Predecessor{Revision: 1, Digest: d},
		State: revision.Corrected, Firing: revision.FiringLate, Cause: revision.CauseLateEvent, ValueChanged: true, AggregateDigest: d,
		Value: []revision.Field{{Name: "orders", Text: "2"}, {Name: "revenue", Text: "25.50", Quoted: true}}, Delta: []revision.Field{{Name: "orders", Text: "-1"}},
		Supersedes: []revision.Supersession{{ProjectionID: digest, Revision: 4}}, SupersededBy: digest,
	}, 3, start)
	must(t, err)
	_, switched, err := e.switchOf(3, 4, start)
	must(t, err)
	return []struct {
		schema string
		value  any
	}{
		{"webhookMessage.v1", json.RawMessage(upsert)},
		{"webhookMessage.v1", json.RawMessage(switched)},
		{"webhookReceipt.v1", &Receipt{Schema: ReceiptSchema, WebhookID: "crm_" + id + "_2", Result: StateApplied, AppliedRevision: 2, ResultDigest: digest, AppliedAt: start}},
		{"webhookReceipt.v1", &Receipt{Schema: ReceiptSchema, WebhookID: "crm_" + id + "_2", Result: StateRefused, Reason: "stale"}},
		{"webhookDelivery.v1", &Delivery{
			Sequence: 9, ID: "crm_" + id + "_2", Type: TypeUpsert, ProjectionID: id, Revision: 2, Key: "eu", Generation: 3, Digest: digest, State: StateDelivered,
			Attempts: 3, Failures: 2, Due: start, After: 8, Linked: true, QueuedAt: start, DeliveredAt: start.Add(time.Minute), ClosedAt: start.Add(time.Hour),
			Status: 200, Problem: "answered 500", Overdue: true, Resent: 1, TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		}},
		{"webhookStatus.v1", &Status{
			Endpoint: "crm", URL: "https://receiver.example/hooks", Stream: "orders", Job: "hourly", Mode: ModeDelta, Generation: 3, DisabledSince: start, DisabledWhy: "the receiver answered 410 Gone",
			PausedUntil: start, Deliveries: map[State]uint64{StateQueued: 1, StateDelivered: 2}, Overdue: 1, OldestWaiting: start, Unapplied: start, Alerts: []string{"disabled"},
		}},
		{"webhookResult.v1", &Item{WebhookID: "crm_" + id + "_2", Result: "refused", State: StateCoalesced, Problem: "a newer revision took its place"}},
	}
}

// What receivers and scripts read does not change by accident, and is what the schemas say.
func TestShapesOfMessagesAndOutputs(t *testing.T) {
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	var got bytes.Buffer
	for _, s := range shapes(t) {
		text, found := schema.Lookup(s.schema)
		if !found {
			t.Fatalf("there is no schema %s", s.schema)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		must(t, err)
		if err := compiler.AddResource(s.schema+".json", doc); err != nil && !strings.Contains(err.Error(), "already exists") {
			t.Fatal(err)
		}
		compiled, err := compiler.Compile(s.schema + ".json")
		must(t, err)
		one, err := json.MarshalIndent(s.value, "", "  ")
		must(t, err)
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(one))
		must(t, err)
		if err := compiled.Validate(v); err != nil {
			t.Errorf("%s: %v", s.schema, err)
		}
		got.WriteString("// " + s.schema + "\n" + string(one) + "\n")
	}
	const golden = "testdata/shapes.golden"
	if *update {
		must(t, os.WriteFile(golden, got.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	must(t, err)
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the shapes are not those of %s: a change breaks receivers and scripts; run with -update if it is meant\n%s", golden, &got)
	}
}

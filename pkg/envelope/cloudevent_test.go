package envelope_test

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestParseCloudEvent(t *testing.T) {
	src := `{"specversion":"1.0","id":"r-1","source":"shop","type":"order.refunded","subject":"o 1","time":"whatever",
		"dataschema":"https://shop.example/order/3","datacontenttype":"application/json; charset=utf-8","op":"retract",
		"withdraws":"o-1","origin":"backfill","sourcepartition":2,"sourceoffset":"77","ingesttime":5,"traceparent":"` + trace + `",
		"color":{"any":1},"partitiongeneration":null,"data":{"a":[1, 2]}}`
	var d envelope.Document
	var ce envelope.CloudEvent
	n, err := envelope.ParseCloudEvent(&d, []byte(src), &ce)
	if err != nil {
		t.Fatal(err)
	}
	if string(d.Raw(n)) != `{"a":[1, 2]}` || string(ce.Data) != `{"a":[1, 2]}` {
		t.Errorf("data is %s and %s", d.Raw(n), ce.Data)
	}
	if ce.ID != "r-1" || ce.Source != "shop" || ce.Type != "order.refunded" || ce.Subject != "o 1" || ce.Op != envelope.Retract ||
		ce.Withdraws != "o-1" || ce.Origin != envelope.OriginBackfill || ce.SourcePartition != 2 || !ce.HasSourcePartition ||
		ce.DataSchema != "https://shop.example/order/3" || ce.TraceParent != trace {
		t.Errorf("got %+v", ce)
	}
}

func TestParseCloudEventFaults(t *testing.T) {
	const good = `"specversion":"1.0","id":"1","source":"s","type":"t"`
	for _, c := range []struct{ name, src, attribute string }{
		{"no specversion", `{"id":"1","source":"s","type":"t"}`, "specversion"},
		{"specversion 0.3", `{"specversion":"0.3","id":"1","source":"s","type":"t"}`, "specversion"},
		{"no source", `{"specversion":"1.0","id":"1","type":"t"}`, "source"},
		{"no type", `{"specversion":"1.0","id":"1","source":"s","type":""}`, "type"},
		{"id as number", `{"specversion":"1.0","id":1,"source":"s","type":"t"}`, "id"},
		{"op", `{` + good + `,"op":"delete"}`, "op"},
		{"origin", `{` + good + `,"origin":"here"}`, "origin"},
		{"sourcepartition", `{` + good + `,"sourcepartition":-1}`, "sourcepartition"},
		{"sourcepartition 2^32", `{` + good + `,"sourcepartition":4294967296}`, "sourcepartition"},
		{"XML", `{` + good + `,"datacontenttype":"text/xml","data":"<a/>"}`, "datacontenttype"},
		{"both data", `{` + good + `,"data":1,"data_base64":"MQ=="}`, "data_base64"},
		{"bad base64", `{` + good + `,"data_base64":"%%"}`, "data_base64"},
		{"long id", `{"specversion":"1.0","id":"` + strings.Repeat("x", envelope.MaxAttribute+1) + `","source":"s","type":"t"}`, "id"},
	} {
		var d envelope.Document
		var ce envelope.CloudEvent
		_, err := envelope.ParseCloudEvent(&d, []byte(c.src), &ce)
		var fault *envelope.AttributeError
		if !errors.As(err, &fault) || fault.Name != c.attribute {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
}

func TestCloudEventData(t *testing.T) {
	const head = `{"specversion":"1.0","id":"1","source":"s","type":"t"`
	for src, want := range map[string]string{
		head + `}`: "", head + `,"data":null}`: "null", head + `,"data":"text"}`: `"text"`,
		head + `,"data_base64":"eyJhIjoxfQ=="}`: `{"a":1}`,
		head + `,"data":` + nested(64) + `}`:    nested(64),
		"{\"\\u0069d\":\"1\"," + head[1:len(head)-len(`,"id":"1","source":"s","type":"t"`)] + `,"source":"s","type":"t","data":1}`: "1",
	} {
		var d envelope.Document
		var ce envelope.CloudEvent
		if n, err := envelope.ParseCloudEvent(&d, []byte(src), &ce); err != nil || string(ce.Data) != want || (n < 0) != (want == "") {
			t.Errorf("%.80s: got %q at node %d, %v", src, ce.Data, n, err)
		}
	}
	var d envelope.Document
	var ce envelope.CloudEvent
	_, err := envelope.ParseCloudEvent(&d, []byte(head+`,"data":`+nested(65)+`}`), &ce)
	var fault *envelope.JSONError
	if !errors.As(err, &fault) || fault.Fault != envelope.TooDeep {
		t.Errorf("data of depth 65: got %v", err)
	}
}

func TestBinaryAttributesDialects(t *testing.T) {
	canonical := http.Header{} // net/http writes Ce-Id
	for name, value := range map[string]string{"ce-id": "a%20b", "ce-source": `"/shop"`, "ce-op": "assert", "content-type": "application/json"} {
		canonical.Set(name, value)
	}
	for _, c := range []struct {
		name   string
		header map[string][]string
		want   map[string]string
	}{
		{"HTTP", canonical, map[string]string{"id": "a b", "source": "/shop", "op": "assert", "datacontenttype": "application/json"}},
		{
			"NATS binding",
			map[string][]string{"ce-id": {"%F0%9F%98%80%25"}, "ce-datacontenttype": {"application/json"}},
			map[string]string{"id": "😀%", "datacontenttype": "application/json"},
		},
		{
			"Go SDK, raw values",
			map[string][]string{"ce-id": {"100%"}, "ce-subject": {"50% off & größer"}, "content-type": {"text/json"}},
			map[string]string{"id": "100%", "subject": "50% off & größer", "datacontenttype": "text/json"},
		},
		{
			"both content types",
			map[string][]string{"ce-datacontenttype": {"application/json"}, "Content-Type": {"text/plain"}},
			map[string]string{"datacontenttype": "application/json"},
		},
		{"quoted with escapes", map[string][]string{"Ce-Id": {`"a\"b\\c"`}}, map[string]string{"id": `a"b\c`}},
		{"traceparent beside", map[string][]string{"ce-id": {"1"}, "Traceparent": {trace}}, map[string]string{"id": "1", "traceparent": trace}},
		{"others are ignored", map[string][]string{"Tm-Source": {"x"}, "ce-": {"y"}, "Ceid": {"z"}}, map[string]string{}},
	} {
		got, err := envelope.BinaryAttributes(c.header)
		if err != nil || len(got) != len(c.want) {
			t.Errorf("%s: got %v, %v", c.name, got, err)
		}
		for name, want := range c.want {
			if got[name] != want {
				t.Errorf("%s: %s is %q, want %q", c.name, name, got[name], want)
			}
		}
	}
	for name, header := range map[string]map[string][]string{
		"two values":     {"ce-id": {"1", "2"}},
		"two spellings":  {"ce-id": {"1"}, "Ce-Id": {"1"}},
		"bad name":       {"ce-a_b": {"1"}},
		"bad UTF-8":      {"ce-id": {"%ff"}},
		"bad raw string": {"ce-id": {"\xff"}},
	} {
		if got, err := envelope.BinaryAttributes(header); err == nil {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestDetectMode(t *testing.T) {
	const event = `{"specversion":"1.0","id":"1","source":"s","type":"t"}`
	for _, c := range []struct {
		header map[string][]string
		body   string
		want   envelope.Mode
	}{
		{nil, `{"id":1}`, envelope.ModePlain},
		{nil, event, envelope.ModeStructured}, // the NATS part of the Go SDK
		{nil, `{"specversion":"1.0"}`, envelope.ModePlain},
		{nil, `{"specversion":"1.0"`, envelope.ModePlain},
		{map[string][]string{"Content-Type": {"application/json"}}, event, envelope.ModePlain},
		{map[string][]string{"content-type": {"Application/CloudEvents+JSON; charset=UTF-8"}, "ce-id": {"1"}}, event, envelope.ModeStructured},
		{map[string][]string{"Content-Type": {"application/cloudevents-batch+json"}}, "[]", envelope.ModeBatch},
		{map[string][]string{"Content-Type": {"application/json"}, "Ce-Id": {"1"}}, "{}", envelope.ModeBinary},
		{map[string][]string{"ce-specversion": {"1.0"}}, "", envelope.ModeBinary},
	} {
		if got := envelope.DetectMode(c.header, []byte(c.body)); got != c.want {
			t.Errorf("%v %s: got %s, want %s", c.header, c.body, got, c.want)
		}
	}
}

func TestSplitArray(t *testing.T) {
	for src, want := range map[string]string{
		`[]`: "", ` [ ] `: "", `[1]`: "1", `[ {"a":[1,2],"b":"],}\"["} , 2 ,"x" ]`: `{"a":[1,2],"b":"],}\"["}|2|"x"`,
		`[{"a":1,"a":2},{"ok":1}]`: `{"a":1,"a":2}|{"ok":1}`, `[nope,1]`: "nope|1",
	} {
		got, err := envelope.SplitArray([]byte(src))
		var parts []string
		for _, part := range got {
			parts = append(parts, string(part))
		}
		if err != nil || strings.Join(parts, "|") != want {
			t.Errorf("%s: got %q, %v", src, parts, err)
		}
	}
	for _, src := range []string{"", "{}", "[", "[1", "[1,", "[1,]", "[,1]", "[1]]", "[1}", "[1}2]", `["a]`, `["\`, "[1] x", "[{]"} {
		if got, err := envelope.SplitArray([]byte(src)); err == nil {
			t.Errorf("%s: got %q", src, got)
		}
	}
}

// What goes out as a CloudEvent comes in as the same event, in both modes.
func TestCloudEventOutAndIn(t *testing.T) {
	ev := &envelope.Event{
		ID: `a "b"%20ü😀`, Source: "shop/ä", Type: "order.placed", Subject: "s\tx", SourcePartition: 3, SourceOffset: 5<<32 | 7,
		PartitionGeneration: 4, IngestTime: 1796034000000000, Op: envelope.Retract, Withdraws: "o-1", Origin: envelope.OriginReplay,
		DataSchema: "x/3", TraceParent: trace, Data: []byte(`{"a":1.50}`),
	}
	text := envelope.AppendCloudEvent(nil, ev)
	var loose map[string]any
	if err := json.Unmarshal(text, &loose); err != nil {
		t.Fatal(err)
	}
	if loose["sourceoffset"] != "21474836487" || loose["sourcepartition"] != 3.0 || loose["ingesttime"] != "2026-11-30T10:20:00Z" {
		t.Errorf("got %s", text)
	}
	var d envelope.Document
	var structured, binary envelope.CloudEvent
	if _, err := envelope.ParseCloudEvent(&d, text, &structured); err != nil {
		t.Fatal(err)
	}
	header := map[string][]string{}
	for name, value := range envelope.CloudEventHeaders(ev) {
		header[name] = []string{value}
	}
	attributes, err := envelope.BinaryAttributes(header)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := envelope.ParseBinaryEvent(&d, attributes, ev.Data, &binary); err != nil {
		t.Fatal(err)
	}
	for mode, ce := range map[string]*envelope.CloudEvent{"structured": &structured, "binary": &binary} {
		if ce.ID != ev.ID || ce.Source != ev.Source || ce.Type != ev.Type || ce.Subject != ev.Subject || ce.Op != ev.Op ||
			ce.Withdraws != ev.Withdraws || ce.Origin != ev.Origin || ce.DataSchema != ev.DataSchema ||
			ce.TraceParent != ev.TraceParent || string(ce.Data) != string(ev.Data) || ce.SourcePartition != ev.SourcePartition {
			t.Errorf("%s: got %+v", mode, ce)
		}
	}
	plain := envelope.AppendCloudEvent(nil, &envelope.Event{ID: "1", Source: "s", Data: []byte("{}")})
	if _, err := envelope.ParseCloudEvent(&d, plain, &structured); err != nil {
		t.Errorf("a plain record goes out as %s: %v", plain, err)
	}
}

func FuzzCloudEvent(f *testing.F) {
	f.Add([]byte(`{"specversion":"1.0","id":"1","source":"s","type":"t","data":{"a":1}}`))
	f.Add([]byte(`{"specversion":"1.0","id":"1","source":"s","type":"t","op":"retract","withdraws":"0","data_base64":"e30="}`))
	f.Add([]byte(`[{"specversion":"1.0"},{"id":1}]`))
	f.Fuzz(func(t *testing.T, src []byte) {
		if parts, err := envelope.SplitArray(src); err == nil && len(parts) > len(src) {
			t.Fatalf("%d parts of %d bytes", len(parts), len(src))
		}
		envelope.DetectMode(nil, src)
		if attributes, err := envelope.BinaryAttributes(map[string][]string{"ce-id": {string(src)}, "Ce-Source": {"s"}}); err == nil {
			var d envelope.Document
			var ce envelope.CloudEvent
			_, _ = envelope.ParseBinaryEvent(&d, attributes, src, &ce)
		}
		var d envelope.Document
		var ce envelope.CloudEvent
		if _, err := envelope.ParseCloudEvent(&d, src, &ce); err != nil {
			return
		}
		ev := &envelope.Event{
			ID: ce.ID, Source: ce.Source, Type: ce.Type, Subject: ce.Subject, Op: ce.Op, Withdraws: ce.Withdraws,
			Origin: ce.Origin, DataSchema: ce.DataSchema, TraceParent: ce.TraceParent, Data: ce.Data,
		}
		var again envelope.CloudEvent
		out := envelope.AppendCloudEvent(nil, ev)
		if _, err := envelope.ParseCloudEvent(&d, out, &again); err != nil || again.ID != ce.ID || again.Withdraws != ce.Withdraws {
			t.Fatalf("%q went out as %q: %v", src, out, err)
		}
	})
}

func TestCSV(t *testing.T) {
	rows, err := csv.NewReader(strings.NewReader("\ufeffid,region name,\"a \"\"b\"\"\"\no-1,São Paulo,12.50\no-2,\"x,\ny\",\n")).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	h, err := envelope.NewCSVHeader(rows[0])
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{`{"id":"o-1","region name":"São Paulo","a \"b\"":"12.50"}`, `{"id":"o-2","region name":"x,\ny","a \"b\"":""}`} {
		if got, err := h.AppendObject(nil, rows[i+1]); err != nil || string(got) != want {
			t.Errorf("got %s, %v; want %s", got, err, want)
		}
	}
	if _, err := h.AppendObject(nil, []string{"1", "2"}); err == nil {
		t.Error("a short row is accepted")
	}
	if _, err := h.AppendObject(nil, []string{"1", "2", "\xff"}); err == nil {
		t.Error("a cell that is not UTF-8 is accepted")
	}
	for _, header := range [][]string{nil, {"a", ""}, {"a", "A"}, {"\xff"}, {"\ufeffid", "ID"}} {
		if _, err := envelope.NewCSVHeader(header); err == nil {
			t.Errorf("header %q is accepted", header)
		}
	}
}

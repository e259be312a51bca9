package ingest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/internal/core/admission"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

type answer struct {
	Reply
	Error  *Error `json:"error"`
	status int
	header http.Header
}

// post sends one HTTP request; headers are name, value pairs.
func (n *node) post(query, contentType, body string, headers ...string) answer {
	n.w.t.Helper()
	mux := http.NewServeMux()
	n.Routes(mux)
	path := "/v1/streams/" + n.w.stream.Name + "/events"
	if strings.HasPrefix(query, "/") {
		path, query = query, ""
	}
	r := httptest.NewRequest("POST", path+"?"+query, strings.NewReader(body))
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, r)
	a := answer{status: rec.Code, header: rec.Header()}
	if err := json.Unmarshal(rec.Body.Bytes(), &a); err != nil {
		n.w.t.Fatalf("answer %q: %v", rec.Body, err)
	}
	return a
}

func TestHTTPFormats(t *testing.T) {
	w := newWorld(t, 1)
	n := w.run("a").ready()
	data := `{"region":"north","at":"2026-11-30T10:00:00Z","amount":1}`
	event := func(id string) string {
		return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"shop","sourcepartition":1,"type":"sale","data":%s}`, id, data)
	}
	cases := []struct {
		name, query, media, body string
		headers                  []string
		accepted                 int
	}{
		{"plain object", "source=shop", "application/json", sale("a1", "north", 1), nil, 1},
		{"plain array", "source=shop", "application/json; charset=utf-8", " [" + sale("a2", "north", 1) + ",\n" + sale("a3", "n", 1) + "] ", nil, 2},
		{"lines", "source=shop&partition=1", "application/x-ndjson", sale("a4", "north", 1) + "\r\n\n" + sale("a5", "north", 1), nil, 2},
		{"id path", "source=shop&idPath=/region", "application/json", sale("ignored", "a6", 1), nil, 1},
		{"cloudevent", "", "application/cloudevents+json", event("a7"), nil, 1},
		{"batch", "source=shop&partition=1", "application/cloudevents-batch+json", "[" + event("a8") + "," + event("a9") + "]", nil, 2},
		{"batch that names its partition", "source=shop", "application/cloudevents-batch+json", "[" + event("b6") + "]", nil, 1},
		{"lines of cloudevents", "", "application/cloudevents+ndjson", event("b1") + "\n" + event("b2") + "\n", nil, 2},
		{"binary", "", "application/json", data, []string{"ce-specversion", "1.0", "ce-id", "b3", "ce-source", "shop", "ce-type", "sale"}, 1},
		{"csv", "source=shop", "text/csv", "id,region,at,amount\r\nb4,\"no\"\"r\nth\",2026-11-30T10:00:00Z,12.5\n\nb5,south,2026-11-30T10:00:00Z,1\n", nil, 2},
	}
	for _, c := range cases {
		a := n.post(c.query, c.media, c.body, c.headers...)
		if a.status != http.StatusAccepted || a.Accepted != c.accepted || a.Quarantined != 0 {
			t.Errorf("%s: status %d, %+v, error %+v", c.name, a.status, a.Reply, a.Error)
		}
	}
	ids := map[string]string{}
	for _, ev := range w.journal().events() {
		ids[ev.ID] = ev.Key
	}
	if len(ids) != 15 || ids["b4"] != "no\"r\nth" || ids["b3"] != "north" || ids["a6"] != "a6" {
		t.Errorf("%d events: %v", len(ids), ids)
	}
}

func TestHTTPVerdicts(t *testing.T) {
	w := newWorld(t, 1)
	n := w.run("a").ready()
	a := n.post("source=shop&verbose=1", "application/json", `[`+sale("e1", "north", 1)+`,{"id":"e2","region":{"x":1}},`+sale("e3", "north", 1)+`]`)
	if a.status != 202 || len(a.Items) != 3 || a.Items[0].Verdict != Accepted || a.Items[1].Verdict != Quarantined || a.Items[1].ID != "e2" || a.Items[2].Offset != 1<<32|3 {
		t.Errorf("status %d, %+v, %+v", a.status, a.Reply, a.Error)
	}
	row := `x,north,"2026-11-30`
	a = n.post("source=shop", "text/csv", "id,region,at,amount\ne4,north\n"+row)
	if a.status != 202 || a.Quarantined != 2 {
		t.Errorf("csv: status %d, %+v, %+v", a.status, a.Reply, a.Error)
	}
	kept := w.quarantined()
	if last := kept[len(kept)-1]; string(last.Bytes) != row || last.Format != "csv" || len(last.Columns) != 4 {
		t.Errorf("csv record %+v %s", last, last.Bytes)
	}
	a = n.post("source=shop", "application/json", "{}", "ce-specversion", "1.0", "ce-id", "e5", "ce-source", "shop", "ce-type", "sale")
	kept = w.quarantined()
	if last := kept[len(kept)-1]; a.Quarantined != 1 || last.Format != "binary" || last.Header["id"] != "e5" || string(last.Bytes) != "{}" {
		t.Errorf("binary record %+v", last)
	}
}

func TestHTTPRefusals(t *testing.T) {
	w := newWorld(t, 1)
	n := w.run("a").ready()
	big := strings.Repeat(" ", maxBody+1)
	mixed := `[{"id":"1","source":"shop","specversion":"1.0","type":"t"},{"id":"2","source":"till","specversion":"1.0","type":"t"}]`
	apart := `[{"id":"1","source":"shop","specversion":"1.0","type":"t"},{"id":"2","source":"shop","sourcepartition":1,"specversion":"1.0","type":"t"}]`
	cases := []struct {
		name, query, media, body string
		status                   int
		says                     string
	}{
		{"unknown stream", "/v1/streams/nope/events", "application/json", "{}", 404, w.stream.Name},
		{"no body", "source=shop", "application/json", "", 400, "no event"},
		{"blank lines", "source=shop", "application/x-ndjson", "\n \n", 400, "no event"},
		{"no source", "", "application/json", "{}", 400, "source"},
		{"bad partition", "source=shop&partition=one", "application/json", "{}", 400, "partition"},
		{"empty partition", "source=shop&partition=", "application/json", "{}", 400, "partition"},
		{"misspelt parameter", "source=shop&partiton=1", "application/json", "{}", 400, "partiton"},
		{"parameter said twice", "source=shop&partition=0&partition=1", "application/json", "{}", 400, "partition"},
		{"unreadable query", "source=shop&partition=%zz", "application/json", "{}", 400, "query"},
		{"id path that is no pointer", "source=shop&idPath=id", "application/json", "{}", 400, "id path"},
		{"open array", "source=shop", "application/json", "[{}", 400, "array"},
		{"csv without names", "source=shop", "text/csv", "id,,x\n1,2,3\n", 400, "column"},
		{"mixed sources", "", "application/cloudevents-batch+json", mixed, 400, "each source partition"},
		{"mixed partitions of a given source", "source=shop", "application/cloudevents-batch+json", apart, 400, "each source partition"},
		{"media type", "source=shop", "application/xml", "<x/>", 415, "application/json"},
		{"no media type", "source=shop", "", "{}", 415, "application/json"},
		{"large body", "source=shop", "application/json", big, 413, "fewer"},
	}
	for _, c := range cases {
		a := n.post(c.query, c.media, c.body)
		if a.status != c.status || a.Error == nil || !strings.Contains(a.Error.Error(), c.says) {
			t.Errorf("%s: status %d, error %v", c.name, a.status, a.Error)
		}
	}
	if got := len(w.journal().events()) + len(w.quarantined()); got != 0 {
		t.Errorf("%d records of refused requests", got)
	}
	if used := n.budget.used.Load(); used != 0 {
		t.Errorf("%d bytes are still held", used)
	}
}

func TestHTTPBusyNamesATime(t *testing.T) {
	w := newWorld(t, 1)
	n := w.run("a", func(c *Config, _ *Service) {
		if c != nil {
			c.Budget, c.WaitFor = 8<<10, time.Millisecond
		}
	}).ready()
	held, err := n.budget.reserve(t.Context(), 8<<10, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	a := n.post("source=shop", "application/json", sale("e1", "north", 1))
	if a.status != 429 || a.header.Get("Retry-After") != "1" {
		t.Errorf("status %d, Retry-After %q", a.status, a.header.Get("Retry-After"))
	}
	held.give()
	if a := n.post("source=shop", "application/json", sale("e1", "north", 1)); a.status != 202 {
		t.Errorf("status %d after the pressure", a.status)
	}
}

func TestNotReadyAndFinishedOverHTTP(t *testing.T) {
	w := newWorld(t, 1)
	n := w.run("a").ready()
	if a := n.post("source=shop&finish=1", "application/json", ""); a.status != 202 || !a.Finished {
		t.Errorf("finish: status %d, %+v", a.status, a.Error)
	}
	if a := n.post("source=shop", "application/json", sale("e", "n", 1)); a.status != 409 {
		t.Errorf("after finish: status %d", a.status)
	}
	n.stop()
	if a := n.post("source=shop&partition=1", "application/json", sale("e", "n", 1)); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("after the stop: status %d", a.status)
	}
}

// ask sends one NATS request; headers are name, value pairs.
func (n *node) ask(partition uint32, body string, headers ...string) answer {
	n.w.t.Helper()
	msg := nats.NewMsg(subject.Ingest(n.w.stream.Name, "shop", partition))
	msg.Data = []byte(body)
	for i := 0; i < len(headers); i += 2 {
		msg.Header[headers[i]] = []string{headers[i+1]}
	}
	reply, err := n.w.conn.NC.RequestMsg(msg, 20*time.Second)
	if err != nil {
		n.w.t.Fatal(err)
	}
	var a answer
	if err := json.Unmarshal(reply.Data, &a); err != nil {
		n.w.t.Fatalf("answer %q: %v", reply.Data, err)
	}
	return a
}

func TestNATSFormats(t *testing.T) {
	w := newWorld(t, 1)
	n := w.run("a").ready()
	if a := n.ask(0, sale("e1", "north", 1)+"\n"+sale("e2", "north", 2)+"\n{bad\n"); a.Accepted != 2 || a.Quarantined != 1 || a.Error != nil {
		t.Errorf("lines: %+v %+v", a.Reply, a.Error)
	}
	data := `{"region":"no rth","at":"2026-11-30T10:00:00Z","amount":1}`
	if a := n.ask(1, data, "ce-specversion", "1.0", "ce-id", "e%203", "ce-source", "shop", "ce-type", "sale"); a.Accepted != 1 {
		t.Errorf("binary: %+v %+v", a.Reply, a.Error)
	}
	// The Go SDK sends structured events without any header.
	if a := n.ask(0, `{"specversion":"1.0","id":"e4","source":"shop","type":"sale","data":`+data+`}`); a.Accepted != 1 {
		t.Errorf("structured: %+v %+v", a.Reply, a.Error)
	}
	if a := n.ask(0, "<x/>", "Content-Type", "application/xml"); a.Error == nil || a.Error.Status != 415 {
		t.Errorf("media type: %+v", a.Error)
	}
	if a := n.ask(0, "{}", "Tm-Id-Path", "id"); a.Error == nil || a.Error.Status != 400 {
		t.Errorf("an id path that is no pointer is answered %+v", a)
	}
	if a := n.ask(0, "{}", "Content-Encoding", "gzip"); a.Error == nil || a.Error.Status != 415 {
		t.Errorf("a packed body is answered %+v", a)
	}
	if a := n.ask(0, "{}", "Tm-Source", "other"); a.Error == nil || a.Error.Status != 400 {
		t.Errorf("source: %+v", a.Error)
	}
	if a := n.ask(1, "", "Tm-Finish", "true"); !a.Finished {
		t.Errorf("finish: %+v", a.Error)
	}
	if a := n.ask(1, sale("e5", "n", 1)); a.Error == nil || a.Error.Status != 409 {
		t.Errorf("after finish: %+v", a.Error)
	}
}

func TestLongVerdictsAreCutToOneMessage(t *testing.T) {
	w := newWorld(t, 1)
	n := w.run("a").ready()
	a := n.ask(0, strings.Repeat("{\n", 12_000))
	if a.Quarantined != 12_000 || !a.Cut || len(a.Items) == 0 || len(a.Items) >= 12_000 {
		t.Errorf("quarantined %d, cut %v, %d items", a.Quarantined, a.Cut, len(a.Items))
	}
}

func TestSendResumesAtADurableLine(t *testing.T) {
	w := newWorld(t, 1)
	n := w.run("a").ready()
	lines := func(from, to uint64) answer {
		t.Helper()
		return n.ask(0, sale(fmt.Sprint(from), "north", 1)+"\n", subject.HeaderResumeToken, "file", subject.HeaderResumeFrom, fmt.Sprint(from), subject.HeaderResumeLine, fmt.Sprint(to))
	}
	line := func(body string) resumeReply {
		t.Helper()
		msg := nats.NewMsg(subject.Ingest(w.stream.Name, "shop", 0))
		msg.Data = []byte(body)
		msg.Header.Set(subject.HeaderContentType, ContentTypeResume)
		reply, err := w.conn.NC.RequestMsg(msg, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var r resumeReply
		if err := json.Unmarshal(reply.Data, &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	if got := line(`{"resume":"file"}`).Line; got != 0 {
		t.Errorf("line of an unknown file: %d", got)
	}
	lines(0, 10)
	lines(20, 30) // the request between was lost
	if got := line(`{"resume":"file"}`).Line; got != 10 {
		t.Errorf("line %d runs over a hole, want 10", got)
	}
	lines(10, 20)
	if got := line(`{"resume":"file"}`).Line; got != 30 {
		t.Errorf("line %d, want 30", got)
	}
	if got := line(`{"resume":"another"}`).Line; got != 0 {
		t.Errorf("line of another file: %d", got)
	}
	n.stop()
	n = w.run("b").ready()
	if got := line(`{"resume":"file"}`).Line; got != 30 {
		t.Errorf("line %d after a restart, want 30", got)
	}
	lines(30, 40)
	if got := line(`{"resume":"file","done":true}`).Line; got != 40 {
		t.Errorf("line %d, want 40", got)
	}
	if got := line(`{"resume":"file"}`).Line; got != 0 {
		t.Errorf("line %d after the file is done", got)
	}
	until(t, "the checkpoint forgets the file", func() bool { r := w.lastSource(0); return r.Kind == "checkpoint" && r.Checkpoint.Resume == nil })
}

func TestSplitKeepsExactBytes(t *testing.T) {
	body := "id,note\n1,\"a, \"\"b\"\"\"\r\n\n2,  spaced \n3,\"open"
	req := &Request{}
	if err := req.split(http.Header{"Content-Type": {"text/csv"}}, "", []byte(body)); err != nil {
		t.Fatal(err)
	}
	want := []struct{ raw, object string }{
		{`1,"a, ""b"""`, `{"id":"1","note":"a, \"b\""}`}, {"2,  spaced ", `{"id":"2","note":"  spaced "}`}, {"3,\"open", ""},
	}
	if len(req.Items) != len(want) {
		t.Fatalf("%d rows, want %d", len(req.Items), len(want))
	}
	for i, c := range want {
		it := req.Items[i]
		if string(it.raw) != c.raw || string(it.Bytes) != c.object || (it.refused != nil) != (c.object == "") {
			t.Errorf("row %d: %q as %q", i, it.raw, it.Bytes)
		}
	}
	items := lines([]byte("{\"a\":1}\r\n\t\n {} \n"), admission.Plain)
	if len(items) != 2 || string(items[0].Bytes) != `{"a":1}` || !bytes.Equal(items[1].Bytes, []byte(" {} ")) {
		t.Errorf("%d lines: %+v", len(items), items)
	}
}

package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// ndjson reads every line of out into a T.
func ndjson[T any](t *testing.T, out string) (rows []T) {
	t.Helper()
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		if line == "" {
			continue
		}
		var v T
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		rows = append(rows, v)
	}
	return rows
}

type quarantineLine struct {
	Sequence    uint64
	ID, Reason  string
	Disposition *struct{ Action, Reason, Job string }
}

type resultLine struct {
	Job, ID, Result, Reason string
	Sequence                uint64
	KeyPartition            *int
}

// A document gains what refused events need; their replay corrects the results, once.
func TestQuarantineIsReplayedOnceAndDiscardedByDecision(t *testing.T) {
	u := startUp(t, t.TempDir()+"/data")
	u.must("apply", "-f", write(t, "clicks.yaml", crashDocuments))
	lines := `{"id":"1","user":"a","n":1,"at":1740816000000}
{"id":"2","user":"a","n":"many","at":1740816001000}
{"id":"3","user":"a"
{"id":"4","user":"a","n":4,"at":1740816400000}
`
	r := run(t, "send", write(t, "a.jsonl", lines), "--stream", "clicks", "--source", "web", "--partition", "0", "--finish", "--server", u.NATS)
	check(t, r, 0, "quarantined 2")
	// A source that no policy had when its events came.
	extra := strings.Replace(crashDocuments[strings.Index(crashDocuments, "---"):], "job: per-minute@1", "job: per-minute@2", 1)
	extra = strings.Replace(extra, "[{name: web, partitions: 2}]", "[{name: web, partitions: 2}, {name: kiosk, partitions: 1}]", 1)
	conn := connect(t, u.NATS)
	request := `{"id":"k1","user":"a","n":7,"at":1740816002000}`
	httpPost(t, u.HTTP+"/v1/streams/clicks/events?source=kiosk&partition=0", request)
	_ = conn

	waiting := ndjson[quarantineLine](t, u.must("quarantine", "ls", "clicks", "-o", "ndjson"))
	if len(waiting) != 3 {
		t.Fatalf("%d events in quarantine: %+v", len(waiting), waiting)
	}
	t.Run("usage", func(t *testing.T) {
		check(t, run(t, "quarantine", "replay", "clicks", "--reason", "x", "--server", u.NATS), 2, "--all")
		check(t, run(t, "quarantine", "replay", "clicks", "--all", "--server", u.NATS), 2, "--reason")
		check(t, run(t, "quarantine", "replay", "clicks", "--all", "--reason", "x", "--server", u.NATS), 2, "3 events to replay", "--yes")
		check(t, run(t, "quarantine", "discard", "clicks", "--seq", "77", "--reason", "x", "--yes", "--server", u.NATS), 1, "77")
		r := run(t, "quarantine", "replay", "clicks", "--all", "--dry-run", "--server", u.NATS)
		check(t, r, 0, "would-replay", "nothing was done")
	})
	u.must("apply", "-f", write(t, "more.yaml", extra))
	// The hour passes for every source, so that the replayed event is a late one.
	u.must("send", write(t, "k.jsonl", `{"id":"k0","user":"a","n":0,"at":1740819600000}`), "--stream", "clicks", "--source", "kiosk")
	u.must("send", write(t, "w.jsonl", `{"id":"w0","user":"b","n":0,"at":1740819600000}`), "--stream", "clicks", "--source", "web", "--partition", "1")
	u.must("wait", "clicks")

	r = run(t, "quarantine", "replay", "clicks", "--all", "--reason", "kiosk has a policy now", "--yes", "-o", "ndjson", "--server", u.NATS)
	check(t, r, 1)
	results := map[string]int{}
	for _, it := range ndjson[resultLine](t, r.out) {
		results[it.Result+" "+it.Reason]++
		if it.Result == "replayed" && (it.ID != "k1" || it.KeyPartition == nil || it.Job == "") {
			t.Errorf("%+v", it)
		}
	}
	if results["replayed "] != 1 || results["refused value-format"] != 1 || results["refused malformed-json"] != 1 {
		t.Errorf("results %v\n%s", results, r.out)
	}
	u.must("wait", "clicks")
	total := func(generation string) string {
		for k, w := range u.windows("clicks", "--generation", generation) {
			if k == "a 2025-03-01T08:00:00Z" {
				return w.text("total")
			}
		}
		return "none"
	}
	if got := total("per-minute@2"); got != "8" {
		t.Errorf("total of per-minute@2 is %s, want 8", got)
	}
	if got := total("per-minute@1"); got != "1" {
		t.Errorf("total of per-minute@1 is %s, want 1: kiosk is not its source", got)
	}
	if kept := ndjson[quarantineLine](t, u.must("quarantine", "ls", "clicks", "-o", "ndjson")); len(kept) != 2 {
		t.Errorf("%d wait: %+v", len(kept), kept)
	}
	// Once more changes nothing: the id is there.
	u.must("quarantine", "replay", "clicks", "--id", "k1", "--again", "--reason", "twice", "--yes")
	u.must("wait", "clicks")
	if got := total("per-minute@2"); got != "8" {
		t.Errorf("after the second replay the total is %s", got)
	}
	u.must("quarantine", "discard", "clicks", "--refused-for", "malformed-json", "--reason", "cut off", "--yes")
	u.must("quarantine", "discard", "clicks", "--refused-for", "value-format", "--reason", "no number", "--yes")
	if out := u.must("quarantine", "ls", "clicks", "-o", "ndjson"); strings.TrimSpace(out) != "" {
		t.Errorf("still listed: %s", out)
	}
	actions := map[string]int{}
	for _, q := range ndjson[quarantineLine](t, u.must("quarantine", "ls", "clicks", "--all", "-o", "ndjson")) {
		if q.Disposition == nil || q.Disposition.Reason == "" || q.Disposition.Job == "" {
			t.Errorf("%+v has no whole disposition", q)
			continue
		}
		actions[q.Disposition.Action]++
	}
	if actions["replayed"] != 1 || actions["discarded"] != 2 {
		t.Errorf("dispositions %v", actions)
	}
	r = run(t, "verify", "clicks", "-o", "json", "--server", u.NATS)
	check(t, r, 0)
	var report struct{ Replayed, Quarantined int }
	if err := json.Unmarshal([]byte(r.out), &report); err != nil || report.Replayed != 1 || report.Quarantined != 3 {
		t.Errorf("verify reports %+v, %v", report, err)
	}
	stream, err := conn.JS.Stream(t.Context(), "TM_AUDIT")
	if err != nil {
		t.Fatal(err)
	}
	last, err := stream.GetLastMsgForSubject(t.Context(), "tm.audit.clicks.quarantine-replay")
	if err != nil || !bytes.Contains(last.Data, []byte(`"reason":"twice"`)) || !bytes.Contains(last.Data, []byte(`"who"`)) {
		t.Errorf("audit %s, %v", last.Data, err)
	}
}

// The job goes on in steps, and every item has a result.
func TestQuarantineJobOverManyEvents(t *testing.T) {
	u := startUp(t, t.TempDir()+"/data")
	u.must("apply", "-f", write(t, "clicks.yaml", crashDocuments))
	var b strings.Builder
	for i := range 450 {
		fmt.Fprintf(&b, `{"id":"q%d","user":"a","n":"x","at":1740816000000}`+"\n", i)
	}
	check(t, run(t, "send", write(t, "q.jsonl", b.String()), "--stream", "clicks", "--source", "web", "--server", u.NATS), 1)
	r := run(t, "quarantine", "discard", "clicks", "--all", "--reason", "test data", "--yes", "-o", "ndjson", "--server", u.NATS)
	check(t, r, 0, "450 events to discard")
	if rows := ndjson[resultLine](t, r.out); len(rows) != 450 {
		t.Errorf("%d results", len(rows))
	}
	if out := u.must("quarantine", "ls", "clicks", "-o", "ndjson"); out != "" {
		t.Errorf("still listed: %.200s", out)
	}
}

func httpPost(t *testing.T, url, body string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		t.Fatalf("POST %s: %s", url, resp.Status)
	}
}

package tests

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const visitsDocuments = `
apiVersion: tidemark/v1
kind: BusinessStream
name: clicks
partitions: 2
key: [/user]
eventTime:
  at@1: {path: /at, format: rfc3339}
retractions: true
---
apiVersion: tidemark/v1
kind: StreamTimePolicy
stream: clicks
job: visits@1
sources: [{name: web, partitions: 1}]
timestampExtractor: at@1
watermark: {boundedOutOfOrderness: 1m}
window: {session: 30m, rule: gap-30-v1}
aggregates: {clicks: count()}
allowedLateness: 24h
`

// visitor answers what sends clicks (id, user, day and time) and waits until they are
// visible.
func visitor(u *up) func(events ...string) {
	return func(events ...string) {
		u.t.Helper()
		var lines strings.Builder
		for _, e := range events {
			f := strings.Fields(e)
			fmt.Fprintf(&lines, `{"id":%q,"user":%q,"at":"2026-11-%s:00Z"}`+"\n", f[0], f[1], f[2])
		}
		u.must("send", write(u.t, "clicks.jsonl", lines.String()), "--stream", "clicks", "--source", "web")
		u.must("wait", "clicks")
	}
}

var spaces = regexp.MustCompile(` {2,}`)

// columns answers the first six columns of a table's rows that begin with a key.
func columns(table, key string) (rows []string) {
	for line := range strings.Lines(table) {
		if f := spaces.Split(strings.TrimSpace(line), -1); f[0] == key && len(f) >= 6 {
			rows = append(rows, strings.Join(f[:6], " | "))
		}
	}
	return rows
}

// Two visits, a click between them, and the click withdrawn, over a kill -9: docs/results.md
// shows what comes out.
func TestSessionsOfThePage(t *testing.T) {
	data := t.TempDir() + "/data"
	u := startUp(t, data)
	u.must("apply", "-f", write(t, "visits.yaml", visitsDocuments))
	send := visitor(u)
	send("c1 ann 27T10:00", "c2 ann 27T10:20", "c3 ann 27T11:15", "x1 bob 27T11:46")
	u.kill()
	u = startUp(t, data)
	send = visitor(u)
	send("c4 ann 27T10:47")
	u.must("send", write(t, "r.json", `{"specversion":"1.0","type":"t","source":"web","id":"r4","op":"retract","withdraws":"c4","data":{"id":"c4","user":"ann","at":"2026-11-27T10:47:00Z"}}`+"\n"),
		"--format", "cloudevents", "--stream", "clicks", "--source", "web")
	u.must("wait", "clicks")

	_, page, _ := strings.Cut(text(t, root+"/docs/results.md"), "$ tidemark windows clicks --key ann --history")
	page, _, _ = strings.Cut(page, "```")
	shown, got := columns(page, "ann"), columns(u.must("windows", "clicks", "--key", "ann", "--history"), "ann")
	if len(got) != 8 || !slices.Equal(shown, got) {
		t.Errorf("docs/results.md shows\n%s\nbut the binary\n%s", strings.Join(shown, "\n"), strings.Join(got, "\n"))
	}
	if rows := u.windows("clicks", "--key", "ann"); len(rows) != 2 {
		t.Errorf("current rows %v", rows)
	}
	u.verified("clicks")

	// What was published stays current until the longer session fires.
	send("c5 ann 27T11:40", "x2 bob 27T12:10")
	if row := u.windows("clicks")["ann 2026-11-27T11:15:00Z"]; row.text("clicks") != "1" {
		t.Errorf("before W = 12:10: %+v", row)
	}
	send("x3 bob 27T12:11")
	row := u.windows("clicks")["ann 2026-11-27T11:15:00Z"]
	if row.text("clicks") != "2" || row.End.Format("15:04") != "12:10" || row.State != "CORRECTED" {
		t.Errorf("at W = 12:10: %+v", row)
	}
	send("x4 bob 28T12:41")
	for key, row := range u.windows("clicks", "--key", "ann") {
		if row.State != "FINALIZED" {
			t.Errorf("%s is %s at end + gap + L", key, row.State)
		}
	}
	u.verified("clicks")
}

const loadDocuments = `
kind: BusinessStream
name: load
partitions: 1
key: [/host]
values:
  cpu: {path: /cpu, type: int}
eventTime:
  at@1: {path: /at, format: rfc3339}
---
kind: StreamTimePolicy
stream: load
job: moving@1
sources: [{name: agents, partitions: 1}]
timestampExtractor: at@1
watermark: {boundedOutOfOrderness: 0s}
window: {hopping: 1h, every: 20m}
aggregates: {peak: max(cpu), samples: count()}
---
kind: StreamTimePolicy
stream: load
job: daily@1
sources: [{name: agents, partitions: 1}]
timestampExtractor: at@1
watermark: {boundedOutOfOrderness: 0s}
window: {calendar: day, zone: Europe/Paris}
aggregates: {peak: max(cpu), samples: count()}
allowedLateness: 2d
`

// One event is too late for one hopping window and on time for two; the day on which
// Paris changes its clocks has 23 hours.
func TestHoppingAndCalendarWindows(t *testing.T) {
	u := startUp(t, t.TempDir()+"/data")
	u.must("apply", "-f", write(t, "load.yaml", loadDocuments))
	send := func(lines ...string) {
		t.Helper()
		u.must("send", write(t, "load.jsonl", strings.Join(lines, "\n")+"\n"), "--stream", "load", "--source", "agents")
		u.must("wait", "load")
	}
	send(`{"id":"1","host":"a","cpu":10,"at":"2026-03-28T22:30:00Z"}`, `{"id":"2","host":"a","cpu":20,"at":"2026-03-28T23:10:00Z"}`)
	send(`{"id":"3","host":"a","cpu":90,"at":"2026-03-28T22:55:00Z"}`)
	send(`{"id":"4","host":"a","cpu":5,"at":"2026-03-29T22:00:00Z"}`)
	for job, want := range map[string]string{
		"moving": "21:40-22:40 10/1, 22:00-23:00 10/1, 22:20-23:20 90/3, 22:40-23:40 90/2, 23:00-00:00 20/1",
		"daily":  "23:00-23:00 90/2, 23:00-22:00 20/1",
	} {
		rows := u.windows("load", "--job", job)
		var got []string
		for _, w := range slices.SortedFunc(maps.Values(rows), func(a, b windowLine) int { return a.Start.Compare(b.Start) }) {
			got = append(got, fmt.Sprintf("%s-%s %s/%s", w.Start.UTC().Format("15:04"), w.End.UTC().Format("15:04"), w.text("peak"), w.text("samples")))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %s, want %s", job, strings.Join(got, ", "), want)
		}
	}
	if out := u.must("trace", "3", "--stream", "load"); !strings.Contains(out, "moving@1: too late for window 2026-03-28T22:00:00Z to 2026-03-28T23:00:00Z") {
		t.Errorf("the refusal is not named:\n%s", out)
	}
	u.verified("load")
}

// A window is shown before it closes, on a subject of its own, and nothing takes that for
// a result.
func TestPreviewsAreShownAndAreNoResults(t *testing.T) {
	u := startUp(t, t.TempDir()+"/data")
	u.must("apply", "-f", write(t, "visits.yaml", visitsDocuments+"trigger: {early: 1ms}\n"))
	visitor(u)("c1 ann 27T10:00", "c2 ann 27T10:20")
	conn := connect(t, u.NATS)
	stream, err := conn.JS.Stream(t.Context(), "TM_clicks_EARLY")
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{FilterSubjects: []string{"tm.clicks.early.visits.1.ann"}})
	if err != nil {
		t.Fatal(err)
	}
	var shown struct {
		Schema string
		Events int
		Value  map[string]int
		Window struct{ Start, End time.Time }
	}
	for shown.Events < 2 { // the first may have been shown by itself
		m, err := consumer.Next(jetstream.FetchMaxWait(30 * time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(m.Data(), &shown); err != nil {
			t.Fatal(err)
		}
	}
	if shown.Schema != "early.v1" || shown.Value["clicks"] != 2 || shown.Window.End.Sub(shown.Window.Start) != 50*time.Minute {
		t.Errorf("shown: %+v", shown)
	}
	if rows := u.windows("clicks", "--history"); len(rows) != 0 {
		t.Errorf("a preview became a row: %v", rows)
	}
	u.verified("clicks")
}

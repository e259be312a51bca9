package tests

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Two more jobs on the stream of the example with sessions.
const moreActivity = `
apiVersion: tidemark/v1
kind: StreamTimePolicy
schema: streamTimePolicy.v1
stream: activity
job: hops
generation: 1
sources: [{name: app, partitions: 1}]
timestampExtractor: at@1
watermark: {boundedOutOfOrderness: 1m}
window: {hopping: 1h, every: 15m}
aggregates: {events: count()}
allowedLateness: 24h
retention: {ids: 25h, raw: unlimited}
---
apiVersion: tidemark/v1
kind: StreamTimePolicy
schema: streamTimePolicy.v1
stream: activity
job: days
generation: 1
sources: [{name: app, partitions: 1}]
timestampExtractor: at@1
watermark: {boundedOutOfOrderness: 1m}
window: {calendar: day, zone: Europe/Paris}
aggregates: {events: count()}
allowedLateness: 24h
retention: {ids: 50h, raw: unlimited}
`

// activityUp has two sessions of account-29 that a late event made one.
func activityUp(t *testing.T) *up {
	t.Helper()
	u := startUp(t, t.TempDir()+"/data")
	u.must("apply", "-f", "../examples/activity/activity.yaml", "-f", write(t, "more.yaml", moreActivity))
	for _, lines := range []string{
		`{"id":"activity-47","account":"account-29","at":"2025-06-02T10:00:00Z","pages":5}
{"id":"activity-83","account":"account-29","at":"2025-06-02T10:18:00Z","pages":3}
{"id":"activity-90","account":"account-30","at":"2025-06-02T10:45:00Z","pages":1}`,
		`{"id":"activity-61","account":"account-29","at":"2025-06-02T10:09:00Z","pages":4}`,
	} {
		u.must("send", write(t, "lines.jsonl", lines), "--stream", "activity", "--source", "app", "--partition", "0")
		u.must("wait", "activity")
	}
	return u
}

// explainedWindow is one object of `explain -o json`.
type explainedWindow struct {
	PolicyGeneration string
	Window           *struct{ Start, End string }
	State            string
	Events           int
	Why              []string
}

func explainAll(t *testing.T, u *up, key, at string) (all []explainedWindow) {
	t.Helper()
	out := u.must("explain", "activity", "--key", key, "--at", at, "-o", "json")
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return all
}

// What a session became, what it was, and why another is open: every verb says so.
func TestVerbsTellWhatSessionsBecame(t *testing.T) {
	t.Parallel()
	u := activityUp(t)
	wants := func(what, out string, words ...string) {
		t.Helper()
		for _, w := range words {
			if !strings.Contains(out, w) {
				t.Errorf("%s prints\n%s\nwant %q", what, out, w)
			}
		}
	}
	const whole = "2025-06-02T10:00:00Z to 2025-06-02T10:29:00Z"
	const became, was = "(retracted), became " + whole, "events=3 pages=12, was 2025-06-02T10:00:00Z to 2025-06-02T10:11:00Z and 2025-06-02T10:18:00Z to 2025-06-02T10:29:00Z"
	wants("windows --history", u.must("windows", "activity", "--job", "sessions", "--key", "account-29", "--history"), became, was)
	wants("revisions", u.must("revisions", "activity", "--job", "sessions", "--key", "account-29"), became, was)
	if rows := u.windows("activity", "--job", "sessions", "--key", "account-29", "--from", "2025-06-02T10:28:00Z", "--to", "2025-06-02T10:40:00Z"); len(rows) != 1 {
		t.Errorf("a range that a session reaches into shows %v", rows)
	}
	if rows := u.windows("activity", "--job", "sessions", "--key", "account-29", "--from", "2025-06-02T10:29:00Z"); len(rows) != 0 {
		t.Errorf("a range behind the session shows %v", rows)
	}
	traced := u.must("trace", "activity-83", "--stream", "activity", "--key", "account-29")
	wants("trace", traced, "sessions@1 window 2025-06-02T10:18:00Z to 2025-06-02T10:29:00Z revision 2 LATE CORRECTED (retracted)",
		"hops@1 window 2025-06-02T09:30:00Z to 2025-06-02T10:30:00Z revision 2 LATE CORRECTED events=3")
	if n := strings.Count(traced, "row "); n != 2 { // one hour and the session; the day and later hours have not closed
		t.Errorf("trace shows %d current rows\n%s", n, traced)
	}

	reply, err := http.Get(u.HTTP + "/v1/streams/activity/windows?job=sessions&key=account-29&from=2025-06-02T10:20:00Z&to=2025-06-02T10:21:00Z")
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	var page struct {
		Rows []struct {
			ResultID   string
			Supersedes []struct {
				ProjectionID string
				Revision     uint64
			}
		}
	}
	if err := json.Unmarshal(body, &page); err != nil || len(page.Rows) != 1 || len(page.Rows[0].Supersedes) != 2 || page.Rows[0].Supersedes[0].Revision != 2 ||
		page.Rows[0].ResultID != "618c00bd4e7bb8b1e4b1cc2a7c428b74f43d4d8f2a7df66942190549918a0da0" {
		t.Errorf("over HTTP: %v\n%s", err, body)
	}
	u.verified("activity")
}

func TestExplainKnowsEveryKindOfWindow(t *testing.T) {
	t.Parallel()
	u := activityUp(t)
	byJob := map[string][]explainedWindow{}
	for _, x := range explainAll(t, u, "account-29", "2025-06-02T10:18:00Z") {
		byJob[x.PolicyGeneration] = append(byJob[x.PolicyGeneration], x)
	}
	day, hops, sessions := byJob["days@1"], byJob["hops@1"], byJob["sessions@1"]
	if len(day) != 1 || day[0].Window.Start != "2025-06-01T22:00:00Z" || day[0].Events != 3 || day[0].State != "OPEN" {
		t.Errorf("the day in Paris: %+v", day)
	}
	if len(hops) != 4 || hops[0].Window.Start != "2025-06-02T09:30:00Z" || hops[3].Window.Start != "2025-06-02T10:15:00Z" || hops[0].State == "OPEN" || hops[3].State != "OPEN" {
		t.Errorf("the hours that hold 10:18: %+v", hops)
	}
	if len(sessions) != 1 || !strings.Contains(strings.Join(sessions[0].Why, "\n"), "the session 2025-06-02T10:18:00Z to 2025-06-02T10:29:00Z was replaced by 2025-06-02T10:00:00Z to 2025-06-02T10:29:00Z") {
		t.Errorf("the session: %+v", sessions)
	}
	for _, x := range explainAll(t, u, "account-30", "2025-06-02T10:50:00Z") {
		why := strings.Join(x.Why, "\n")
		if x.PolicyGeneration == "sessions@1" && (x.State != "OPEN" || x.Events != 1 || !strings.Contains(why, "which is 12m short") || !strings.Contains(why, "joins it and may move its bounds")) {
			t.Errorf("an open session: %+v", x)
		}
	}
	for _, x := range explainAll(t, u, "account-29", "2025-06-02T12:00:00Z") {
		if x.PolicyGeneration == "sessions@1" && (x.Window != nil || !strings.Contains(x.Why[0], "no session of the key holds this time")) {
			t.Errorf("a time without a session: %+v", x)
		}
	}
}

package tests

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// answersDocuments is a stream with one job of two generations and another job.
const answersDocuments = `
apiVersion: tidemark/v1
kind: BusinessStream
name: answers
partitions: 2
key: [/key]
values:
  who: {path: /who, type: string}
eventTime:
  at@1: {path: /at, format: rfc3339}
`

const answersPolicy = `---
apiVersion: tidemark/v1
kind: StreamTimePolicy
stream: answers
job: %s
sources: [{name: s, partitions: 1}]
timestampExtractor: at@1
watermark: {boundedOutOfOrderness: 0s}
window: {tumbling: %s}
aggregates: {n: count(), least: min(who)}
`

// hostileKey is what a terminal would obey.
const hostileKey = "x\x1b[31mred\nnext\u202eline"

// answersUp has two events in one hour and a finished source.
func answersUp(t *testing.T) *up {
	t.Helper()
	u := startUp(t, t.TempDir()+"/a b")
	documents := answersDocuments + fmt.Sprintf(answersPolicy, "hourly@1", "1h") + fmt.Sprintf(answersPolicy, "hourly@2", "30m") + fmt.Sprintf(answersPolicy, "daily@1", "1d")
	u.must("apply", "-f", write(t, "answers.yaml", documents))
	var events strings.Builder
	for i, at := range []string{"10:05", "10:40"} {
		line, err := json.Marshal(map[string]string{"id": fmt.Sprint(i), "key": hostileKey, "who": "a\x07\"b\\", "at": "2025-06-02T" + at + ":00Z"})
		if err != nil {
			t.Fatal(err)
		}
		events.Write(append(line, '\n'))
	}
	u.must("send", write(t, "events.jsonl", events.String()), "--stream", "answers", "--source", "s", "--finish")
	u.must("wait", "answers")
	return u
}

func TestRevisionsOfTheGenerationThatWasAskedFor(t *testing.T) {
	u := answersUp(t)
	count := func(want int, policy string, flags ...string) {
		t.Helper()
		out := u.must(append([]string{"revisions", "answers", "-o", "json"}, flags...)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		for _, line := range lines {
			var r struct {
				PolicyGeneration string `json:"policyGeneration"`
			}
			if err := json.Unmarshal([]byte(line), &r); err != nil || r.PolicyGeneration != policy {
				t.Errorf("revisions %v printed %s: %v", flags, line, err)
			}
		}
		if len(lines) != want {
			t.Errorf("revisions %v printed %d lines, want %d", flags, len(lines), want)
		}
	}
	count(1, "hourly@1", "--job", "hourly")
	count(2, "hourly@2", "--job", "hourly", "--generation", "2")
	count(2, "hourly@2", "--generation", "hourly@2")
	count(1, "daily@1", "--generation", "daily@1")
	for _, flags := range [][]string{{"--job", "hourly", "--generation", "3"}, {"--generation", "hourly@9"}, {"--job", "none"}, {}} {
		r := run(t, append([]string{"revisions", "answers", "--server", u.NATS}, flags...)...)
		if r.code != 2 || r.out != "" || !strings.Contains(r.err, "hourly") && !strings.Contains(r.err, "--job") {
			t.Errorf("revisions %v ended with %d\n%s%s", flags, r.code, r.out, r.err)
		}
	}
	if out := u.must("revisions", "answers", "--job", "hourly", "-o", "yaml"); !strings.HasPrefix(out, "---\n") || !strings.Contains(out, "\nrevision: 1\n") {
		t.Errorf("revisions -o yaml printed\n%s", out)
	}
}

func TestExplainAnswersInOneShape(t *testing.T) {
	u := answersUp(t)
	type explained struct {
		PolicyGeneration string
		Window           map[string]string
		Events           int
		Why              []string
	}
	var one explained
	out := u.must("explain", "answers", "--key", hostileKey, "--at", "2025-06-02T10:30:00Z", "--job", "daily", "-o", "json")
	if err := json.Unmarshal([]byte(out), &one); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if one.Window["start"] != "2025-06-02T00:00:00Z" || one.Window["end"] != "2025-06-03T00:00:00Z" || one.Events != 2 {
		t.Errorf("one job is explained as %+v", one)
	}
	var all []explained
	out = u.must("explain", "answers", "--key", hostileKey, "--at", "2025-06-02T10:30:00Z", "-o", "json")
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 3 {
		t.Fatalf("%v\n%s", err, out)
	}
	var never explained
	out = u.must("explain", "answers", "--key", "nobody", "--at", "2025-06-02T10:30:00Z", "--job", "daily", "-o", "json")
	if err := json.Unmarshal([]byte(out), &never); err != nil || strings.Contains(strings.Join(never.Why, " "), "it fired") {
		t.Errorf("a window without events is explained as %s", out)
	}
	if r := run(t, "explain", "answers", "--key", "k", "--at", "2025-06-02T10:30:00Z", "--job", "none", "--server", u.NATS); r.code != 2 || !strings.Contains(r.err, "daily, hourly") {
		t.Errorf("a job that is not there: %d %s", r.code, r.err)
	}
}

// What senders wrote must not move the reader's cursor or break a table; JSON keeps it.
func TestTablesShowWhatATerminalWouldObey(t *testing.T) {
	u := answersUp(t)
	for _, args := range [][]string{
		{"windows", "answers", "--job", "hourly"},
		{"revisions", "answers", "--job", "hourly"},
		{"explain", "answers", "--key", hostileKey, "--at", "2025-06-02T10:30:00Z"},
	} {
		out := u.must(args...)
		if strings.ContainsAny(out, "\x1b\x07\u202e") || strings.Contains(out, "red\nnext") {
			t.Errorf("%v printed %q", args, out)
		}
		if !strings.Contains(out, `least=a\a"b\ n=2`) {
			t.Errorf("%v printed %q", args, out)
		}
	}
	rows := u.windows("answers", "--job", "hourly", "--key", hostileKey)
	if len(rows) != 1 {
		t.Errorf("rows of the key are %v", rows)
	}
	if r := run(t, "windows", "answers", "--from", "2025-06-02T11:00:00Z", "--to", "2025-06-02T10:00:00Z", "--server", u.NATS); r.code != 2 || !strings.Contains(r.err, "--from") {
		t.Errorf("a range that holds nothing: %d %s", r.code, r.err)
	}
}

func TestOneServiceADataDirectory(t *testing.T) {
	u := startUp(t, t.TempDir()+"/up")
	dir := t.TempDir() + "/windower"
	start(t, "windower", "--data", dir, "--server", u.NATS)
	if r := run(t, "windower", "--data", dir, "--server", u.NATS); r.code != 5 || !strings.Contains(r.err, "in use by another windower process") {
		t.Errorf("a second windower on the directory ended with %d\n%s", r.code, r.err)
	}
}

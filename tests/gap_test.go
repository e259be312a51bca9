package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// halted waits until the windower's status of one key partition says why it is halted.
func halted(t *testing.T, u *up, job string, gen, pp int) string {
	t.Helper()
	conn := connect(t, u.NATS)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		reply, err := conn.NC.Request(subject.WindowerStatus("clicks", job, gen, pp), nil, 2*time.Second)
		if err != nil {
			continue
		}
		var status struct {
			Halted string `json:"halted"`
		}
		if err := json.Unmarshal(reply.Data, &status); err != nil {
			t.Fatal(err)
		}
		if status.Halted != "" {
			return status.Halted
		}
	}
	t.Fatal("the partition was never halted")
	return ""
}

// A frame vanishes. The partition stops at the mark that promises it and says what to do;
// the operator does exactly that; the partition goes on, over a kill -9, and verify
// reports the GAP.
func TestOperatorDeclaresFramesLost(t *testing.T) {
	data := t.TempDir() + "/data"
	u := startUp(t, data)
	u.must("apply", "-f", write(t, "clicks.yaml", crashDocuments))
	u.must("send", clicks(t, 0, 2_000), "--stream", "clicks", "--source", "web", "--partition", "0")
	u.must("wait", "clicks")
	conn := connect(t, u.NATS)
	const writer = "writer-that-lost-a-frame"
	forge := func(number uint64, r envelope.Record) {
		data, err := envelope.AppendFrame(nil, &envelope.Frame{Writer: writer, Number: number, Extractors: []string{"at@1"}, Values: []string{"n"}, Records: []envelope.Record{r}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := conn.JS.Publish(ctx, subject.Events("clicks", 2), data); err != nil {
			t.Fatal(err)
		}
	}
	// Frames 1 and 2 are lost; a mark of a foreign source promises both.
	forge(3, envelope.Record{Mark: &envelope.Mark{
		Source: "elsewhere", Epoch: 1, Generation: 1, MaxEventTime: []envelope.EventTime{0},
		IngestNow: envelope.IngestTime(time.Now().UnixMicro()), Writer: writer, Frames: 2,
	}})
	text := halted(t, u, "per-minute", 1, 2)
	command := regexp.MustCompile(`tidemark (source gap .*) --reason`).FindStringSubmatch(text)
	if command == nil {
		t.Fatalf("the problem %q names no command", text)
	}
	args := append(strings.Fields(command[1]), "--server", u.NATS)
	if r := run(t, args...); r.code != 2 || !strings.Contains(r.err, "--reason") {
		t.Errorf("without a reason: %d %s", r.code, r.err)
	}
	args = append(args, "--reason", "disk of the old server", "-o", "json")
	if r := run(t, args...); r.code != 2 || !strings.Contains(r.err, "--yes") {
		t.Errorf("without --yes and a terminal: %d %s", r.code, r.err)
	}
	var dry, done struct {
		Missing, Sequence uint64
	}
	if err := json.Unmarshal([]byte(must(t, append(args, "--dry-run")...)), &dry); err != nil || dry.Missing != 2 || dry.Sequence != 0 {
		t.Fatalf("%+v %v", dry, err)
	}
	if err := json.Unmarshal([]byte(must(t, append(args, "--yes")...)), &done); err != nil || done.Sequence == 0 {
		t.Fatalf("%+v %v", done, err)
	}
	for what, bad := range map[string][]string{
		"frames that are there": {"source", "gap", "clicks", "--partition", "2", "--writer", writer, "--frames", "3", "--reason", "x", "--yes"},
		"a partition too many":  {"source", "gap", "clicks", "--partition", "9", "--writer", writer, "--frames", "1", "--reason", "x", "--yes"},
		"an unknown writer":     {"source", "gap", "clicks", "--partition", "2", "--writer", "nobody", "--frames", "1", "--reason", "x", "--yes"},
		"frames backwards":      {"source", "gap", "clicks", "--partition", "2", "--writer", writer, "--frames", "2-1", "--reason", "x", "--yes"},
	} {
		if r := run(t, append(bad, "--server", u.NATS)...); r.code != 2 && r.code != 5 {
			t.Errorf("%s: %d %s", what, r.code, r.err)
		}
	}
	u.must("wait", "clicks", "--timeout", "1m")
	u.kill()
	if err := os.RemoveAll(data + "/windower"); err != nil { // a rebuild takes the same way
		t.Fatal(err)
	}
	u = startUp(t, data)
	u.must("send", clicks(t, 1, 2_000), "--stream", "clicks", "--source", "web", "--partition", "1")
	u.must("wait", "clicks", "--timeout", "1m")
	r := run(t, "verify", "clicks", "--server", u.NATS)
	if note := fmt.Sprintf("frames 1 to 2 of writer %s lost: disk of the old server", writer); r.code != 0 || !strings.Contains(r.out+r.err, note) {
		t.Errorf("verify ended with %d and must report the GAP\n%s%s", r.code, r.out, r.err)
	}
}

package tests

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A send whose server is killed and comes back within the timeout ends by itself, and
// every event counts once.
func TestSendGoesOnWhenTheServerComesBack(t *testing.T) {
	const events = 9000
	dir := t.TempDir() + "/data"
	u := startUp(t, dir)
	u.must("apply", "-f", write(t, "answers.yaml", answersDocuments+fmt.Sprintf(answersPolicy, "hourly@1", "1h")))
	var lines strings.Builder
	begin := time.Date(2025, 6, 2, 0, 0, 0, 0, time.UTC)
	for i := range events {
		fmt.Fprintf(&lines, `{"id":"%d","key":"k","who":"w","at":"%s"}`+"\n", i, begin.Add(time.Duration(i)*time.Second).Format(time.RFC3339))
	}
	server, err := url.Parse(u.NATS)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	send := exec.CommandContext(t.Context(), binary, "send", write(t, "events.jsonl", lines.String()), "--stream", "answers", "--source", "s",
		"--finish", "--rate", "3000", "--timeout", "60s", "--server", u.NATS)
	send.Stdout, send.Stderr = &out, &out
	if err := send.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); len(u.windows("answers")) == 0; {
		if time.Now().After(deadline) {
			t.Fatalf("no window was published\n%s", u.log)
		}
	}
	u.kill()
	if err := os.Remove(dir + "/endpoints.json"); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	u = startUp(t, dir, "--nats-port", server.Port())
	if err := send.Wait(); err != nil {
		t.Fatalf("send ended with %v\n%s", err, &out)
	}
	u.must("wait", "answers")
	total := 0
	for _, w := range u.windows("answers") {
		n := 0
		fmt.Sscan(w.text("n"), &n)
		total += n
	}
	if total != events {
		t.Errorf("%d events count, want %d\n%s", total, events, &out)
	}
	u.verified("answers")
}

// What is wrong with a file is said before or behind what was taken in, and never passed
// over; a byte order mark is no fault.
func TestSendOfOddFiles(t *testing.T) {
	u := startUp(t, t.TempDir()+"/data")
	u.must("apply", "-f", write(t, "answers.yaml", answersDocuments+fmt.Sprintf(answersPolicy, "hourly@1", "1h")))
	plain := func(id string) string {
		return fmt.Sprintf(`{"id":%q,"key":"k","who":"w","at":"2025-06-02T10:00:00Z"}`, id)
	}
	event := func(id string) string {
		return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"s","type":"t","data":%s}`, id, plain(id))
	}
	for _, c := range []struct {
		name, text string
		flags      []string
		code       int
		says       string
	}{
		{"mark.jsonl", "\ufeff" + plain("a") + "\r\n" + plain("b"), nil, 0, "accepted 2, quarantined 0"},
		{"mark.csv", "\ufeffid,key,who,at\r\nc,\"k\",w,2025-06-02T10:00:00Z\r\n", []string{"--format", "csv"}, 0, "accepted 1, quarantined 0"},
		{"whole.json", " [" + event("d") + ",\n" + event("e") + "]\n", []string{"--format", "cloudevents"}, 0, "accepted 2, quarantined 0"},
		{"cut.json", "[" + event("f") + ",", []string{"--format", "cloudevents"}, 5, "the file was cut off"},
		{"two.json", "[" + event("g") + "][]", []string{"--format", "cloudevents"}, 5, "something follows"},
		{"long.jsonl", plain("h") + "\n" + strings.Repeat("x", 800_000) + "\n", nil, 5, "line 2 has 800001 bytes; at most 786432 fit into one message; shorten it"},
		{"path.jsonl", plain("i"), []string{"--id-path", "id"}, 2, "--id-path"},
		{"none.jsonl", "\n \n", nil, 0, "accepted 0, quarantined 0"},
	} {
		args := append([]string{"send", write(t, c.name, c.text), "--stream", "answers", "--source", "s", "--server", u.NATS}, c.flags...)
		if r := run(t, args...); r.code != c.code || !strings.Contains(r.out+r.err, c.says) || r.code != 0 && strings.Contains(r.err, "same file again") {
			t.Errorf("%s: exit %d\n%s%s", c.name, r.code, r.out, r.err)
		}
	}
	u.verified("answers")
}

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

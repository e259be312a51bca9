package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/consumers/webhook"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// publishRevision writes the first revision of a window of job hourly, as a projector would.
func publishRevision(t *testing.T, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := natsio.Connect(ctx, natsio.Options{Server: url, Name: "test"})
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(err)
	defer conn.Close()
	check(natsio.Provision(ctx, conn.JS, 1))
	check(natsio.ProvisionStream(ctx, conn.JS, "orders", 1, 1))
	w, _, err := journal.ClaimFenced(ctx, conn.JS, journal.FencedSettings{
		Stream: subject.RevisionsStream("orders"), Fence: subject.Commits("orders", "hourly", 1, 0), Owner: "test",
	})
	check(err)
	defer w.Close()
	alias := revision.Alias{Job: "hourly", Canonical: 1, Epoch: 1}
	_, err = conn.JS.Publish(ctx, subject.Alias("orders", "hourly"), alias.AppendJSON(nil))
	check(err)
	at := envelope.EventTime(1796032800000000)
	r := &revision.Revision{
		Stream: "orders", Job: "hourly", PolicyGeneration: "hourly@1", PolicyDigest: strings.Repeat("ab", 32), Key: "eu", Window: revision.Window{Start: at, End: at + 3_600_000_000},
		LogicalWindowID: strings.Repeat("cd", 32), ProjectionID: strings.Repeat("ef", 32), Op: revision.Upsert, Revision: 1, State: revision.OnTimeEmitted, Firing: revision.FiringOnTime,
		ValueChanged: true, Value: []revision.Field{{Name: "orders", Text: "1"}}, Delta: []revision.Field{{Name: "orders", Text: "1"}},
		Inputs: revision.Inputs{First: 1, Last: 1, Events: 1}, Cause: revision.CauseOnTime, Epoch: w.Epoch(),
	}
	r.AggregateDigest = revision.ValueDigest(r.Value)
	_, err = w.Commit(ctx, []journal.Message{{
		Subject: subject.Revision("orders", "hourly", 1, 0, "eu"), Header: nats.Header{subject.HeaderSchema: []string{revision.Schema}}, Data: r.AppendJSON(nil),
	}}, revision.NewCommit())
	check(err)
}

func TestWebhookVerbs(t *testing.T) {
	url := documentServer(t)
	publishRevision(t, url)
	var answer, came atomic.Int64
	answer.Store(http.StatusGone)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		came.Add(1)
		w.WriteHeader(int(answer.Load()))
	}))
	defer receiver.Close()
	dir := t.TempDir()
	data, config := filepath.Join(dir, "data"), filepath.Join(dir, "crm.yaml")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(dir, "secret"), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	write(filepath.Join(dir, "token"), "open-sesame")
	write(config, fmt.Sprintf("endpoint: crm\nurl: %s/hooks\nplainHTTP: true\nallow: [127.0.0.1]\nsecretFiles: [secret]\nstream: orders\njob: hourly\n", receiver.URL))

	_, errOut := tidemark(t, exitUnreachable, "", "webhook", "status", "--data", data)
	contains(t, errOut, "no webhook process runs", "tidemark webhook run")
	tidemark(t, exitUsage, "", "webhook", "run")
	tidemark(t, exitUsage, "", "webhook", "run", "--config", filepath.Join(dir, "none.yaml"))
	tidemark(t, exitUsage, "", "webhook", "redeliver", "--reason", "x")

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var stderr bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"webhook", "run", "--config", config, "--data", data, "--server", url, "--http-token-file", filepath.Join(dir, "token")}, strings.NewReader(""), &bytes.Buffer{}, &stderr)
	}()
	verb := func(code int, args ...string) string {
		t.Helper()
		out, errOut := tidemark(t, code, "", append(append([]string{"webhook"}, args...), "--data", data, "--http-token-file", filepath.Join(dir, "token"))...)
		return out + errOut
	}
	await := func(state webhook.State) {
		t.Helper()
		deadline := time.Now().Add(time.Minute)
		for {
			var out, errOut bytes.Buffer
			run(ctx, []string{"webhook", "ls", "-o", "ndjson", "--data", data, "--http-token-file", filepath.Join(dir, "token")}, strings.NewReader(""), &out, &errOut)
			var d webhook.Delivery
			if json.Unmarshal(out.Bytes(), &d) == nil && d.State == state {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("no delivery is %s: %s%s", state, &out, &errOut)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	await(webhook.StateAttempted)
	contains(t, verb(exitFindings, "status"), "enabled: false", "410", "tidemark webhook enable")
	_, errOut = tidemark(t, exitRefused, "", "webhook", "status", "--data", data)
	contains(t, errOut, "--http-token-file")
	contains(t, verb(exitUsage, "enable"), "--reason is missing")
	answer.Store(http.StatusNoContent)
	contains(t, verb(exitOK, "enable", "--reason", "moved back"), "enabled: true")
	await(webhook.StateDelivered)
	contains(t, verb(exitOK, "status", "-o", "json"), `"DELIVERED": 1`, `"alerts": []`)
	id := "crm_" + strings.Repeat("ef", 32) + "_1"
	contains(t, verb(exitOK, "ls", "--state", "DELIVERED"), "WEBHOOK-ID", id, "eu")
	contains(t, verb(exitUsage, "ls", "--state", "LOST"), "there is no state LOST")
	contains(t, verb(exitOK, "redeliver", "--id", id, "--dry-run"), "would-queue", "nothing was done")
	contains(t, verb(exitUsage, "redeliver", "--id", id, "--reason", "again"), "--yes")
	had := came.Load()
	contains(t, verb(exitOK, "redeliver", "--id", id, "--reason", "again", "--yes"), "queued")
	await(webhook.StateDelivered)
	contains(t, verb(exitFindings, "redeliver", "--id", "crm_none_1", "--reason", "again", "--yes"), "missing")
	contains(t, verb(exitFindings, "skip", "--id", id, "--reason", "again", "--yes"), "stands in nobody's way")
	if came.Load() != had+1 {
		t.Errorf("%d requests after a redelivery of %d", came.Load(), had)
	}
	stop()
	if c := <-code; c != exitOK {
		t.Errorf("run: exit %d\n%s", c, &stderr)
	}
	if _, err := os.Stat(filepath.Join(data, webhookFile)); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", webhookFile, err)
	}
	out, _ := tidemark(t, exitOK, "", "state", "verify", data)
	contains(t, out, webhook.StateFile, "ok")
	contains(t, stderr.String(), "started", "ready", "an operator decided")
	if strings.Contains(stderr.String(), "whsec_") || strings.Contains(stderr.String(), "open-sesame") {
		t.Errorf("a secret is in the log:\n%s", &stderr)
	}
}

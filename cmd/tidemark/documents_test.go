package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/examples/orders"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
)

// documentServer answers the URL of a server of the test's own.
func documentServer(t *testing.T) string {
	t.Helper()
	server, err := natsio.Embed(context.Background(), natsio.EmbeddedOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	return server.URL()
}

// tidemark runs one command line and checks its exit code.
func tidemark(t *testing.T, code int, stdin string, args ...string) (out, errOut string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	if got := run(ctx, args, strings.NewReader(stdin), &stdout, &stderr); got != code {
		t.Fatalf("tidemark %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got, code, &stdout, &stderr)
	}
	return stdout.String(), stderr.String()
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
}

func TestLintVerb(t *testing.T) {
	good := string(orders.Documents)
	tidemark(t, exitOK, good, "lint", "-")
	tidemark(t, exitOK, "", "lint", "../../examples/flights", "../../examples/earthquakes/earthquakes.yaml")
	dir := t.TempDir()
	file := filepath.Join(dir, "bad.yaml")
	bad := strings.NewReplacer("partitions: 8 ", "partitons: 8 ", "allIdle: hold", "allIdle: holds").Replace(good)
	if err := os.WriteFile(file, []byte(bad), 0o644); err != nil {
		t.Fatal(err)
	}
	out, _ := tidemark(t, exitFindings, "", "lint", file)
	contains(t, out, file+":5: unknown-field: partitons is no field here (did you mean partitions?)", ":2: missing-field", "bad-value", "did you mean hold?")
	out, _ = tidemark(t, exitFindings, "", "lint", dir, "-o", "ndjson")
	for line := range strings.Lines(out) {
		var f struct {
			File, Rule, Message string
			Line                int
		}
		if err := json.Unmarshal([]byte(line), &f); err != nil || f.File != file || f.Line == 0 || f.Rule == "" || f.Message == "" {
			t.Errorf("%s: %v", line, err)
		}
	}
	_, errOut := tidemark(t, exitUsage, "", "lint", filepath.Join(dir, "none.yaml"))
	contains(t, errOut, "there is no file")
	tidemark(t, exitUsage, "", "lint")
	tidemark(t, exitUsage, "", "lint", t.TempDir())
}

func TestLintVerbChecksExpressions(t *testing.T) {
	good, _ := tidemark(t, exitOK, "", "create", "EffectPolicy")
	for change, says := range map[[2]string]string{
		{"value.revenue >= ", "value.revenu >= "}:                            ": unknown-field: when: there is no value.revenu",
		{"subject: key ", "subject: string(value.orders)  "}:                 ": subject-not-stable: ",
		{"onBodyMismatch: error ", "onBodyMismatch: execute\nretry: auto #"}: ": ",
	} {
		if !strings.Contains(good, change[0]) {
			t.Fatalf("no such text: %s", change[0])
		}
		out, _ := tidemark(t, exitFindings, strings.Replace(good, change[0], change[1], 1), "lint", "-")
		contains(t, out, says)
	}
	out, _ := tidemark(t, exitOK, "", "create", "EffectPolicy", "--alone")
	out, _ = tidemark(t, exitFindings, out, "lint", "-")
	contains(t, out, ": unknown-stream: ", ": unknown-adapter: ")
	out, _ = tidemark(t, exitFindings, out+"kind: [", "lint", "-")
	if strings.Contains(out, "unknown-adapter") {
		t.Errorf("an adapter that may be in the broken text is said to be missing:\n%s", out)
	}
}

func TestEffectDocumentVerbs(t *testing.T) {
	url := documentServer(t)
	on := func(args ...string) []string { return append(args, "--server", url) }
	first, _ := tidemark(t, exitOK, "", "create", "EffectPolicy")
	out, _ := tidemark(t, exitOK, first, on("apply", "-f", "-", "--reason", "first")...)
	contains(t, out, "rewards-api@1", "orders/reward@1", "created, activated")
	out, _ = tidemark(t, exitOK, first, on("apply", "-f", "-", "-o", "ndjson")...)
	contains(t, out, `"kind":"EffectPolicy","name":"orders/reward@1","action":"unchanged"`, `"active":"active"`)

	second := strings.NewReplacer("name: reward\nversion: 1", "name: reward\nversion: 2", `"10000"`, `"20000"`).Replace(first)
	out, _ = tidemark(t, exitFindings, second, on("diff", "-f", "-")...)
	contains(t, out, "orders/reward@2", "when", `10000`, `20000`)
	out, _ = tidemark(t, exitOK, second, on("apply", "-f", "-")...)
	contains(t, out, "orders/reward@2", "created, activated")
	out, _ = tidemark(t, exitOK, first, on("apply", "-f", "-")...)
	contains(t, out, "unchanged, inactive")
	out, _ = tidemark(t, exitOK, "", on("get", "orders/reward", "-o", "ndjson")...)
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 2 || strings.Contains(lines[0], `"active":true`) || !strings.Contains(lines[1], `"active":true`) {
		t.Errorf("get says:\n%s", out)
	}
	out, _ = tidemark(t, exitOK, first, on("apply", "-f", "-", "--activate")...)
	contains(t, out, "unchanged, activated")
	out, _ = tidemark(t, exitOK, "", on("get")...)
	contains(t, out, "ACTIVE", "yes")
	written, _ := tidemark(t, exitOK, "", on("get", "-o", "yaml", "orders/reward", "rewards-api")...)
	out, _ = tidemark(t, exitOK, written, on("apply", "-f", "-")...)
	if strings.Contains(out, "created") || strings.Count(out, "unchanged") != 3 {
		t.Errorf("what get prints is another document:\n%s", out)
	}
	_, errOut := tidemark(t, exitConflict, strings.Replace(first, "timeout: 20s", "timeout: 21s", 1), on("apply", "-f", "-")...)
	contains(t, errOut, "Adapter rewards-api@1", "timeout", "higher version")
	out, _ = tidemark(t, exitFindings, strings.Replace(strings.Replace(second, "version: 2", "version: 3", 1), "subject: key ", "subject: '\"all\"' ", 1), on("apply", "-f", "-")...)
	contains(t, out, "effect-identity-changed")
	out, _ = tidemark(t, exitFindings, "", on("doctor")...) // no service runs
	contains(t, out, "2 effect policies and 1 adapters", "orders effects")
}

func TestSchemaVerb(t *testing.T) {
	out, _ := tidemark(t, exitOK, "", "schema", "BusinessStream")
	if !json.Valid([]byte(out)) {
		t.Errorf("no JSON: %s", out)
	}
	out, _ = tidemark(t, exitOK, "", "schema")
	contains(t, out, "revision.v1", "frame.proto")
	_, errOut := tidemark(t, exitUsage, "", "schema", "nothing")
	contains(t, errOut, "revision.v1")
}

func TestDocumentVerbs(t *testing.T) {
	url := documentServer(t)
	good := string(orders.Documents)
	on := func(args ...string) []string { return append(args, "--server", url) }

	out, _ := tidemark(t, exitFindings, good, on("diff", "-f", "-")...)
	contains(t, out, "orders/hourly-revenue@1", "new")
	out, _ = tidemark(t, exitOK, good, on("apply", "-f", "-", "--dry-run")...)
	contains(t, out, "created")
	out, _ = tidemark(t, exitOK, good, on("apply", "-f", "-")...)
	contains(t, out, "BusinessStream", "orders/hourly-revenue@1", "created")
	out, _ = tidemark(t, exitOK, good, on("apply", "-f", "-", "-o", "ndjson")...)
	contains(t, out, `"action":"unchanged"`, `"name":"orders"`)

	out, _ = tidemark(t, exitOK, "", on("get")...)
	contains(t, out, "KIND", "orders/hourly-revenue@1")
	written, _ := tidemark(t, exitOK, "", on("get", "-o", "yaml")...)
	out, _ = tidemark(t, exitOK, written, on("apply", "-f", "-")...)
	if strings.Contains(out, "created") || strings.Count(out, "unchanged") != 2 {
		t.Errorf("what get prints is another document:\n%s", out)
	}
	out, _ = tidemark(t, exitOK, "", on("get", "orders/hourly-revenue", "-o", "json")...)
	contains(t, out, `"coreVersion": 1`, `"generation": 1`)
	_, errOut := tidemark(t, exitFindings, "", on("get", "nothing")...)
	contains(t, errOut, "no document nothing")
	tidemark(t, exitOK, good, on("diff", "-f", "-")...)

	changed := strings.Replace(good, "boundedOutOfOrderness: 5m", "boundedOutOfOrderness: 6m", 1)
	out, _ = tidemark(t, exitFindings, changed, on("diff", "-f", "-")...)
	contains(t, out, "watermark.boundedOutOfOrderness", `"5m"`, `"6m"`)
	_, errOut = tidemark(t, exitConflict, changed, on("apply", "-f", "-")...)
	contains(t, errOut, "watermark.boundedOutOfOrderness", "higher generation")
	_, errOut = tidemark(t, exitConflict, strings.Replace(good, "partitions: 8 ", "partitions: 4 ", 1), on("apply", "-f", "-")...)
	contains(t, errOut, "another partitions")
	out, _ = tidemark(t, exitFindings, strings.NewReplacer("generation: 1", "generation: 2", "ids: 48h", "ids: 1h").Replace(good), on("apply", "-f", "-")...)
	contains(t, out, "ids-too-short")
	tidemark(t, exitUsage, "", on("apply")...)
	tidemark(t, exitUnreachable, good, "apply", "-f", "-", "--server", "nats://127.0.0.1:1", "--timeout", "2s")
}

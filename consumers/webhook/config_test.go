package webhook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const document = `
endpoint: crm
url: https://receiver.example/hooks?tenant=7
secretFiles: [secret]
stream: orders
job: hourly-revenue
`

func TestDocumentsGetThePublishedDefaults(t *testing.T) {
	e, err := Parse([]byte(document))
	must(t, err)
	var total time.Duration
	for _, d := range e.Schedule {
		total += time.Duration(d)
	}
	if e.Mode != ModeUpsert || e.Concurrency != 8 || time.Duration(e.Timeout) != 20*time.Second || time.Duration(e.Keep) != 168*time.Hour ||
		len(e.Schedule) != 10 || total != 75*time.Hour+35*time.Minute+5*time.Second || e.Applied != nil {
		t.Errorf("%+v", e)
	}
	e, err = Parse([]byte(document + "mode: delta\nschedule: [0s, 1m, 2d]\nallow: [10.0.0.0/8]\napplied: {receipts: true}\n"))
	must(t, err)
	if time.Duration(e.Applied.Within) != 15*time.Minute || e.Applied.SecretFiles[0] != "secret" || time.Duration(e.Schedule[2]) != 48*time.Hour || len(e.allow) != 1 {
		t.Errorf("%+v", e)
	}
}

func TestDocumentsThatBreakARuleAreRefusedByName(t *testing.T) {
	change := func(old, fresh string) string { return strings.Replace(document, old, fresh, 1) }
	for want, text := range map[string]string{
		"not readable":      change("[secret]", "!tag "),
		"unknown field":     document + "retries: 3\n",
		"a-z, 0-9 and -":    change("crm", "c.r.m"),
		"use https":         change("https://receiver.example/hooks?tenant=7", "http://receiver.example/"),
		"is no scheme":      change("https://", "ftp://"),
		"not a URL":         change("https://receiver.example/hooks?tenant=7", "receiver"),
		"leave out user":    change("https://", "https://me:pw@"),
		"choose upsert":     document + "mode: latest\n",
		"name one file":     change("[secret]", "[a, b, c]"),
		"both must be set":  change("job: hourly-revenue", ""),
		"no duration":       document + "schedule: [soon]\n",
		"between 0 and 30d": document + "schedule: [-5s]\n",
		"between 100ms":     document + "timeout: 1h\n",
		"no address range":  document + "allow: [intranet]\n",
		"receipts: true":    document + "applied: {within: 5m}\n",
		"{projectionId}":    document + "applied: {pull: {url: 'https://receiver.example/state'}}\n",
		"concurrency":       document + "concurrency: 1000\n",
		"queueLimit":        document + "queueLimit: -1\n",
		"keep":              document + "keep: 1s\n",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := Parse([]byte(change("https://receiver.example/hooks?tenant=7", "http://receiver.example/") + "plainHTTP: true\n")); err != nil {
		t.Errorf("plainHTTP: %v", err)
	}
}

func TestSecretFilesStandBesideTheDocument(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "crm.yaml")
	must(t, os.WriteFile(file, []byte(document+"applied: {receipts: true, secretFiles: [/abs, rel]}\n"), 0o600))
	e, err := Load(file)
	must(t, err)
	if e.SecretFiles[0] != filepath.Join(dir, "secret") || e.Applied.SecretFiles[0] != "/abs" || e.Applied.SecretFiles[1] != filepath.Join(dir, "rel") {
		t.Errorf("%v %v", e.SecretFiles, e.Applied.SecretFiles)
	}
	if _, err := Load(filepath.Join(dir, "none.yaml")); err == nil {
		t.Error("a document that is not there was read")
	}
}

func FuzzParseEndpoint(f *testing.F) {
	f.Add([]byte(document))
	f.Add([]byte("endpoint: crm\nsecretFiles: !0 "))
	f.Add([]byte(document + "applied: {pull: {url: 'https://a/{webhookId}', every: 3s}}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := Parse(text)
		if err != nil {
			return
		}
		if strings.Contains(e.webhookID(strings.Repeat("a", 64), 1), ".") || len(e.Schedule) == 0 || e.Concurrency < 1 || e.Timeout <= 0 {
			t.Fatalf("%+v", e)
		}
	})
}

func FuzzParseReceipt(f *testing.F) {
	f.Add([]byte(`{"schema":"webhookReceipt.v1","webhookId":"crm_x_1","result":"APPLIED","appliedRevision":1}`))
	f.Add([]byte(`{"schema":"webhookReceipt.v1","webhookId":"crm_x_1","result":"REFUSED","reason":"stale"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := ParseReceipt(text)
		if err == nil && (r.WebhookID == "" || r.Result != StateApplied && r.Result != StateRefused) {
			t.Fatalf("%+v", r)
		}
	})
}

package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// A backup taken while events stream in is of one moment: restored, every gate of verify
// passes, readers see what they saw, and the stream goes on.
func TestBackupUnderLoadRestoresToAGreenInstallation(t *testing.T) {
	const bs = "clicks"
	u := startUp(t, t.TempDir()+"/data")
	u.must("apply", "-f", write(t, "clicks.yaml", crashDocuments))
	first := clicks(t, 0, 20_000)
	u.must("send", first, "--stream", bs, "--source", "web", "--partition", "0", "--finish")
	check(t, run(t, "send", write(t, "bad.jsonl", "nonsense\n"), "--stream", bs, "--source", "web", "--partition", "1", "--server", u.NATS), 1)
	u.must("wait", bs)

	sent := make(chan result, 1)
	second := clicks(t, 1, 60_000)
	go func() {
		sent <- run(t, "send", second, "--stream", bs, "--source", "web", "--partition", "1", "--rate", "15000", "--server", u.NATS)
	}()
	dir := filepath.Join(t.TempDir(), "backup")
	out := u.must("backup", bs, "--to", dir, "-o", "json")
	var manifest struct {
		Schema   string
		Complete bool
		Journals []struct{ Name, Role, File, SHA256 string }
	}
	if err := json.Unmarshal([]byte(out), &manifest); err != nil || manifest.Schema != "backupManifest.v1" || !manifest.Complete || len(manifest.Journals) != 1+4+1+4+1 {
		t.Fatalf("manifest %+v, %v", manifest, err)
	}
	if r := <-sent; r.code != 0 {
		t.Fatalf("send during the backup: %+v", r)
	}
	check(t, run(t, "backup", bs, "--to", dir, "--server", u.NATS), 2, "complete backup")
	check(t, run(t, "backup", "restore", dir, "--reason", "x", "--server", u.NATS), 5, "not empty")
	check(t, run(t, "backup", "verify", dir, "--restore"), 0)

	other := startUp(t, t.TempDir()+"/data")
	other.must("backup", "restore", dir, "--reason", "drill")
	from, to := connect(t, u.NATS), connect(t, other.NATS)
	for pp := range 4 {
		name := subject.EventsStream(bs, pp)
		a, err := journal.Identify(t.Context(), from.JS, name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := journal.Identify(t.Context(), to.JS, name)
		if err != nil || a.Created != b.Created || b.First != 1 {
			t.Errorf("%s: %+v, restored %+v, %v", name, a, b, err)
		}
	}
	other.must("wait", bs, "--timeout", "2m")
	other.verified(bs)
	// What had been acknowledged by then counts once when it is sent again.
	other.must("send", second, "--stream", bs, "--source", "web", "--partition", "1", "--finish")
	other.must("wait", bs)
	other.verified(bs)
	u.must("send", write(t, "none.jsonl", ""), "--stream", bs, "--source", "web", "--partition", "1", "--finish")
	u.must("wait", bs)
	want, got := u.windows(bs), other.windows(bs)
	if len(want) != len(got) || len(want) < 500 {
		t.Fatalf("%d windows, restored %d", len(want), len(got))
	}
	for k, w := range want {
		if got[k].text("total") != w.text("total") || got[k].text("clicks") != w.text("clicks") {
			t.Errorf("%s: %v, restored %v", k, w.Value, got[k].Value)
		}
	}
}

func TestBackupOfDamagedFilesAndInterruptions(t *testing.T) {
	const bs = "clicks"
	u := startUp(t, t.TempDir()+"/data")
	u.must("apply", "-f", write(t, "clicks.yaml", crashDocuments))
	u.must("send", clicks(t, 0, 2_000), "--stream", bs, "--source", "web", "--partition", "0", "--finish")
	u.must("wait", bs)
	dir := filepath.Join(t.TempDir(), "backup")
	u.must("backup", bs, "--to", dir)
	check(t, run(t, "backup", "verify", dir), 0)

	// Interrupted: the manifest says so, and the inputs are not all there.
	path := filepath.Join(dir, "manifest.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), `"complete": true`, `"complete": false`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, subject.EventsStream(bs, 1)+".snapshot")); err != nil {
		t.Fatal(err)
	}
	check(t, run(t, "backup", "verify", dir), 1, "interrupted", "missing")
	check(t, run(t, "backup", "restore", dir, "--reason", "x", "--server", u.NATS), 1, "incomplete")
	r := run(t, "backup", bs, "--to", dir, "--server", u.NATS)
	check(t, r, 0, "going on")
	check(t, run(t, "backup", "verify", dir, "--restore"), 0)

	// One byte of one file.
	file := filepath.Join(dir, subject.RevisionsStream(bs)+".snapshot")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	check(t, run(t, "backup", "verify", dir), 1, subject.RevisionsStream(bs), "SHA-256")
	check(t, run(t, "backup", "verify", t.TempDir()), 2, "no backup")
	check(t, run(t, "backup", "nothing", "--to", t.TempDir(), "--server", u.NATS), 2, "nothing")
}

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/dispatchfile"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// What this machine may have sent is in no journal for sure: no verb moves that file away,
// not even when it is damaged.
func TestDispatchFileIsVerifiedAndNeverSetAside(t *testing.T) {
	dir := t.TempDir()
	if _, err := openDataDir(dir); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "effector", "orders", "00.dispatch")
	file, err := dispatchfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Bind(context.Background(), dispatchfile.Identity{Stream: "TM_orders_EFF_00", Created: 1796032800000000000}); err != nil {
		t.Fatal(err)
	}
	if err := file.Append(context.Background(), []dispatchfile.Entry{{Key: effect.EffectKey{1}, Attempt: 1, Epoch: 1, Digest: revision.Digest{2}, Seq: 9}}); err != nil {
		t.Fatal(err)
	}
	out, _ := tidemark(t, exitOK, "", "state", "verify", dir, "-o", "ndjson")
	if !strings.Contains(out, stateInUse) {
		t.Errorf("an open file is told as %s", out)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	out, _ = tidemark(t, exitOK, "", "state", "verify", dir, "-o", "ndjson")
	contains(t, out, `"kind":"effector-dispatch"`, `"cache":false`, "TM_orders_EFF_00", "2026-11-30T10:00:00Z")
	tidemark(t, exitOK, "", "state", "rebuild", dir, "--all")
	if err := os.Truncate(path, 3*4096); err != nil {
		t.Fatal(err)
	}
	out, _ = tidemark(t, exitFindings, "", "state", "verify", dir, "-o", "ndjson")
	contains(t, out, stateDamaged)
	tidemark(t, exitOK, "", "state", "rebuild", dir, "--all")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the dispatch file was moved: %v", err)
	}
}

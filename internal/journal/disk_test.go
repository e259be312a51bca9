//go:build heavy

package journal

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// The disk fills up under atomic batches on the shared stream, again and again. Whatever
// the server leaves of the batch that did not fit, readers group no part of it, and the
// next owner goes on behind the last whole batch. How many prefixes without their COMMIT
// the server left is logged.
func TestDiskFullUnderBatches(t *testing.T) {
	dir := t.TempDir()
	mount := func(flags uintptr, size int) {
		t.Helper()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", flags, fmt.Sprintf("size=%dk", size)); err != nil {
			t.Fatalf("mount a tmpfs of %d KiB on %s: %v; run this test as root", size, dir, err)
		}
	}
	mount(0, 8<<10)
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	const bs, rounds = "full", 6
	f := FencedSettings{Stream: subject.RevisionsStream(bs), Fence: subject.Commits(bs, "job", 1, 0), Owner: "test", RetryFor: 3 * time.Second}
	written, left := uint64(0), 0
	for round := range rounds {
		server, err := natsio.Embed(deadline(t), natsio.EmbeddedOptions{Dir: dir, Port: -1})
		must(t, err)
		conn, err := server.Connect(deadline(t), "tests")
		must(t, err)
		if round == 0 {
			must(t, natsio.ProvisionStream(deadline(t), conn.JS, bs, 1, 1))
		}
		w, head, err := ClaimFenced(deadline(t), conn.JS, f)
		must(t, err)
		n := uint64(0)
		if head.Commit != nil {
			n = head.Commit.Records
		}
		if n < written {
			t.Fatalf("round %d: %d rows were acknowledged, %d stand behind the claim", round, written, n)
		}
		for err = nil; err == nil; {
			size := uint64(200 + round*37)
			batch := rows(bs, 0, n+1, int(size))
			for i := range batch {
				batch[i].Data = append(batch[i].Data, strings.Repeat("x", 700)...)
			}
			if _, err = w.Commit(context.Background(), batch, numbered(n+size)); err == nil {
				n += size
			}
		}
		written = n
		t.Logf("round %d: full after %d rows: %.200v", round, n, err)
		w.Close()
		conn.Close()
		server.Shutdown()
		mount(syscall.MS_REMOUNT, (8+(round+1)*4)<<10)
		left = prefixes(t, dir, f.Stream)
	}
	t.Logf("%d rows acknowledged over %d full disks; %d batches left without their COMMIT", written, rounds, left)
}

// prefixes starts the server with space, reads the whole stream as readers do, and counts
// batches that have no end.
func prefixes(t *testing.T, dir, stream string) (open int) {
	t.Helper()
	server, err := natsio.Embed(deadline(t), natsio.EmbeddedOptions{Dir: dir, Port: -1})
	must(t, err)
	defer server.Shutdown()
	conn, err := server.Connect(deadline(t), "tests")
	must(t, err)
	defer conn.Close()
	seen := map[string]bool{}
	must(t, ReadRange(deadline(t), conn.JS, stream, 0, 1, 1<<62, func(m Msg) error {
		if id := m.Header.Get(subject.HeaderBatchID); id != "" {
			seen[id] = seen[id] || m.Header.Get(subject.HeaderBatchCommit) != ""
		}
		return nil
	}))
	for _, whole := range seen {
		if !whole {
			open++
		}
	}
	wholeBatches(t, conn.JS, "full", 0)
	return open
}

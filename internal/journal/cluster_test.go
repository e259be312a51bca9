package journal

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// leaderOf answers the number of the server that leads stream.
func leaderOf(t *testing.T, js jetstream.JetStream, stream string) int {
	t.Helper()
	for ctx := deadline(t); ; {
		ask, cancel := context.WithTimeout(ctx, askTimeout)
		handle, err := js.Stream(ask, stream)
		cancel()
		if err == nil {
			if info := handle.CachedInfo(); info.Cluster != nil && info.Cluster.Leader != "" {
				var n int
				_, err := fmt.Sscanf(info.Cluster.Leader, "n%d", &n)
				must(t, err)
				return n - 1
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("no leader: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Three replicas lose their leader while commits of both kinds are in flight.
func TestLeaderChangesUnderCommits(t *testing.T) {
	servers, members, err := natsio.EmbedCluster(deadline(t), t.TempDir(), 3)
	must(t, err)
	t.Cleanup(func() {
		for _, e := range servers {
			e.Shutdown()
		}
	})
	urls := servers[0].URL() + "," + servers[1].URL() + "," + servers[2].URL()
	c, err := natsio.Connect(deadline(t), natsio.Options{Server: urls, Timeout: 30 * time.Second})
	must(t, err)
	t.Cleanup(c.Close)
	must(t, natsio.ProvisionPolicy(deadline(t), c.JS, "c", "job", 1, 1, 3))
	must(t, natsio.ProvisionStream(deadline(t), c.JS, "c", 1, 3))
	s := Settings{Stream: subject.WindowsStream("c", "job", 1, 0), Subject: subject.Windows("c", "job", 1, 0), Owner: "test"}
	f := FencedSettings{Stream: subject.RevisionsStream("c"), Fence: subject.Commits("c", "job", 1, 0), Owner: "test"}
	w, _ := claimWriter(t, c.JS, s)
	fenced, _ := claimFenced(t, c.JS, f)

	ctx, stop := context.WithCancel(deadline(t))
	sent := make(chan uint64, 2)
	go func() {
		n := uint64(0)
		for ; ctx.Err() == nil; n++ {
			if _, err := w.Commit(context.Background(), [][]byte{recordOf(n + 1)}, numbered(n+1)); err != nil {
				t.Error(err)
				break
			}
		}
		sent <- n
	}()
	batched := make(chan uint64, 1)
	go func() {
		n := uint64(0)
		for ctx.Err() == nil {
			if _, err := fenced.Commit(context.Background(), rows("c", 0, n+1, 10), numbered(n+10)); err != nil {
				t.Error(err)
				break
			}
			n += 10
		}
		batched <- n
	}()
	reader := read(t, c.JS, s.Stream, 0, 1)
	next := uint64(1)
	follow := func(n int) {
		for range n {
			take(t, reader, next)
			next++
		}
	}
	for range 2 {
		follow(100)
		i := leaderOf(t, c.JS, s.Stream)
		servers[i].Shutdown()
		follow(100)
		servers[i], err = members[i].Start(deadline(t))
		must(t, err)
	}
	follow(100)
	stop()
	commits, records := <-sent, <-batched
	must(t, w.Close())
	if got, _ := wholeJournal(t, c.JS, s.Stream); got != commits {
		t.Errorf("%d commits in the journal, %d handed in", got, commits)
	}
	if got, _ := wholeBatches(t, c.JS, "c", 0); got != records {
		t.Errorf("%d rows in the stream, %d handed in", got, records)
	}
	t.Logf("%d commits, %d rows", commits, records)
}

package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// rounds of kill -9 in TestKillNineLosesNothing.
const killRounds = 20

const crashDocuments = `
apiVersion: tidemark/v1
kind: BusinessStream
name: clicks
partitions: 4
key: [/user]
values:
  n: {path: /n, type: int}
eventTime:
  at@1: {path: /at, format: unix-ms}
---
apiVersion: tidemark/v1
kind: StreamTimePolicy
stream: clicks
job: per-minute@1
sources: [{name: web, partitions: 2}]
timestampExtractor: at@1
watermark: {boundedOutOfOrderness: 2s}
window: {tumbling: 1m}
aggregates: {clicks: count(), total: sum(n)}
allowedLateness: 24h
retention: {ids: 25h}
`

// clicks writes n events of disordered time for a source partition and answers the path.
func clicks(t *testing.T, partition, n int) string {
	t.Helper()
	random := rand.New(rand.NewPCG(7, uint64(partition)))
	var b strings.Builder
	base := time.Date(2025, 3, 1, 8, 0, 0, 0, time.UTC).UnixMilli()
	for i := range n {
		at := base + int64(i)*20 - random.Int64N(30_000)
		if random.IntN(50) == 0 {
			at -= 3_600_000 // an hour late, still allowed
		}
		fmt.Fprintf(&b, `{"id":"p%d-%d","user":"user-%d","n":%d,"at":%d}`+"\n", partition, i, random.IntN(40), random.IntN(1000), at)
	}
	path := filepath.Join(t.TempDir(), fmt.Sprintf("clicks-%d.jsonl", partition))
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// expectedClicks computes the result from the files, without Tidemark.
func expectedClicks(t *testing.T, paths ...string) map[string][2]int {
	t.Helper()
	want := map[string][2]int{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
			var e struct {
				User string
				N    int
				At   int64
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			k := e.User + " " + time.UnixMilli(e.At).UTC().Truncate(time.Minute).Format(time.RFC3339)
			w := want[k]
			want[k] = [2]int{w[0] + 1, w[1] + e.N}
		}
	}
	return want
}

// kill -9 of the whole process at random moments while events flow: the result is the
// plain computation's, verify is green, and no acknowledged event is lost.
func TestKillNineLosesNothing(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	docs := write(t, "clicks.yaml", crashDocuments)
	u := startUp(t, data)
	u.must("apply", "-f", docs)
	files := []string{clicks(t, 0, 60_000), clicks(t, 1, 60_000)}
	random := rand.New(rand.NewPCG(1, 2))
	for round := range killRounds {
		ctx, cancel := context.WithCancel(t.Context())
		senders := make([]*exec.Cmd, len(files))
		for p, file := range files {
			senders[p] = exec.CommandContext(ctx, binary, "send", file, "--stream", "clicks", "--source", "web",
				"--partition", fmt.Sprint(p), "--server", u.NATS, "--rate", "8000", "--timeout", "2s")
			if err := senders[p].Start(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Duration(50+random.IntN(600)) * time.Millisecond) // the random moment itself
		u.kill()
		cancel()
		for _, s := range senders {
			s.Wait() // ended by us or by the lost server
		}
		u = startUp(t, data)
		t.Logf("round %d: up again", round+1)
	}
	for p, file := range files {
		u.must("send", file, "--stream", "clicks", "--source", "web", "--partition", fmt.Sprint(p), "--finish")
	}
	u.must("wait", "clicks", "--timeout", "2m")
	want, got := expectedClicks(t, files...), u.windows("clicks")
	if len(got) != len(want) {
		t.Errorf("%d windows, want %d", len(got), len(want))
	}
	for k, w := range want {
		if g := got[k]; g.text("clicks") != fmt.Sprint(w[0]) || g.text("total") != fmt.Sprint(w[1]) {
			t.Fatalf("window %s: %s clicks, total %s; want %d, %d", k, g.text("clicks"), g.text("total"), w[0], w[1])
		}
	}
	u.verified("clicks")
	if code := u.stop(); code != 0 {
		t.Errorf("up ended with %d after SIGTERM\n%s", code, u.log)
	}
}

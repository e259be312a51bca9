package webhook

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
	"github.com/tidemark-mesh/tidemark/pkg/subscribe"
)

// Environment by which the test binary runs as a sender of its own.
const (
	childDir  = "WEBHOOK_TEST_DIR"
	childNATS = "WEBHOOK_TEST_NATS"
)

func writeSecret(path string, fill byte) error {
	return os.WriteFile(path, []byte(secretText(fill)+"\n"), 0o600)
}

// childSender runs a sender until it is killed.
func childSender(dir string) int {
	err := func() error {
		e, err := Load(filepath.Join(dir, "crm.yaml"))
		if err != nil {
			return err
		}
		nc, err := nats.Connect(os.Getenv(childNATS))
		if err != nil {
			return err
		}
		s, err := New(Config{Endpoint: e, Conn: nc, Dir: dir, Clock: clock.System(), Log: zerolog.New(os.Stderr)})
		if err != nil {
			return err
		}
		return s.Run(context.Background())
	}()
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// The process is killed again and again at any moment, while the receiver fails now and
// then. Every revision arrives at least once, those of a projection in order, each under
// one id with the same bytes.
func TestKilledProcessesSkipNothing(t *testing.T) {
	t.Parallel()
	const keys, rounds, kills = 7, 40, 6
	r := newRig(t, "mode: delta\nschedule: [0s, 10ms, 10ms, 10ms, 10ms, 10ms, 10ms, 10ms, 10ms, 10ms, 10ms, 10ms]\n")
	r.recv.clock = clock.System()
	var count atomic.Int64
	r.recv.says(func(w http.ResponseWriter, _ request) {
		if count.Add(1)%5 == 0 {
			w.WriteHeader(500)
		}
	})
	must(t, os.WriteFile(filepath.Join(r.dir, "crm.yaml"), []byte(r.document), 0o600))
	child := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childDir+"="+r.dir, childNATS+"="+server.URL())
		cmd.Stderr = r.logs
		must(t, cmd.Start())
		return cmd
	}
	cmd := child()
	for round := range rounds {
		var names []string
		for k := range keys {
			names = append(names, fmt.Sprintf("k%d", k))
		}
		r.names(names...)
		if round%(rounds/kills) == rounds/kills-1 {
			had := len(r.recv.requests())
			eventually(t, func() string { // somewhere in its work
				if len(r.recv.requests()) < had+round%7+1 && len(seen(r)) < (round+1)*keys {
					return "the process does nothing\n" + r.logs.String()
				}
				return ""
			})
			must(t, cmd.Process.Kill())
			if err := cmd.Wait(); err == nil {
				t.Fatal("the process was not killed")
			}
			cmd = child()
		}
	}
	eventually(t, func() string {
		if n := len(seen(r)); n != keys*rounds {
			return fmt.Sprintf("%d of %d revisions came\n%s", n, keys*rounds, r.logs)
		}
		return ""
	})
	must(t, cmd.Process.Kill())
	if err := cmd.Wait(); err == nil {
		t.Fatal("the process was not killed")
	}
	bodies, last := map[string]string{}, map[string]int{}
	for _, q := range r.recv.requests() {
		if body, known := bodies[q.id]; known && body != string(q.body) {
			t.Errorf("%s came with other bytes", q.word)
		}
		bodies[q.id] = string(q.body)
		key, number, _ := strings.Cut(q.word, "/")
		var n int
		if _, err := fmt.Sscan(number, &n); err != nil || n < last[key] || n > last[key]+1 {
			t.Errorf("%s after %s/%d", q.word, key, last[key])
		}
		last[key] = n
	}
	if len(bodies) != keys*rounds {
		t.Errorf("%d ids for %d revisions", len(bodies), keys*rounds)
	}
}

// seen answers the revisions that the receiver has had at least once.
func seen(r *rig) []string {
	words := map[string]bool{}
	for _, q := range r.recv.requests() {
		words[q.word] = true
	}
	return slices.Sorted(maps.Keys(words))
}

// A receiver that hangs does not keep the process from ending, and what it left open is
// sent by the next one.
func TestAnAttemptCutOffByTheEndIsMadeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	release := make(chan struct{})
	r.recv.says(func(http.ResponseWriter, request) { <-release })
	r.run()
	r.names("eu")
	r.recv.expect("eu/1")
	ended := make(chan struct{})
	go func() { r.stop(); close(ended) }()
	deadline := time.After(30 * time.Second)
	for done := false; !done; {
		select {
		case <-ended:
			done = true
		case <-deadline:
			t.Fatal("the process does not end")
		default:
			r.clock.Advance(time.Second)
		}
	}
	close(release)
	r.recv.says(nil)
	r.run()
	r.recv.expect("eu/1 eu/1")
	r.counts("1 DELIVERED")
}

// A feed that is another one now ends the process: going on would leave revisions out.
func TestAReplacedFeedEndsTheProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t, "").run()
	r.names("eu")
	r.counts("1 DELIVERED")
	r.stop()
	must(t, r.conn.JS.DeleteStream(r.ctx, subject.RevisionsStream(r.stream)))
	must(t, natsio.ProvisionStream(r.ctx, r.conn.JS, r.stream, 1, 1))
	r.begin(1, 1)
	e, err := Load(filepath.Join(r.dir, "crm.yaml"))
	must(t, err)
	s, err := New(Config{Endpoint: e, Conn: r.conn.NC, Dir: r.dir, Clock: r.clock})
	must(t, err)
	if err := s.Run(r.ctx); !errors.Is(err, subscribe.ErrRecreated) || !strings.Contains(err.Error(), "fresh data directory") {
		t.Fatalf("run: %v", err)
	}
}

// Before a job has results the process waits for them, says so, and is not ready.
func TestAJobWithoutResultsIsWaitedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	r.document = strings.Replace(r.document, "job: "+job, "job: daily", 1)
	r.run()
	eventually(t, func() string {
		if p := r.sender.Problems(); len(p) != 1 || !strings.Contains(p[0], "no canonical generation") {
			return fmt.Sprint(p)
		}
		return ""
	})
	alias := revision.Alias{Job: "daily", Canonical: 1, Epoch: 1}
	_, err := r.conn.JS.Publish(r.ctx, subject.Alias(r.stream, "daily"), alias.AppendJSON(nil))
	must(t, err)
	eventually(t, func() string {
		r.clock.Advance(openAgain)
		return strings.Join(r.sender.Problems(), " ")
	})
}

//go:build heavy

package tests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/failpoint"
)

// fewClicks writes part n of a source partition's events: out of order, some late, some
// twice, one that is no event.
func fewClicks(t *testing.T, partition, n int) string {
	t.Helper()
	const each = 240
	var b strings.Builder
	base := time.Date(2025, 3, 1, 8, 10*n, 0, 0, time.UTC).UnixMilli()
	for i := range each {
		at := base + int64(i)*2500 - int64(i*7919%30_000)
		if i%40 == 39 {
			at -= 1_200_000 // windows that were closed long ago
		}
		line := fmt.Sprintf(`{"id":"p%d-%d-%d","user":"user-%d","n":%d,"at":%d}`+"\n", partition, n, i, i%11, i%100, at)
		b.WriteString(line)
		if i%30 == 29 {
			b.WriteString(line)
		}
	}
	b.WriteString(`{"id":"broken","user":"user-1"` + "\n")
	path := filepath.Join(t.TempDir(), fmt.Sprintf("clicks-%d-%d.jsonl", partition, n))
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// expectedFewClicks computes the result without Tidemark: every id once, what is no JSON
// not at all.
func expectedFewClicks(t *testing.T, paths []string) map[string][2]int {
	t.Helper()
	want, seen := map[string][2]int{}, map[string]bool{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
			var e struct {
				ID, User string
				N        int
				At       int64
			}
			if json.Unmarshal([]byte(line), &e) != nil || seen[e.ID] {
				continue
			}
			seen[e.ID] = true
			k := e.User + " " + time.UnixMilli(e.At).UTC().Truncate(time.Minute).Format(time.RFC3339)
			w := want[k]
			want[k] = [2]int{w[0] + 1, w[1] + e.N}
		}
	}
	return want
}

// Bounds of a round.
const (
	pointRoundFor = 90 * time.Second
	pointStepFor  = 20 * time.Second
)

// errDied: the process was ended by its point. It is started again without points.
var errDied = errors.New("the process died")

// run does one round in a copy of the template.
func (s *sweep) run(r pointRound) pointOutcome {
	dir, err := os.MkdirTemp(s.scratch, "round-")
	if err != nil {
		return pointOutcome{err: err}
	}
	defer os.RemoveAll(dir)
	dir += "/data"
	if err := os.CopyFS(dir, os.DirFS(s.template)); err != nil {
		return pointOutcome{err: err}
	}
	if r.point.Without != "" {
		if err := os.RemoveAll(filepath.Join(dir, r.point.Without)); err != nil {
			return pointOutcome{err: err}
		}
	}
	deadline := time.Now().Add(pointRoundFor)
	n := &pointNode{sweep: s, dir: dir, deadline: deadline}
	defer n.kill()
	if err := s.play(n, r); err != nil {
		return pointOutcome{err: fmt.Errorf("%w\n%s", err, n.logs())}
	}
	return pointOutcome{recovery: n.visible.Sub(n.fired)}
}

// play starts, lets the point fire in the workload or on the way out, starts again where
// it is needed, and checks the result.
func (s *sweep) play(n *pointNode, r pointRound) error {
	if err := n.start(r.arm(), r); err != nil && !errors.Is(err, errDied) {
		return err
	}
	err := n.work()
	if errors.Is(err, errDied) {
		if err = n.start("", r); err == nil {
			err = n.work()
		}
	}
	if err != nil {
		return err
	}
	if n.firedAt().IsZero() { // the way out is left
		code, err := n.stop()
		if err != nil {
			return err
		}
		if n.firedAt().IsZero() {
			return errors.New("the workload never comes by this point")
		}
		if code != 0 && r.mode != "crash" {
			return fmt.Errorf("up ended with %d after SIGTERM", code)
		}
		if err := n.start("", r); err != nil {
			return err
		}
		if err := n.work(); err != nil {
			return err
		}
	}
	return nil
}

// pointNode is one `up` that dies and comes back.
type pointNode struct {
	sweep    *sweep
	dir      string
	deadline time.Time
	cmd      *exec.Cmd
	done     chan struct{} // closed when the process ended
	nats     string

	sent    [2]bool   // files that are acknowledged whole
	visible time.Time // when everything was visible last

	mu    sync.Mutex
	fired time.Time
	log   bytes.Buffer
}

func (n *pointNode) firedAt() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fired
}

func (n *pointNode) logs() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.String()
}

// start starts `up` and answers once it is ready; errDied when its point ended it before.
func (n *pointNode) start(arm string, r pointRound) error {
	endpoints := filepath.Join(n.dir, "endpoints.json")
	os.Remove(endpoints)
	snapshots := "-1s"
	if strings.Contains(r.point.Name, "snapshot") {
		snapshots = "1ms"
	}
	n.cmd = exec.Command(n.sweep.binary, "up", "--data", n.dir, "--nats-port", "0", "--http-port", "0",
		"--checkpoint-every", "1ms", "--snapshot-every", snapshots)
	n.cmd.Env = append(os.Environ(), failpoint.Variable+"="+arm)
	stdout, err := n.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	stderr, err := n.cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := n.cmd.Start(); err != nil {
		return err
	}
	ready, done := make(chan struct{}), make(chan struct{})
	n.done = done
	var reading sync.WaitGroup
	reading.Go(func() {
		lines := bufio.NewScanner(stdout)
		for i := 1; lines.Scan(); i++ {
			if i == 2 {
				close(ready)
			}
		}
	})
	line := fmt.Sprintf("failpoint %s %s hit %d", r.point.Name, strings.Split(r.mode, "(")[0], r.hit)
	reading.Go(func() { n.listen(bufio.NewScanner(stderr), line) })
	cmd := n.cmd
	go func() {
		reading.Wait()
		cmd.Wait() // how it ended is in ProcessState
		close(done)
	}()
	select {
	case <-ready:
	case <-done:
		return n.died()
	case <-time.After(time.Until(n.deadline)):
		return errors.New("up was not ready in time")
	}
	text, err := os.ReadFile(endpoints)
	if err != nil {
		select { // the file goes with a process that ends at this moment
		case <-done:
			return n.died()
		case <-time.After(time.Second):
			return err
		}
	}
	var e struct{ NATS string }
	if err := json.Unmarshal(text, &e); err != nil {
		return err
	}
	n.nats = e.NATS
	return nil
}

func (n *pointNode) listen(lines *bufio.Scanner, fired string) {
	for lines.Scan() {
		n.mu.Lock()
		fmt.Fprintln(&n.log, lines.Text())
		if lines.Text() == fired {
			n.fired = time.Now()
		}
		n.mu.Unlock()
	}
}

// died answers errDied for a process that its own point killed, and an error else.
func (n *pointNode) died() error {
	status, _ := n.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() && status.Signal() == syscall.SIGKILL && !n.firedAt().IsZero() {
		return errDied
	}
	return fmt.Errorf("up ended by itself: %s", n.cmd.ProcessState)
}

func (n *pointNode) kill() {
	if n.cmd == nil || n.cmd.Process == nil {
		return
	}
	n.cmd.Process.Kill() // may have ended
	<-n.done
}

// stop ends the process with SIGTERM and answers its exit code.
func (n *pointNode) stop() (int, error) {
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	select {
	case <-n.done:
		return n.cmd.ProcessState.ExitCode(), nil
	case <-time.After(25 * time.Second):
		return 0, errors.New("up did not end within 25 s of SIGTERM")
	}
}

// work sends what is left, waits until it is visible and checks it. Whatever fails for a
// passing reason is done again, as a user would.
func (n *pointNode) work() error {
	for p, file := range n.sweep.files {
		if n.sent[p] {
			continue
		}
		if err := n.step("send", file, "--stream", "clicks", "--source", "web", "--partition", fmt.Sprint(p), "--finish", "--timeout", "5s"); err != nil {
			return err
		}
		n.sent[p] = true
	}
	if err := n.step("wait", "clicks", "--timeout", "10s"); err != nil {
		return err
	}
	n.visible = time.Now()
	if err := n.compare(); err != nil {
		return err
	}
	return n.once("verify", "clicks")
}

// step does a command until it ends with 0.
func (n *pointNode) step(args ...string) error {
	until := time.Now().Add(pointStepFor)
	for {
		_, err := n.command(args...)
		if err == nil || errors.Is(err, errDied) {
			return err
		}
		if time.Now().After(until) || time.Now().After(n.deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond) // between two tries
	}
}

// once does a command that has to end with 0 unless the process died under it.
func (n *pointNode) once(args ...string) error {
	_, err := n.command(args...)
	return err
}

func (n *pointNode) command(args ...string) (string, error) {
	ctx, cancel := context.WithDeadline(context.Background(), n.deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, append(args, "--server", n.nats)...)
	cmd.Env = append(os.Environ(), "NATS_URL=", "XDG_CONFIG_HOME="+n.sweep.scratch)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	ended := make(chan struct{})
	go func() { // nobody waits for the answer of a process that died
		select {
		case <-n.done:
			cancel()
		case <-ended:
		}
	}()
	err := cmd.Run()
	close(ended)
	select {
	case <-n.done:
		return "", n.died()
	default:
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(args, " "), err, &out, &errOut)
	}
	return out.String(), nil
}

// compare holds what readers see against the plain computation.
func (n *pointNode) compare() error {
	until := time.Now().Add(pointStepFor)
	out, err := n.command("windows", "clicks", "-o", "ndjson")
	for err != nil && !errors.Is(err, errDied) && time.Now().Before(until) {
		out, err = n.command("windows", "clicks", "-o", "ndjson") // a view is being opened again
	}
	if err != nil {
		return err
	}
	got := map[string]windowLine{}
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		var w windowLine
		if err := json.Unmarshal([]byte(line), &w); err != nil {
			return fmt.Errorf("windows printed %q: %w", line, err)
		}
		got[w.Key+" "+w.Start.UTC().Format(time.RFC3339)] = w
	}
	if len(got) != len(n.sweep.want) {
		return fmt.Errorf("%d windows, want %d", len(got), len(n.sweep.want))
	}
	for k, w := range n.sweep.want {
		if g := got[k]; g.text("clicks") != fmt.Sprint(w[0]) || g.text("total") != fmt.Sprint(w[1]) {
			return fmt.Errorf("window %s: %s clicks, total %s; want %d, %d", k, g.text("clicks"), g.text("total"), w[0], w[1])
		}
	}
	return nil
}

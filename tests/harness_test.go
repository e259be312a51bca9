package tests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// binary is the tidemark that every test of the package runs, built once.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "tidemark-tests-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "tidemark")
	build := exec.Command("go", "build", "-o", binary, "../cmd/tidemark")
	build.Stderr = os.Stderr
	code := 1
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// result is what one command printed and how it ended.
type result struct {
	out, err string
	code     int
}

// run executes one command line with a generous deadline.
func run(t *testing.T, args ...string) result {
	t.Helper()
	return runInput(t, "", args...)
}

func runInput(t *testing.T, input string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Stdin = strings.NewReader(input)
	cmd.Env = append(os.Environ(), "NATS_URL=", "XDG_CONFIG_HOME="+t.TempDir())
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("tidemark %s did not end: %v\n%s%s", strings.Join(args, " "), ctx.Err(), &out, &errOut)
	}
	r := result{out: out.String(), err: errOut.String()}
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	r.code = cmd.ProcessState.ExitCode()
	return r
}

// must runs a command that has to end with 0 and answers its stdout.
func must(t *testing.T, args ...string) string {
	t.Helper()
	r := run(t, args...)
	if r.code != 0 {
		t.Fatalf("tidemark %s ended with %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r.out
}

// up is a running `tidemark up`.
type up struct {
	t    *testing.T
	data string
	cmd  *exec.Cmd
	log  *bytes.Buffer
	done chan error
	NATS string `json:"nats"`
	HTTP string `json:"http"`
}

// startUp starts `up` on data and waits until it is ready.
func startUp(t *testing.T, data string, flags ...string) *up {
	t.Helper()
	u := &up{t: t, data: data, log: &bytes.Buffer{}, done: make(chan error, 1)}
	endpoints := filepath.Join(data, "endpoints.json")
	os.Remove(endpoints)
	args := append([]string{"up", "--data", data, "--nats-port", "0", "--http-port", "0"}, flags...)
	u.cmd = exec.Command(binary, args...)
	stdout, err := u.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	u.cmd.Stderr = u.log
	if err := u.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	go func() {
		s := bufio.NewScanner(stdout)
		lines := 0
		for s.Scan() {
			if lines++; lines == 2 {
				close(ready)
			}
		}
		u.done <- u.cmd.Wait()
	}()
	t.Cleanup(u.kill)
	select {
	case <-ready:
	case err := <-u.done:
		u.done <- err
		t.Fatalf("up ended before it was ready: %v\n%s", err, u.log)
	case <-time.After(time.Minute):
		u.kill()
		t.Fatalf("up was not ready within a minute\n%s", u.log)
	}
	text, err := os.ReadFile(endpoints)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, u); err != nil {
		t.Fatal(err)
	}
	return u
}

// kill ends the process at once, as kill -9 does; a second call does nothing.
func (u *up) kill() {
	if u.cmd.Process.Signal(syscall.SIGKILL) == nil {
		u.done <- <-u.done
	}
}

// stop ends the process with SIGTERM and answers its exit code.
func (u *up) stop() int {
	u.t.Helper()
	if err := u.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		u.t.Fatal(err)
	}
	select {
	case <-u.done:
		u.done <- nil
	case <-time.After(25 * time.Second):
		u.t.Fatalf("up did not end within 25 s of SIGTERM\n%s", u.log)
	}
	return u.cmd.ProcessState.ExitCode()
}

// must runs a command against this server.
func (u *up) must(args ...string) string {
	u.t.Helper()
	return must(u.t, append(args, "--server", u.NATS)...)
}

// windowLine is one line of `windows -o ndjson`.
type windowLine struct {
	Key      string                     `json:"key"`
	Start    time.Time                  `json:"start"`
	End      time.Time                  `json:"end"`
	Revision uint64                     `json:"revision"`
	State    string                     `json:"state"`
	Value    map[string]json.RawMessage `json:"value"`
}

func (w windowLine) text(name string) string { return strings.Trim(string(w.Value[name]), `"`) }

// windows answers the current rows of a stream by "key start".
func (u *up) windows(stream string, flags ...string) map[string]windowLine {
	u.t.Helper()
	out := u.must(append([]string{"windows", stream, "-o", "ndjson"}, flags...)...)
	rows := map[string]windowLine{}
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		if line == "" {
			continue
		}
		var w windowLine
		if err := json.Unmarshal([]byte(line), &w); err != nil {
			u.t.Fatalf("windows -o ndjson printed %q: %v", line, err)
		}
		rows[w.Key+" "+w.Start.UTC().Format(time.RFC3339)] = w
	}
	return rows
}

// verified fails the test unless every gate of verify passes.
func (u *up) verified(stream string) {
	u.t.Helper()
	r := run(u.t, "verify", stream, "--server", u.NATS)
	if r.code != 0 {
		u.t.Fatalf("verify %s ended with %d\n%s%s", stream, r.code, r.out, r.err)
	}
}

// write makes a file for a test.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func bytesReader(b []byte) *bytes.Reader { return bytes.NewReader(b) }

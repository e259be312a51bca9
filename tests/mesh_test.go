package tests

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/natsio"
)

// natsServer is the nats-server of this module, built once on first use.
var natsServer = sync.OnceValues(func() (string, error) {
	path := filepath.Join(filepath.Dir(binary), "nats-server")
	out, err := exec.Command("go", "build", "-o", path, "github.com/nats-io/nats-server/v2").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build nats-server: %w\n%s", err, out)
	}
	return path, nil
})

// process is one program that is started, killed and started again.
type process struct {
	t    *testing.T
	name string
	path string
	args []string
	cmd  *exec.Cmd
	log  *lines
	done chan struct{} // closed when the run ended
}

// lines keeps the last part of what a process printed, and tells whether a text was seen
// since the last start.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text.Len() > 1<<20 {
		keep := bytes.Clone(l.text.Bytes()[l.text.Len()-1<<18:])
		l.text.Reset()
		l.text.Write(keep)
	}
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}

func (p *process) start() {
	p.t.Helper()
	p.log.reset()
	p.cmd = exec.Command(p.path, p.args...)
	p.cmd.Stdout, p.cmd.Stderr = io.Discard, p.log
	p.cmd.Env = append(os.Environ(), "NATS_URL=")
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	done, cmd := make(chan struct{}), p.cmd
	p.done = done
	go func() {
		cmd.Wait() // how it ended is asked of ProcessState
		close(done)
	}()
}

// running tells whether the process was started and has not ended.
func (p *process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// signal sends sig to a process that may have ended by itself.
func (p *process) signal(sig os.Signal) {
	if p.running() {
		p.cmd.Process.Signal(sig)
	}
}

// kill is kill -9, whatever the process is doing; it waits until it is gone.
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	p.cmd.Process.Signal(syscall.SIGKILL) // it may have ended by itself
	<-p.done
}

// stop is SIGTERM; it answers the exit code and how long that took.
func (p *process) stop() (code int, took time.Duration) {
	p.t.Helper()
	begun := time.Now()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		p.kill()
		p.t.Fatalf("%s did not end within a minute of SIGTERM\n%s", p.name, p.log)
	}
	return p.cmd.ProcessState.ExitCode(), time.Since(begun)
}

// says waits until the process has printed text.
func (p *process) says(text string) {
	p.t.Helper()
	p.await(text, func() bool { return strings.Contains(p.log.String(), text) })
}

// await waits for ok while the process runs.
func (p *process) await(what string, ok func() bool) {
	p.t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		switch {
		case !p.running():
			p.t.Fatalf("%s ended (%v) before: %s\n%s", p.name, p.cmd.ProcessState, what, p.log)
		case time.Now().After(end):
			p.t.Fatalf("%s never: %s\n%s", p.name, what, p.log)
		}
	}
}

// ready waits until the service says so.
func (p *process) ready() { p.t.Helper(); p.says(`"message":"ready"`) }

// mesh is a nats-server and services, each a process of its own.
type mesh struct {
	t    *testing.T
	dir  string
	url  string
	nats *process
	base string // the server's configuration without what a test added
	file string // where it stands
}

// newMesh starts a nats-server with sync_interval always on a free port. store is its
// directory ("" = one under the mesh's own); more is added to its configuration.
func newMesh(t *testing.T, store, more string) *mesh {
	t.Helper()
	path, err := natsServer()
	if err != nil {
		t.Fatal(err)
	}
	m := &mesh{t: t, dir: t.TempDir()}
	if store == "" {
		store = filepath.Join(m.dir, "nats")
	}
	port := freePort(t)
	m.url = fmt.Sprintf("nats://127.0.0.1:%d", port)
	m.base = fmt.Sprintf(`
listen: "127.0.0.1:%d"
server_name: mesh
jetstream {
  store_dir: %q
  sync_interval: always
  max_file_store: 8GiB
  limits { batch { max_inflight_per_stream: 256, max_inflight_total: 4096 } }
}
`, port, store)
	m.file = filepath.Join(m.dir, "nats.conf")
	m.configure(more)
	m.nats = m.process("nats-server", path, "-c", m.file)
	m.nats.start()
	return m
}

// configure writes the server's configuration.
func (m *mesh) configure(more string) {
	m.t.Helper()
	if err := os.WriteFile(m.file, []byte(m.base+more+"\n"), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// reconfigure gives the running server another configuration.
func (m *mesh) reconfigure(more string) {
	m.t.Helper()
	m.configure(more)
	m.nats.log.reset()
	m.nats.signal(syscall.SIGHUP)
	m.nats.says("Reloaded server configuration")
}

// process declares a program without starting it.
func (m *mesh) process(name, path string, args ...string) *process {
	p := &process{t: m.t, name: name, path: path, args: args, log: &lines{}}
	m.t.Cleanup(p.kill)
	return p
}

// service declares one service with a data directory of its own.
func (m *mesh) service(verb, instance string, flags ...string) *process {
	args := append([]string{verb, "--server", m.url, "--data", filepath.Join(m.dir, instance), "--timeout", "5s"}, flags...)
	return m.process(instance, binary, args...)
}

// connected waits until the server takes clients and JetStream answers.
func (m *mesh) connected() *natsio.Conn {
	m.t.Helper()
	var last error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		conn, err := natsio.Connect(context.Background(), natsio.Options{Server: m.url, Name: "tests"})
		if err == nil {
			m.t.Cleanup(conn.Close)
			return conn
		}
		last = err
	}
	m.t.Fatalf("nats-server never answered: %v\n%s", last, m.nats.log)
	return nil
}

// up is this mesh as far as commands against a server are concerned.
func (m *mesh) up() *up { return &up{t: m.t, NATS: m.url} }

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

package natsio

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T, o EmbeddedOptions) *Embedded {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	e, err := Embed(deadline(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Shutdown)
	return e
}

func inProcess(t *testing.T, e *Embedded) *Conn {
	t.Helper()
	c, err := e.Connect(deadline(t), "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// 2.15.2 can delete a stream's directory on a recovery error.
func TestServerPin(t *testing.T) {
	var major, minor, patch int
	if _, err := fmt.Sscanf(server.VERSION, "%d.%d.%d", &major, &minor, &patch); err != nil {
		t.Fatal(err)
	}
	if have := major*1_000_000 + minor*1_000 + patch; have < 2_015_003 {
		t.Fatalf("nats-server %s is older than 2.15.3", server.VERSION)
	}
}

func TestEmbedInProcessOnly(t *testing.T) {
	e := start(t, EmbeddedOptions{Port: -1})
	if e.URL() != "" {
		t.Fatalf("URL is %q, want none", e.URL())
	}
	c := inProcess(t, e)
	if size := c.NC.MaxPayload(); size != MaxPayload {
		t.Fatalf("max_payload %d", size)
	}
	if !e.srv.JetStreamConfig().SyncAlways {
		t.Fatal("sync_interval is not always")
	}
}

func TestEmbedRestartsOnItsPortAndDirectory(t *testing.T) {
	dir := t.TempDir()
	e := start(t, EmbeddedOptions{Dir: dir})
	c, err := Connect(deadline(t), Options{Server: e.URL(), Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := Provision(deadline(t), c.JS, 1); err != nil {
		t.Fatal(err)
	}
	port := e.srv.Addr().(*net.TCPAddr).Port
	e.Shutdown()
	start(t, EmbeddedOptions{Dir: dir, Port: port})
	for ctx := deadline(t); ; {
		// What was asked as the connection went away is never answered.
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		_, err := c.JS.Stream(attempt, subject.AuditStream)
		cancel()
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

func TestEmbedErrors(t *testing.T) {
	dir := t.TempDir()
	e := start(t, EmbeddedOptions{Dir: dir})
	port := e.srv.Addr().(*net.TCPAddr).Port
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		o    EmbeddedOptions
		want error
		says string
	}{
		{"port in use", EmbeddedOptions{Dir: t.TempDir(), Port: port}, ErrPortInUse, "choose another port"},
		{"directory in use", EmbeddedOptions{Dir: dir}, ErrDirLocked, "stop that process"},
		{"directory is a file", EmbeddedOptions{Dir: file}, ErrDir, "give a directory"},
		{"no directory", EmbeddedOptions{}, ErrDir, "no directory"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Embed(deadline(t), tc.o)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("got %v, want %v saying %q", err, tc.want, tc.says)
			}
		})
	}
	// The failed attempt on a used port must have given its directory back.
	e.Shutdown()
	start(t, EmbeddedOptions{Dir: dir})
}

func TestConnectErrors(t *testing.T) {
	_, err := Connect(deadline(t), Options{Server: "nats://127.0.0.1:1", Timeout: time.Second})
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "nats://127.0.0.1:1") || !strings.Contains(err.Error(), "tidemark up") {
		t.Fatalf("got %v", err)
	}
	plain, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	plain.Start()
	defer plain.Shutdown()
	if !plain.ReadyForConnections(10 * time.Second) {
		t.Fatal("plain server is not up")
	}
	_, err = Connect(deadline(t), Options{Server: plain.ClientURL(), Timeout: time.Second})
	if !errors.Is(err, ErrAPILevel) {
		t.Fatalf("got %v, want ErrAPILevel", err)
	}
}

func TestConnectPicksTheServer(t *testing.T) {
	e := start(t, EmbeddedOptions{})
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	if err := os.MkdirAll(filepath.Join(home, "nats", "context"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(home, "nats", "context", "mine.json")
	if err := os.WriteFile(file, fmt.Appendf(nil, `{"url":%q}`, e.URL()), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NATS_URL", "nats://127.0.0.1:1")
	c, err := Connect(deadline(t), Options{Context: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	t.Setenv("NATS_URL", e.URL())
	c, err = Connect(deadline(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	c.Close() // twice is fine
	if _, err := Connect(deadline(t), Options{Context: "none"}); !errors.Is(err, ErrUnreachable) {
		t.Fatalf("got %v", err)
	}
}

func provisionAll(ctx context.Context, js jetstream.JetStream, replicas int) error {
	return errors.Join(
		Provision(ctx, js, replicas),
		ProvisionStream(ctx, js, "orders", 2, replicas),
		ProvisionPolicy(ctx, js, "orders", "hourly", 1, 2, replicas),
		ProvisionEffects(ctx, js, "orders", 2, replicas),
	)
}

func TestProvisionIsIdempotent(t *testing.T) {
	js := inProcess(t, start(t, EmbeddedOptions{Port: -1})).JS
	for range 2 {
		if err := provisionAll(deadline(t), js, 1); err != nil {
			t.Fatal(err)
		}
	}
	kv, err := js.KeyValue(deadline(t), subject.LeaseBucket)
	if err != nil {
		t.Fatal(err)
	}
	status, err := kv.Status(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	if status.(*jetstream.KeyValueBucketStatus).StreamInfo().Config.AllowDirect {
		t.Fatal("leases are read from replicas")
	}
	if err := Provision(deadline(t), js, 2); err == nil {
		t.Fatal("two replicas were taken")
	}
}

func TestProvisionRefusesAnotherConfiguration(t *testing.T) {
	js := inProcess(t, start(t, EmbeddedOptions{Port: -1})).JS
	name := subject.EventsStream("orders", 0)
	if _, err := js.CreateStream(deadline(t), jetstream.StreamConfig{Name: name, Subjects: []string{subject.Events("orders", 0)}, MaxAge: time.Hour}); err != nil {
		t.Fatal(err)
	}
	err := ProvisionStream(deadline(t), js, "orders", 1, 1)
	if !errors.Is(err, ErrConfig) {
		t.Fatalf("got %v, want ErrConfig", err)
	}
	for _, word := range []string{name, "discard is", "deny_delete is false", "max_age is 1h"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%v does not say %q", err, word)
		}
	}
}

func TestClusterProvisionsThreeReplicas(t *testing.T) {
	servers, members, err := EmbedCluster(deadline(t), t.TempDir(), 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range servers {
		t.Cleanup(e.Shutdown)
	}
	c, err := Connect(deadline(t), Options{Server: servers[0].URL() + "," + servers[1].URL(), Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := Provision(deadline(t), c.JS, 3); err != nil {
		t.Fatal(err)
	}
	servers[2].Shutdown()
	again, err := members[2].Start(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(again.Shutdown)
}

// Close ends for every caller, at once and over again, also when another one was first.
func TestCloseEndsForEveryCaller(t *testing.T) {
	server, err := Embed(t.Context(), EmbeddedOptions{Dir: t.TempDir(), Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	for range 20 {
		conn, err := server.Connect(t.Context(), "close")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.NC.Subscribe("x", func(*nats.Msg) {}); err != nil {
			t.Fatal(err)
		}
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(conn.Close)
		}
		callers.Wait()
		if !conn.NC.IsClosed() {
			t.Fatal("not closed")
		}
		conn.Close()
	}
}

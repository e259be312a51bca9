package natsio

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/dirlock"
)

// MaxPayload of the embedded server: a commit of 900 KiB with its headers fits.
const MaxPayload = 1 << 20

// maxPending is what may wait for one connection before the server cuts it: the server's
// default is enough for 32 readers that a process runs at once, this for 128.
const maxPending = 256 << 20

// Errors of Embed.
var (
	// ErrPortInUse: another process listens on the wanted port.
	ErrPortInUse = errors.New("port in use")
	// ErrDir: the store directory cannot be used.
	ErrDir = errors.New("data directory unusable")
	// ErrDirLocked: another process runs a server on the store directory.
	ErrDirLocked = errors.New("data directory in use by another process")
	// ErrNotReady: the server did not come up.
	ErrNotReady = errors.New("embedded nats-server did not start")
)

// EmbeddedOptions of Embed.
type EmbeddedOptions struct {
	Dir  string         // store directory
	Host string         // default 127.0.0.1
	Port int            // 0 = any free port, -1 = in-process only
	Name string         // default tidemark
	Log  zerolog.Logger // warnings and errors of the server; the zero Logger is silent
}

// Embedded is a nats-server inside this process, with sync_interval: always.
type Embedded struct {
	srv    *server.Server
	lock   *dirlock.Lock
	listen bool
	once   sync.Once
}

// Embed starts a server and waits until JetStream is ready. ErrPortInUse, ErrDir,
// ErrDirLocked and ErrNotReady tell what stands in the way.
func Embed(ctx context.Context, o EmbeddedOptions) (*Embedded, error) {
	return embed(ctx, o, server.ClusterOpts{}, nil)
}

func embed(ctx context.Context, o EmbeddedOptions, cluster server.ClusterOpts, routes []string) (*Embedded, error) {
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	if o.Name == "" {
		o.Name = "tidemark"
	}
	lock, err := prepareDir(o.Dir)
	if err != nil {
		return nil, err
	}
	if err := checkPort(o.Host, o.Port); err != nil {
		lock.Release()
		return nil, err
	}
	opts := serverOptions(o)
	opts.Cluster = cluster
	opts.Routes = server.RoutesFromStr(joinRoutes(routes))
	srv, err := server.NewServer(opts)
	if err != nil {
		lock.Release()
		return nil, fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	bridge := &logBridge{log: o.Log}
	srv.SetLoggerV2(bridge, false, false, false)
	e := &Embedded{srv: srv, lock: lock, listen: o.Port >= 0}
	srv.Start()
	if err := e.waitReady(ctx, bridge); err != nil {
		e.Shutdown()
		return nil, err
	}
	return e, nil
}

func serverOptions(o EmbeddedOptions) *server.Options {
	port := o.Port
	if port <= 0 {
		port = server.RANDOM_PORT
	}
	return &server.Options{
		ServerName: o.Name,
		Host:       o.Host,
		Port:       port,
		DontListen: o.Port < 0,
		NoSigs:     true,
		MaxPayload: MaxPayload,
		// All readers of a process share one connection; see prefetchBytes of the journal.
		MaxPending: maxPending,
		JetStream:  true,
		StoreDir:   o.Dir,
		// An acknowledged commit is on the disk: the journals are the truth.
		SyncAlways: true,
		JetStreamLimits: server.JSLimitOpts{
			// One batch is in flight a partition; 256 partitions may share a stream.
			MaxBatchInflightPerStream: 256,
			MaxBatchInflightTotal:     4096,
			MaxBatchSize:              1000,
			MaxBatchTimeout:           10 * time.Second,
		},
		// A slow reader in this process must not be cut off while it works on a backlog.
		WriteDeadline: 30 * time.Second,
	}
}

// prepareDir makes the directory and locks it, so that two servers never write one store.
func prepareDir(dir string) (*dirlock.Lock, error) {
	if dir == "" {
		return nil, fmt.Errorf("%w: no directory given", ErrDir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("%w: %w; give a directory this user may write", ErrDir, err)
	}
	lock, err := dirlock.Acquire(filepath.Join(dir, "tidemark.lock"))
	switch {
	case errors.Is(err, dirlock.ErrHeld):
		return nil, fmt.Errorf("%w: %s; stop that process or use another directory", ErrDirLocked, dir)
	case err != nil:
		return nil, fmt.Errorf("%w: %w; give a directory this user may write", ErrDir, err)
	}
	return lock, nil
}

func checkPort(host string, port int) error {
	if port <= 0 {
		return nil
	}
	address := net.JoinHostPort(host, strconv.Itoa(port))
	probe, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("%w: cannot listen on %s for NATS: %w; choose another port, 0 for any free one", ErrPortInUse, address, err)
	}
	return probe.Close()
}

// waitReady polls because the server offers no channel for "JetStream is up".
func (e *Embedded) waitReady(ctx context.Context, bridge *logBridge) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	poll := clock.System().NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for {
		if fatal := bridge.fatal(); fatal != "" {
			return fmt.Errorf("%w: %s", ErrNotReady, fatal)
		}
		if e.srv.ReadyForConnections(time.Millisecond) && e.srv.JetStreamEnabled() {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w in time: %w", ErrNotReady, ctx.Err())
		case <-poll.C():
		}
	}
	if config := e.srv.JetStreamConfig(); config == nil || !config.SyncAlways {
		return fmt.Errorf("%w: sync_interval is not always, so acknowledged commits could be lost", ErrNotReady)
	}
	return nil
}

// URL answers the client URL; "" for a server that is reached in process only.
func (e *Embedded) URL() string {
	if !e.listen {
		return ""
	}
	return e.srv.ClientURL()
}

// Connect connects over an in-process pipe.
func (e *Embedded) Connect(ctx context.Context, name string) (*Conn, error) {
	o := Options{Name: name, Timeout: 10 * time.Second}
	nc, err := nats.Connect("", append(connectOptions(o), nats.InProcessServer(e.srv))...)
	if err != nil {
		return nil, fmt.Errorf("%w in process: %w", ErrUnreachable, err)
	}
	return finish(ctx, nc, o.Timeout)
}

// Shutdown stops the server, waits for it and unlocks the directory.
func (e *Embedded) Shutdown() {
	e.once.Do(func() {
		e.srv.Shutdown()
		e.srv.WaitForShutdown()
		e.lock.Release()
	})
}

// Package natsio is the door to NATS: connecting, the embedded server, and the streams
// and buckets that Tidemark needs.
package natsio

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Conn is a connection with its JetStream context. Reconnecting for ever, without a
// publish buffer: a process that was cut off must not deliver old writes.
type Conn struct {
	NC *nats.Conn
	JS jetstream.JetStream
}

// Options of Connect.
type Options struct {
	Server  string // URL; "" = NATS_URL, then the nats context, then nats://127.0.0.1:4222
	Context string // nats context
	Creds   string
	Name    string
	Timeout time.Duration // for the first connection; default 5 s
}

// ErrUnreachable is returned by Connect when no server answers; ErrAPILevel when the server is too old (needs JetStream API level 4).

// Connect connects and checks the JetStream API level.
func Connect(ctx context.Context, o Options) (*Conn, error) { panic("contract only") }

// Close drains and closes.
func (c *Conn) Close() { panic("contract only") }

// EmbeddedOptions of Embed.
type EmbeddedOptions struct {
	Dir  string // store directory
	Host string // default 127.0.0.1
	Port int    // 0 = any free port, -1 = in-process only
	Name string
}

// Embedded is a nats-server inside this process, with sync_interval: always.
type Embedded struct{}

// Embed starts a server and waits until JetStream is ready. A port in use or a store
// directory in use by another process is a clear error.
func Embed(ctx context.Context, o EmbeddedOptions) (*Embedded, error) { panic("contract only") }

// URL answers the client URL.
func (e *Embedded) URL() string { panic("contract only") }

// Connect connects over an in-process pipe.
func (e *Embedded) Connect(ctx context.Context, name string) (*Conn, error) { panic("contract only") }

// Shutdown stops the server and waits.
func (e *Embedded) Shutdown() { panic("contract only") }

// Provision creates what every installation needs: buckets tm_config, tm_leases, object store tm_snapshots, stream TM_AUDIT.
func Provision(ctx context.Context, js jetstream.JetStream, replicas int) error {
	panic("contract only")
}

// ProvisionStream creates the streams of a business stream (events, quarantine, sources, revisions, early).
func ProvisionStream(ctx context.Context, js jetstream.JetStream, bs string, partitions, replicas int) error {
	panic("contract only")
}

// ProvisionPolicy creates the windows journals of a policy generation.
func ProvisionPolicy(ctx context.Context, js jetstream.JetStream, bs, job string, gen, partitions, replicas int) error {
	panic("contract only")
}

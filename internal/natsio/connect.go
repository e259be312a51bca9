package natsio

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/tidemark-mesh/tidemark/internal/clock"
)

// MinAPILevel is the least JetStream API level Tidemark runs on: atomic batches and what
// the journals lean on around them.
const MinAPILevel = 4

// Errors of Connect.
var (
	// ErrUnreachable: no server answers, or it refuses this client.
	ErrUnreachable = errors.New("no NATS server reachable")
	// ErrAPILevel: the server is too old, or has no JetStream.
	ErrAPILevel = errors.New("the NATS server does not offer what Tidemark needs")
)

// Conn is a connection with its JetStream context. It reconnects for ever, without a
// publish buffer: a process that was cut off must not deliver old writes.
type Conn struct {
	NC *nats.Conn
	JS jetstream.JetStream
}

// Options of Connect.
type Options struct {
	Server      string        // URL; "" = NATS_URL, then the nats context, then nats://127.0.0.1:4222
	Context     string        // nats context; "" = the selected one, if any
	Creds       string        // credentials file
	Name        string        // shown by `nats server report connections`
	InboxPrefix string        // "" = _INBOX; set it where permissions give each service its own inbox
	Timeout     time.Duration // for the first connection; default 5 s
}

// Connect connects and checks the JetStream API level. Errors are ErrUnreachable or
// ErrAPILevel with what to do, or ctx's.
func Connect(ctx context.Context, o Options) (*Conn, error) {
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	nc, where, err := dial(o)
	if err != nil {
		return nil, fmt.Errorf("%w at %s: %w; start one with `tidemark up`, or name it with --server, NATS_URL or a nats context", ErrUnreachable, where, err)
	}
	return finish(ctx, nc, o.Timeout)
}

// dial picks the server as Options says and connects once, without retries: a first
// connection that fails is a mistake in the command line more often than an outage.
func dial(o Options) (nc *nats.Conn, where string, err error) {
	opts := connectOptions(o)
	url := o.Server
	if url == "" && o.Context == "" {
		url = os.Getenv("NATS_URL")
	}
	if url != "" {
		nc, err = nats.Connect(url, opts...)
		return nc, url, err
	}
	nc, _, err = natscontext.Connect(o.Context, opts...)
	if o.Context != "" {
		return nc, fmt.Sprintf("the server of nats context %q", o.Context), err
	}
	return nc, "the server of the selected nats context (" + nats.DefaultURL + " without one)", err
}

func connectOptions(o Options) []nats.Option {
	opts := []nats.Option{
		nats.Name(o.Name),
		nats.Timeout(o.Timeout),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 250*time.Millisecond),
		nats.ReconnectBufSize(-1),
		nats.DrainTimeout(5 * time.Second),
		nats.PingInterval(10 * time.Second),
		nats.MaxPingsOutstanding(2),
	}
	if o.Creds != "" {
		opts = append(opts, nats.UserCredentials(o.Creds))
	}
	if o.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(o.InboxPrefix))
	}
	return opts
}

// finish makes the JetStream context and checks the API level.
func finish(ctx context.Context, nc *nats.Conn, timeout time.Duration) (*Conn, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("jetstream context: %w", err)
	}
	if err := checkLevel(ctx, js, timeout); err != nil {
		url := nc.ConnectedUrlRedacted()
		nc.Close()
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	return &Conn{NC: nc, JS: js}, nil
}

// checkLevel reads the account's API level. A cluster may be electing a leader just now,
// so silence is retried until timeout.
func checkLevel(ctx context.Context, js jetstream.JetStream, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		// Without a leader a request may get no answer at all: ask again.
		attempt, stop := context.WithTimeout(ctx, time.Second)
		info, err := js.AccountInfo(attempt)
		stop()
		switch {
		case err == nil && info.API.Level < MinAPILevel:
			return fmt.Errorf("%w: JetStream API level %d, needed is %d; run nats-server v2.15.3 or later", ErrAPILevel, info.API.Level, MinAPILevel)
		case err == nil:
			return nil
		case errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
			return fmt.Errorf("%w: JetStream is not enabled; start the server with -js and give the account JetStream limits", ErrAPILevel)
		}
		wait := clock.System().NewTimer(100 * time.Millisecond)
		select {
		case <-wait.C():
		case <-ctx.Done():
			wait.Stop()
			return fmt.Errorf("%w: JetStream does not answer: %w; check the server's /healthz", ErrUnreachable, err)
		}
	}
}

// Close drains what is subscribed and published, and closes. It may be called by several
// goroutines at once, and returns within drainTimeout even if the server is gone.
func (c *Conn) Close() {
	if c == nil || c.NC == nil {
		return
	}
	closed := c.NC.StatusChanged(nats.CLOSED)
	if err := c.NC.Drain(); err != nil || c.NC.IsClosed() {
		c.NC.Close() // already closed, or not connected: nothing can be drained
		return
	}
	timer := clock.System().NewTimer(drainTimeout)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C():
		c.NC.Close()
	}
}

// drainTimeout is how long Close waits for what is under way.
const drainTimeout = 10 * time.Second

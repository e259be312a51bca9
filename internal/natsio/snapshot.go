package natsio

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// ErrStreamExists: a stream of that name is there already.
var ErrStreamExists = errors.New("stream exists already")

const (
	snapshotChunk   = 128 << 10
	snapshotPending = 64 << 20
	// snapshotQuiet is how long a copy may bring nothing: the server first checks every
	// message of the stream.
	snapshotQuiet = 2 * time.Minute
	restoreQuiet  = 2 * time.Minute
	// interestFor is how long a cluster may take to tell its servers who waits for chunks.
	interestFor = 5 * time.Second
)

// StreamCopy says what a copy of a stream is of.
type StreamCopy struct {
	Stream  string
	Created int64                  // Unix nanoseconds, as journals know the stream
	Config  jetstream.StreamConfig // of the stream
	State   jetstream.StreamState  // at the begin of the copy; it holds at least this
}

// apiError is what JetStream answers instead of what was asked for.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string { return fmt.Sprintf("%s (%d)", e.Description, e.ErrCode) }

const codeStreamExists = 10130

// Snapshot writes the server's own copy of a stream to w: every message with its
// sequence, and the stream's identity. The server checks every message's checksum first.
// progress is told the bytes written so far; it may be nil.
func (c *Conn) Snapshot(ctx context.Context, stream string, w io.Writer, progress func(int64)) (StreamCopy, error) {
	handle, err := c.JS.Stream(ctx, stream)
	if err != nil {
		return StreamCopy{}, fmt.Errorf("stream %s: %w", stream, err)
	}
	info := handle.CachedInfo()
	out := StreamCopy{Stream: stream, Created: subject.Created(info.Config.Metadata, info.Created), Config: info.Config}
	inbox := c.NC.NewRespInbox()
	sub, err := c.NC.SubscribeSync(inbox)
	if err != nil {
		return out, err
	}
	defer func() { _ = sub.Unsubscribe() }() // nothing is read from it any more
	if err := sub.SetPendingLimits(-1, snapshotPending); err != nil {
		return out, err
	}
	request := map[string]any{"deliver_subject": inbox, "no_consumers": true, "chunk_size": snapshotChunk, "jsck": true}
	var reply struct {
		Error *apiError              `json:"error"`
		State *jetstream.StreamState `json:"state"`
	}
	if err := c.api(ctx, subject.StreamSnapshot(stream), request, &reply); err != nil {
		return out, fmt.Errorf("copy of stream %s: %w", stream, err)
	}
	switch {
	case reply.Error != nil:
		return out, fmt.Errorf("copy of stream %s: %w", stream, reply.Error)
	case reply.State == nil:
		return out, fmt.Errorf("copy of stream %s: the server answers without a state", stream)
	}
	out.State = *reply.State
	return out, receive(ctx, sub, stream, w, progress)
}

// receive takes the chunks of a copy and acknowledges them, which is the server's flow
// control.
func receive(ctx context.Context, sub *nats.Subscription, stream string, w io.Writer, progress func(int64)) error {
	var written int64
	for {
		waiting, cancel := context.WithTimeout(ctx, snapshotQuiet)
		m, err := sub.NextMsgWithContext(waiting)
		cancel()
		if err != nil {
			return fmt.Errorf("copy of stream %s after %d bytes: %w", stream, written, err)
		}
		if len(m.Data) == 0 {
			if status := m.Header.Get("Status"); status != "" && status != "204" {
				return fmt.Errorf("copy of stream %s after %d bytes: the server stopped: %s %s", stream, written, status, m.Header.Get("Description"))
			}
			return nil
		}
		if _, err := w.Write(m.Data); err != nil {
			return err
		}
		written += int64(len(m.Data))
		if progress != nil {
			progress(written)
		}
		if m.Reply != "" {
			if err := m.Respond(nil); err != nil {
				return fmt.Errorf("copy of stream %s after %d bytes: %w", stream, written, err)
			}
		}
	}
}

// Restore makes a stream from what Snapshot wrote: same name, same sequences, and the
// same identity for the journals that refer to it. replicas replaces the copy's. A stream
// of that name answers ErrStreamExists.
func (c *Conn) Restore(ctx context.Context, from StreamCopy, replicas int, r io.Reader, progress func(int64)) error {
	if err := checkReplicas(replicas); err != nil {
		return err
	}
	config := from.Config
	config.Replicas, config.Placement = replicas, nil
	config.Metadata = maps.Clone(config.Metadata)
	maps.DeleteFunc(config.Metadata, func(name, _ string) bool { return strings.HasPrefix(name, "_nats.") })
	if config.Metadata == nil {
		config.Metadata = map[string]string{}
	}
	config.Metadata[subject.MetaCreated] = strconv.FormatInt(from.Created, 10)
	var reply struct {
		Error   *apiError `json:"error"`
		Deliver string    `json:"deliver_subject"`
	}
	if err := c.api(ctx, subject.StreamRestore(from.Stream), map[string]any{"config": config, "state": from.State}, &reply); err != nil {
		return fmt.Errorf("restore of stream %s: %w", from.Stream, err)
	}
	if reply.Error != nil {
		return restoreError(from.Stream, reply.Error)
	}
	return c.deliver(ctx, from.Stream, reply.Deliver, r, progress)
}

func restoreError(stream string, e *apiError) error {
	if e.ErrCode == codeStreamExists {
		return fmt.Errorf("restore of stream %s: %w", stream, ErrStreamExists)
	}
	return fmt.Errorf("restore of stream %s: %w", stream, e)
}

// deliver sends the chunks of a copy, one acknowledged after the other.
func (c *Conn) deliver(ctx context.Context, stream, to string, r io.Reader, progress func(int64)) error {
	chunk := make([]byte, snapshotChunk)
	var sent int64
	for {
		n, err := io.ReadFull(r, chunk)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		m, askErr := c.hand(ctx, to, chunk[:n])
		if askErr != nil {
			return fmt.Errorf("restore of stream %s after %d bytes: %w", stream, sent, askErr)
		}
		var reply struct {
			Error *apiError `json:"error"`
		}
		if len(m.Data) > 0 {
			if err := json.Unmarshal(m.Data, &reply); err != nil {
				return fmt.Errorf("restore of stream %s: the server's answer cannot be read: %w", stream, err)
			}
		}
		if reply.Error != nil {
			return restoreError(stream, reply.Error)
		}
		if n == 0 {
			return nil
		}
		if sent += int64(n); progress != nil {
			progress(sent)
		}
	}
}

// hand sends one chunk. In a cluster the word that somebody waits for it may be slower
// than the chunk: one that nobody got is sent again.
func (c *Conn) hand(ctx context.Context, to string, chunk []byte) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, restoreQuiet)
	defer cancel()
	again := clock.System().NewTicker(20 * time.Millisecond)
	defer again.Stop()
	begun := clock.System().Now()
	for {
		m, err := c.NC.RequestWithContext(ctx, to, chunk)
		if !errors.Is(err, nats.ErrNoResponders) || clock.System().Since(begun) > interestFor {
			return m, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-again.C():
		}
	}
}

// api sends a request to the JetStream API.
func (c *Conn) api(ctx context.Context, subj string, request, reply any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, snapshotQuiet)
	defer cancel()
	m, err := c.NC.RequestWithContext(ctx, subj, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(m.Data, reply)
}

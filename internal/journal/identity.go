package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// askTimeout bounds one question to a server: without a leader it may stay unanswered.
const askTimeout = 2 * time.Second

// Identity is what a stream is known by.
type Identity struct {
	Stream  string
	Created int64 // Unix nanoseconds
	First   uint64
	Last    uint64
}

// Identify reads a stream's identity from its leader. It asks once; errors are
// jetstream.ErrStreamNotFound and transport errors.
func Identify(ctx context.Context, js jetstream.JetStream, stream string) (Identity, error) {
	id, _, err := inspect(ctx, js, stream)
	return id, err
}

func inspect(ctx context.Context, js jetstream.JetStream, stream string) (Identity, jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	handle, err := js.Stream(ctx, stream)
	if err != nil {
		return Identity{}, nil, fmt.Errorf("stream %s: %w", stream, err)
	}
	info := handle.CachedInfo()
	return Identity{
		Stream:  stream,
		Created: subject.Created(info.Config.Metadata, info.Created),
		First:   info.State.FirstSeq,
		Last:    info.State.LastSeq,
	}, handle, nil
}

// Check compares a stream with a stored position: created is the stored creation time
// (0 = nothing stored), next the sequence read next. It answers an *IdentityError when
// the stream was recreated, lost its head (First > next) or its tail (Last < next-1).
func (id Identity) Check(created int64, next uint64) error {
	switch {
	case created != 0 && id.Created != created:
		return &IdentityError{Stream: id.Stream, What: fmt.Sprintf("it was created at %s, the stored position belongs to one created at %s", nanoText(id.Created), nanoText(created))}
	case id.First > next:
		return &IdentityError{Stream: id.Stream, What: fmt.Sprintf("it begins at sequence %d, but sequence %d is needed next", id.First, next)}
	case next > 0 && id.Last < next-1:
		return &IdentityError{Stream: id.Stream, What: fmt.Sprintf("it ends at sequence %d, but everything up to %d was read before", id.Last, next-1)}
	}
	return nil
}

func nanoText(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }

// LastSeq answers the last sequence of the subject filter in stream, from its leader; 0
// when it has no message. An empty filter asks for the stream's last sequence.
func LastSeq(ctx context.Context, js jetstream.JetStream, stream, filter string) (uint64, error) {
	id, handle, err := inspect(ctx, js, stream)
	if err != nil || filter == "" {
		return id.Last, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	msg, err := handle.GetLastMsgForSubject(ctx, filter)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("stream %s: last message on %s: %w", stream, filter, err)
	}
	return msg.Sequence, nil
}

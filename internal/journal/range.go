package journal

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// ReadRange reads the messages with sequences [from, to] once, in order and with bounded
// memory, and hands each to visit; it ends early with visit's error. to is cut at the
// stream's last sequence when reading begins. created is the stored creation time, 0 if
// nothing is stored.
func ReadRange(ctx context.Context, js jetstream.JetStream, stream string, created int64, from, to uint64, visit func(Msg) error, filters ...string) error {
	from = max(from, 1)
	r, err := Read(ctx, js, stream, created, from, filters...)
	if err != nil {
		return err
	}
	defer r.Close()
	// What a consumer says is pending may come from a replica that is still behind: where
	// the range ends is asked of the stream's leader.
	last := r.start.Last
	if len(filters) > 0 {
		if last, err = lastOf(ctx, js, stream, filters); err != nil {
			return err
		}
	}
	for seq := from; from <= last && seq < min(to, last)+1; {
		m, err := r.Next(ctx)
		if err != nil {
			return fmt.Errorf("read %s from %d to %d: %w", stream, from, to, err)
		}
		if m.Seq > to {
			return nil
		}
		if err := visit(m); err != nil {
			return err
		}
		seq = m.Seq + 1
	}
	return nil
}

// lastOf answers the last sequence of any of the filters.
func lastOf(ctx context.Context, js jetstream.JetStream, stream string, filters []string) (last uint64, err error) {
	for _, filter := range filters {
		seq, err := LastSeq(ctx, js, stream, filter)
		if err != nil {
			return 0, err
		}
		last = max(last, seq)
	}
	return last, nil
}

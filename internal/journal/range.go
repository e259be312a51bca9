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
	to = min(to, r.start.Last)
	if from > to || r.pending == 0 {
		return nil
	}
	for {
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
		// Nothing behind it when it was delivered, and to was there before: the end.
		if m.Seq == to || m.Pending == 0 {
			return nil
		}
	}
}

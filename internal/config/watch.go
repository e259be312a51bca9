package config

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

const (
	watchRetryFirst = 50 * time.Millisecond
	watchRetryMost  = 2 * time.Second
	// watchResync is how often a watcher that has nothing to say is replaced: one whose
	// consumer was lost with a server would be silent for ever.
	watchResync = 30 * time.Second
)

// Watch calls changed with every new snapshot, the first one at once, until ctx ends;
// then it answers nil. It outlives reconnects and waits for a server on which nothing is
// applied yet. A damaged document ends it with an error.
func Watch(ctx context.Context, js jetstream.JetStream, changed func(Snapshot)) error {
	reconnected := js.Conn().StatusChanged(nats.CONNECTED)
	defer js.Conn().RemoveStatusListener(reconnected)
	w := watch{changed: changed, clock: clock.System(), reconnected: reconnected}
	wait := watchRetryFirst
	for ctx.Err() == nil {
		seen := w.rounds
		err := w.follow(ctx, js)
		var damaged *damagedError
		if errors.As(err, &damaged) && ctx.Err() == nil {
			return err
		}
		if w.rounds > seen {
			wait = watchRetryFirst
		}
		if err == nil {
			continue
		}
		timer := w.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C():
		case <-w.reconnected:
		}
		timer.Stop()
		wait = min(2*wait, watchRetryMost)
	}
	return nil
}

type watch struct {
	changed     func(Snapshot)
	clock       clock.Clock
	reconnected <-chan nats.Status
	last        Snapshot
	rounds      int // complete readings of the bucket
}

// follow reads the bucket and then its updates until the watcher ends, or must
// be replaced (nil).
func (w *watch) follow(ctx context.Context, js jetstream.JetStream) error {
	bucket, err := js.KeyValue(ctx, subject.ConfigBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		w.deliver(Snapshot{})
		return err
	}
	if err != nil {
		return err
	}
	watcher, err := bucket.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = watcher.Stop() }() // its updates are not read any more
	old := w.clock.NewTimer(watchResync)
	defer old.Stop()
	held, complete := newHolding(), false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-old.C():
			return nil
		case <-w.reconnected:
			return nil // the server may have lost the watcher's consumer
		case update, open := <-watcher.Updates():
			switch {
			case !open:
				return errors.New("config bucket: the watcher ended")
			case update == nil:
				complete = true
			default:
				if err := held.take(update); err != nil {
					return err
				}
			}
			if complete {
				w.deliver(held.snapshot())
			}
		}
	}
}

// deliver hands a snapshot on if it is new.
func (w *watch) deliver(s Snapshot) {
	first := w.rounds == 0
	w.rounds++
	if first || !same(w.last, s) {
		w.last = s
		w.changed(s)
	}
}

package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Load reads every document. On a server on which nothing was ever applied the snapshot
// is empty.
func Load(ctx context.Context, js jetstream.JetStream) (Snapshot, error) {
	bucket, err := js.KeyValue(ctx, subject.ConfigBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return Snapshot{}, nil
	}
	if err != nil {
		return Snapshot{}, fmt.Errorf("config bucket: %w", err)
	}
	return read(ctx, bucket)
}

func read(ctx context.Context, bucket jetstream.KeyValue) (Snapshot, error) {
	watcher, err := bucket.WatchAll(ctx)
	if err != nil {
		return Snapshot{}, fmt.Errorf("config bucket: %w", err)
	}
	defer func() { _ = watcher.Stop() }() // nothing is read from it any more
	held := holding{}
	for {
		select {
		case <-ctx.Done():
			return Snapshot{}, fmt.Errorf("config bucket: %w", ctx.Err())
		case update, open := <-watcher.Updates():
			if !open {
				return Snapshot{}, errors.New("config bucket: the connection ended while documents were read; try again")
			}
			if update == nil {
				return held.snapshot(), nil
			}
			if err := held.take(update); err != nil {
				return Snapshot{}, err
			}
		}
	}
}

// holding is the documents by their key in the bucket.
type holding map[string]Entry

// take applies one update of the bucket.
func (h holding) take(update jetstream.KeyValueEntry) error {
	if update.Operation() != jetstream.KeyValuePut {
		delete(h, update.Key())
		return nil
	}
	entry, err := decode(update.Key(), update.Revision(), update.Value())
	if err != nil {
		return err
	}
	h[update.Key()] = entry
	return nil
}

func (h holding) snapshot() Snapshot {
	var s Snapshot
	for _, e := range h {
		if e.Stream != nil {
			s.Streams = append(s.Streams, e)
		} else {
			s.Policies = append(s.Policies, e)
		}
	}
	slices.SortFunc(s.Streams, func(a, b Entry) int { return strings.Compare(a.Stream.Name, b.Stream.Name) })
	slices.SortFunc(s.Policies, func(a, b Entry) int {
		return cmp.Or(
			strings.Compare(a.Policy.Stream, b.Policy.Stream),
			strings.Compare(a.Policy.Job, b.Policy.Job),
			cmp.Compare(a.Policy.Generation, b.Policy.Generation),
		)
	})
	return s
}

// same tells whether two snapshots hold the same entries.
func same(a, b Snapshot) bool {
	equal := func(x, y Entry) bool { return x.Revision == y.Revision && x.Digest == y.Digest }
	return slices.EqualFunc(a.Streams, b.Streams, equal) && slices.EqualFunc(a.Policies, b.Policies, equal)
}

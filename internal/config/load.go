package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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
	held := newHolding()
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

// holding is the documents and activations by their key in the bucket.
type holding struct {
	documents map[string]Entry
	active    map[string]Active
}

func newHolding() holding {
	return holding{documents: map[string]Entry{}, active: map[string]Active{}}
}

// take applies one update of the bucket.
func (h holding) take(update jetstream.KeyValueEntry) error {
	if update.Operation() != jetstream.KeyValuePut {
		delete(h.documents, update.Key())
		delete(h.active, update.Key())
		return nil
	}
	if subject.IsConfigActive(update.Key()) {
		active, err := decodeActive(update.Key(), update.Revision(), update.Value())
		if err != nil {
			return err
		}
		h.active[update.Key()] = active
		return nil
	}
	entry, err := decode(update.Key(), update.Revision(), update.Value())
	if err != nil {
		return err
	}
	h.documents[update.Key()] = entry
	return nil
}

func (h holding) snapshot() Snapshot {
	var s Snapshot
	for _, e := range h.documents {
		switch {
		case e.Stream != nil:
			s.Streams = append(s.Streams, e)
		case e.Effect != nil:
			s.EffectPolicies = append(s.EffectPolicies, e)
		case e.Adapter != nil:
			s.Adapters = append(s.Adapters, e)
		default:
			s.Policies = append(s.Policies, e)
		}
	}
	s.Active = slices.SortedFunc(maps.Values(h.active), func(a, b Active) int {
		return cmp.Or(strings.Compare(a.Stream, b.Stream), strings.Compare(a.EffectType, b.EffectType))
	})
	slices.SortFunc(s.Streams, func(a, b Entry) int { return strings.Compare(a.Stream.Name, b.Stream.Name) })
	slices.SortFunc(s.Policies, func(a, b Entry) int {
		return cmp.Or(
			strings.Compare(a.Policy.Stream, b.Policy.Stream),
			strings.Compare(a.Policy.Job, b.Policy.Job),
			cmp.Compare(a.Policy.Generation, b.Policy.Generation),
		)
	})
	slices.SortFunc(s.EffectPolicies, func(a, b Entry) int {
		return cmp.Or(strings.Compare(a.Effect.Stream, b.Effect.Stream), strings.Compare(a.Effect.Name, b.Effect.Name), cmp.Compare(a.Effect.Version, b.Effect.Version))
	})
	slices.SortFunc(s.Adapters, func(a, b Entry) int {
		return cmp.Or(strings.Compare(a.Adapter.Name, b.Adapter.Name), cmp.Compare(a.Adapter.Version, b.Adapter.Version))
	})
	return s
}

// same tells whether two snapshots hold the same entries.
func same(a, b Snapshot) bool {
	equal := func(x, y Entry) bool { return x.Revision == y.Revision && x.Digest == y.Digest }
	return slices.EqualFunc(a.Entries(), b.Entries(), equal) &&
		slices.EqualFunc(a.Active, b.Active, func(x, y Active) bool { return x.Revision == y.Revision })
}

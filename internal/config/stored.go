package config

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Stored is one document, or what was made active for an effect type, exactly as it stands
// in the bucket, for backups: the core version that a generation was pinned to goes with it.
type Stored struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// IsDocument tells a document from what was made active.
func (s Stored) IsDocument() bool { return !subject.IsConfigActive(s.Key) }

// Entry reads the document and checks its digest.
func (s Stored) Entry() (Entry, error) { return decode(s.Key, 0, s.Value) }

// Export answers the documents of one business stream, the stream's own first, with the
// adapters of its effects, and then what is active.
func Export(ctx context.Context, js jetstream.JetStream, bs string) ([]Stored, error) {
	snapshot, err := Load(ctx, js)
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, e := range snapshot.Entries() {
		doc := e.Document()
		if doc.BusinessStream() == bs || doc.Adapter != nil && snapshot.sendsThrough(bs, doc.Adapter.Ref()) {
			keys = append(keys, keyOf(doc))
		}
	}
	for _, a := range snapshot.Active {
		if a.Stream == bs {
			keys = append(keys, subject.ConfigActive(bs, a.EffectType))
		}
	}
	bucket, err := js.KeyValue(ctx, subject.ConfigBucket)
	if err != nil {
		return nil, fmt.Errorf("config bucket: %w", err)
	}
	var out []Stored
	for _, key := range keys {
		value, err := bucket.Get(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("document %s in the config bucket: %w", key, err)
		}
		out = append(out, Stored{Key: key, Value: value.Value()})
	}
	return out, nil
}

// sendsThrough tells whether effects of a business stream go through an adapter.
func (s Snapshot) sendsThrough(bs, adapter string) bool {
	return slices.ContainsFunc(s.EffectPolicies, func(e Entry) bool {
		return e.Effect.Stream == bs && (e.Effect.Adapter == adapter || e.Effect.Corrections.Adapter == adapter)
	})
}

// Import writes documents that Export answered. One that is there already with the same
// bytes is left alone; with others it is a *ConflictError.
func Import(ctx context.Context, js jetstream.JetStream, documents []Stored) error {
	bucket, err := js.KeyValue(ctx, subject.ConfigBucket)
	if err != nil {
		return fmt.Errorf("config bucket: %w", err)
	}
	for _, d := range documents {
		name, kind, err := d.naming()
		if err != nil {
			return err
		}
		_, err = bucket.Create(ctx, d.Key, d.Value)
		if err == nil {
			continue
		}
		if !errors.Is(err, jetstream.ErrKeyExists) {
			return fmt.Errorf("storing document %s: %w", d.Key, err)
		}
		there, err := bucket.Get(ctx, d.Key)
		if err != nil {
			return fmt.Errorf("document %s in the config bucket: %w", d.Key, err)
		}
		if string(there.Value()) != string(d.Value) {
			return &ConflictError{Kind: kind, Name: name, Field: "document", Applied: "another one", Given: "that of the backup"}
		}
	}
	return nil
}

// naming reads the value and answers how messages call it.
func (s Stored) naming() (name, kind string, err error) {
	if !s.IsDocument() {
		active, err := decodeActive(s.Key, 0, s.Value)
		return active.Stream + "/" + active.EffectType, "activation", err
	}
	entry, err := s.Entry()
	if err != nil {
		return "", "", err
	}
	doc := entry.Document()
	return doc.Name(), doc.Kind(), nil
}

package config

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Stored is one document exactly as it stands in the bucket, for backups: the core
// version that a generation was pinned to goes with it.
type Stored struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// Entry reads the document and checks its digest.
func (s Stored) Entry() (Entry, error) { return decode(s.Key, 0, s.Value) }

// Export answers the documents of one business stream, the stream's own first.
func Export(ctx context.Context, js jetstream.JetStream, bs string) ([]Stored, error) {
	snapshot, err := Load(ctx, js)
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, e := range snapshot.Streams {
		if e.Stream.Name == bs {
			keys = append(keys, subject.ConfigStream(bs))
		}
	}
	for _, e := range snapshot.Policies {
		if p := e.Policy; p.Stream == bs {
			keys = append(keys, subject.ConfigPolicy(bs, p.Job, p.Generation))
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

// Import writes documents that Export answered. One that is there already with the same
// bytes is left alone; with others it is a *ConflictError.
func Import(ctx context.Context, js jetstream.JetStream, documents []Stored) error {
	bucket, err := js.KeyValue(ctx, subject.ConfigBucket)
	if err != nil {
		return fmt.Errorf("config bucket: %w", err)
	}
	for _, d := range documents {
		entry, err := d.Entry()
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
			doc := entry.Document()
			return &ConflictError{Kind: doc.Kind(), Name: doc.Name(), Field: "document", Applied: "another one", Given: "that of the backup"}
		}
	}
	return nil
}

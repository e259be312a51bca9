package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/config"
)

// knownStream refuses a business stream that was never applied, and names those that are.
func knownStream(ctx context.Context, js jetstream.JetStream, stream string) error {
	snapshot, err := config.Load(ctx, js)
	if err != nil {
		return err
	}
	var names []string
	for _, e := range snapshot.Streams {
		if e.Stream.Name == stream {
			return nil
		}
		names = append(names, e.Stream.Name)
	}
	if len(names) == 0 {
		return usage(fmt.Errorf("no business stream %q: nothing is applied yet; apply its document with `tidemark apply -f FILE`", stream))
	}
	return usage(fmt.Errorf("no business stream %q; applied are %s", stream, strings.Join(names, ", ")))
}

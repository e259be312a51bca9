package natsio

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/clock"
)

// How long a cluster may take until all its servers know of one another, and how often
// it is asked.
const (
	placementFor  = 20 * time.Second
	placementStep = 200 * time.Millisecond
)

// codeNoPeers is what a cluster answers that has too few servers for the replicas, also
// for a moment after it started.
const codeNoPeers = 10005

// placed calls create again while the cluster does not see enough servers yet.
func placed[T any](ctx context.Context, create func() (T, error)) (T, error) {
	begun := clock.System().Now()
	for {
		made, err := create()
		var refused *jetstream.APIError
		if !errors.As(err, &refused) || refused.ErrorCode != codeNoPeers || clock.System().Since(begun) > placementFor {
			return made, err
		}
		wait := clock.System().NewTimer(placementStep)
		select {
		case <-wait.C():
		case <-ctx.Done():
			wait.Stop()
			return made, err
		}
	}
}

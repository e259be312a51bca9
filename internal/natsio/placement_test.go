package natsio

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

func TestPlacedWaitsForServersAndForNothingElse(t *testing.T) {
	noPeers, other := &jetstream.APIError{ErrorCode: codeNoPeers}, &jetstream.APIError{ErrorCode: 10052}
	tries := 0
	made, err := placed(t.Context(), func() (int, error) {
		if tries++; tries < 3 {
			return 0, noPeers
		}
		return 7, nil
	})
	if made != 7 || err != nil || tries != 3 {
		t.Errorf("made %d after %d tries, %v", made, tries, err)
	}
	tries = 0
	if _, err := placed(t.Context(), func() (int, error) { tries++; return 0, other }); !errors.Is(err, other) || tries != 1 {
		t.Errorf("another refusal: %d tries, %v", tries, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := placed(ctx, func() (int, error) { return 0, noPeers }); !errors.Is(err, noPeers) {
		t.Errorf("an ended context: %v", err)
	}
}

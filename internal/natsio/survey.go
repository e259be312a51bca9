package natsio

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/clock"
)

// StreamState is what a survey sees of one stream that an installation needs.
type StreamState struct {
	Name     string
	Missing  bool
	Wrong    string // essential settings that are not as needed, "" if none
	Replicas int    // as configured
	Behind   []string
	Leader   string
	Bytes    uint64
	MaxBytes int64 // -1 = no limit
	Clock    time.Duration
}

// SurveyShared looks at the streams that every installation has. It changes nothing.
func SurveyShared(ctx context.Context, js jetstream.JetStream) ([]StreamState, error) {
	return survey(ctx, js, []jetstream.StreamConfig{auditJournal(1)})
}

// SurveyStream looks at the streams of a business stream.
func SurveyStream(ctx context.Context, js jetstream.JetStream, bs string, partitions int) ([]StreamState, error) {
	return survey(ctx, js, streamJournals(bs, partitions, 1))
}

// SurveyPolicy looks at the windows journals of a policy generation.
func SurveyPolicy(ctx context.Context, js jetstream.JetStream, bs, job string, gen, partitions int) ([]StreamState, error) {
	var want []jetstream.StreamConfig
	for pp := range partitions {
		want = append(want, windowsJournal(bs, job, gen, pp, 1))
	}
	return survey(ctx, js, want)
}

// SurveyEffects looks at the effects journals of a business stream.
func SurveyEffects(ctx context.Context, js jetstream.JetStream, bs string, partitions int) ([]StreamState, error) {
	var want []jetstream.StreamConfig
	for pp := range partitions {
		want = append(want, effectsJournal(bs, pp, 1))
	}
	return survey(ctx, js, want)
}

func survey(ctx context.Context, js jetstream.JetStream, want []jetstream.StreamConfig) ([]StreamState, error) {
	out := make([]StreamState, 0, len(want))
	for _, w := range want {
		asked := clock.System().Now()
		stream, err := js.Stream(ctx, w.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			out = append(out, StreamState{Name: w.Name, Missing: true})
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", w.Name, err)
		}
		info := stream.CachedInfo()
		s := StreamState{
			Name: w.Name, Wrong: differences(w, info.Config), Replicas: info.Config.Replicas, Bytes: info.State.Bytes, MaxBytes: info.Config.MaxBytes,
		}
		// Half the time of the question is the server's share at most.
		s.Clock = info.TimeStamp.Sub(asked.Add(clock.System().Since(asked) / 2))
		if c := info.Cluster; c != nil {
			s.Leader = c.Leader
			for _, r := range c.Replicas {
				if r.Offline || !r.Current {
					s.Behind = append(s.Behind, r.Name)
				}
			}
		}
		out = append(out, s)
	}
	return out, nil
}

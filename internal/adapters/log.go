package adapters

import (
	"context"

	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adapter"
)

// logAdapter writes a line for every attempt; that line is all that it executes. A line
// holds no payload, since logs are read by many. Nobody remembers keys, so a second
// attempt writes a second line, and nothing can be asked: it is neither idempotent nor
// queryable.
type logAdapter struct{ log zerolog.Logger }

// Send implements adapter.Adapter. The writer of a log reports no errors, so the line
// counts as written.
func (l *logAdapter) Send(ctx context.Context, call adapter.Call) adapter.Answer {
	switch {
	case ctx.Err() != nil:
		return unsent(&call, "given up before the line was written")
	case len(call.Payload) == 0:
		return unsent(&call, "the payload is empty")
	case call.MaySend == nil || !call.MaySend():
		return unsent(&call, errNotAllowed.Error())
	}
	l.log.Info().Str("effectKey", call.Key.String()).Str("effectType", call.EffectType).
		Uint32("attempt", call.Attempt).Int("bytes", len(call.Payload)).Msg("effect")
	return adapter.Answer{
		Class: effect.Executed, Detail: "a line was written",
		Evidence: effect.Evidence{
			Source: effect.FromAnswer, Attempt: call.Attempt, Class: effect.Executed, Key: call.Key,
			Amount: call.Expect.Amount, Subject: call.Expect.Subject, Digest: digestOf(call.Payload),
		},
	}
}

// Query implements adapter.Adapter.
func (l *logAdapter) Query(context.Context, adapter.Question) (adapter.Finding, error) {
	return adapter.Finding{}, adapter.ErrNoQuery
}

// Close implements adapter.Adapter.
func (l *logAdapter) Close() error { return nil }

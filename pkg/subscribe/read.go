package subscribe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// message is one message of the revisions stream.
type message struct {
	seq     uint64
	subject string
	header  nats.Header
	data    []byte
}

// message answers the next message of the filters, in stream order and without holes,
// over reconnects. An error is for good, unless ctx ended.
func (s *Subscription) message(ctx context.Context) (message, error) {
	for ctx.Err() == nil {
		if s.cons == nil {
			if err := s.start(ctx); err != nil {
				if errors.Is(err, ErrRecreated) {
					return message{}, err
				}
				sleep(ctx, retryAfter)
				continue
			}
		}
		waiting, cancel := context.WithTimeout(ctx, lookEvery)
		m, err := s.cons.Next(jetstream.NextContext(waiting))
		cancel()
		switch {
		case err == nil:
			return unpack(m)
		case ctx.Err() != nil:
		case errors.Is(err, context.DeadlineExceeded):
			// Nothing for a while: a stream that was made anew would be silent for ever.
			if err := s.look(ctx); errors.Is(err, ErrRecreated) {
				return message{}, err
			}
		default:
			s.cons.Stop()
			s.cons = nil
			sleep(ctx, retryAfter)
		}
	}
	return message{}, ctx.Err()
}

// start reads on behind the last whole batch.
func (s *Subscription) start(ctx context.Context) error {
	if err := s.look(ctx); err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	c, err := s.js.OrderedConsumer(asking, subject.RevisionsStream(s.opts.Stream), jetstream.OrderedConsumerConfig{
		FilterSubjects:    s.filters(),
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       s.at.Next,
		InactiveThreshold: 2 * lookEvery,
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", s.opts.Stream, err)
	}
	s.group.drop()
	s.cons, err = c.Messages()
	return err
}

func unpack(m jetstream.Msg) (message, error) {
	meta, err := m.Metadata()
	if err != nil {
		return message{}, fmt.Errorf("%w: a message without metadata: %w", ErrDamaged, err)
	}
	return message{seq: meta.Sequence.Stream, subject: m.Subject(), header: m.Headers(), data: m.Data()}, nil
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	waiting, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-waiting.Done()
}

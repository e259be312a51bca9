package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subscribe"
)

// openAgain is how long the feed is left alone after it could not be opened.
const openAgain = 2 * time.Second

// intake reads the feed until ctx ends or the feed is broken for good.
func (s *Sender) intake(ctx context.Context) error {
	token, err := s.token(ctx)
	if err != nil {
		return err
	}
	for {
		sub, err := subscribe.Open(ctx, s.cfg.Conn, subscribe.Options{Stream: s.endpoint.Stream, Job: s.endpoint.Job, From: token})
		if err == nil {
			s.trouble("feed", "")
			token, err = s.follow(ctx, sub, token)
			sub.Close()
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, subscribe.ErrSwitched):
			s.log.Info().Err(err).Msg("readers see another generation; the feed begins anew with it")
			token = ""
			continue
		case errors.Is(err, subscribe.ErrRecreated), errors.Is(err, subscribe.ErrDamaged), errors.Is(err, subscribe.ErrToken):
			return fmt.Errorf("feed of endpoint %s: %w; to begin with the first revision again, start with a fresh data directory: receivers tell repetitions by webhook-id", s.endpoint.Name, err)
		}
		s.trouble("feed", err.Error())
		s.log.Warn().Err(err).Msg("the feed cannot be read; trying again")
		if err := s.wait(ctx, openAgain); err != nil {
			return err
		}
	}
}

// token answers where the last process was in the feed.
func (s *Sender) token(ctx context.Context) (token string, err error) {
	err = s.do(ctx, func(*turn) error {
		token = s.position.Token
		return nil
	})
	return token, err
}

// follow takes in batches until the subscription ends; it answers the token behind the
// last one.
func (s *Sender) follow(ctx context.Context, sub *subscribe.Subscription, token string) (string, error) {
	for {
		if err := s.room(ctx); err != nil {
			return token, err
		}
		batch, err := sub.Next(ctx)
		if err != nil {
			return token, err
		}
		if err := s.do(ctx, func(t *turn) error { return s.take(t, &batch) }); err != nil {
			return token, err
		}
		token = batch.Token
	}
}

// room waits until the queue is below its limit.
func (s *Sender) room(ctx context.Context) error {
	full := false
	for s.waiting.Load() >= int64(s.endpoint.QueueLimit) {
		if !full {
			full = true
			s.log.Warn().Int64("waiting", s.waiting.Load()).Msg("the queue is full; the feed waits")
		}
		select {
		case <-s.moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *Sender) wait(ctx context.Context, d time.Duration) error {
	timer := s.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take stores the deliveries of a batch together with the position behind it.
func (s *Sender) take(t *turn, b *subscribe.Batch) error {
	p := &s.position
	if p.Generation != 0 && p.Generation != b.Generation {
		if err := s.switchTo(t, b.Generation); err != nil {
			return err
		}
	}
	p.Generation, p.Token = b.Generation, b.Token
	links := links{}
	for _, r := range b.Revisions {
		head, err := t.head(r.ProjectionID)
		if err != nil {
			return err
		}
		if r.Revision <= head {
			continue // the receiver has it: readers came back to a generation
		}
		d, body, err := s.endpoint.deliveryOf(r, b.Generation, t.now)
		if err != nil {
			return err
		}
		p.Last++
		d.Sequence, d.Due = p.Last, t.now.Add(s.delay(0))
		if d.After = links.follow(r, d.Sequence); d.After == 0 {
			d.After = p.Barrier
		}
		if err := s.enqueue(t, d, body); err != nil {
			return err
		}
	}
	return nil
}

// enqueue stores a new delivery and closes those that it takes the place of.
func (s *Sender) enqueue(t *turn, d *Delivery, body []byte) error {
	for _, old := range s.queue.add(d) {
		if err := t.bodies.Delete(sequenceKey(old.Sequence)); err != nil {
			return err
		}
		if err := t.put(old); err != nil {
			return err
		}
	}
	return t.add(d, body)
}

// switchTo drops what waits of the generation that readers have left, and queues the word
// of it; what comes after waits for that word.
func (s *Sender) switchTo(t *turn, generation int) error {
	for _, d := range s.queue.open {
		if d.through() || s.queue.flying[d.Sequence] != nil {
			continue
		}
		if err := s.drop(t, d); err != nil {
			return err
		}
	}
	d, body, err := s.endpoint.switchOf(s.position.Generation, generation, t.now)
	if err != nil {
		return err
	}
	s.position.Last++
	d.Sequence = s.position.Last
	s.position.Barrier = d.Sequence
	return s.enqueue(t, d, body)
}

func (s *Sender) drop(t *turn, d *Delivery) error {
	s.queue.move(d, StateDropped)
	s.queue.close(d, t.now)
	return t.put(d)
}

// links orders the members of supersession groups in a batch: sessions that were replaced
// before those that take their place.
type links map[string]uint64 // projection → sequence of the last delivery of its group

// follow answers the delivery of r's group before it, 0 where there is none.
func (l links) follow(r *revision.Revision, seq uint64) (before uint64) {
	if r.SupersededBy == "" && len(r.Supersedes) == 0 {
		return 0
	}
	names := []string{r.ProjectionID}
	if r.SupersededBy != "" {
		names = append(names, r.SupersededBy)
	}
	for _, s := range r.Supersedes {
		names = append(names, s.ProjectionID)
	}
	for _, name := range names {
		before = max(before, l[name])
	}
	for _, name := range names {
		l[name] = seq
	}
	return before
}

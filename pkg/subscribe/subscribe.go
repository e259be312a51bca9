package subscribe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Waiting times: how long the stream may be silent before its identity is looked at
// again, how long one question to the server may take, and how long to wait after an
// error of the connection.
const (
	lookEvery  = 15 * time.Second
	askFor     = 5 * time.Second
	retryAfter = 250 * time.Millisecond
)

// Options say what to follow. Stream and Job must be set.
type Options struct {
	Stream     string // business stream
	Job        string
	Key        string // only this key; "" = all
	Generation int    // 0 = the canonical one
	From       string // Batch.Token to go on behind; "" = from the first revision on
	Progress   bool   // also hand over batches without revisions, which move only the watermark
}

// Subscription hands over batches. It is for one goroutine.
type Subscription struct {
	opts   Options
	js     jetstream.JetStream
	at     token  // where to go on; Next moves with every batch
	alias  uint64 // epoch of the alias that settled the generation; 0 = none did
	group  grouper
	cons   jetstream.MessagesContext
	failed error // why it ended for good
}

// Open starts a subscription. It answers ErrNoGeneration, ErrToken, a *SwitchedError,
// ErrRecreated, or an error of the connection.
func Open(ctx context.Context, nc *nats.Conn, o Options) (*Subscription, error) {
	if o.Stream == "" || o.Job == "" {
		return nil, errors.New("subscribe: Options.Stream and Options.Job must be set")
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	s := &Subscription{opts: o, js: js, at: token{Stream: o.Stream, Job: o.Job, Key: o.Key, Generation: o.Generation, Next: 1}}
	if o.From != "" {
		if s.at, err = parseToken(o); err != nil {
			return nil, err
		}
	}
	if err := s.look(ctx); err != nil {
		return nil, err
	}
	if o.Generation == 0 {
		if err := s.canonical(ctx); err != nil {
			return nil, err
		}
	}
	s.group = grouper{
		prefix: strings.TrimSuffix(subject.RevisionsAll(o.Stream), ">"),
		whole:  o.Key == "", chains: map[string]revision.Digest{},
	}
	return s, nil
}

// look checks that the revisions stream is still the same and not cut off at either end.
func (s *Subscription) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	st, err := s.js.Stream(ctx, subject.RevisionsStream(s.opts.Stream))
	if err != nil {
		return fmt.Errorf("subscribe to %s: %w", s.opts.Stream, err)
	}
	info := st.CachedInfo()
	created := subject.Created(info.Config.Metadata, info.Created)
	if s.at.Created == 0 {
		s.at.Created = created
	}
	switch {
	case created != s.at.Created:
		return fmt.Errorf("%w: %s was created at %s", ErrRecreated, info.Config.Name, time.Unix(0, created).UTC().Format(time.RFC3339Nano))
	case info.State.LastSeq+1 < s.at.Next:
		return fmt.Errorf("%w: %s ends at sequence %d, but everything up to %d was handed over", ErrRecreated, info.Config.Name, info.State.LastSeq, s.at.Next-1)
	case s.opts.From != "" && info.State.FirstSeq > s.at.Next:
		return fmt.Errorf("%w: %s begins at sequence %d, but %d is needed next", ErrRecreated, info.Config.Name, info.State.FirstSeq, s.at.Next)
	}
	return nil
}

// canonical settles the generation by the job's alias.
func (s *Subscription) canonical(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	st, err := s.js.Stream(ctx, subject.RevisionsStream(s.opts.Stream))
	if err != nil {
		return fmt.Errorf("subscribe to %s: %w", s.opts.Stream, err)
	}
	m, err := st.GetLastMsgForSubject(ctx, subject.Alias(s.opts.Stream, s.opts.Job))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return fmt.Errorf("%w: stream %s, job %s; apply a policy of the job, or name a generation", ErrNoGeneration, s.opts.Stream, s.opts.Job)
	}
	if err != nil {
		return fmt.Errorf("alias of job %s: %w", s.opts.Job, err)
	}
	alias, err := revision.ParseAlias(m.Data)
	if err != nil {
		return fmt.Errorf("%w: alias at sequence %d: %w", ErrDamaged, m.Sequence, err)
	}
	if s.at.Generation == 0 {
		s.at.Generation = alias.Canonical
	}
	if s.at.Generation != alias.Canonical {
		return &SwitchedError{Job: s.opts.Job, From: s.at.Generation, To: alias.Canonical}
	}
	s.alias = alias.Epoch
	return nil
}

// filters answers the subjects that the subscription reads.
func (s *Subscription) filters() []string {
	bs, job, gen := s.opts.Stream, s.opts.Job, s.at.Generation
	list := []string{subject.CommitsOf(bs, job, gen), subject.RevisionsOfGeneration(bs, job, gen)}
	if s.opts.Key != "" {
		list[1] = subject.RevisionsOfKey(bs, job, gen, s.opts.Key)
	}
	if s.opts.Generation == 0 {
		list = append(list, subject.Alias(bs, job))
	}
	return list
}

// Next answers the next batch; it waits until there is one or ctx ends. It rides out
// reconnects. ErrRecreated, ErrDamaged and ErrSwitched end the subscription.
func (s *Subscription) Next(ctx context.Context) (Batch, error) {
	for {
		if s.failed != nil {
			return Batch{}, s.failed
		}
		m, err := s.message(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return Batch{}, ctx.Err()
			}
			s.failed = err
			continue
		}
		b, err := s.take(m)
		if err != nil {
			s.failed = err
			continue
		}
		if b != nil && (len(b.Revisions) > 0 || s.opts.Progress) {
			return *b, nil
		}
	}
}

// take adds one message; it answers a batch when the message completes one.
func (s *Subscription) take(m message) (*Batch, error) {
	if m.subject == subject.Alias(s.opts.Stream, s.opts.Job) {
		return nil, s.switched(m)
	}
	b, err := s.group.add(m)
	if b == nil || err != nil {
		return nil, err
	}
	s.at.Next = m.seq + 1
	b.Generation, b.Token = s.at.Generation, s.at.encode()
	return b, nil
}

// switched answers an error when an alias record moves readers away. Records from before
// the subscription began, with an epoch not above the one that settled its generation,
// are history.
func (s *Subscription) switched(m message) error {
	alias, err := revision.ParseAlias(m.data)
	if err != nil {
		return fmt.Errorf("%w: alias at sequence %d: %w", ErrDamaged, m.seq, err)
	}
	if alias.Epoch <= s.alias || alias.Canonical == s.at.Generation {
		return nil
	}
	return &SwitchedError{Job: s.opts.Job, From: s.at.Generation, To: alias.Canonical}
}

// Close ends the subscription.
func (s *Subscription) Close() {
	if s.cons != nil {
		s.cons.Stop()
		s.cons = nil
	}
	if s.failed == nil {
		s.failed = errors.New("subscribe: the subscription was closed")
	}
}

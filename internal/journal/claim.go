package journal

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Settings of a Writer.
type Settings struct {
	Stream      string
	Subject     string
	Owner       string // names this process in claims
	CoreVersion int
	MaxInFlight int           // pipelined commits; default and most MaxPipeline
	RetryFor    time.Duration // how long a leaderless stream is waited for; default 60 s
	// OnControl is told of control records that others wrote between our commits, from
	// the writer's own goroutine and in order. May be nil. Not used with Strict.
	OnControl func(seq uint64, control []byte)
	// Strict is for commits whose records depend on every control record before them: one
	// commit is in flight, and it fails with *ControlError when a control record landed
	// since what the caller knows (its last accepted commit, its last *ControlError, what
	// it told Observe). The writer stays usable.
	Strict bool
}

func (s *Settings) defaults() {
	if s.MaxInFlight <= 0 || s.MaxInFlight > MaxPipeline {
		s.MaxInFlight = MaxPipeline
	}
	if s.Strict {
		s.MaxInFlight = 1
	}
	if s.RetryFor <= 0 {
		s.RetryFor = 60 * time.Second
	}
}

// maxClaims bounds how often a claimer is overtaken before it steps back to its lease.
const maxClaims = 16

// ClaimWriter claims the journal. It reads the tail to the last COMMIT and CLAIM, appends
// a CLAIM with a higher epoch and answers what it found. ctx bounds the claim, not the
// Writer. Errors: ErrContended, ErrUnsettled, ErrRefused, transport errors, damage.
func ClaimWriter(ctx context.Context, js jetstream.JetStream, s Settings) (*Writer, Head, error) {
	s.defaults()
	pub, err := newPublisher(js.Conn())
	if err != nil {
		return nil, Head{}, fmt.Errorf("stream %s: %w", s.Stream, err)
	}
	clk := clock.System()
	head, err := claim(ctx, clk, pub, s.RetryFor, func() (Head, []Message, error) {
		return readHead(ctx, js, s)
	}, s.Stream)
	if err != nil {
		pub.close()
		return nil, Head{}, err
	}
	return startWriter(js, pub, clk, s, head), head, nil
}

// claim appends what look prepares until it is accepted. After an unknown outcome it
// looks again and claims a still higher epoch: a claim of ours that did land is then
// simply superseded by us, and nobody has to be told apart by name.
func claim(ctx context.Context, clk clock.Clock, pub *publisher, budget time.Duration, look func() (Head, []Message, error), stream string) (Head, error) {
	tempo := newPace(clk, budget)
	lost, cause := 0, error(nil)
	for {
		head, messages, err := look()
		if err == nil {
			err = failpoint.Hit("journal/before-claim")
		}
		switch {
		case err == nil:
			a := pub.exchange(ctx, clk, stamp(stream, messages))
			if err := failpoint.Hit("journal/after-claim"); err != nil {
				a = answer{verdict: unsure, cause: err}
			}
			switch a.verdict {
			case accepted:
				head.ClaimSeq = a.seq
				head.Identity.Last = a.seq
				return head, nil
			case refused:
				return Head{}, fmt.Errorf("stream %s: claim: %w: %w", stream, ErrRefused, a.cause)
			case conflict:
				if lost++; lost >= maxClaims {
					return Head{}, fmt.Errorf("stream %s: %w %d times in a row", stream, ErrContended, lost)
				}
			}
			cause = a.cause
		case definite(err) || errors.Is(err, jetstream.ErrStreamNotFound):
			return Head{}, err
		default:
			cause = err
		}
		if pub.nc.IsClosed() || !tempo.wait(ctx) {
			if ctx.Err() != nil {
				cause = fmt.Errorf("%w (%w)", ctx.Err(), cause)
			}
			return Head{}, fmt.Errorf("stream %s: claim: %w: %w", stream, ErrUnsettled, cause)
		}
	}
}

// readHead walks back from the end to the last COMMIT. A COMMIT's epoch was claimed
// before it, so the walk sees the highest epoch.
func readHead(ctx context.Context, js jetstream.JetStream, s Settings) (Head, []Message, error) {
	t, err := openTail(ctx, js, s.Stream, 0)
	if err != nil {
		return Head{}, nil, err
	}
	head := Head{Identity: t.id}
	for seq := t.id.Last; seq > 0 && seq >= t.id.First && head.Commit == nil; seq-- {
		entry, err := t.entry(ctx, seq)
		if err != nil {
			return Head{}, nil, err
		}
		if entry.Claim != nil {
			head.Epoch = max(head.Epoch, entry.Claim.Epoch)
		}
		if entry.Commit != nil {
			head.Commit, head.CommitAt = entry.Commit, seq
			head.Epoch = max(head.Epoch, entry.Commit.Epoch)
		}
	}
	head.Epoch++
	record, err := EncodeEntry(&Entry{Claim: &revision.Claim{Epoch: head.Epoch, Owner: s.Owner, CoreVersion: s.CoreVersion}})
	if err != nil {
		return Head{}, nil, err
	}
	messages := barrier(s.Subject, record)
	messages[0].Header = nats.Header{subject.HeaderExpectSeq: []string{strconv.FormatUint(t.id.Last, 10)}}
	return head, messages, nil
}

// entry reads and decodes the entry at seq.
func (t *tail) entry(ctx context.Context, seq uint64) (*Entry, error) {
	msg, err := t.get(ctx, seq)
	if err != nil {
		return nil, err
	}
	entry, err := DecodeEntry(seq, msg.Data)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w: %w", t.id.Stream, errDamaged, err)
	}
	entry.Time = msg.Time
	return entry, nil
}

// AppendControl writes a control record into a single-writer journal that another process
// may own, and answers its sequence. It needs no expectation: it lands between the owner's
// commits, and those in flight are refused and sent again behind it. control is JSON. A
// record may be written twice after an unknown outcome: make it idempotent.
func AppendControl(ctx context.Context, js jetstream.JetStream, stream, subj string, control []byte) (uint64, error) {
	record, err := EncodeEntry(&Entry{Control: control})
	if err != nil {
		return 0, err
	}
	return appendBlind(ctx, js, stream, barrier(subj, record))
}

// controlFor bounds how long a control record is tried.
const controlFor = 60 * time.Second

func appendBlind(ctx context.Context, js jetstream.JetStream, stream string, messages []Message) (uint64, error) {
	pub, err := newPublisher(js.Conn())
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", stream, err)
	}
	defer pub.close()
	head, err := claim(ctx, clock.System(), pub, controlFor, func() (Head, []Message, error) {
		return Head{}, messages, nil
	}, stream)
	return head.ClaimSeq, err
}

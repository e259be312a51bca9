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

// FencedSettings of a FencedWriter.
type FencedSettings struct {
	Stream      string
	Fence       string // literal subject of CLAIM and COMMIT
	Owner       string
	CoreVersion int
	RetryFor    time.Duration // default 60 s
}

// FencedWriter appends atomic batches to a stream that it shares with other partitions.
// The last message of a batch is the COMMIT on the fence subject, with the expected last
// sequence of that subject. One batch is in flight. Methods are for one goroutine; any
// failure but *ControlError and ErrTooLarge ends the writer: claim again.
type FencedWriter struct {
	js       jetstream.JetStream
	pub      *publisher
	clk      clock.Clock
	settings FencedSettings
	created  int64
	epoch    uint64
	fence    uint64 // last sequence on the fence subject
	last     uint64 // sequence of the last COMMIT
	previous revision.Digest
	written  revision.Commit
	err      error // why it ended
}

// ClaimFenced claims the fence. Messages on the fence are FenceRecords as JSON.
func ClaimFenced(ctx context.Context, js jetstream.JetStream, s FencedSettings) (*FencedWriter, Head, error) {
	if s.RetryFor <= 0 {
		s.RetryFor = 60 * time.Second
	}
	pub, err := newPublisher(js.Conn())
	if err != nil {
		return nil, Head{}, fmt.Errorf("stream %s: %w", s.Stream, err)
	}
	clk := clock.System()
	head, err := claim(ctx, clk, pub, s.RetryFor, func() (Head, []Message, error) {
		return readFence(ctx, js, s)
	}, s.Stream)
	if err != nil {
		pub.close()
		return nil, Head{}, err
	}
	w := &FencedWriter{
		js: js, pub: pub, clk: clk, settings: s,
		created: head.Identity.Created, epoch: head.Epoch, fence: head.ClaimSeq, last: head.CommitAt,
	}
	if head.Commit != nil {
		w.previous = head.Commit.Hash()
	}
	return w, head, nil
}

// readFence finds the last COMMIT and the highest epoch on the fence and prepares a claim.
func readFence(ctx context.Context, js jetstream.JetStream, s FencedSettings) (Head, []Message, error) {
	t, err := openTail(ctx, js, s.Stream, 0)
	if err != nil {
		return Head{}, nil, err
	}
	head := Head{Identity: t.id}
	last, err := t.last(ctx, s.Fence)
	if err != nil {
		return Head{}, nil, err
	}
	var end uint64
	if last != nil {
		end = last.Sequence
		if err := t.lastCommit(ctx, s.Fence, end, &head); err != nil {
			return Head{}, nil, err
		}
	}
	head.Epoch++
	m, err := fenceMessage(s.Fence, FenceRecord{Claim: &revision.Claim{Epoch: head.Epoch, Owner: s.Owner, CoreVersion: s.CoreVersion}}, end)
	return head, []Message{m}, err
}

// lastCommit looks for the last COMMIT on the fence up to end. A subject can only be
// followed forward, so it starts ever further back until a stretch holds one.
func (t *tail) lastCommit(ctx context.Context, fence string, end uint64, head *Head) error {
	for step := uint64(1); head.Commit == nil; step *= 8 {
		from := uint64(1)
		if end > step {
			from = end - step + 1
		}
		for seq := from; seq <= end; {
			msg, err := t.next(ctx, fence, seq)
			if err != nil {
				return err
			}
			if msg == nil {
				break
			}
			record, err := DecodeFence(msg.Sequence, msg.Data)
			if err != nil {
				return fmt.Errorf("stream %s: %w: %w", t.id.Stream, errDamaged, err)
			}
			head.take(msg.Sequence, record)
			seq = msg.Sequence + 1
		}
		if from == 1 {
			return nil
		}
	}
	return nil
}

// take keeps the last COMMIT and the highest epoch. A COMMIT's epoch was claimed before
// it, so a stretch that holds a COMMIT shows the highest epoch.
func (h *Head) take(seq uint64, r FenceRecord) {
	if r.Claim != nil {
		h.Epoch = max(h.Epoch, r.Claim.Epoch)
	}
	if r.Commit != nil {
		h.Commit, h.CommitAt = r.Commit, seq
		h.Epoch = max(h.Epoch, r.Commit.Epoch)
	}
}

// fenceMessage makes the message on the fence that expects last as the fence's sequence.
func fenceMessage(fence string, r FenceRecord, last uint64) (Message, error) {
	data, err := EncodeFence(r)
	if err != nil {
		return Message{}, err
	}
	return Message{
		Subject: fence,
		Header:  nats.Header{subject.HeaderExpectSubSeq: []string{strconv.FormatUint(last, 10)}},
		Data:    data,
	}, nil
}

// AppendFenceControl writes a control record (JSON) on a fence that another process may
// own, and answers its sequence. It needs no expectation: the owner's next batch is
// refused until it has seen the record. A record may be written twice after an unknown
// outcome: make it idempotent.
func AppendFenceControl(ctx context.Context, js jetstream.JetStream, stream, fence string, control []byte) (uint64, error) {
	data, err := EncodeFence(FenceRecord{Control: control})
	if err != nil {
		return 0, err
	}
	return appendBlind(ctx, js, stream, []Message{{Subject: fence, Data: data}})
}

// Epoch answers the epoch that was claimed.
func (w *FencedWriter) Epoch() uint64 { return w.epoch }

// Close gives back what the writer holds.
func (w *FencedWriter) Close() {
	if w.err == nil {
		w.end(fmt.Errorf("stream %s: writer %w", w.settings.Stream, ErrClosed))
	}
}

func (w *FencedWriter) end(err error) error {
	w.err = err
	w.pub.close()
	return err
}

// Commit appends messages and c as one atomic batch, setting c.Epoch and c.Previous, and
// answers the sequence of the COMMIT. Unknown outcomes are settled inside; ErrFenced when
// another claim won; *ControlError when a control record stands on the fence since the
// last append. When ctx ends the outcome is unknown and the writer with it.
func (w *FencedWriter) Commit(ctx context.Context, messages []Message, c revision.Commit) (seq uint64, err error) {
	if w.err != nil {
		return 0, w.err
	}
	c.Epoch, c.Previous = w.epoch, w.previous
	if err := w.checkSize(messages); err != nil {
		return 0, err
	}
	hash := c.Hash()
	seq, err = w.append(ctx, messages, &c, hash)
	var control *ControlError
	switch {
	case errors.As(err, &control):
		return 0, err
	case err != nil:
		return 0, w.end(err)
	}
	w.fence, w.last, w.previous, w.written = seq, seq, hash, c
	return seq, nil
}

// Written answers the last accepted COMMIT as it was sent, with epoch and predecessor.
func (w *FencedWriter) Written() revision.Commit { return w.written }

func (w *FencedWriter) checkSize(messages []Message) error {
	if len(messages)+1 > MaxBatchMessages {
		return fmt.Errorf("stream %s: batch of %d messages with its COMMIT: %w, at most %d", w.settings.Stream, len(messages)+1, ErrTooLarge, MaxBatchMessages)
	}
	size := CommitReserve
	for _, m := range messages {
		size += MessageBytes(w.settings.Stream, m)
		if m.Subject == w.settings.Fence {
			return fmt.Errorf("stream %s: a batch carries a message on its own fence %s", w.settings.Stream, m.Subject)
		}
	}
	if size > MaxGroupBytes {
		return fmt.Errorf("stream %s: batch of %d bytes with its COMMIT: %w, at most %d", w.settings.Stream, size, ErrTooLarge, MaxGroupBytes)
	}
	return nil
}

// append sends the batch until it is accepted or settled otherwise.
func (w *FencedWriter) append(ctx context.Context, messages []Message, c *revision.Commit, hash revision.Digest) (uint64, error) {
	tempo := newPace(w.clk, w.settings.RetryFor)
	whole := make([]Message, len(messages)+1)
	copy(whole, messages)
	for {
		m, err := fenceMessage(w.settings.Fence, FenceRecord{Commit: c}, w.fence)
		if err != nil {
			return 0, err
		}
		whole[len(messages)] = m
		a := w.attempt(ctx, stamp(w.settings.Stream, whole))
		switch a.verdict {
		case accepted:
			return a.seq, nil
		case refused:
			return 0, fmt.Errorf("stream %s: %w: %w", w.settings.Stream, ErrRefused, a.cause)
		}
		seq, err := w.settle(ctx, tempo, a, hash)
		if seq != 0 || err != nil {
			return seq, err
		}
	}
}

// attempt sends the batch once. What a failpoint says counts as an answer that was lost.
func (w *FencedWriter) attempt(ctx context.Context, batch []*nats.Msg) answer {
	err := failpoint.Hit("journal/before-batch")
	if err != nil {
		return answer{verdict: unsure, cause: err}
	}
	a := w.pub.exchange(ctx, w.clk, batch)
	if err = failpoint.Hit("journal/after-batch"); err != nil {
		return answer{verdict: unsure, cause: err}
	}
	return a
}

// settle reads the fence behind what is known: it answers the sequence of the own COMMIT,
// an error that ends the batch, or 0 when the batch is absent and is to be sent again with
// the same expectation. Only one copy can be accepted, because each moves the fence.
func (w *FencedWriter) settle(ctx context.Context, tempo *pace, a answer, hash revision.Digest) (uint64, error) {
	cause := a.cause
	for tempo.wait(ctx) && !w.pub.nc.IsClosed() {
		seq, err := uint64(0), failpoint.Hit("journal/fence-settling")
		if err == nil {
			seq, err = w.readFenceTail(ctx, hash)
		}
		if seq != 0 || definite(err) {
			return seq, err
		}
		var control *ControlError
		if errors.As(err, &control) {
			return 0, err
		}
		if err == nil && a.last > w.fence && tempo.attempt < 4 {
			err = errBehind
		}
		if err == nil {
			return 0, nil
		}
		cause = err
	}
	if ctx.Err() != nil {
		cause = fmt.Errorf("%w (%w)", ctx.Err(), cause)
	}
	return 0, fmt.Errorf("stream %s: %w: %w", w.settings.Stream, ErrUnsettled, cause)
}

func (w *FencedWriter) readFenceTail(ctx context.Context, hash revision.Digest) (uint64, error) {
	t, err := openTail(ctx, w.js, w.settings.Stream, w.created)
	if err != nil {
		return 0, err
	}
	msg, err := t.next(ctx, w.settings.Fence, w.fence+1)
	if err != nil || msg == nil {
		return 0, err
	}
	record, err := DecodeFence(msg.Sequence, msg.Data)
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w: %w", w.settings.Stream, errDamaged, err)
	}
	switch {
	case record.Claim != nil:
		return 0, &FencedError{Stream: w.settings.Stream, Ours: w.epoch, Epoch: record.Claim.Epoch, Owner: record.Claim.Owner, Seq: msg.Sequence}
	case record.Control != nil:
		w.fence = msg.Sequence
		return 0, &ControlError{Stream: w.settings.Stream, Seq: msg.Sequence, Control: record.Control}
	case record.Commit.Epoch == w.epoch && record.Commit.Hash() == hash:
		return msg.Sequence, nil
	}
	return 0, &ChainError{Stream: w.settings.Stream, Previous: w.last, Seq: msg.Sequence}
}

package journal

import (
	"errors"
	"fmt"
)

// Errors of this package. Use errors.Is; the typed errors below carry the figures.
var (
	// ErrFenced: another owner claimed the journal. Stop at once and drop uncommitted work.
	ErrFenced = errors.New("fenced by a newer claim")
	// ErrIdentity: the stream is not the one the stored position speaks of
	// (recreated, truncated, or behind). Never restart silently.
	ErrIdentity = errors.New("stream identity does not match the stored position")
	// ErrChain: the hash chain over COMMITs is broken.
	ErrChain = errors.New("hash chain broken")
	// ErrBatch: a batch of a shared stream has a COMMIT but not the messages it counts.
	ErrBatch = errors.New("batch incomplete")
	// ErrContended: other claimers won every attempt. Look at the lease again, then retry.
	ErrContended = errors.New("claim lost to other claimers")
	// ErrUnsettled: the outcome could not be learned in RetryFor. The writer is finished;
	// claim again, which tells what was written.
	ErrUnsettled = errors.New("outcome of a commit is unknown")
	// ErrTooLarge: a commit or batch is above its bound. Nothing was sent.
	ErrTooLarge = errors.New("too large")
	// ErrRefused: the server refuses the message for good (configuration or a bug).
	ErrRefused = errors.New("refused by the server")
	// ErrClosed: the Writer or Reader was closed.
	ErrClosed = errors.New("closed")
)

// FencedError tells which claim fenced whom.
type FencedError struct {
	Stream string
	Ours   uint64 // epoch
	Epoch  uint64 // of the claim that won
	Owner  string
	Seq    uint64
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("stream %s: epoch %d is fenced by the claim of epoch %d by %s at sequence %d", e.Stream, e.Ours, e.Epoch, e.Owner, e.Seq)
}

// Is makes errors.Is(err, ErrFenced) true.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// IdentityError tells which stream differs and how.
type IdentityError struct {
	Stream string
	What   string
}

func (e *IdentityError) Error() string {
	return fmt.Sprintf("stream %s: %s; the partition is stopped so that nothing is computed from another journal", e.Stream, e.What)
}

// Is makes errors.Is(err, ErrIdentity) true.
func (e *IdentityError) Is(target error) bool { return target == ErrIdentity }

// ChainError tells where a chain breaks: the COMMIT at Seq names a predecessor that the
// COMMIT at Previous is not.
type ChainError struct {
	Stream        string
	Previous, Seq uint64
}

func (e *ChainError) Error() string {
	return fmt.Sprintf("stream %s: the COMMIT at sequence %d does not follow the COMMIT at sequence %d; restore the stream from a backup or start a new generation", e.Stream, e.Seq, e.Previous)
}

// Is makes errors.Is(err, ErrChain) true.
func (e *ChainError) Is(target error) bool { return target == ErrChain }

// ControlError tells that another process wrote a control record which the caller has not
// seen: on the fence of a FencedWriter, or in the journal of a Writer with Strict. Nothing
// of the commit was written and nothing of it can be. The writer's expectation is moved
// past this record alone: judge again and call Commit again.
type ControlError struct {
	Stream  string
	Seq     uint64
	Control []byte // JSON
}

func (e *ControlError) Error() string {
	return fmt.Sprintf("stream %s: a control record stands at sequence %d; judge the commit again", e.Stream, e.Seq)
}

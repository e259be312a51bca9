// Package journal owns the one pattern by which every Tidemark service writes a journal
// on JetStream: claim, commit, settle, read (design: "One journal package for all of them").
package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
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
)

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

// Identity is what a stream is known by.
type Identity struct {
	Stream  string
	Created int64 // Unix nanoseconds
	First   uint64
	Last    uint64
}

// Identify reads a stream's identity from its leader.
func Identify(ctx context.Context, js jetstream.JetStream, stream string) (Identity, error) {
	panic("contract only")
}

// Check compares a stream with a stored position: created is the stored creation time
// (0 = nothing stored), next the sequence read next. It answers an *IdentityError when
// the stream was recreated, lost its head (First > next) or its tail (Last < next-1).
func (id Identity) Check(created int64, next uint64) error { panic("contract only") }

// Entry is one message of a single-writer journal (windows): a claim, a control record,
// or records with their COMMIT.
type Entry struct {
	Seq     uint64
	Time    time.Time
	Claim   *revision.Claim
	Control []byte
	Records [][]byte
	Commit  *revision.Commit
}

// EncodeEntry and DecodeEntry are the wire form (schema journal.proto).
func EncodeEntry(e *Entry) ([]byte, error)                { panic("contract only") }
func DecodeEntry(seq uint64, data []byte) (*Entry, error) { panic("contract only") }

// Settings of a Writer.
type Settings struct {
	Stream      string
	Subject     string
	Owner       string // names this process in claims
	CoreVersion int
	MaxInFlight int           // pipelined commits; default 8
	RetryFor    time.Duration // how long a leaderless stream is waited for; default 60 s
}

// Head is the journal's state at a successful claim.
type Head struct {
	Epoch    uint64           // ours
	ClaimSeq uint64           // sequence of our CLAIM: a fence and a read barrier
	Commit   *revision.Commit // last COMMIT before it, or nil
	CommitAt uint64           // its sequence
	Identity Identity
}

// Writer appends to a single-writer journal: one message a commit, each with
// expected-last-sequence, several in flight. Methods are for one goroutine.
type Writer struct{}

// ClaimWriter claims the journal. It reads the tail to the last COMMIT and CLAIM,
// appends a CLAIM with a higher epoch and answers what it found.
func ClaimWriter(ctx context.Context, js jetstream.JetStream, s Settings) (*Writer, Head, error) {
	panic("contract only")
}

// Commit appends records and c in one message (at most MaxCommitBytes together), setting
// c.Epoch and c.Previous. It blocks only while MaxInFlight commits are unsettled. An
// unknown outcome is settled inside: the own commit is looked for in the tail, and if
// absent the same bytes are appended with the same expectation. The answer's Done is
// closed once the commit is accepted or has failed for good.
func (w *Writer) Commit(ctx context.Context, records [][]byte, c revision.Commit) (*Pending, error) {
	panic("contract only")
}

// Close waits for commits in flight and stops.
func (w *Writer) Close() error { panic("contract only") }

// Pending is a commit in flight.
type Pending struct{}

// Done is closed when the outcome is known.
func (p *Pending) Done() <-chan struct{} { panic("contract only") }

// Result answers the sequence of the accepted commit, or ErrFenced and the like. Only after Done.
func (p *Pending) Result() (seq uint64, err error) { panic("contract only") }

// MaxCommitBytes bounds one commit message.
const MaxCommitBytes = 900 << 10

// Message is one message of a batch for a shared stream.
type Message struct {
	Subject string
	Header  nats.Header
	Data    []byte
}

// Bounds of a batch: messages including the COMMIT, and payload bytes with headers.
const (
	MaxBatchMessages = 999
	MaxBatchBytes    = 1 << 20
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
// sequence of that subject. One batch is in flight.
type FencedWriter struct{}

// ClaimFenced claims the fence. Messages on the fence are JSON: {"claim":{…}} or {"commit":{…}}.
func ClaimFenced(ctx context.Context, js jetstream.JetStream, s FencedSettings) (*FencedWriter, Head, error) {
	panic("contract only")
}

// Commit appends messages and c as one atomic batch and answers the sequence of the
// COMMIT. Unknown outcomes are settled inside; ErrFenced when another claim won.
func (w *FencedWriter) Commit(ctx context.Context, messages []Message, c revision.Commit) (seq uint64, err error) {
	panic("contract only")
}

// FenceRecord is one decoded message of a fence subject: exactly one field is set.
type FenceRecord struct {
	Claim   *revision.Claim
	Commit  *revision.Commit
	Control []byte
}

// Msg is one message of a journal as a Reader gives it.
type Msg struct {
	Seq     uint64
	Subject string
	Header  nats.Header
	Data    []byte // owned by the receiver
	Time    time.Time
	Pending uint64 // messages behind it when it was delivered
}

// Reader reads one stream in order from a sequence on, over reconnects, and checks the
// stream's identity at start and at every reconnect.
type Reader struct{}

// Read starts at sequence next. created is the stored creation time of the stream, 0 when
// nothing is stored. filters are subjects; none means every message.
func Read(ctx context.Context, js jetstream.JetStream, stream string, created int64, next uint64, filters ...string) (*Reader, error) {
	panic("contract only")
}

// Next answers the next message; it blocks until there is one, ctx ends, or the reader fails for good.
func (r *Reader) Next(ctx context.Context) (Msg, error) { panic("contract only") }

// TryNext answers a message only if one is at hand.
func (r *Reader) TryNext() (Msg, bool, error) { panic("contract only") }

// C delivers messages for use in a select; closed when the reader ends (then Err tells why).
func (r *Reader) C() <-chan Msg { panic("contract only") }

// Err answers why C was closed.
func (r *Reader) Err() error { panic("contract only") }

// Identity answers what the stream was when reading began.
func (r *Reader) Identity() Identity { panic("contract only") }

// Close ends reading.
func (r *Reader) Close() { panic("contract only") }

// BatchGrouper holds back messages of atomic batches until their COMMIT arrives: readers
// of a shared stream act on whole batches only. A prefix without its COMMIT is void.
type BatchGrouper struct{}

// NewBatchGrouper groups by Nats-Batch-Id; fence is the literal COMMIT subject.
func NewBatchGrouper(fence string) *BatchGrouper { panic("contract only") }

// Batch is a whole batch: messages before the COMMIT, and the COMMIT itself.
type Batch struct {
	Messages []Msg
	Fence    FenceRecord // Commit, Claim or Control
	FenceSeq uint64
}

// Add takes the next message; it answers a batch when m completes one. Verified: the chain over COMMITs
// (Previous against the one before) and the count of messages.
func (g *BatchGrouper) Add(m Msg) (*Batch, error) { panic("contract only") }

// Chain checks that COMMITs follow one another.
type Chain struct{}

// Next checks c at seq against the one before; the first call sets the start. stream is for the error.
func (ch *Chain) Next(stream string, seq uint64, c *revision.Commit) error { panic("contract only") }

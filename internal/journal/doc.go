// Package journal owns the one pattern by which every Tidemark service writes a journal
// on JetStream: claim, commit, settle, read.
//
// A single-writer journal is written by a Writer: one message a commit, several in
// flight, each with the expected last sequence. Everything else in such a journal (a
// claim, a control record) is written as a barrier: one atomic batch of MaxPipeline
// messages whose last one is the record. Why: expected sequences alone do not fence a
// pipeline. Of commits e0 and e1 in flight, expecting 10 and 11, a foreign record that
// takes sequence 11 refuses e0 and thereby makes e1's expectation true. A barrier is as
// long as the longest pipeline, so no expectation that was in flight before it can come
// true after it, and nothing of a fenced owner lands behind the claim that fenced it.
//
// A Writer whose records depend on every control record before them (effects) is strict:
// it keeps one commit in flight and fails it when a record landed that its caller has not
// taken in, instead of sending the same bytes again behind it.
//
// A shared stream is written by a FencedWriter: atomic batches that end with the COMMIT on
// the partition's literal fence subject, one in flight.
package journal

import "github.com/tidemark-mesh/tidemark/pkg/revision"

// Bounds of writing.
const (
	// MaxCommitBytes bounds one commit message of a Writer.
	MaxCommitBytes = 900 << 10
	// MaxPipeline bounds the commits in flight of a Writer, and is the length of a barrier.
	MaxPipeline = 8
	// MaxBatchMessages bounds a batch of a FencedWriter, its COMMIT included.
	MaxBatchMessages = 999
	// MaxBatchBytes bounds its payload bytes with subjects and headers, as far as its
	// caller can cut it.
	MaxBatchBytes = 1 << 20
	// MaxGroupBytes bounds a batch that cannot be cut: one supersession group, with keys
	// and names as long and as strange as they can be.
	MaxGroupBytes = 4 << 20
	// CommitReserve is what of MaxBatchBytes a caller leaves for the COMMIT.
	CommitReserve = 16 << 10
)

// Head is the journal's state at a successful claim.
type Head struct {
	Epoch    uint64           // ours
	ClaimSeq uint64           // sequence of our CLAIM: a fence and a read barrier
	Commit   *revision.Commit // last COMMIT before it, or nil
	CommitAt uint64           // its sequence
	Identity Identity
}

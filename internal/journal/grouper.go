package journal

import (
	"fmt"
	"strconv"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// BatchGrouper holds back messages of atomic batches until their COMMIT arrives: readers
// of a shared stream act on whole batches only. A prefix without its COMMIT is void, and
// so is a message outside any batch.
type BatchGrouper struct {
	fence  string
	stream string
	chain  Chain
	claim  uint64 // highest epoch claimed
	id     string
	held   []Msg
	broken bool // the held batch misses messages
}

// NewBatchGrouper groups by Nats-Batch-Id; fence is the literal COMMIT subject, stream is
// for errors.
func NewBatchGrouper(stream, fence string) *BatchGrouper {
	return &BatchGrouper{stream: stream, fence: fence}
}

// Resume sets the COMMIT that the next one must follow, at seq.
func (g *BatchGrouper) Resume(seq uint64, c *revision.Commit) {
	g.chain = Chain{started: true, seq: seq, epoch: c.Epoch, hash: c.Hash()}
	g.claim = max(g.claim, c.Epoch)
}

// Batch is a whole batch: messages before the COMMIT, and the COMMIT itself.
type Batch struct {
	Messages []Msg
	Fence    FenceRecord // Commit, Claim or Control
	FenceSeq uint64
}

// Add takes the next message of one partition (its revisions and its fence, in stream
// order); it answers a batch when m completes one, and a batch without messages for a
// claim or control record. Verified: the chain over COMMITs, epochs against claims, and
// the count of messages.
func (g *BatchGrouper) Add(m Msg) (*Batch, error) {
	if m.Subject != g.fence {
		g.hold(m)
		return nil, nil
	}
	record, err := DecodeFence(m.Seq, m.Data)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", g.stream, err)
	}
	batch := &Batch{Fence: record, FenceSeq: m.Seq}
	switch {
	case record.Claim != nil:
		g.claim = max(g.claim, record.Claim.Epoch)
	case record.Commit != nil:
		if batch.Messages, err = g.complete(m, record.Commit); err != nil {
			return nil, err
		}
	}
	g.drop()
	return batch, nil
}

// hold keeps a message of the batch under way. A server stores a batch in one piece, so a
// message of another batch makes what is held void.
func (g *BatchGrouper) hold(m Msg) {
	id := m.Header.Get(subject.HeaderBatchID)
	if id == "" {
		g.drop()
		return
	}
	if id != g.id {
		g.drop()
		g.id = id
	}
	if batchSeq(m) != len(g.held)+1 {
		g.broken = true
	}
	g.held = append(g.held, m)
}

func (g *BatchGrouper) drop() { g.id, g.held, g.broken = "", nil, false }

func (g *BatchGrouper) complete(m Msg, c *revision.Commit) ([]Msg, error) {
	if c.Epoch < g.claim {
		return nil, &ChainError{Stream: g.stream, Previous: g.chain.seq, Seq: m.Seq}
	}
	id := m.Header.Get(subject.HeaderBatchID)
	held := g.held
	if id == "" || id != g.id {
		held = nil
	}
	if want := batchSeq(m); id == "" || g.broken && held != nil || want != len(held)+1 {
		return nil, fmt.Errorf("stream %s: %w: the COMMIT at sequence %d closes a batch of %d messages, %d are there; restore the stream from a backup or start a new generation", g.stream, ErrBatch, m.Seq, want, len(held)+1)
	}
	if err := g.chain.Next(g.stream, m.Seq, c); err != nil {
		return nil, err
	}
	return held, nil
}

func batchSeq(m Msg) int {
	n, err := strconv.Atoi(m.Header.Get(subject.HeaderBatchSeq))
	if err != nil {
		return -1
	}
	return n
}

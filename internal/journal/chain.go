package journal

import "github.com/tidemark-mesh/tidemark/pkg/revision"

// Chain checks that COMMITs follow one another: each names the hash of the one before,
// and epochs never fall. The zero Chain is ready.
type Chain struct {
	started bool
	seq     uint64
	epoch   uint64
	hash    revision.Digest
}

// Next checks c at seq against the one before; the first call sets the start. stream is
// for the error, a *ChainError.
func (ch *Chain) Next(stream string, seq uint64, c *revision.Commit) error {
	if ch.started && (c.Previous != ch.hash || c.Epoch < ch.epoch) {
		return &ChainError{Stream: stream, Previous: ch.seq, Seq: seq}
	}
	ch.started, ch.seq, ch.epoch, ch.hash = true, seq, c.Epoch, c.Hash()
	return nil
}

// Start says that the journal is read from its beginning: the first COMMIT must have no
// predecessor.
func (ch *Chain) Start() { *ch = Chain{started: true} }

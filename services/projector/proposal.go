package projector

import (
	"crypto/sha256"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/internal/core/projection"
	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// proposal is one proposed revision, rebuilt from its record and ready to be published.
type proposal struct {
	change  change
	message journal.Message
	judged  projection.Proposal
	// revision is what was proposed, read-only: the group is judged by it.
	revision *revision.Revision
	size     int // of the message in a batch, bytes
	// open tells that the proposal belongs to a supersession group that goes on after
	// it: retractions come first, the projection that replaces them closes the group.
	open bool
}

// builder turns records into proposals. Everything it makes for one windows entry stands
// in one arena, because a fresh allocation for every revision is what would dominate.
type builder struct {
	static record.Static
	order  rowOrder
	stream string // of revisions
	prefix string // of a revision's subject
	epoch  uint64
	header nats.Header
	arena  []byte
	key    []byte
}

func newBuilder(static record.Static, p partition, order rowOrder, epoch uint64) *builder {
	return &builder{
		static: static, order: order, stream: subject.RevisionsStream(p.stream), prefix: p.revisionPrefix(), epoch: epoch,
		header: nats.Header{subject.HeaderSchema: []string{revision.Schema}},
	}
}

// The arena grows in chunks; a revision that is larger than the room makes a chunk of its
// own.
const (
	arenaChunk = 256 << 10
	arenaRoom  = 4 << 10
)

// build rebuilds the revision of r and compares its digest with the one the windower
// computed.
func (b *builder) build(r *record.Record) (proposal, error) {
	rev := r.Proposal
	b.static.Fill(rev)
	rev.Epoch = b.epoch
	digest := rev.ComputeDigest()
	if digest != r.Digest {
		return proposal{}, fmt.Errorf("the digest of revision %d of key %q, window %s to %s, is %s, but the record carries %s",
			rev.Revision, rev.Key, rev.Window.Start, rev.Window.End, digest, r.Digest)
	}
	if cap(b.arena)-len(b.arena) < arenaRoom {
		b.arena = make([]byte, 0, arenaChunk)
	}
	start := len(b.arena)
	b.arena = append(b.arena, make([]byte, rowHeader)...)
	b.arena = rev.AppendJSON(b.arena)
	value := b.arena[start:len(b.arena):len(b.arena)]
	putRowHeader(value, rev, digest)
	b.key = b.order.rowKey(b.key[:0], rev.Key, rev.Window)
	p := proposal{
		change:   change{key: string(b.key), value: value},
		message:  journal.Message{Subject: b.prefix + subject.Escape(rev.Key), Header: b.header, Data: rowJSON(value)},
		judged:   projection.Proposal{Revision: rev.Revision, Digest: digest, Predecessor: rev.Predecessor},
		revision: rev,
		open:     rev.Op == revision.Retract && rev.SupersededBy != "",
	}
	p.size = journal.MessageBytes(b.stream, p.message)
	return p, nil
}

// link is one step of the chain over accepted revisions.
func link(chain, digest revision.Digest) revision.Digest {
	var both [2 * len(digest)]byte
	copy(both[:], chain[:])
	copy(both[len(chain):], digest[:])
	return sha256.Sum256(both[:])
}

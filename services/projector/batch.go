package projector

import (
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Bounds of one batch: the COMMIT takes one message and some bytes of it.
const (
	maxMessages = journal.MaxBatchMessages - 1
	maxBytes    = journal.MaxBatchBytes - journal.CommitReserve
	// maxGroup bounds a group that is a batch of its own because it is larger than others
	// may be: it must not be cut.
	maxGroup = journal.MaxGroupBytes - journal.CommitReserve
)

// batch is what the next atomic append holds: accepted proposals, not yet written.
type batch struct {
	messages []journal.Message
	changes  []change
	firings  map[revision.Firing]int
	bytes    int
}

// fits tells whether a group may join, or be the first.
func (b *batch) fits(group []proposal) bool {
	bytes, most := b.bytes, maxBytes
	if len(b.messages) == 0 {
		most = maxGroup
	}
	for i := range group {
		bytes += group[i].size
	}
	return len(b.messages)+len(group) <= maxMessages && bytes <= most
}

func (b *batch) add(p *proposal) {
	b.messages = append(b.messages, p.message)
	b.changes = append(b.changes, p.change)
	b.bytes += p.size
	b.firings[p.revision.Firing]++
}

func (b *batch) reset() {
	clear(b.messages)
	clear(b.changes)
	b.messages, b.changes, b.bytes = b.messages[:0], b.changes[:0], 0
	clear(b.firings)
}

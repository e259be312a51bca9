package subscribe

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// grouper holds revisions back until the COMMIT of their batch arrives. A server stores
// a batch in one piece, therefore one batch at a time is under way, whatever the number
// of partitions; a message of another batch makes what is held void.
type grouper struct {
	prefix string // of every revision's subject
	whole  bool   // every message of a batch is read, so that their number can be checked
	id     string
	held   []message
	chains map[string]revision.Digest // fence subject → hash of its last COMMIT
}

// fenceRecord is a message on a fence subject. Claims and controls concern writers only.
type fenceRecord struct {
	Claim   json.RawMessage `json:"claim"`
	Commit  json.RawMessage `json:"commit"`
	Control json.RawMessage `json:"control"`
}

// add takes the next message; it answers a batch when m is its COMMIT.
func (g *grouper) add(m message) (*Batch, error) {
	if strings.HasPrefix(m.subject, g.prefix) {
		g.hold(m)
		return nil, nil
	}
	partition, err := fencePartition(m.subject)
	if err != nil {
		return nil, fmt.Errorf("%w: sequence %d: %w", ErrDamaged, m.seq, err)
	}
	var record fenceRecord
	if err := json.Unmarshal(m.data, &record); err != nil {
		return nil, fmt.Errorf("%w: fence record at sequence %d: %w", ErrDamaged, m.seq, err)
	}
	held, id := g.held, g.id
	g.drop()
	if record.Commit == nil {
		return nil, nil
	}
	c, err := revision.ParseCommit(record.Commit)
	if err != nil {
		return nil, fmt.Errorf("%w: COMMIT at sequence %d: %w", ErrDamaged, m.seq, err)
	}
	if hash, known := g.chains[m.subject]; known && c.Previous != hash {
		return nil, fmt.Errorf("%w: the COMMIT at sequence %d does not follow the one before it on %s", ErrDamaged, m.seq, m.subject)
	}
	g.chains[m.subject] = c.Hash()
	batch := &Batch{Partition: partition, W: c.W, Wdata: c.Wdata, OpenFrom: c.OpenFrom}
	if id == "" || id != m.header.Get(subject.HeaderBatchID) {
		held = nil
	}
	if want, err := strconv.Atoi(m.header.Get(subject.HeaderBatchSeq)); g.whole && (err != nil || want != len(held)+1) {
		return nil, fmt.Errorf("%w: the COMMIT at sequence %d closes a batch of %d messages, %d are there", ErrDamaged, m.seq, want, len(held)+1)
	}
	for _, h := range held {
		r, err := revision.ParseJSON(h.data)
		if err != nil {
			return nil, fmt.Errorf("%w: revision at sequence %d: %w", ErrDamaged, h.seq, err)
		}
		batch.Revisions = append(batch.Revisions, r)
	}
	return batch, nil
}

func (g *grouper) hold(m message) {
	if id := m.header.Get(subject.HeaderBatchID); id != g.id {
		g.drop()
		g.id = id
	}
	if g.id != "" {
		g.held = append(g.held, m)
	}
}

func (g *grouper) drop() { g.id, g.held = "", nil }

// fencePartition answers the key partition that a fence subject ends with.
func fencePartition(fence string) (int, error) {
	pp, err := strconv.Atoi(fence[strings.LastIndexByte(fence, '.')+1:])
	if err != nil {
		return 0, fmt.Errorf("subject %q is neither a revision's nor a fence's", fence)
	}
	return pp, nil
}

package gates

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// proposed is the fold over one windows journal.
type proposed struct {
	commit    *revision.Commit // the last one read
	late      []record.Late
	conflicts []record.Conflict
	refused   []string
	chains    Gate
}

// readProposed folds the windows journal before until.
func readProposed(ctx context.Context, js jetstream.JetStream, bs string, entry config.Entry, pp int, until revision.InputPosition) (*proposed, error) {
	p := &proposed{}
	if until.Seq <= 1 {
		return p, nil
	}
	gen := entry.Policy
	stream := subject.WindowsStream(bs, gen.Job, gen.Generation, pp)
	r, err := journal.Read(ctx, js, stream, until.Created, 1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var digest revision.Digest
	var follow journal.Chain
	for seq := uint64(0); seq+1 < until.Seq; {
		m, err := r.Next(ctx)
		if err != nil {
			return nil, err
		}
		seq = m.Seq
		e, err := journal.DecodeEntry(m.Seq, m.Data)
		if err != nil {
			return nil, err
		}
		for _, raw := range e.Records {
			digest = chain(digest, raw)
			if err := p.take(raw); err != nil {
				return nil, fmt.Errorf("stream %s sequence %d: %w", stream, m.Seq, err)
			}
		}
		if e.Commit == nil {
			continue
		}
		p.chains.look(1)
		p.commit = e.Commit
		if err := follow.Next(stream, m.Seq, e.Commit); errors.Is(err, journal.ErrChain) {
			p.chains.fail("%v", err)
		} else if err != nil {
			return nil, err
		}
		if e.Commit.RecordsDigest != digest {
			p.chains.fail("stream %s: the COMMIT at %d states another digest of the records before it than they have", stream, m.Seq)
			digest = e.Commit.RecordsDigest
		}
	}
	return p, nil
}

func (p *proposed) take(raw []byte) error {
	switch record.KindOf(raw) {
	case record.KindLate, record.KindConflict, record.KindRefused:
	default:
		return nil // proposals are judged by what was accepted of them
	}
	r, err := record.Decode(raw)
	if err != nil {
		return err
	}
	if r.Late != nil {
		p.late = append(p.late, *r.Late)
	}
	if r.Conflict != nil {
		p.conflicts = append(p.conflicts, *r.Conflict)
	}
	if f := r.Refused; f != nil {
		p.refused = append(p.refused, refusedText(f.Key, f.Epoch, f.AsOf.Seq, f.AsOf.Index, f.Why))
	}
	return nil
}

// refusedText says which REOPEN was refused, and why.
func refusedText(key string, epoch, seq uint64, index uint32, why string) string {
	return fmt.Sprintf("key %q, epoch %d, as of %d/%d: %s", key, epoch, seq, index, why)
}

func (p *proposed) report(t *tally) { t.chains.merge(p.chains) }

// count answers a number of the last COMMIT by name.
func (p *proposed) count(name string) uint64 {
	if p.commit == nil {
		return 0
	}
	for _, c := range p.commit.Counts {
		if c.Name == name {
			return c.N
		}
	}
	return 0
}

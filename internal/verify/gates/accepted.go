package gates

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// pauseTime is how long verify waits for the end of a mark under way.
const pauseTime = 100 * time.Millisecond

type rowKey struct {
	key        string
	start, end envelope.EventTime
}

// accepted is the fold over one (job, generation, key partition) of the revisions stream.
type accepted struct {
	commit    *revision.Commit // the last one read
	rows      map[rowKey]*revision.Revision
	heads     map[rowKey]revision.Digest
	sessions  map[string]spans // by key, for policies with sessions; else nil
	revisions Gate
	chains    Gate
	groups    Gate
}

func newAccepted(p *policy.StreamTimePolicy) *accepted {
	a := &accepted{rows: map[rowKey]*revision.Revision{}, heads: map[rowKey]revision.Digest{}}
	if p.Window.Kind == policy.Session {
		a.sessions = map[string]spans{}
	}
	return a
}

// readAccepted folds the revisions stream up to the last COMMIT that was there at the call.
func readAccepted(ctx context.Context, js jetstream.JetStream, t *tally, bs string, p *policy.StreamTimePolicy, pp int) (*accepted, error) {
	a := newAccepted(p)
	stream := subject.RevisionsStream(bs)
	fence := subject.Commits(bs, p.Job, p.Generation, pp)
	last, err := journal.LastSeq(ctx, js, stream, fence)
	if err != nil || last == 0 {
		return a, err
	}
	r, err := journal.Read(ctx, js, stream, 0, 1, subject.RevisionsOf(bs, p.Job, p.Generation, pp), fence)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	grouper := journal.NewBatchGrouper(stream, fence)
	var digest revision.Digest
	for seq := uint64(0); seq < last; {
		m, err := r.Next(ctx)
		if err != nil {
			return nil, err
		}
		seq = m.Seq
		batch, err := grouper.Add(m)
		if errors.Is(err, journal.ErrChain) {
			a.chains.fail("%v", err)
			continue
		}
		if err != nil {
			return nil, err
		}
		if batch == nil || batch.Fence.Commit == nil {
			continue
		}
		if digest, err = a.batch(batch, digest); err != nil {
			return nil, err
		}
		a.commit = batch.Fence.Commit
		a.chains.look(1)
		if a.commit.RecordsDigest != digest {
			a.chains.fail("%s: the COMMIT at %d states another digest of the revisions before it than they have", fence, batch.FenceSeq)
			digest = a.commit.RecordsDigest
		}
	}
	return a, nil
}

// batch takes in what was accepted together.
func (a *accepted) batch(b *journal.Batch, digest revision.Digest) (revision.Digest, error) {
	list := make([]*revision.Revision, len(b.Messages))
	for i, m := range b.Messages {
		r, err := revision.ParseJSON(m.Data)
		if err != nil {
			return digest, fmt.Errorf("revision at sequence %d: %w", m.Seq, err)
		}
		list[i] = r
		digest = a.accept(m.Seq, r, digest)
	}
	a.takeGroups(list, b.FenceSeq)
	return digest, nil
}

// accept checks one revision against its predecessor and makes it the current row.
func (a *accepted) accept(seq uint64, r *revision.Revision, digest revision.Digest) revision.Digest {
	a.revisions.look(1)
	k := rowKey{r.Key, r.Window.Start, r.Window.End}
	own := r.ComputeDigest()
	var before uint64
	if head := a.rows[k]; head != nil {
		before = head.Revision
	}
	switch {
	case r.Revision != before+1:
		a.revisions.fail("sequence %d: key %q window %s to %s: revision %d follows %d", seq, r.Key, r.Window.Start, r.Window.End, r.Revision, before)
	case before == 0 && r.Predecessor != nil, before > 0 && (r.Predecessor == nil || r.Predecessor.Revision != before || r.Predecessor.Digest != a.heads[k]):
		a.revisions.fail("sequence %d: key %q window %s to %s: revision %d names another predecessor than the one accepted", seq, r.Key, r.Window.Start, r.Window.End, r.Revision)
	}
	a.rows[k], a.heads[k] = r, own
	return chain(digest, own[:])
}

// chain answers SHA-256(before + record).
func chain(before revision.Digest, record []byte) revision.Digest {
	h := sha256.New()
	h.Write(before[:])
	h.Write(record)
	var out revision.Digest
	h.Sum(out[:0])
	return out
}

// report adds the findings of the fold to the tally.
func (a *accepted) report(t *tally) {
	t.revisions.merge(a.revisions)
	t.chains.merge(a.chains)
	t.groups.merge(a.groups)
}

func (g *Gate) merge(other Gate) {
	g.Checked += other.Checked
	g.Wrong += other.Wrong
	for _, d := range other.Details {
		if len(g.Details) < maxDetails {
			g.Details = append(g.Details, d)
		}
	}
}

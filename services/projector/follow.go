package projector

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/core/projection"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// follower brings a view up to the revisions stream and keeps it there, by whole batches.
type follower struct {
	part   partition
	view   *view
	reader *journal.Reader
	group  *journal.BatchGrouper
	target uint64 // fence sequence at which the view has caught up
}

// startFollower reads on from where the view stands, after checking that the stream is
// the one that the view was made from.
func startFollower(ctx context.Context, js jetstream.JetStream, p partition, v *view) (*follower, error) {
	stream := subject.RevisionsStream(p.stream)
	id, err := journal.Identify(ctx, js, stream)
	if err != nil {
		return nil, err
	}
	if err := v.bind(id); err != nil {
		return nil, err
	}
	target, err := journal.LastSeq(ctx, js, stream, p.fence())
	if err != nil {
		return nil, err
	}
	at := v.at()
	reader, err := journal.Read(ctx, js, stream, at.Created, at.Fence+1, p.revisions(), p.fence())
	if err != nil {
		return nil, err
	}
	group := journal.NewBatchGrouper(stream, p.fence())
	if at.Commit != nil {
		group.Resume(at.Fence, at.Commit)
	}
	return &follower{part: p, view: v, reader: reader, group: group, target: target}, nil
}

// caughtUp tells whether everything that was on the fence at the start is in the view.
func (f *follower) caughtUp() bool { return f.view.at().Fence >= f.target }

// upTo reads until the fence record at seq is in the view.
func (f *follower) upTo(ctx context.Context, seq uint64) error {
	for f.view.at().Fence < seq {
		m, err := f.reader.Next(ctx)
		if err != nil {
			return err
		}
		if err := f.take(m); err != nil {
			return err
		}
	}
	return nil
}

// take adds one message; a batch that it completes is applied.
func (f *follower) take(m journal.Msg) error {
	b, err := f.group.Add(m)
	if err != nil || b == nil {
		return err
	}
	if err := failpoint.Hit("projector/catch-up"); err != nil {
		return err
	}
	rows, err := f.rows(b)
	if err != nil {
		return err
	}
	return f.view.apply(b.Fence, b.FenceSeq, rows)
}

// rows reads the revisions of a batch and checks that they are what the COMMIT says:
// each the next one of its projection, all of them in the digest chain.
func (f *follower) rows(b *journal.Batch) ([]change, error) {
	if b.Fence.Commit == nil {
		return nil, nil
	}
	var chain revision.Digest
	if c := f.view.at().Commit; c != nil {
		chain = c.RecordsDigest
	}
	rows := make([]change, len(b.Messages))
	judged := make([]projection.Proposal, len(b.Messages))
	keys := make([]string, len(b.Messages))
	for i, m := range b.Messages {
		r, err := revision.ParseJSON(m.Data)
		if err != nil {
			return nil, f.damaged(m.Seq, err.Error())
		}
		digest := r.ComputeDigest()
		chain = link(chain, digest)
		value := make([]byte, rowHeader, rowHeader+len(m.Data))
		putRowHeader(value, r, digest)
		rows[i] = change{key: string(f.view.order.rowKey(nil, r.Key, r.Window)), value: append(value, m.Data...)}
		judged[i] = projection.Proposal{Revision: r.Revision, Digest: digest, Predecessor: r.Predecessor}
		keys[i] = rows[i].key
	}
	if chain != b.Fence.Commit.RecordsDigest {
		return nil, f.damaged(b.FenceSeq, "the revisions before this COMMIT are not those that its recordsDigest names")
	}
	heads := make(map[string]projection.Current, len(keys))
	if err := f.view.heads(keys, func(key string, head projection.Current) { heads[key] = head }); err != nil {
		return nil, err
	}
	for i, p := range judged {
		if verdict := projection.Judge(heads[keys[i]], p, false); verdict != projection.Accepted {
			return nil, f.damaged(b.Messages[i].Seq, fmt.Sprintf("revision %d is %s after revision %d", p.Revision, verdict, heads[keys[i]].Revision))
		}
		heads[keys[i]] = projection.Current{Revision: p.Revision, Digest: p.Digest}
	}
	return rows, nil
}

func (f *follower) damaged(seq uint64, what string) error {
	at := f.view.at()
	return damagef("%s: stream %s, sequence %d: %s; the view reaches to sequence %d and stays there; restore the stream from a backup or start a new generation",
		f.part, at.Stream, seq, what, at.Fence)
}

// ended answers why the reader's channel was closed.
func (f *follower) ended() error {
	if err := f.reader.Err(); err != nil {
		return err
	}
	return errors.New("the reader of the revisions stream ended")
}

package projector

import (
	"context"
	"errors"
	"math"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/core/projection"
	"github.com/tidemark-mesh/tidemark/internal/httpx"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// history answers a page of the ledger: every accepted revision, in the order of the
// revisions stream, which for one window is the order of its revisions.
func (st *stream) history(ctx context.Context, js jetstream.JetStream, q *query) (*reply, error) {
	p := &page{limit: q.limit}
	next := q.cursor
	for ; next.At < len(q.targets); next.At, next.Seq = next.At+1, 0 {
		more, err := st.ledger(ctx, js, q, q.targets[next.At], p, &next.Seq)
		if err != nil {
			return nil, err
		}
		if more {
			return st.answer(q, p, &next), nil
		}
	}
	return st.answer(q, p, nil), nil
}

// ledger reads one generation from sequence seq on until the end as it is now, or until
// the page is full (more); then seq is where to go on.
func (st *stream) ledger(ctx context.Context, js jetstream.JetStream, q *query, j *job, p *page, seq *uint64) (more bool, err error) {
	name := subject.RevisionsStream(st.doc.Name)
	filter := subject.RevisionsOfGeneration(st.doc.Name, j.policy.Job, j.policy.Generation)
	if q.key != "" {
		filter = subject.Revision(st.doc.Name, j.policy.Job, j.policy.Generation, partitionOf(q.key, len(j.units)), q.key)
	}
	given := map[string]uint64{}
	err = journal.ReadRange(ctx, js, name, 0, *seq, math.MaxUint64, func(m journal.Msg) error {
		*seq = m.Seq
		full, err := q.past(j, m, given, p)
		if full {
			return errFull
		}
		return err
	}, filter)
	if errors.Is(err, errFull) {
		return true, nil
	}
	return false, err
}

// errFull ends the reading of a ledger whose page is full.
var errFull = errors.New("the page is full")

// past adds one revision to the page if it matches and was accepted; full tells that it
// did not fit.
//
// Accepted is what the view has: messages of a batch without its COMMIT are void. Such a
// message is above the accepted head, or the same revision stands in the stream again
// with its COMMIT; then one of the two is given out.
func (q *query) past(j *job, m journal.Msg, given map[string]uint64, p *page) (full bool, err error) {
	r, err := revision.ParseJSON(m.Data)
	if err != nil {
		return false, err
	}
	if !q.covers(j, r.Window) {
		return false, nil
	}
	u := j.units[partitionOf(r.Key, len(j.units))]
	v := u.opened()
	if v == nil {
		return false, httpx.Error{Code: codeStarting, Message: "the view of " + u.part.String() + " is not open", Hint: "ask again in a moment"}
	}
	rowKey := string(v.order.rowKey(nil, r.Key, r.Window))
	var accepted uint64
	if err := v.heads([]string{rowKey}, func(_ string, head projection.Current) { accepted = head.Revision }); err != nil {
		return false, err
	}
	if r.Revision > accepted || r.Revision <= given[rowKey] {
		return false, nil
	}
	row, err := renderPast(j.policy, r, m.Data)
	if err != nil {
		return false, err
	}
	if !p.add(row) {
		return true, nil
	}
	given[rowKey] = r.Revision
	return false, nil
}

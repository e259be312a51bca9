package projector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/core/projection"
	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Names of the counts in a projector's COMMIT: proposals by verdict, and the records of
// the windows journal that pass by because the reconciler or the quarantine owns them.
const (
	countAccepted  = "accepted"
	countConflict  = "conflict"
	countDuplicate = "duplicateSame"
	countLate      = "late"
	countRefused   = "refused"
	countWrong     = "wrongGeneration"
)

// headCacheMax bounds the accepted heads that an owner remembers beside the view.
const headCacheMax = 32 << 10

// fenceWriter is what an acceptor needs of a journal.FencedWriter.
type fenceWriter interface {
	Commit(ctx context.Context, messages []journal.Message, c revision.Commit) (uint64, error)
	Written() revision.Commit
}

// acceptor judges the proposals of one windows journal and has them accepted. It belongs
// to one claim: after an error it is thrown away, with all that was not committed.
type acceptor struct {
	part    partition
	view    *view
	writer  fenceWriter
	build   *builder
	metrics *metrics

	committed revision.Commit               // as accepted last
	next      revision.Commit               // what the next COMMIT will say
	heads     map[string]projection.Current // heads looked up or moved since the claim
	batch     batch
	group     []proposal
	verdicts  []projection.Verdict // on the group
	entry     []item               // of the entry under way
	missing   []string             // row keys of an entry whose heads must be looked up
	ended     time.Time            // when the last commit was accepted
	took      time.Duration        // how long that took
	chain     journal.Chain
}

// newAcceptor goes on from what the view says was committed last. epoch is the claim's.
func newAcceptor(p partition, static record.Static, v *view, w fenceWriter, epoch uint64, m *metrics) *acceptor {
	a := &acceptor{
		part: p, view: v, writer: w, build: newBuilder(static, p, v.order, epoch), metrics: m,
		heads: map[string]projection.Current{},
		batch: batch{firings: map[revision.Firing]int{}},
	}
	if c := v.at().Commit; c != nil {
		a.committed = *c
	} else {
		a.committed = freshCommit(p)
	}
	a.committed.Epoch = epoch
	if a.committed.Inputs[0].Seq == 1 {
		a.chain.Start()
	}
	a.next = clone(a.committed)
	return a
}

// clone copies a COMMIT so that positions and counts can move without touching the other.
func clone(c revision.Commit) revision.Commit {
	c.Inputs = append([]revision.InputPosition(nil), c.Inputs...)
	c.Counts = append([]revision.Count(nil), c.Counts...)
	return c
}

// position answers where the windows journal is read on.
func (a *acceptor) position() *revision.InputPosition { return &a.next.Inputs[0] }

// moved tells whether a COMMIT would say anything new.
func (a *acceptor) moved() bool {
	return len(a.batch.messages) > 0 || a.next.Inputs[0] != a.committed.Inputs[0] ||
		a.next.W != a.committed.W || a.next.Wdata != a.committed.Wdata
}

// due tells whether a tick must commit: records always, a position alone not more often
// than a server under load can bear, for it costs as much as a small batch.
func (a *acceptor) due() bool {
	if len(a.batch.messages) > 0 {
		return true
	}
	return a.moved() && a.metrics.clock.Since(a.ended) >= min(positionShare*a.took, positionMost)
}

func (a *acceptor) count(name string, n int) {
	for i := range a.next.Counts {
		if a.next.Counts[i].Name == name {
			a.next.Counts[i].N += uint64(n)
			return
		}
	}
}

// A position alone takes at most one part in positionShare of the server's time for the
// partition, but never waits longer than positionMost.
const (
	positionShare = 10
	positionMost  = second
)

// item is one record of a windows entry.
type item struct {
	index    uint32 // in the entry
	count    string // records that pass by: what they count as
	proposal proposal
}

// take judges one message of the windows journal, committing whenever a batch is full.
func (a *acceptor) take(ctx context.Context, seq uint64, data []byte) error {
	entry, err := journal.DecodeEntry(seq, data)
	if err != nil {
		return a.damaged(seq, 0, err.Error())
	}
	if want := a.position().Seq; seq != want {
		return a.damaged(seq, 0, fmt.Sprintf("the entry at sequence %d was expected next", want))
	}
	if err := a.decode(seq, entry.Records); err != nil {
		return err
	}
	if err := a.lookUp(); err != nil {
		return err
	}
	for i := range a.entry {
		if err := a.step(ctx, seq, &a.entry[i]); err != nil {
			return err
		}
	}
	if len(a.group) > 0 {
		return a.damaged(seq, len(entry.Records), "the entry ends inside a supersession group")
	}
	if err := failpoint.Hit("projector/after-decide"); err != nil {
		return err
	}
	return a.close(seq, entry)
}

// decode rebuilds the proposals of an entry from the place on where the last COMMIT cut it.
func (a *acceptor) decode(seq uint64, records [][]byte) error {
	clear(a.entry)
	a.entry, a.missing = a.entry[:0], a.missing[:0]
	from := int(a.position().Index)
	if from > len(records) {
		return a.damaged(seq, from, fmt.Sprintf("the last COMMIT took in %d records of an entry that has %d", from, len(records)))
	}
	for i := from; i < len(records); i++ {
		it := item{index: uint32(i)}
		switch record.KindOf(records[i]) {
		case record.KindLate:
			it.count = countLate
		case record.KindConflict:
			it.count = countConflict
		case record.KindRefused:
			it.count = countRefused
		default: // Decode names a kind that is unknown
			r, err := record.Decode(records[i])
			if err != nil {
				return a.damaged(seq, i, err.Error())
			}
			if it.proposal, err = a.build.build(&r); err != nil {
				return a.damaged(seq, i, err.Error())
			}
			if _, known := a.heads[it.proposal.change.key]; !known {
				a.missing = append(a.missing, it.proposal.change.key)
			}
		}
		a.entry = append(a.entry, it)
	}
	return nil
}

// lookUp reads the heads of an entry's projections in one go.
func (a *acceptor) lookUp() error {
	if len(a.missing) == 0 {
		return nil
	}
	return a.view.heads(a.missing, func(key string, head projection.Current) { a.heads[key] = head })
}

// step takes in one record: what passes by is counted, a proposal joins its group, and
// a group that is complete is judged.
func (a *acceptor) step(ctx context.Context, seq uint64, it *item) error {
	if it.count != "" {
		if len(a.group) > 0 {
			return a.damaged(seq, int(it.index), "another record stands inside a supersession group")
		}
		a.count(it.count, 1)
		a.position().Index = it.index + 1
		return nil
	}
	a.group = append(a.group, it.proposal)
	if it.proposal.open {
		return nil
	}
	if err := a.settle(ctx, seq, it.index); err != nil {
		return err
	}
	a.position().Index = it.index + 1
	return nil
}

// settle judges a whole group and puts it into the batch, which is written first if the
// group does not fit: groups are accepted whole or not at all. index is the place of the
// group's last record.
func (a *acceptor) settle(ctx context.Context, seq uint64, index uint32) error {
	if why := brokenGroup(a.group); why != "" {
		return a.damaged(seq, int(index), why)
	}
	if !a.batch.fits(a.group) {
		if err := a.commit(ctx); err != nil {
			return err
		}
	}
	if !a.batch.fits(a.group) {
		return a.damaged(seq, int(index), fmt.Sprintf("a supersession group of %d revisions is larger than one atomic batch", len(a.group)))
	}
	verdict, err := a.judge(seq, index)
	if err != nil {
		return err
	}
	switch n := len(a.group); verdict {
	case projection.WrongGeneration:
		a.count(countWrong, n)
	case projection.DuplicateSame:
		a.count(countDuplicate, n)
	default:
		a.admit()
	}
	clear(a.group)
	a.group = a.group[:0]
	return nil
}

// judge answers the verdict on the group, which must be one and the same for all of it.
func (a *acceptor) judge(seq uint64, index uint32) (projection.Verdict, error) {
	retired := a.view.at().Retired
	first := index + 1 - uint32(len(a.group))
	a.verdicts = a.verdicts[:0]
	for i := range a.group {
		p := &a.group[i]
		head := a.heads[p.change.key]
		verdict := projection.Judge(head, p.judged, retired)
		if verdict.Damage() {
			return verdict, a.refused(seq, first+uint32(i), verdict, p, head)
		}
		a.verdicts = append(a.verdicts, verdict)
	}
	if i := mixed(a.verdicts); i > 0 {
		return "", a.damaged(seq, int(first)+i, fmt.Sprintf("%s in a supersession group that begins with %s: it was accepted in part", a.verdicts[i], a.verdicts[0]))
	}
	return a.verdicts[0], nil
}

// admit puts the accepted group into the batch.
func (a *acceptor) admit() {
	for i := range a.group {
		p := &a.group[i]
		a.heads[p.change.key] = projection.Current{Revision: p.judged.Revision, Digest: p.judged.Digest}
		a.batch.add(p)
		a.next.RecordsDigest = link(a.next.RecordsDigest, p.judged.Digest)
	}
	a.count(countAccepted, len(a.group))
	a.next.Records += uint64(len(a.group))
}

// close moves past a whole entry: only now its COMMIT's watermarks hold here too.
func (a *acceptor) close(seq uint64, entry *journal.Entry) error {
	a.position().Seq, a.position().Index = seq+1, 0
	c := entry.Commit
	if c == nil {
		return nil
	}
	if err := a.chain.Next(a.part.windowsStream(), seq, c); err != nil {
		return err
	}
	if len(c.Inputs) == 0 {
		return a.damaged(seq, len(entry.Records), "the COMMIT names no input position")
	}
	a.next.Inputs[1] = c.Inputs[0]
	a.next.W, a.next.Wdata, a.next.OpenFrom, a.next.IDDigest = c.W, c.Wdata, c.OpenFrom, c.IDDigest
	return nil
}

// commitIf commits when there is reason to.
func (a *acceptor) commitIf(ctx context.Context, reason bool) error {
	if !reason {
		return nil
	}
	return a.commit(ctx)
}

// commit writes the batch, which may hold nothing but the position, and applies it to
// the view once it is accepted.
func (a *acceptor) commit(ctx context.Context) error {
	for {
		if err := failpoint.Hit("projector/before-cas"); err != nil {
			return err
		}
		begun := a.metrics.clock.Now()
		seq, err := a.writer.Commit(ctx, a.batch.messages, clone(a.next))
		var control *journal.ControlError
		if errors.As(err, &control) {
			if err := a.control(control); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("commit to %s: %w", a.part.fence(), err)
		}
		if err := failpoint.Hit("projector/after-cas"); err != nil {
			return err
		}
		c := a.writer.Written()
		if err := a.view.apply(journal.FenceRecord{Commit: &c}, seq, a.batch.changes); err != nil {
			return err
		}
		if err := failpoint.Hit("projector/after-apply"); err != nil {
			return err
		}
		a.metrics.accepted(a.part, &c, a.batch.firings, begun)
		a.ended = a.metrics.clock.Now()
		a.took = a.ended.Sub(begun)
		a.committed = clone(c)
		a.batch.reset()
		if len(a.heads) > headCacheMax {
			a.forget()
		}
		return nil
	}
}

// forget empties the cache of heads, but for those of the entry under way.
func (a *acceptor) forget() {
	kept := make(map[string]projection.Current, len(a.entry))
	for i := range a.entry {
		if key := a.entry[i].proposal.change.key; key != "" {
			kept[key] = a.heads[key]
		}
	}
	a.heads = kept
}

// control takes in what somebody else wrote on the fence. If it retires the generation,
// the batch that was not written becomes proposals of a wrong generation.
func (a *acceptor) control(c *journal.ControlError) error {
	if err := a.view.apply(journal.FenceRecord{Control: c.Control}, c.Seq, nil); err != nil {
		return err
	}
	if !a.view.at().Retired {
		return nil
	}
	n := len(a.batch.messages)
	a.count(countAccepted, -n)
	a.count(countWrong, n)
	a.next.Records, a.next.RecordsDigest = a.committed.Records, a.committed.RecordsDigest
	a.batch.reset()
	clear(a.heads)
	return nil
}

// refused is the damage of a proposal that an undamaged windower cannot have written.
func (a *acceptor) refused(seq uint64, index uint32, verdict projection.Verdict, p *proposal, head projection.Current) error {
	return a.damaged(seq, int(index), fmt.Sprintf("%s: revision %d with digest %s is proposed where revision %d with digest %s is accepted, for the projection in %s",
		verdict, p.judged.Revision, p.judged.Digest, head.Revision, head.Digest, p.message.Subject))
}

// damaged halts the partition and names where in both journals it stands.
func (a *acceptor) damaged(seq uint64, index int, what string) error {
	at := a.view.at()
	return damagef("%s: windows journal %s, sequence %d, record %d: %s; accepted up to sequence %d of %s; nothing of this batch was accepted; keep both streams for inspection and start a new generation",
		a.part, a.part.windowsStream(), seq, index, what, at.Fence, at.Stream)
}

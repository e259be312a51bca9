package journal

import (
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// member stamps a message as the server stores one of a batch.
func member(id string, seq int) nats.Header {
	return nats.Header{subject.HeaderBatchID: []string{id}, subject.HeaderBatchSeq: []string{strconv.Itoa(seq)}}
}

// damage is a message as a server leaves it behind, for instance when its disk fills up
// in the middle of a batch.
func damage(seq uint64, subj string, header nats.Header, data []byte) Msg {
	return Msg{Seq: seq, Subject: subj, Header: header, Data: data}
}

func TestVoidPrefixesAreNoBatches(t *testing.T) {
	const fence, row = "tm.x.commits.job.1.00", "tm.x.revisions.job.1.00.key"
	c := numbered(2)
	c.Epoch = 1
	commit, err := EncodeFence(FenceRecord{Commit: &c})
	must(t, err)
	claim, err := EncodeFence(FenceRecord{Claim: &revision.Claim{Epoch: 1, Owner: "o", CoreVersion: 1}})
	must(t, err)
	g := NewBatchGrouper("TM_x_REV", fence)
	var got []*Batch
	for i, m := range []Msg{
		damage(0, row, member("void-1", 1), nil), // disk full, server restarted
		damage(0, row, nil, nil),                 // no batch at all
		damage(0, row, member("void-2", 1), nil),
		damage(0, row, member("void-2", 2), nil),
		damage(0, fence, nil, claim),
		damage(0, row, member("void-3", 1), nil),
		damage(0, row, member("whole", 1), []byte("a")),
		damage(0, row, member("whole", 2), []byte("b")),
		damage(0, fence, member("whole", 3), commit),
	} {
		m.Seq = uint64(i + 1)
		b, err := g.Add(m)
		must(t, err)
		if b != nil {
			got = append(got, b)
		}
	}
	if len(got) != 2 || got[0].Fence.Claim == nil || len(got[0].Messages) != 0 {
		t.Fatalf("%d batches: %+v", len(got), got)
	}
	if b := got[1]; b.Fence.Commit == nil || b.FenceSeq != 9 || len(b.Messages) != 2 || string(b.Messages[1].Data) != "b" {
		t.Fatalf("%+v", b)
	}
}

func TestDamagedBatches(t *testing.T) {
	const fence, row = "f", "r"
	c := numbered(2)
	c.Epoch = 3
	commit, err := EncodeFence(FenceRecord{Commit: &c})
	must(t, err)
	claim, err := EncodeFence(FenceRecord{Claim: &revision.Claim{Epoch: 4, Owner: "o", CoreVersion: 1}})
	must(t, err)
	for name, tc := range map[string]struct {
		want error
		msgs []Msg
	}{
		"head missing":       {ErrBatch, []Msg{damage(2, row, member("a", 2), nil), damage(3, fence, member("a", 3), commit)}},
		"middle missing":     {ErrBatch, []Msg{damage(1, row, member("a", 1), nil), damage(3, fence, member("a", 3), commit)}},
		"all missing":        {ErrBatch, []Msg{damage(3, fence, member("a", 3), commit)}},
		"other batch":        {ErrBatch, []Msg{damage(1, row, member("b", 1), nil), damage(2, fence, member("a", 2), commit)}},
		"commit by itself":   {ErrBatch, []Msg{damage(2, fence, nil, commit)}},
		"behind newer claim": {ErrChain, []Msg{damage(1, fence, nil, claim), damage(2, fence, member("a", 1), commit)}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewBatchGrouper("s", fence)
			for i, m := range tc.msgs {
				_, err := g.Add(m)
				if i < len(tc.msgs)-1 {
					must(t, err)
					continue
				}
				wantIs(t, err, tc.want)
			}
		})
	}
}

// The real server: a batch whose COMMIT never comes leaves nothing, and the next one counts.
func TestPrefixWithoutCommitStoresNothing(t *testing.T) {
	js := shared.conn.JS
	bs, s := revisions(t, js)
	w, _ := claimFenced(t, js, s)
	for _, m := range stamp(s.Stream, append(rows(bs, 0, 90, 5), Message{Subject: s.Fence}))[:5] {
		must(t, js.Conn().PublishMsg(m))
	}
	_, err := w.Commit(deadline(t), rows(bs, 0, 1, 5), numbered(5))
	must(t, err)
	if got, _ := wholeBatches(t, js, bs, 0); got != 5 {
		t.Fatalf("%d rows", got)
	}
}

func TestChainBreakNamesBothPositions(t *testing.T) {
	first, second := numbered(1), numbered(2)
	second.Previous = revision.Digest{7}
	var chain Chain
	must(t, chain.Next("s", 10, &first))
	err := chain.Next("s", 12, &second)
	wantIs(t, err, ErrChain)
	broken := err.(*ChainError)
	if broken.Previous != 10 || broken.Seq != 12 || broken.Stream != "s" {
		t.Fatalf("%+v", broken)
	}
	second.Previous = first.Hash()
	must(t, chain.Next("s", 12, &second))
	chain.Start()
	wantIs(t, chain.Next("s", 2, &second), ErrChain)
	must(t, chain.Next("s", 1, &first))
}

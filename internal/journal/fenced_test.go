package journal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// rows makes n messages of key partition pp, each with the number it counts.
func rows(bs string, pp int, from uint64, n int) []Message {
	header := nats.Header{subject.HeaderSchema: []string{"test"}}
	out := make([]Message, n)
	for i := range out {
		out[i] = Message{
			Subject: subject.Revision(bs, "job", 1, pp, fmt.Sprintf("key %d", i)),
			Header:  header,
			Data:    recordOf(from + uint64(i)),
		}
	}
	return out
}

// wholeBatches reads one partition as a reader must and checks that records count 1, 2,
// 3… in whole batches, under growing epochs.
func wholeBatches(t testing.TB, js jetstream.JetStream, bs string, pp int) (records, epoch uint64) {
	t.Helper()
	fence := subject.Commits(bs, "job", 1, pp)
	group := NewBatchGrouper(subject.RevisionsStream(bs), fence)
	visit := func(m Msg) error {
		b, err := group.Add(m)
		if err != nil || b == nil {
			return err
		}
		if b.Fence.Claim != nil {
			if b.Fence.Claim.Epoch <= epoch {
				return fmt.Errorf("sequence %d: epoch %d after %d", m.Seq, b.Fence.Claim.Epoch, epoch)
			}
			epoch = b.Fence.Claim.Epoch
		}
		for _, row := range b.Messages {
			if records++; binary.BigEndian.Uint64(row.Data) != records {
				return fmt.Errorf("sequence %d: row %d, expected %d", row.Seq, binary.BigEndian.Uint64(row.Data), records)
			}
		}
		if c := b.Fence.Commit; c != nil && (c.Records != records || c.Epoch != epoch) {
			return fmt.Errorf("sequence %d: COMMIT of epoch %d counts %d, expected %d and %d", m.Seq, c.Epoch, c.Records, epoch, records)
		}
		return nil
	}
	must(t, ReadRange(deadline(t), js, subject.RevisionsStream(bs), 0, 1, 1<<62, visit, subject.RevisionsOf(bs, "job", 1, pp), fence))
	return records, epoch
}

func TestFencedBatches(t *testing.T) {
	js := shared.conn.JS
	bs, s := revisions(t, js)
	w, head := claimFenced(t, js, s)
	if head.Epoch != 1 || head.ClaimSeq != 1 || head.Commit != nil {
		t.Fatalf("first claim: %+v", head)
	}
	var n uint64
	for _, size := range []int{3, 0, 1, MaxBatchMessages - 1} {
		messages := rows(bs, 0, n+1, size)
		n += uint64(size)
		_, err := w.Commit(deadline(t), messages, numbered(n))
		must(t, err)
		if size > 0 && len(messages[0].Header) != 1 {
			t.Fatalf("the caller's header was changed: %v", messages[0].Header)
		}
	}
	if got, _ := wholeBatches(t, js, bs, 0); got != n {
		t.Fatalf("%d rows, want %d", got, n)
	}
	_, again := claimFenced(t, js, s)
	c := w.Written()
	if again.Epoch != 2 || again.Commit == nil || again.Commit.Hash() != c.Hash() {
		t.Fatalf("second claim: %+v", again)
	}
	_, err := w.Commit(deadline(t), rows(bs, 0, n+1, 2), numbered(n+2))
	wantIs(t, err, ErrFenced)
	_, err = w.Commit(deadline(t), nil, numbered(n))
	wantIs(t, err, ErrFenced)
	if got, _ := wholeBatches(t, js, bs, 0); got != n {
		t.Fatalf("%d rows, want %d", got, n)
	}
}

func TestFencedBounds(t *testing.T) {
	js := shared.conn.JS
	bs, s := revisions(t, js)
	w, _ := claimFenced(t, js, s)
	_, err := w.Commit(deadline(t), rows(bs, 0, 1, MaxBatchMessages), numbered(1))
	wantIs(t, err, ErrTooLarge)
	big := rows(bs, 0, 1, 8)
	for i := range big {
		big[i].Data = make([]byte, MaxGroupBytes/8)
	}
	_, err = w.Commit(deadline(t), big, numbered(1))
	wantIs(t, err, ErrTooLarge)
	// As much as the bound allows, by the callers' own arithmetic.
	room := MaxGroupBytes - CommitReserve
	var full []Message
	for {
		m := rows(bs, 0, uint64(len(full)+1), 1)[0]
		m.Data = append(m.Data, make([]byte, 8000)...)
		if room -= MessageBytes(s.Stream, m); room < 0 {
			break
		}
		full = append(full, m)
	}
	_, err = w.Commit(deadline(t), full, numbered(uint64(len(full))))
	must(t, err)
	if got, _ := wholeBatches(t, js, bs, 0); got != uint64(len(full)) {
		t.Fatalf("%d rows, want %d", got, len(full))
	}
}

// A batch in which a foreign fence subject takes part must not pass unseen.
func TestFencedRefusesItsFenceAsARow(t *testing.T) {
	js := shared.conn.JS
	_, s := revisions(t, js)
	w, _ := claimFenced(t, js, s)
	if _, err := w.Commit(deadline(t), []Message{{Subject: s.Fence}}, numbered(1)); err == nil {
		t.Fatal("taken")
	}
}

func TestFencedClaimFindsACommitFarBack(t *testing.T) {
	js := shared.conn.JS
	bs, s := revisions(t, js)
	w, _ := claimFenced(t, js, s)
	_, err := w.Commit(deadline(t), rows(bs, 0, 1, 1), numbered(1))
	must(t, err)
	at := w.Written()
	// Another partition writes a lot, and claims come and go.
	other := s
	other.Fence = subject.Commits(bs, "job", 1, 1)
	neighbour, _ := claimFenced(t, js, other)
	for i := range uint64(3) {
		_, err := neighbour.Commit(deadline(t), rows(bs, 1, i*500+1, 500), numbered((i+1)*500))
		must(t, err)
	}
	for range 3 {
		claimFenced(t, js, s)
	}
	_, head := claimFenced(t, js, s)
	if head.Epoch != 5 || head.Commit == nil || head.Commit.Hash() != at.Hash() {
		t.Fatalf("%+v", head)
	}
}

func TestFencedLostAnswers(t *testing.T) {
	js := shared.conn.JS
	bs, s := revisions(t, js)
	w, _ := claimFenced(t, js, s)
	var heard, sent atomic.Int64
	real := w.pub.nc.PublishMsg
	w.pub.heard = func(*nats.Msg) bool {
		if heard.Add(1)%5 == 0 {
			w.pub.status <- nats.RECONNECTING
			return false
		}
		return true
	}
	w.pub.send = func(m *nats.Msg) error {
		switch sent.Add(1) % 37 {
		case 9: // lost: the server sees a hole in the batch
			return nil
		case 20: // doubled: so it does then
			return errors.Join(real(m), real(m))
		}
		return real(m)
	}
	for n := uint64(0); n < 150; n += 3 {
		_, err := w.Commit(deadline(t), rows(bs, 0, n+1, 3), numbered(n+3))
		must(t, err)
	}
	if got, _ := wholeBatches(t, js, bs, 0); got != 150 {
		t.Fatalf("%d rows", got)
	}
}

func TestFencedControl(t *testing.T) {
	js := shared.conn.JS
	bs, s := revisions(t, js)
	w, _ := claimFenced(t, js, s)
	_, err := w.Commit(deadline(t), rows(bs, 0, 1, 2), numbered(2))
	must(t, err)
	at, err := AppendFenceControl(deadline(t), js, s.Stream, s.Fence, []byte(`{"retire":true}`))
	must(t, err)
	_, err = w.Commit(deadline(t), rows(bs, 0, 3, 2), numbered(4))
	var control *ControlError
	if !errors.As(err, &control) || control.Seq != at || string(control.Control) != `{"retire":true}` {
		t.Fatalf("got %v", err)
	}
	if got, _ := wholeBatches(t, js, bs, 0); got != 2 {
		t.Fatalf("%d rows: something of the batch was written", got)
	}
	_, err = w.Commit(deadline(t), rows(bs, 0, 3, 2), numbered(4))
	must(t, err)
	if got, _ := wholeBatches(t, js, bs, 0); got != 4 {
		t.Fatalf("%d rows", got)
	}
}

func TestFencedEndsWithItsContext(t *testing.T) {
	js := shared.conn.JS
	bs, s := revisions(t, js)
	w, _ := claimFenced(t, js, s)
	w.pub.send = func(*nats.Msg) error { return nil }
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := w.Commit(ctx, rows(bs, 0, 1, 1), numbered(1))
	wantIs(t, err, ErrUnsettled)
	wantIs(t, err, context.DeadlineExceeded)
	_, err = w.Commit(deadline(t), rows(bs, 0, 1, 1), numbered(1))
	wantIs(t, err, ErrUnsettled)
}

func TestFencedOnAStreamWithoutBatches(t *testing.T) {
	js := shared.conn.JS
	_, s := revisions(t, js)
	_, err := js.CreateStream(deadline(t), jetstream.StreamConfig{Name: "plain", Subjects: []string{"plain.>"}})
	must(t, err)
	s.Stream, s.Fence = "plain", "plain.fence"
	_, _, err = ClaimFenced(deadline(t), js, s)
	wantIs(t, err, ErrRefused)
}

// Partitions share the stream; two claimers fight for each of them.
func TestFightingFencedClaimers(t *testing.T) {
	js := shared.conn.JS
	bs, base := revisions(t, js)
	stop := time.Now().Add(3 * time.Second)
	var group sync.WaitGroup
	for i := range 4 {
		pp := i % 2
		s := base
		s.Fence = subject.Commits(bs, "job", 1, pp)
		s.Owner = fmt.Sprintf("claimer-%d", i)
		group.Go(func() {
			for time.Now().Before(stop) {
				w, head, err := ClaimFenced(deadline(t), js, s)
				if errors.Is(err, ErrContended) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				var n uint64
				if head.Commit != nil {
					n = head.Commit.Records
				}
				for err == nil && time.Now().UnixNano()%23 != 0 {
					size := int(time.Now().UnixNano() % 50)
					_, err = w.Commit(deadline(t), rows(bs, pp, n+1, size), numbered(n+uint64(size)))
					n += uint64(size)
				}
				w.Close()
				if err != nil && !errors.Is(err, ErrFenced) {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	for pp := range 2 {
		n, epoch := wholeBatches(t, js, bs, pp)
		t.Logf("partition %d: %d rows over %d epochs", pp, n, epoch)
		if n == 0 || epoch < 2 {
			t.Fatal("no fight took place")
		}
	}
}

package journal

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

func TestClaimFindsTheLastCommit(t *testing.T) {
	js := shared.conn.JS
	s := windows(t, js)
	w, head := claimWriter(t, js, s)
	if head.Epoch != 1 || head.Commit != nil || head.ClaimSeq != MaxPipeline || head.Identity.Created == 0 {
		t.Fatalf("first claim: %+v", head)
	}
	p := send(t, w, 1)
	at, err := result(t, p)
	must(t, err)
	if at != head.ClaimSeq+1 {
		t.Fatalf("first commit at %d", at)
	}
	must(t, w.Close())
	_, again := claimWriter(t, js, s)
	c := p.Commit()
	if again.Epoch != 2 || again.CommitAt != at || again.Commit == nil || again.Commit.Hash() != c.Hash() {
		t.Fatalf("second claim: %+v", again)
	}
	_, third := claimWriter(t, js, s)
	if third.Epoch != 3 || third.CommitAt != at {
		t.Fatalf("third claim: %+v", third)
	}
}

func TestCommitsArePipelined(t *testing.T) {
	js := shared.conn.JS
	s := windows(t, js)
	w, head := claimWriter(t, js, s)
	var all []*Pending
	for n := uint64(1); n <= 500; n++ {
		all = append(all, send(t, w, n))
	}
	for i, p := range all {
		seq, err := result(t, p)
		must(t, err)
		if want := head.ClaimSeq + uint64(i) + 1; seq != want {
			t.Fatalf("commit %d at %d, want %d", i+1, seq, want)
		}
	}
	must(t, w.Close())
	if n, _ := wholeJournal(t, js, s.Stream); n != 500 {
		t.Fatalf("%d commits", n)
	}
}

func TestCommitBounds(t *testing.T) {
	js := shared.conn.JS
	w, _ := claimWriter(t, js, windows(t, js))
	_, err := w.Commit(deadline(t), [][]byte{make([]byte, MaxCommitBytes)}, numbered(1))
	wantIs(t, err, ErrTooLarge)
	p, err := w.Commit(deadline(t), [][]byte{make([]byte, MaxCommitBytes-2048)}, numbered(1))
	must(t, err)
	_, err = result(t, p)
	must(t, err)
	must(t, w.Close())
	_, err = w.Commit(deadline(t), nil, numbered(2))
	wantIs(t, err, ErrClosed)
}

func TestConcurrentClaimers(t *testing.T) {
	js := shared.conn.JS
	s := windows(t, js)
	const claimers = 6
	writers := make([]*Writer, claimers)
	heads := make([]Head, claimers)
	var group sync.WaitGroup
	for i := range claimers {
		group.Go(func() {
			mine := s
			mine.Owner = fmt.Sprintf("claimer-%d", i)
			for {
				var err error
				writers[i], heads[i], err = ClaimWriter(deadline(t), js, mine)
				if errors.Is(err, ErrContended) {
					continue
				}
				if err != nil {
					t.Error(err)
				}
				return
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
	owners := map[uint64]bool{}
	for i, head := range heads {
		if owners[head.Epoch] {
			t.Fatalf("two owners of epoch %d", head.Epoch)
		}
		owners[head.Epoch] = true
		defer writers[i].Abort()
	}
	won := 0
	for i, w := range writers {
		_, err := result(t, send(t, w, 1))
		if heads[i].Epoch == claimers {
			must(t, err)
			won++
			continue
		}
		wantIs(t, err, ErrFenced)
		var fenced *FencedError
		if !errors.As(err, &fenced) || fenced.Epoch <= heads[i].Epoch {
			t.Fatalf("%v", err)
		}
		wantIs(t, w.Err(), ErrFenced)
	}
	if won != 1 {
		t.Fatalf("%d owners", won)
	}
	wholeJournal(t, js, s.Stream)
}

// A zombie whose commits were held up on the way must not land anything behind the claim
// that fenced it: not even the commit whose expected sequence the claim made true.
func TestZombieWithCommitsInFlightIsRefused(t *testing.T) {
	js := shared.conn.JS
	s := windows(t, js)
	zombie, _ := claimWriter(t, js, s)
	_, err := result(t, send(t, zombie, 1))
	must(t, err)

	var mu sync.Mutex
	var held []*nats.Msg
	paused := true
	real := zombie.pub.nc.PublishMsg
	zombie.pub.send = func(m *nats.Msg) error {
		mu.Lock()
		defer mu.Unlock()
		if !paused {
			return real(m)
		}
		held = append(held, m)
		return nil
	}
	var flying []*Pending
	for n := uint64(2); n < 2+MaxPipeline; n++ {
		flying = append(flying, send(t, zombie, n))
	}
	waitFor(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(held) == MaxPipeline })

	owner, head := claimWriter(t, js, s)
	if head.Commit == nil || head.Commit.Records != 1 {
		t.Fatalf("new owner saw %+v", head.Commit)
	}
	mu.Lock()
	paused = false
	for _, m := range held {
		must(t, real(m))
	}
	mu.Unlock()
	for _, p := range flying {
		_, err := result(t, p)
		wantIs(t, err, ErrFenced)
	}
	for n := uint64(2); n < 30; n++ {
		send(t, owner, n)
	}
	must(t, owner.Close())
	if n, epoch := wholeJournal(t, js, s.Stream); n != 29 || epoch != 2 {
		t.Fatalf("%d commits, epoch %d", n, epoch)
	}
}

func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	for ctx := deadline(t); !ok(); time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatal("condition never came true")
		}
	}
}

// Answers are lost at random: commits that were written must be found, not written again.
func TestLostAcknowledgements(t *testing.T) {
	js := shared.conn.JS
	s := windows(t, js)
	w, _ := claimWriter(t, js, s)
	var heard, swallowed atomic.Int64
	w.pub.heard = func(*nats.Msg) bool {
		if heard.Add(1)%7 == 0 {
			swallowed.Add(1)
			// What no answer comes to is found out by time; do not wait for it here.
			w.pub.status <- nats.RECONNECTING
			return false
		}
		return true
	}
	for n := uint64(1); n <= 200; n++ {
		send(t, w, n)
	}
	must(t, w.Close())
	if n, _ := wholeJournal(t, js, s.Stream); n != 200 || swallowed.Load() == 0 {
		t.Fatalf("%d commits, %d answers lost", n, swallowed.Load())
	}
}

// Messages are lost, doubled and delayed on the way.
func TestUnreliableSending(t *testing.T) {
	js := shared.conn.JS
	s := windows(t, js)
	w, _ := claimWriter(t, js, s)
	real := w.pub.nc.PublishMsg
	var sent atomic.Int64
	var late *nats.Msg
	w.pub.send = func(m *nats.Msg) error {
		switch sent.Add(1) % 11 {
		case 3:
			w.pub.status <- nats.RECONNECTING
			return nil
		case 5:
			return errors.Join(real(m), real(m))
		case 7:
			late = m
			w.pub.status <- nats.RECONNECTING
			return nil
		case 9:
			if late != nil {
				return errors.Join(real(m), real(late))
			}
		}
		return real(m)
	}
	for n := uint64(1); n <= 200; n++ {
		send(t, w, n)
	}
	must(t, w.Close())
	if n, _ := wholeJournal(t, js, s.Stream); n != 200 {
		t.Fatalf("%d commits", n)
	}
}

func TestControlRecordsOfOthers(t *testing.T) {
	js := shared.conn.JS
	s := windows(t, js)
	var mu sync.Mutex
	var seen []string
	s.OnControl = func(_ uint64, control []byte) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, string(control))
	}
	w, _ := claimWriter(t, js, s)
	turn := make(chan int, 100)
	var wrote []string
	var group sync.WaitGroup
	group.Go(func() {
		for i := range turn {
			control := fmt.Sprintf(`{"n":%d}`, i)
			if _, err := AppendControl(deadline(t), js, s.Stream, s.Subject, []byte(control)); err != nil {
				t.Error(err)
				return
			}
			wrote = append(wrote, control)
		}
	})
	for n := uint64(1); n <= 300; n++ {
		send(t, w, n)
		if n%5 == 0 {
			turn <- int(n)
		}
	}
	close(turn)
	group.Wait()
	_, err := result(t, send(t, w, 301))
	must(t, err)
	must(t, w.Close())
	if n, _ := wholeJournal(t, js, s.Stream); n != 301 {
		t.Fatalf("%d commits", n)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(wrote) == 0 || strings.Join(seen, "") != strings.Join(wrote, "") {
		t.Fatalf("wrote %d control records, the owner was told of %d", len(wrote), len(seen))
	}
}

// A foreign COMMIT of our epoch is damage, not something to write behind.
func TestForeignCommitHaltsTheWriter(t *testing.T) {
	js := shared.conn.JS
	s := windows(t, js)
	w, _ := claimWriter(t, js, s)
	c := numbered(1)
	c.Epoch = w.Epoch()
	c.Previous = revision.Digest{1}
	data, err := EncodeEntry(&Entry{Records: [][]byte{recordOf(1)}, Commit: &c})
	must(t, err)
	put(t, js, s.Subject, data, nil)
	_, err = result(t, send(t, w, 1))
	wantIs(t, err, ErrChain)
}

func TestWriterOnARecreatedStream(t *testing.T) {
	js := shared.conn.JS
	s := windows(t, js)
	w, _ := claimWriter(t, js, s)
	must(t, js.DeleteStream(deadline(t), s.Stream))
	config := windows(t, js) // another stream, for its configuration
	stream, err := js.Stream(deadline(t), config.Stream)
	must(t, err)
	again := stream.CachedInfo().Config
	again.Name, again.Subjects = s.Stream, []string{s.Subject}
	_, err = js.CreateStream(deadline(t), again)
	must(t, err)
	_, err = result(t, send(t, w, 1))
	wantIs(t, err, ErrIdentity)
}

func TestClaimErrors(t *testing.T) {
	js := shared.conn.JS
	_, _, err := ClaimWriter(deadline(t), js, Settings{Stream: "TM_none", Subject: "tm.none"})
	if err == nil || !strings.Contains(err.Error(), "TM_none") {
		t.Fatalf("%v", err)
	}
	s := windows(t, js)
	put(t, js, s.Subject, []byte{0xff}, nil)
	_, _, err = ClaimWriter(deadline(t), js, s)
	wantIs(t, err, errDamaged)
	s = windows(t, js)
	s.Subject = windows(t, js).Subject // belongs to another stream
	_, _, err = ClaimWriter(deadline(t), js, s)
	wantIs(t, err, ErrRefused)
}

func TestAbortFailsWhatIsInFlight(t *testing.T) {
	js := shared.conn.JS
	w, _ := claimWriter(t, js, windows(t, js))
	w.pub.send = func(*nats.Msg) error { return nil }
	p := send(t, w, 1)
	w.Abort()
	_, err := result(t, p)
	wantIs(t, err, ErrClosed)
	must(t, w.Close())
}

// Three claimers fight for a journal while each commits as fast as it can.
func TestFightingClaimersKeepTheJournalWhole(t *testing.T) {
	js := shared.conn.JS
	s := windows(t, js)
	stop := time.Now().Add(4 * time.Second)
	var group sync.WaitGroup
	for i := range 3 {
		group.Go(func() {
			mine := s
			mine.Owner = fmt.Sprintf("claimer-%d", i)
			for time.Now().Before(stop) {
				w, head, err := ClaimWriter(deadline(t), js, mine)
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
				for range 1 + time.Now().UnixNano()%97 {
					n++
					if _, err := w.Commit(deadline(t), [][]byte{recordOf(n)}, numbered(n)); err != nil {
						if !errors.Is(err, ErrFenced) {
							t.Error(err)
						}
						break
					}
				}
				if err := w.Close(); err != nil && !errors.Is(err, ErrFenced) {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	commits, epoch := wholeJournal(t, js, s.Stream)
	t.Logf("%d commits over %d epochs", commits, epoch)
	if commits == 0 || epoch < 3 {
		t.Fatal("no fight took place")
	}
}

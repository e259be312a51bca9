package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

func strict(t testing.TB, js jetstream.JetStream) Settings {
	t.Helper()
	s := windows(t, js)
	s.Strict = true
	return s
}

func control(t testing.TB, js jetstream.JetStream, s Settings, text string) uint64 {
	t.Helper()
	seq, err := AppendControl(deadline(t), js, s.Stream, s.Subject, []byte(text))
	must(t, err)
	return seq
}

// wantControl says that p failed for the control record text at seq.
func wantControl(t testing.TB, p *Pending, seq uint64, text string) {
	t.Helper()
	_, err := result(t, p)
	var unseen *ControlError
	if !errors.As(err, &unseen) || unseen.Seq != seq || string(unseen.Control) != text {
		t.Fatalf("got %v, want the control record at %d", err, seq)
	}
}

func TestStrictCommitFailsOncePerUnseenControlRecord(t *testing.T) {
	js := shared.conn.JS
	s := strict(t, js)
	w, _ := claimWriter(t, js, s)
	_, err := result(t, send(t, w, 1))
	must(t, err)
	first, second := control(t, js, s, `{"pause":1}`), control(t, js, s, `{"pause":2}`)
	wantControl(t, send(t, w, 2), first, `{"pause":1}`)
	wantControl(t, send(t, w, 2), second, `{"pause":2}`)
	at, err := result(t, send(t, w, 2))
	must(t, err)
	if at != second+1 {
		t.Fatalf("commit at %d, the last control record is at %d", at, second)
	}
	must(t, w.Close())
	if n, _ := wholeJournal(t, js, s.Stream); n != 2 {
		t.Fatalf("%d commits", n)
	}
}

func TestStrictWriterGoesOnBehindWhatItsCallerObserved(t *testing.T) {
	js := shared.conn.JS
	s := strict(t, js)
	w, head := claimWriter(t, js, s)
	last := control(t, js, s, `{"pause":1}`)
	var unseen []Msg
	must(t, ReadRange(deadline(t), js, s.Stream, 0, 1, last, func(m Msg) error {
		if m.Seq > head.ClaimSeq+1 {
			unseen = append(unseen, m)
			return nil
		}
		return w.Observe(deadline(t), m)
	}))
	wantIs(t, w.Observe(deadline(t), unseen[1]), errGap)
	for _, m := range unseen {
		must(t, w.Observe(deadline(t), m))
	}
	_, err := result(t, send(t, w, 1))
	must(t, err)
	must(t, w.Close())
	if n, _ := wholeJournal(t, js, s.Stream); n != 1 {
		t.Fatalf("%d commits", n)
	}
}

func TestObservedClaimEndsAStrictWriter(t *testing.T) {
	js := shared.conn.JS
	s := strict(t, js)
	w, head := claimWriter(t, js, s)
	_, newer := claimWriter(t, js, s)
	var err error
	must(t, ReadRange(deadline(t), js, s.Stream, 0, head.ClaimSeq+1, newer.ClaimSeq, func(m Msg) error {
		err = w.Observe(deadline(t), m)
		return nil
	}))
	wantIs(t, err, ErrFenced)
	<-w.Ended()
	wantIs(t, w.Err(), ErrFenced)
	_, err = w.Commit(deadline(t), nil, numbered(1))
	wantIs(t, err, ErrFenced)
}

func TestPipelinedWriterObservesNothing(t *testing.T) {
	js := shared.conn.JS
	w, head := claimWriter(t, js, windows(t, js))
	if err := w.Observe(deadline(t), Msg{Seq: head.ClaimSeq + 1}); err == nil {
		t.Fatal("it observed")
	}
}

// A commit is held up on the way while a control record lands: it fails, and what was held
// up is refused when it comes at last, even in the middle of later commits.
func TestStrictCommitHeldUpOnTheWayNeverLandsBehindAControlRecord(t *testing.T) {
	js := shared.conn.JS
	s := strict(t, js)
	w, _ := claimWriter(t, js, s)
	var mu sync.Mutex
	var held []*nats.Msg
	paused := true
	real := w.pub.nc.PublishMsg
	w.pub.send = func(m *nats.Msg) error {
		mu.Lock()
		defer mu.Unlock()
		if !paused {
			return real(m)
		}
		held = append(held, m)
		return nil
	}
	p := send(t, w, 1)
	waitFor(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(held) == 1 })
	seq := control(t, js, s, `{"pause":1}`)
	w.pub.status <- nats.RECONNECTING
	wantControl(t, p, seq, `{"pause":1}`)
	mu.Lock()
	paused = false
	mu.Unlock()
	for n := uint64(1); n <= 20; n++ {
		late := *held[0]
		late.Reply = ""
		must(t, real(&late))
		_, err := result(t, send(t, w, n))
		must(t, err)
	}
	must(t, w.Close())
	if n, _ := wholeJournal(t, js, s.Stream); n != 20 {
		t.Fatalf("%d commits", n)
	}
}

// A commit that was accepted before a control record is no failure of that one, whatever
// became of its answer; the next commit is.
func TestStrictCommitAcceptedBeforeAControlRecordCounts(t *testing.T) {
	js := shared.conn.JS
	s := strict(t, js)
	w, head := claimWriter(t, js, s)
	var deaf atomic.Bool
	deaf.Store(true)
	w.pub.heard = func(*nats.Msg) bool { return !deaf.Load() }
	p := send(t, w, 1)
	waitFor(t, func() bool {
		last, err := LastSeq(deadline(t), js, s.Stream, "")
		return err == nil && last == head.ClaimSeq+1
	})
	seq := control(t, js, s, `{"pause":1}`)
	w.pub.status <- nats.RECONNECTING
	at, err := result(t, p)
	must(t, err)
	if at != head.ClaimSeq+1 {
		t.Fatalf("commit at %d", at)
	}
	deaf.Store(false)
	wantControl(t, send(t, w, 2), seq, `{"pause":1}`)
	_, err = result(t, send(t, w, 2))
	must(t, err)
	must(t, w.Close())
	wholeJournal(t, js, s.Stream)
}

func TestStrictZombieIsFencedWhateverComesLate(t *testing.T) {
	js := shared.conn.JS
	s := strict(t, js)
	zombie, _ := claimWriter(t, js, s)
	_, err := result(t, send(t, zombie, 1))
	must(t, err)
	held := make(chan *nats.Msg, 1)
	real := zombie.pub.nc.PublishMsg
	zombie.pub.send = func(m *nats.Msg) error { held <- m; return nil }
	p := send(t, zombie, 2)
	late := <-held
	zombie.pub.send = real
	owner, _ := claimWriter(t, js, s)
	control(t, js, s, `{"pause":1}`)
	must(t, real(late))
	_, err = result(t, p)
	wantIs(t, err, ErrFenced)
	_, err = result(t, send(t, owner, 2))
	var unseen *ControlError
	if !errors.As(err, &unseen) {
		t.Fatalf("got %v", err)
	}
	_, err = result(t, send(t, owner, 2))
	must(t, err)
	must(t, owner.Close())
	if n, epoch := wholeJournal(t, js, s.Stream); n != 2 || epoch != 2 {
		t.Fatalf("%d commits, epoch %d", n, epoch)
	}
}

// The law of the effects journal, under everything at once: control records from two
// processes, lost answers, messages that are lost and that come twice and late, and owners
// that take over. Each commit says how many control records its owner had seen; in the
// journal as many stand before it.
func TestStrictCommitsHaveSeenEveryControlRecordBeforeThem(t *testing.T) {
	js := shared.conn.JS
	s := strict(t, js)
	var writers sync.WaitGroup
	// The others write while commits are made, not while an owner claims: claims can lose.
	due := make(chan struct{}, 2)
	for i := range 2 {
		writers.Go(func() {
			n := 0
			for range due {
				n++
				if _, err := AppendControl(deadline(t), js, s.Stream, s.Subject, fmt.Appendf(nil, `{"by":%d,"n":%d}`, i, n)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	written, failed := uint64(0), 0
	for round := range uint64(5) {
		owner := newStrictOwner(t, js, s, round)
		owner.due = due
		for range 25 {
			failed += owner.commit(written + 1)
			written++
		}
		// Every other owner is left as a zombie.
		if round%2 == 0 {
			must(t, owner.w.Close())
		}
	}
	close(due)
	writers.Wait()
	if failed == 0 {
		t.Fatal("no commit ever met a control record")
	}
	controls := uint64(0)
	for _, e := range entries(t, js, s.Stream) {
		if e.Control != nil {
			controls++
		}
		if e.Commit == nil {
			continue
		}
		if seen := binary.BigEndian.Uint64(e.Records[0]); seen != controls {
			t.Fatalf("the commit at %d had seen %d control records, %d stand before it", e.Seq, seen, controls)
		}
	}
}

// strictOwner counts the control records that it knows of.
type strictOwner struct {
	t      *testing.T
	js     jetstream.JetStream
	s      Settings
	w      *Writer
	next   uint64 // to be read
	seen   uint64
	chance *rand.Rand
	due    chan<- struct{} // asks others for a control record
}

func newStrictOwner(t *testing.T, js jetstream.JetStream, s Settings, seed uint64) *strictOwner {
	o := &strictOwner{t: t, js: js, s: s, next: 1, chance: rand.New(rand.NewPCG(seed, 3))}
	w, head := claimWriter(t, js, s)
	o.w = w
	o.read(head.ClaimSeq)
	trouble := rand.New(rand.NewPCG(seed, 4))
	real := w.pub.nc.PublishMsg
	w.pub.send = func(m *nats.Msg) error {
		switch trouble.IntN(8) {
		case 0: // lost
			w.pub.status <- nats.RECONNECTING
			return nil
		case 1: // twice
			again := *m
			again.Reply = ""
			return errors.Join(real(m), real(&again))
		}
		return real(m)
	}
	w.pub.heard = func(*nats.Msg) bool {
		if trouble.IntN(8) == 0 {
			w.pub.status <- nats.RECONNECTING
			return false
		}
		return true
	}
	return o
}

// read takes in the journal up to seq.
func (o *strictOwner) read(seq uint64) {
	must(o.t, ReadRange(deadline(o.t), o.js, o.s.Stream, 0, o.next, seq, func(m Msg) error {
		e, err := DecodeEntry(m.Seq, m.Data)
		if err == nil && e.Control != nil {
			o.seen++
		}
		o.next = m.Seq + 1
		return errors.Join(err, o.w.Observe(deadline(o.t), m))
	}))
}

// commit writes one commit and answers how often it failed for a control record.
func (o *strictOwner) commit(n uint64) (failed int) {
	for {
		select {
		case o.due <- struct{}{}:
		default:
		}
		if o.chance.IntN(2) == 0 {
			last, err := LastSeq(deadline(o.t), o.js, o.s.Stream, "")
			must(o.t, err)
			o.read(last)
		}
		c := revision.NewCommit()
		c.Records = n
		p, err := o.w.Commit(deadline(o.t), [][]byte{recordOf(o.seen)}, c)
		must(o.t, err)
		seq, err := result(o.t, p)
		var unseen *ControlError
		switch {
		case errors.As(err, &unseen):
			failed++
			o.seen++
			o.next = unseen.Seq + 1
		case err != nil:
			o.t.Fatal(err)
		default:
			o.next = seq + 1
			return failed
		}
	}
}

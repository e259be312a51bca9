package projector

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/core/projection"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// readRevisions answers all revisions in the stream of a partition.
func readRevisions(t testing.TB, conn *natsio.Conn, p partition) []*revision.Revision {
	t.Helper()
	var list []*revision.Revision
	must(t, journal.ReadRange(testContext(t), conn.JS, subject.RevisionsStream(p.stream), 0, 1, 1<<62, func(m journal.Msg) error {
		r, err := revision.ParseJSON(m.Data)
		list = append(list, r)
		if got := m.Header.Get(subject.HeaderSchema); got != revision.Schema {
			t.Errorf("header %s of sequence %d is %q", subject.HeaderSchema, m.Seq, got)
		}
		return err
	}, p.revisions()))
	return list
}

func countOf(c revision.Commit, name string) uint64 {
	for _, n := range c.Counts {
		if n.Name == name {
			return n.N
		}
	}
	return 0
}

func TestAcceptance(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	p := newPartition(t, conn, 1)
	a := newAuthor(t, conn, p, staticOf(p))
	n := newNode(t, conn, p, t.TempDir())
	stop := n.own(testContext(t))
	defer n.closeView()

	a.write(base+hour, a.propose("eu-west", base, 10), a.propose("Zürich 2.x", base, 3))
	seq := a.write(base+2*hour, a.late("eu-west"), a.propose("eu-west", base, 9), a.propose("eu-west", base+hour, 1))
	c := n.awaitWindows(seq)
	must(t, stop())

	list := readRevisions(t, conn, p)
	if len(list) != 4 || list[2].Revision != 2 || list[2].Predecessor.Digest != list[0].ComputeDigest() || list[2].Epoch != 1 {
		t.Fatalf("revisions: %+v", list)
	}
	if c.W != base+2*hour || c.Wdata != base+hour+hour/2 || c.Inputs[1].Seq != 3 || c.Records != 4 ||
		countOf(c, countAccepted) != 4 || countOf(c, countLate) != 1 {
		t.Fatalf("commit: %s", c.AppendJSON(nil))
	}
	var chain revision.Digest
	for _, r := range list {
		chain = link(chain, r.ComputeDigest())
	}
	if chain != c.RecordsDigest {
		t.Fatal("recordsDigest is not the chain over the accepted digests")
	}
}

// A COMMIT follows the windows journal even when it brings no revision.
func TestPositionMovesWithoutRevisions(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	p := newPartition(t, conn, 1)
	a := newAuthor(t, conn, p, staticOf(p))
	n := newNode(t, conn, p, t.TempDir())
	stop := n.own(testContext(t))
	defer n.closeView()
	c := n.awaitWindows(a.write(base + hour))
	must(t, stop())
	if c.W != base+hour || c.Records != 0 || c.Inputs[1].Seq != 2 {
		t.Fatalf("commit: %s", c.AppendJSON(nil))
	}
}

// An entry larger than a batch is cut between records; a restart goes on behind the cut
// and never says a watermark before the whole entry is accepted.
func TestEntryLargerThanABatch(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	p := newPartition(t, conn, 1)
	a := newAuthor(t, conn, p, staticOf(p))
	records := make([][]byte, 2500)
	for i := range records {
		records[i] = a.propose(fmt.Sprintf("k%05d", i), base, i)
	}
	seq := a.write(base+hour, records...)
	dir := t.TempDir()
	n := newNode(t, conn, p, dir)
	defer n.closeView()
	ctx := testContext(t)
	stopAfter := &stopper{after: 1}
	first := n.acceptorFor(ctx, stopAfter)
	entry := readEntry(t, conn, p, seq)
	first.position().Seq = seq // the claim's entries before it carry nothing
	if err := first.take(ctx, seq, entry); !errors.Is(err, errStopped) {
		t.Fatalf("take: %v", err)
	}
	at := n.opened().at()
	if at.Commit.Inputs[0].Seq != seq || at.Commit.Inputs[0].Index == 0 || at.Commit.W != envelope.MinEventTime {
		t.Fatalf("cut commit: %s", at.Commit.AppendJSON(nil))
	}
	stop := n.own(ctx)
	c := n.awaitWindows(seq)
	must(t, stop())
	if c.W != base+hour || c.Records != 2500 || len(readRevisions(t, conn, p)) != 2500 {
		t.Fatalf("commit: %s", c.AppendJSON(nil))
	}
}

// A windower that says the same again after a crash changes nothing.
func TestDuplicateSame(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	p := newPartition(t, conn, 1)
	a := newAuthor(t, conn, p, staticOf(p))
	n := newNode(t, conn, p, t.TempDir())
	stop := n.own(testContext(t))
	defer n.closeView()
	same := a.propose("eu-west", base, 10)
	a.write(base+hour, same, same)
	c := n.awaitWindows(a.write(base+hour, same))
	must(t, stop())
	if got := len(readRevisions(t, conn, p)); got != 1 || countOf(c, countDuplicate) != 2 || c.Records != 1 {
		t.Fatalf("%d revisions, commit: %s", got, c.AppendJSON(nil))
	}
}

func TestDamageHalts(t *testing.T) {
	t.Parallel()
	cases := map[projection.Verdict]func(a *author) []byte{
		projection.GapAhead: func(a *author) []byte {
			return a.record(a.revision("eu-west", base, 12, func(r *revision.Revision) { r.Revision++ }))
		},
		projection.DuplicateDifferent: func(a *author) []byte {
			return a.record(a.revision("eu-west", base, 12, func(r *revision.Revision) { r.Revision = 2 }))
		},
		projection.Stale: func(a *author) []byte {
			return a.record(a.revision("eu-west", base, 12, func(r *revision.Revision) { r.Revision, r.Predecessor = 1, nil }))
		},
		"digest": func(a *author) []byte {
			r := a.propose("eu-west", base, 12)
			return []byte(strings.Replace(string(r), "12.50", "99.50", 1))
		},
	}
	for name, damage := range cases {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			conn := connect(t)
			p := newPartition(t, conn, 1)
			a := newAuthor(t, conn, p, staticOf(p))
			n := newNode(t, conn, p, t.TempDir())
			f := n.follower(testContext(t))
			defer n.closeView()
			a.write(base+hour, a.propose("eu-west", base, 10))
			a.write(base+hour, a.propose("eu-west", base, 11))
			seq := a.write(base+hour, a.propose("us-east", base, 1), damage(a))
			err := n.unit.own(testContext(t), f, make(chan struct{}))
			if err == nil || !halts(err) || !strings.Contains(err.Error(), string(name)) {
				t.Fatalf("error: %v", err)
			}
			for _, position := range []string{fmt.Sprintf("sequence %d, record 1", seq), "accepted up to sequence"} {
				if !strings.Contains(err.Error(), position) {
					t.Errorf("%q does not name %q", err, position)
				}
			}
			for _, r := range readRevisions(t, conn, p) {
				if r.Key == "us-east" {
					t.Error("a record of the damaged batch was accepted")
				}
			}
		})
	}
}

// An owner that slept through a newer claim is refused, and what it had in hand is
// accepted once, by the new one.
func TestZombieIsRefused(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	p := newPartition(t, conn, 1)
	a := newAuthor(t, conn, p, staticOf(p))
	ctx := testContext(t)
	zombie := newNode(t, conn, p, t.TempDir())
	defer zombie.closeView()
	old := zombie.acceptorFor(ctx, nil)
	seq := a.write(base+hour, a.propose("eu-west", base, 10))
	old.position().Seq = seq
	must(t, old.take(ctx, seq, readEntry(t, conn, p, seq)))

	heir := newNode(t, conn, p, t.TempDir())
	defer heir.closeView()
	stop := heir.own(ctx)
	heir.awaitWindows(seq)
	if err := old.commit(ctx); !errors.Is(err, journal.ErrFenced) {
		t.Fatalf("the zombie's commit: %v", err)
	}
	must(t, stop())
	if list := readRevisions(t, conn, p); len(list) != 1 || list[0].Epoch != 2 {
		t.Fatalf("revisions: %+v", list)
	}
	zombie.follower(ctx)
	if x, y := contents(t, zombie.opened()), contents(t, heir.opened()); x != y {
		t.Fatalf("views differ:\n%s\n%s", x, y)
	}
}

// A CONTROL record that retires the generation stops acceptance at once, even of a batch
// that was judged before it.
func TestRetiredGeneration(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	p := newPartition(t, conn, 1)
	a := newAuthor(t, conn, p, staticOf(p))
	ctx := testContext(t)
	n := newNode(t, conn, p, t.TempDir())
	defer n.closeView()
	stop := n.own(ctx)
	n.awaitWindows(a.write(base+hour, a.propose("eu-west", base, 10)))
	_, err := journal.AppendFenceControl(ctx, conn.JS, subject.RevisionsStream(p.stream), p.fence(), []byte(`{"retire":true}`))
	must(t, err)
	c := n.awaitWindows(a.write(base+2*hour, a.propose("eu-west", base, 11), a.propose("us-east", base, 2)))
	must(t, stop())
	if got := len(readRevisions(t, conn, p)); got != 1 || countOf(c, countWrong) != 2 || countOf(c, countAccepted) != 1 || c.Records != 1 {
		t.Fatalf("%d revisions, commit: %s", got, c.AppendJSON(nil))
	}
	if !n.opened().at().Retired {
		t.Fatal("the view does not know that the generation is retired")
	}
}

// readEntry answers the bytes of one windows entry.
func readEntry(t testing.TB, conn *natsio.Conn, p partition, seq uint64) (data []byte) {
	t.Helper()
	must(t, journal.ReadRange(testContext(t), conn.JS, p.windowsStream(), 0, seq, seq, func(m journal.Msg) error {
		data = m.Data
		return nil
	}))
	return data
}

var errStopped = errors.New("stopped by the test")

// stopper lets some commits pass and then fails, like a process that dies.
type stopper struct {
	fenceWriter
	after int
}

func (s *stopper) Commit(ctx context.Context, messages []journal.Message, c revision.Commit) (uint64, error) {
	if s.after == 0 {
		return 0, errStopped
	}
	s.after--
	return s.fenceWriter.Commit(ctx, messages, c)
}

// acceptorFor claims the fence and answers an acceptor that the test drives by hand.
func (n *node) acceptorFor(ctx context.Context, s *stopper) *acceptor {
	n.t.Helper()
	f := n.follower(ctx)
	w, head, err := journal.ClaimFenced(ctx, n.js, journal.FencedSettings{Stream: subject.RevisionsStream(n.part.stream), Fence: n.part.fence(), Owner: n.owner})
	must(n.t, err)
	n.t.Cleanup(w.Close)
	must(n.t, f.upTo(ctx, head.ClaimSeq))
	if s == nil {
		return newAcceptor(n.part, n.static, n.opened(), w, head.Epoch, n.metrics)
	}
	s.fenceWriter = w
	return newAcceptor(n.part, n.static, n.opened(), s, head.Epoch, n.metrics)
}

// A view made anew from the revisions stream equals the owner's byte for byte, also
// after its file was torn.
func TestViewIsRebuilt(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	p := newPartition(t, conn, 1)
	a := newAuthor(t, conn, p, staticOf(p))
	ctx := testContext(t)
	owner := newNode(t, conn, p, t.TempDir())
	stop := owner.own(ctx)
	var seq uint64
	for i := range 20 {
		var records [][]byte
		for k := range 50 {
			records = append(records, a.propose(fmt.Sprintf("k\x00%d", (k*7+i)%60), base+envelope.EventTime(k%3)*hour, i+k))
		}
		seq = a.write(base+envelope.EventTime(i)*hour, records...)
	}
	owner.awaitWindows(seq)
	must(t, stop())
	want := contents(t, owner.opened())
	owner.closeView()
	if got := dump(t, owner.file); got != want {
		t.Fatal("the file does not hold what the view held")
	}

	other := newNode(t, conn, p, t.TempDir())
	other.follower(ctx)
	if got := contents(t, other.opened()); got != want {
		t.Fatal("the view of a follower differs from the owner's")
	}
	other.closeView()

	raw, err := os.ReadFile(owner.file)
	must(t, err)
	for i := 16 << 10; i < min(len(raw), 256<<10); i++ { // pages of something else
		raw[i] = byte(i)
	}
	must(t, os.WriteFile(owner.file, raw, 0o600))
	owner.follower(ctx)
	if aside := owner.opened().aside; aside == nil {
		t.Fatal("the torn file was not set aside")
	}
	if got := contents(t, owner.opened()); got != want {
		t.Fatal("the rebuilt view differs")
	}
	owner.closeView()

	v, err := openView(owner.file, "orders/hourly@1/77", byWindow, clock.System(), flushAfter) // as if copied there
	must(t, err)
	if v.aside == nil || v.at().Fence != 0 {
		t.Fatalf("the view of another partition is taken: aside %v, place %+v", v.aside, v.at())
	}
	must(t, v.close())
}

// A view whose file cannot be written ends the cycle at once, so that it is opened again:
// while nothing comes in nobody else would notice, and queries would fail for good.
func TestViewThatCannotBeWrittenIsNoticedWhileIdle(t *testing.T) {
	t.Parallel()
	for name, accepting := range map[string]bool{"owner": true, "follower": false} {
		t.Run(name, func(t *testing.T) {
			conn := connect(t)
			p := newPartition(t, conn, 1)
			a := newAuthor(t, conn, p, staticOf(p))
			ctx := testContext(t)
			n := newNode(t, conn, p, t.TempDir())
			f, done := n.follower(ctx), make(chan error, 1)
			if accepting {
				go func() { done <- n.unit.own(ctx, f, nil) }()
				n.awaitWindows(a.write(base+hour, a.propose("eu-west", base, 10)))
			} else {
				go func() { done <- n.unit.follow(ctx, f, nil) }()
			}
			v := n.opened()
			must(t, v.store.Close())
			v.mu.Lock()
			v.dirty = true
			v.mu.Unlock()
			poke(v.wake)
			select {
			case err := <-done:
				if err == nil || !strings.Contains(err.Error(), "write view") {
					t.Errorf("the cycle ended with %v", err)
				}
			case <-ctx.Done():
				t.Error("nobody noticed")
			}
		})
	}
}

// A revisions stream that was made anew stops the partition.
func TestReplacedStreamHalts(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	p := newPartition(t, conn, 1)
	a := newAuthor(t, conn, p, staticOf(p))
	ctx := testContext(t)
	n := newNode(t, conn, p, t.TempDir())
	stop := n.own(ctx)
	n.awaitWindows(a.write(base+hour, a.propose("eu-west", base, 10)))
	must(t, stop())
	n.closeView()
	must(t, conn.JS.DeleteStream(ctx, subject.RevisionsStream(p.stream)))
	must(t, natsio.ProvisionStream(ctx, conn.JS, p.stream, 1, 1))
	err := n.cycle(ctx)
	defer n.closeView()
	if !errors.Is(err, journal.ErrIdentity) || !halts(err) || !strings.Contains(err.Error(), n.file) {
		t.Fatalf("error: %v", err)
	}
}

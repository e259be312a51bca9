//go:build heavy

package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// cluster is three servers whose journals have three replicas.
type cluster struct {
	t       *testing.T
	dir     string
	servers []*natsio.Embedded
	members []natsio.Member
	urls    string
	conn    *natsio.Conn
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir()}
	var err error
	c.servers, c.members, err = natsio.EmbedCluster(deadline(t), c.dir, 3)
	must(t, err)
	t.Cleanup(func() {
		for _, e := range c.servers {
			e.Shutdown()
		}
	})
	c.urls = c.servers[0].URL() + "," + c.servers[1].URL() + "," + c.servers[2].URL()
	c.conn = c.connect()
	return c
}

func (c *cluster) connect() *natsio.Conn {
	c.t.Helper()
	conn, err := natsio.Connect(deadline(c.t), natsio.Options{Server: c.urls, Timeout: 60 * time.Second})
	must(c.t, err)
	c.t.Cleanup(conn.Close)
	return conn
}

// journals provisions one windows journal and one shared stream on three replicas.
func (c *cluster) journals() (string, Settings, FencedSettings) {
	c.t.Helper()
	bs := fmt.Sprintf("c%d", shared.serial.Add(1))
	must(c.t, natsio.ProvisionPolicy(deadline(c.t), c.conn.JS, bs, "job", 1, 1, 3))
	must(c.t, natsio.ProvisionStream(deadline(c.t), c.conn.JS, bs, 1, 3))
	return bs, Settings{Stream: subject.WindowsStream(bs, "job", 1, 0), Subject: subject.Windows(bs, "job", 1, 0), Owner: "test"},
		FencedSettings{Stream: subject.RevisionsStream(bs), Fence: subject.Commits(bs, "job", 1, 0), Owner: "test"}
}

// stepDown asks the leader of a stream to resign; without a leader nobody answers.
func (c *cluster) stepDown(stream string) {
	_, _ = c.conn.NC.Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil, 2*time.Second)
}

// unrest makes leaders resign every now and then until it is stopped.
func (c *cluster) unrest(every time.Duration, streams ...string) (stop func() int) {
	ended, done := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				c.stepDown(streams[n%len(streams)])
				n++
			case <-ended:
				done <- n
				return
			}
		}
	}()
	return func() int { close(ended); return <-done }
}

// load commits to both kinds of journal until it is stopped; no error may surface.
type load struct {
	w               *Writer
	f               *FencedWriter
	commits, rows   uint64
	slowest         atomic.Int64 // nanoseconds of one batch
	stop            context.CancelFunc
	group           sync.WaitGroup
	landed, batched atomic.Int64
}

func (c *cluster) load(bs string, s Settings, f FencedSettings) *load {
	c.t.Helper()
	l := &load{}
	l.w, _ = claimWriter(c.t, c.conn.JS, s)
	l.f, _ = claimFenced(c.t, c.conn.JS, f)
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.group.Go(func() {
		for ctx.Err() == nil {
			p, err := l.w.Commit(context.Background(), [][]byte{recordOf(l.commits + 1)}, numbered(l.commits+1))
			if err != nil {
				c.t.Errorf("commit %d: %v", l.commits+1, err)
				return
			}
			l.commits++
			go func() {
				<-p.Done()
				if _, err := p.Result(); err != nil {
					c.t.Errorf("a commit: %v", err)
				}
				l.landed.Add(1)
			}()
		}
	})
	l.group.Go(func() {
		for size := uint64(1); ctx.Err() == nil; size = size%300 + 37 {
			begun := time.Now()
			if _, err := l.f.Commit(context.Background(), rows(bs, 0, l.rows+1, int(size)), numbered(l.rows+size)); err != nil {
				c.t.Errorf("batch at row %d: %v", l.rows+1, err)
				return
			}
			l.slowest.Store(max(l.slowest.Load(), int64(time.Since(begun))))
			l.rows += size
			l.batched.Add(1)
		}
	})
	return l
}

// whole ends the load and checks that exactly what was handed in stands in the journals.
func (l *load) whole(c *cluster, bs string, s Settings) {
	c.t.Helper()
	l.stop()
	l.group.Wait()
	must(c.t, l.w.Close())
	if n, _ := wholeJournal(c.t, c.conn.JS, s.Stream); n != l.commits {
		c.t.Errorf("%d commits in the journal, %d handed in", n, l.commits)
	}
	if n, _ := wholeBatches(c.t, c.conn.JS, bs, 0); n != l.rows {
		c.t.Errorf("%d rows in the stream, %d handed in", n, l.rows)
	}
	c.t.Logf("%d commits, %d rows, slowest batch %v", l.commits, l.rows, time.Duration(l.slowest.Load()).Round(time.Millisecond))
}

// Leaders resign between commits and inside of them.
func TestReplicasLeadersResignUnderCommits(t *testing.T) {
	c := newCluster(t)
	bs, s, f := c.journals()
	l := c.load(bs, s, f)
	stop := c.unrest(150*time.Millisecond, s.Stream, f.Stream)
	waitFor(t, func() bool { return l.landed.Load() > 500 && l.batched.Load() > 100 })
	n := stop()
	l.whole(c, bs, s)
	t.Logf("%d resignations were asked for", n)
}

// Two of three servers are away for 30 s: there is no leader. Callers wait and see no error.
func TestReplicasLeaderlessForThirtySeconds(t *testing.T) {
	c := newCluster(t)
	bs, s, f := c.journals()
	l := c.load(bs, s, f)
	waitFor(t, func() bool { return l.landed.Load() > 20 && l.batched.Load() > 5 })
	c.servers[1].Shutdown()
	c.servers[2].Shutdown()
	<-time.After(30 * time.Second) // the fault itself
	var group sync.WaitGroup
	for _, i := range []int{1, 2} {
		group.Go(func() {
			var err error
			if c.servers[i], err = c.members[i].Start(deadline(t)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	landed, batched := l.landed.Load(), l.batched.Load()
	waitFor(t, func() bool { return l.landed.Load() > landed+20 && l.batched.Load() > batched+5 })
	if slowest := time.Duration(l.slowest.Load()); slowest < 20*time.Second {
		t.Errorf("the slowest batch took %v: there was always a leader", slowest)
	}
	l.whole(c, bs, s)
}

// Claimers of both kinds fight over three replicas whose leaders resign.
func TestReplicasFightingClaimers(t *testing.T) {
	c := newCluster(t)
	bs, s, f := c.journals()
	stop := c.unrest(700*time.Millisecond, s.Stream, f.Stream)
	until := time.Now().Add(12 * time.Second)
	tolerable := func(err error) bool {
		return err == nil || errors.Is(err, ErrContended) || errors.Is(err, ErrFenced) || errors.Is(err, ErrClosed)
	}
	var group sync.WaitGroup
	for i := range 3 {
		conn := c.connect()
		group.Go(func() {
			mine := s
			mine.Owner = fmt.Sprintf("writer-%d", i)
			for time.Now().Before(until) {
				w, head, err := ClaimWriter(deadline(t), conn.JS, mine)
				if err != nil {
					if !tolerable(err) {
						t.Error(err)
					}
					continue
				}
				n := uint64(0)
				if head.Commit != nil {
					n = head.Commit.Records
				}
				for range 20 + time.Now().UnixNano()%40 {
					n++
					if _, err = w.Commit(deadline(t), [][]byte{recordOf(n)}, numbered(n)); err != nil {
						break
					}
				}
				if err := errors.Join(err, w.Close()); !tolerable(err) {
					t.Error(err)
				}
			}
		})
		group.Go(func() {
			mine := f
			mine.Owner = fmt.Sprintf("fenced-%d", i)
			for time.Now().Before(until) {
				w, head, err := ClaimFenced(deadline(t), conn.JS, mine)
				if err != nil {
					if !tolerable(err) {
						t.Error(err)
					}
					continue
				}
				n := uint64(0)
				if head.Commit != nil {
					n = head.Commit.Records
				}
				for range 1 + time.Now().UnixNano()%10 {
					size := int(time.Now().UnixNano()%50) + 1
					if _, err = w.Commit(deadline(t), rows(bs, 0, n+1, size), numbered(n+uint64(size))); err != nil {
						break
					}
					n += uint64(size)
				}
				w.Close()
				if !tolerable(err) {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	stop()
	commits, epochs := wholeJournal(t, c.conn.JS, s.Stream)
	n, fences := wholeBatches(t, c.conn.JS, bs, 0)
	t.Logf("%d commits over %d epochs, %d rows over %d", commits, epochs, n, fences)
	if commits == 0 || epochs < 3 || n == 0 || fences < 3 {
		t.Fatal("no fight took place")
	}
}

// A zombie's commits that were held up on the way are refused on three replicas as well,
// whoever leads by then; and answers that get lost are found again.
func TestReplicasZombieAndLostAnswers(t *testing.T) {
	c := newCluster(t)
	_, s, _ := c.journals()
	js := c.conn.JS
	zombie, _ := claimWriter(t, js, s)
	_, err := result(t, send(t, zombie, 1))
	must(t, err)
	var mu sync.Mutex
	var held []*nats.Msg
	real := zombie.pub.nc.PublishMsg
	zombie.pub.send = func(m *nats.Msg) error {
		mu.Lock()
		defer mu.Unlock()
		held = append(held, m)
		return nil
	}
	for n := uint64(2); n < 2+MaxPipeline; n++ {
		send(t, zombie, n)
	}
	waitFor(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(held) >= MaxPipeline })
	owner, _ := claimWriter(t, js, s)
	c.stepDown(s.Stream)
	mu.Lock()
	for _, m := range held {
		must(t, real(m))
	}
	mu.Unlock()
	var heard, swallowed atomic.Int64
	owner.pub.heard = func(*nats.Msg) bool {
		if heard.Add(1)%7 == 0 {
			swallowed.Add(1)
			owner.pub.status <- nats.RECONNECTING // do not wait for the time-out here
			return false
		}
		return true
	}
	for n := uint64(2); n <= 150; n++ {
		send(t, owner, n)
	}
	must(t, owner.Close())
	if n, epoch := wholeJournal(t, js, s.Stream); n != 150 || epoch != 2 || swallowed.Load() == 0 {
		t.Fatalf("%d commits, epoch %d, %d answers lost", n, epoch, swallowed.Load())
	}
}

// A stream that is deleted and made anew ends reader, writer and claimers with its name.
func TestReplicasRecreatedStream(t *testing.T) {
	c := newCluster(t)
	bs, s, _ := c.journals()
	js := c.conn.JS
	w, head := claimWriter(t, js, s)
	for n := uint64(1); n <= 20; n++ {
		_, err := result(t, send(t, w, n))
		must(t, err)
	}
	id, err := Identify(deadline(t), js, s.Stream)
	must(t, err)
	r := read(t, js, s.Stream, head.Identity.Created, 1)
	for range id.Last {
		_, err := r.Next(deadline(t))
		must(t, err)
	}
	must(t, js.DeleteStream(deadline(t), s.Stream))
	must(t, natsio.ProvisionPolicy(deadline(t), js, bs, "job", 1, 1, 3))
	p, err := w.Commit(deadline(t), [][]byte{recordOf(21)}, numbered(21))
	if err == nil {
		_, err = result(t, p)
	}
	if err == nil {
		t.Error("a commit landed in the stream that was made anew")
	}
	t.Logf("the writer: %v", err)
	_, err = Read(deadline(t), js, s.Stream, head.Identity.Created, 5)
	wantIs(t, err, ErrIdentity)
	// The old reader's feed is gone with its stream.
	_, err = r.Next(deadline(t))
	wantIs(t, err, ErrIdentity)
}

// All three servers come back with older copies of their stores, as from a backup: what was
// read before is not there any more. The reader says so; the writer that was there goes no further.
func TestReplicasComeBackOlder(t *testing.T) {
	c := newCluster(t)
	_, s, _ := c.journals()
	s.RetryFor = 10 * time.Second // a deposed leader may answer like that for a while
	js := c.conn.JS
	w, head := claimWriter(t, js, s)
	for n := uint64(1); n <= 20; n++ {
		send(t, w, n)
	}
	must(t, w.Close())
	c.each(func(i int) { c.servers[i].Shutdown() })
	c.each(func(i int) { must(t, os.CopyFS(c.store(i)+".copy", os.DirFS(c.store(i)))) })
	c.start()
	w, _ = claimWriter(t, js, s)
	r := read(t, js, s.Stream, head.Identity.Created, 1)
	for n := uint64(21); n <= 60; n++ {
		_, err := result(t, send(t, w, n))
		must(t, err)
	}
	last, err := LastSeq(deadline(t), js, s.Stream, "")
	must(t, err)
	for range last {
		_, err := r.Next(deadline(t))
		must(t, err)
	}
	c.each(func(i int) { c.servers[i].Shutdown() })
	c.each(func(i int) {
		must(t, os.RemoveAll(c.store(i)))
		must(t, os.Rename(c.store(i)+".copy", c.store(i)))
	})
	c.start()
	_, err = r.Next(deadline(t))
	wantIs(t, err, ErrIdentity)
	p, err := w.Commit(deadline(t), [][]byte{recordOf(61)}, numbered(61))
	if err == nil {
		_, err = result(t, p)
	}
	wantIs(t, err, ErrUnsettled)
	wantIs(t, err, errBehind)
	wholeJournal(t, js, s.Stream)
}

func (c *cluster) store(i int) string { return filepath.Join(c.dir, fmt.Sprintf("n%d", i+1)) }

func (c *cluster) each(do func(i int)) {
	for i := range c.servers {
		do(i)
	}
}

// start starts every server at once and waits for a leader.
func (c *cluster) start() {
	c.t.Helper()
	var group sync.WaitGroup
	c.each(func(i int) {
		group.Go(func() {
			var err error
			if c.servers[i], err = c.members[i].Start(deadline(c.t)); err != nil {
				c.t.Error(err)
			}
		})
	})
	group.Wait()
	c.connect().Close()
}

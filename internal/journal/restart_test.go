package journal

import (
	"context"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/natsio"
)

// restartable is a server that can be stopped and started on one directory and port.
type restartable struct {
	t       testing.TB
	options natsio.EmbeddedOptions
	server  *natsio.Embedded
}

func newRestartable(t testing.TB) (*restartable, *natsio.Conn) {
	t.Helper()
	r := &restartable{t: t, options: natsio.EmbeddedOptions{Dir: t.TempDir()}}
	r.start()
	address, err := url.Parse(r.server.URL())
	must(t, err)
	r.options.Port, err = strconv.Atoi(address.Port())
	must(t, err)
	t.Cleanup(func() { r.server.Shutdown() })
	c, err := natsio.Connect(deadline(t), natsio.Options{Server: r.server.URL()})
	must(t, err)
	t.Cleanup(c.Close)
	return r, c
}

func (r *restartable) start() {
	r.t.Helper()
	server, err := natsio.Embed(deadline(r.t), r.options)
	must(r.t, err)
	r.server = server
}

func TestServerRestartsUnderPipelinedCommits(t *testing.T) {
	server, c := newRestartable(t)
	s := windows(t, c.JS)
	w, _ := claimWriter(t, c.JS, s)
	reader := read(t, c.JS, s.Stream, 0, 1)
	stop := make(chan struct{})
	sent := make(chan uint64)
	go func() {
		var n uint64
		defer func() { sent <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := w.Commit(context.Background(), [][]byte{recordOf(n + 1)}, numbered(n+1)); err != nil {
				t.Error(err)
				return
			}
			n++
		}
	}()
	next := uint64(1)
	follow := func(n int) {
		for range n {
			take(t, reader, next)
			next++
		}
	}
	for range 3 {
		follow(200)
		server.server.Shutdown()
		server.start()
		follow(200)
	}
	close(stop)
	n := <-sent
	must(t, w.Close())
	if got, _ := wholeJournal(t, c.JS, s.Stream); got != n {
		t.Fatalf("%d commits in the journal, %d handed in", got, n)
	}
	reader.Close()
	reader = read(t, c.JS, s.Stream, reader.Identity().Created, next)
	follow(int(n + MaxPipeline + 1 - next))
}

func TestServerRestartsUnderFencedCommits(t *testing.T) {
	server, c := newRestartable(t)
	bs, s := revisions(t, c.JS)
	w, _ := claimFenced(t, c.JS, s)
	stop := make(chan struct{})
	sent := make(chan uint64)
	go func() {
		var n uint64
		defer func() { sent <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := w.Commit(context.Background(), rows(bs, 0, n+1, 20), numbered(n+20)); err != nil {
				t.Error(err)
				return
			}
			n += 20
		}
	}()
	for range 3 {
		var before uint64
		waitFor(t, func() (ok bool) {
			var err error
			before, err = LastSeq(deadline(t), c.JS, s.Stream, s.Fence)
			return err == nil
		})
		waitFor(t, func() bool {
			now, err := LastSeq(deadline(t), c.JS, s.Stream, s.Fence)
			return err == nil && now > before+200
		})
		server.server.Shutdown()
		server.start()
	}
	close(stop)
	n := <-sent
	if got, _ := wholeBatches(t, c.JS, bs, 0); got != n {
		t.Fatalf("%d rows in the stream, %d handed in", got, n)
	}
}

// A server that stays away ends the writer after RetryFor, and the claim after it works.
func TestServerStaysAway(t *testing.T) {
	server, c := newRestartable(t)
	s := windows(t, c.JS)
	s.RetryFor = 300 * time.Millisecond
	w, _ := claimWriter(t, c.JS, s)
	_, err := result(t, send(t, w, 1))
	must(t, err)
	server.server.Shutdown()
	_, err = result(t, send(t, w, 2))
	wantIs(t, err, ErrUnsettled)
	server.start()
	s.RetryFor = 20 * time.Second
	w, head := claimWriter(t, c.JS, s)
	if head.Epoch != 2 || head.Commit == nil || head.Commit.Records != 1 {
		t.Fatalf("%+v", head)
	}
	_, err = result(t, send(t, w, 2))
	must(t, err)
	wholeJournal(t, c.JS, s.Stream)
}

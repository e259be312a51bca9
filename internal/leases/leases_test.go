package leases

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

var shared struct{ conn *natsio.Conn }

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "leases")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		server, err := natsio.Embed(context.Background(), natsio.EmbeddedOptions{Dir: dir, Port: -1})
		if err != nil {
			panic(err)
		}
		defer server.Shutdown()
		if shared.conn, err = server.Connect(context.Background(), "tests"); err != nil {
			panic(err)
		}
		defer shared.conn.Close()
		if err := natsio.Provision(context.Background(), shared.conn.JS, 1); err != nil {
			panic(err)
		}
		return m.Run()
	}())
}

const ttl = 12 * time.Second

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// holder answers a Holder on its own fake clock.
func holder(instance string) (*Holder, *clock.Fake) {
	fake := clock.NewFake(time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC))
	h := New(shared.conn.JS, instance, "http://"+instance, ttl)
	h.clk = fake
	return h, fake
}

func acquire(t *testing.T, h *Holder, key string) *Lease {
	t.Helper()
	l, err := h.Acquire(deadline(t), key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Release)
	return l
}

func acquireLater(t *testing.T, h *Holder, key string) <-chan *Lease {
	t.Helper()
	got := make(chan *Lease, 1)
	ctx := deadline(t)
	go func() {
		l, err := h.Acquire(ctx, key)
		if err != nil {
			t.Error(err)
			return
		}
		got <- l
	}()
	return got
}

func key(t *testing.T) string { return subject.Lease("test", "orders", t.Name()) }

func revision(t *testing.T, key string) uint64 {
	t.Helper()
	kv, err := shared.conn.JS.KeyValue(deadline(t), subject.LeaseBucket)
	if err != nil {
		t.Fatal(err)
	}
	e, err := kv.Get(deadline(t), key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	return e.Revision()
}

func renewed(t *testing.T, key string, after uint64) uint64 {
	t.Helper()
	for ctx := deadline(t); ; {
		if now := revision(t, key); now > after {
			return now
		}
		if ctx.Err() != nil {
			t.Fatal("the lease is not renewed")
		}
	}
}

func isLost(l *Lease) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

func TestContenderWaitsForSilence(t *testing.T) {
	a, clockA := holder("a")
	b, clockB := holder("b")
	first := acquire(t, a, key(t))
	got := acquireLater(t, b, key(t))
	for range 6 { // two ttl of a holder that renews
		clockB.AwaitTimers(1)
		clockA.AwaitTimers(1)
		before := revision(t, key(t))
		clockA.Advance(ttl / 3)
		renewed(t, key(t), before)
		clockB.Advance(ttl / 3)
	}
	select {
	case <-got:
		t.Fatal("a renewed lease was taken")
	default:
	}
	if who, err := b.Who(deadline(t), key(t)); err != nil || who != "http://a" {
		t.Fatalf("who: %q, %v", who, err)
	}
	// a stands still (a long pause), b sees silence.
	var second *Lease
	for second == nil {
		clockB.AwaitTimers(1)
		clockB.Advance(b.poll())
		select {
		case second = <-got:
		default:
		}
	}
	t.Cleanup(second.Release)
	if isLost(first) {
		t.Fatal("a knew while it stood still")
	}
	clockA.AwaitTimers(1)
	clockA.Advance(ttl / 3)
	<-first.Lost()
	if who, err := a.Who(deadline(t), key(t)); err != nil || who != "http://b" {
		t.Fatalf("who: %q, %v", who, err)
	}
}

func TestWallClockJumpsMeanNothing(t *testing.T) {
	a, clockA := holder("a")
	b, clockB := holder("b")
	first := acquire(t, a, key(t))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := b.Acquire(ctx, key(t))
		ended <- err
	}()
	for range 3 {
		clockB.AwaitTimers(1)
		clockB.JumpWall(24 * time.Hour)
		clockA.JumpWall(-24 * time.Hour)
		clockB.Advance(b.poll())
	}
	clockB.AwaitTimers(1)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if isLost(first) {
		t.Fatal("lost by a wall clock")
	}
}

func TestReleaseGivesBackAtOnce(t *testing.T) {
	a, _ := holder("a")
	b, clockB := holder("b")
	first := acquire(t, a, key(t))
	got := acquireLater(t, b, key(t))
	clockB.AwaitTimers(1)
	first.Release()
	first.Release() // twice is fine
	<-first.Lost()
	if who, err := b.Who(deadline(t), key(t)); err != nil || who != "" {
		t.Fatalf("who: %q, %v", who, err)
	}
	clockB.Advance(b.poll())
	(<-got).Release()
}

func TestSameInstanceRetakesAtOnce(t *testing.T) {
	before, clockBefore := holder("a")
	first := acquire(t, before, key(t))
	after, _ := holder("a")
	second := acquire(t, after, key(t)) // no clock was moved
	clockBefore.AwaitTimers(1)
	clockBefore.Advance(ttl / 3)
	<-first.Lost()
	first.Release()
	if isLost(second) || revision(t, key(t)) == 0 {
		t.Fatal("the process before gave the lease of the one after away")
	}
}

func TestOneOfManyContendersWins(t *testing.T) {
	const n = 8
	got := make(chan *Lease, n)
	ctx, cancel := context.WithCancel(deadline(t))
	clocks := make([]*clock.Fake, n)
	for i := range n {
		h, fake := holder(string(rune('a' + i)))
		clocks[i] = fake
		go func() {
			if l, err := h.Acquire(ctx, key(t)); err == nil {
				got <- l
			}
		}()
	}
	first := <-got
	for _, c := range clocks {
		c.AwaitTimers(1) // renewing, or waiting for the holder's silence
	}
	cancel()
	if len(got) != 0 {
		t.Fatal("two holders")
	}
	first.Release()
}

func TestLostWhenTheServerIsAway(t *testing.T) {
	server, err := natsio.Embed(deadline(t), natsio.EmbeddedOptions{Dir: t.TempDir(), Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	c, err := server.Connect(deadline(t), "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := natsio.Provision(deadline(t), c.JS, 1); err != nil {
		t.Fatal(err)
	}
	h, fake := holder("a")
	h.js = c.JS
	l := acquire(t, h, key(t))
	server.Shutdown()
	fake.AwaitTimers(1)
	fake.Advance(ttl / 3)
	fake.AwaitTimers(1)
	if isLost(l) {
		t.Fatal("lost after the first failure")
	}
	for !isLost(l) {
		fake.Advance(ttl / 3)
	}
}

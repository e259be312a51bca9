package leases

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

var shared struct {
	conn   *natsio.Conn
	serial atomic.Int64
}

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

// party is a role of a test's own with its processes, each on a fake clock.
type party struct {
	t     *testing.T
	js    jetstream.JetStream
	role  string
	nodes []*node
}

// node is one process.
type node struct {
	*Holder
	party  *party
	clock  *clock.Fake
	frozen bool
	leave  context.CancelFunc
	ended  chan struct{}
	leases map[string]chan *Lease
}

func newParty(t *testing.T) *party {
	return &party{t: t, js: shared.conn.JS, role: fmt.Sprintf("role%d", shared.serial.Add(1))}
}

// join starts a process that wants the units.
func (p *party) join(instance string, units ...string) *node {
	p.t.Helper()
	fake := clock.NewFake(time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC))
	h, err := New(Options{JS: p.js, Role: p.role, Instance: instance, Address: "http://" + instance, TTL: ttl, Clock: fake, Registry: prometheus.NewRegistry()})
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := &node{Holder: h, party: p, clock: fake, leave: cancel, ended: make(chan struct{}), leases: map[string]chan *Lease{}}
	go func() {
		defer close(n.ended)
		h.Run(ctx)
	}()
	p.nodes = append(p.nodes, n)
	p.t.Cleanup(func() {
		cancel()
		for until := time.Now().Add(20 * time.Second); time.Now().Before(until); {
			select {
			case <-n.ended:
				return
			case <-time.After(time.Millisecond):
				fake.Advance(ttl) // leaving waits at most a while for leases that the test kept
			}
		}
		p.t.Errorf("%s did not end", instance)
	})
	p.eventually("the first heartbeat of "+instance, func() bool { return n.counts0() })
	for _, u := range units {
		n.want(u)
	}
	return n
}

func (n *node) counts0() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.view.begun
}

// want acquires a unit, and again whenever it was asked to yield, as services do.
func (n *node) want(unit string) {
	got := make(chan *Lease, 8)
	n.leases[unit] = got
	ctx, cancel := context.WithCancel(context.Background())
	n.party.t.Cleanup(cancel)
	go func() {
		for {
			l, err := n.Acquire(ctx, n.key(unit))
			if err != nil {
				return
			}
			got <- l
			select {
			case <-l.Yield():
				l.Release()
			case <-l.Lost():
				l.Release()
			case <-ctx.Done():
				l.Release()
				return
			}
		}
	}()
}

func (n *node) key(unit string) string { return subject.Lease(n.party.role, "orders", unit) }

func (n *node) holds(unit string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.held[n.key(unit)] != nil
}

func (p *party) eventually(what string, ok func() bool) {
	p.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("never happened: %s", what)
		}
	}
}

// pass lets time go by for everybody but the frozen, in steps small enough for every
// heartbeat to be sent, taken and seen by all before the next.
func (p *party) pass(d time.Duration) {
	p.t.Helper()
	for step := ttl / 12; d > 0; d -= step {
		for _, n := range p.nodes {
			if !n.frozen {
				n.clock.Advance(step)
			}
		}
		p.settle()
	}
}

// settle waits until every process has looked at its clock, no heartbeat is on its way,
// and all have seen all.
func (p *party) settle() {
	p.t.Helper()
	p.eventually("everybody has seen everything", func() bool {
		revisions := map[string]uint64{}
		for _, n := range p.nodes {
			if n.frozen || n.gone() {
				continue
			}
			n.mu.Lock()
			due := n.view.synced && !n.view.superior && n.now()-n.beat.began >= ttl/3
			ok := !n.beat.flying && !due && n.view.own >= n.beat.acked
			revisions[n.o.Instance] = max(revisions[n.o.Instance], n.view.own)
			n.mu.Unlock()
			if !ok {
				return false
			}
		}
		for _, n := range p.nodes {
			if n.frozen || n.gone() {
				continue
			}
			n.mu.Lock()
			for instance, m := range n.view.members {
				if m.revision < revisions[instance] {
					n.mu.Unlock()
					return false
				}
			}
			n.mu.Unlock()
		}
		return true
	})
}

func (n *node) gone() bool {
	select {
	case <-n.ended:
		return true
	default:
		return false
	}
}

// until lets time pass until ok, and answers how much it took.
func (p *party) until(what string, most time.Duration, ok func() bool) (took time.Duration) {
	p.t.Helper()
	for ; took <= most; took += ttl / 12 {
		moment := 40 * time.Millisecond // what needs no time, needs a moment
		if most == 0 {
			moment = 20 * time.Second
		}
		for end := time.Now().Add(moment); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if ok() {
				return took
			}
		}
		p.pass(ttl / 12)
	}
	p.t.Fatalf("did not happen within %s: %s", most, what)
	return 0
}

var units = []string{"u1", "u2", "u3", "u4", "u5", "u6", "u7"}

// owners answers how many units each process holds; a unit without exactly one living
// owner is answered as false.
func (p *party) owners() (count map[string]int, whole bool) {
	count, whole = map[string]int{}, true
	for _, u := range units {
		holders := 0
		for _, n := range p.nodes {
			if !n.frozen && n.holds(u) {
				count[n.o.Instance]++
				holders++
			}
		}
		whole = whole && holders == 1
	}
	return count, whole
}

func (p *party) spreadOver(instances ...string) func() bool {
	return func() bool {
		count, whole := p.owners()
		most := (len(units) + len(instances) - 1) / len(instances)
		for _, i := range instances {
			if count[i] == 0 || count[i] > most {
				return false
			}
		}
		return whole
	}
}

func TestJoinLeaveKillFreeze(t *testing.T) {
	p := newParty(t)
	a := p.join("a", units...)
	if took := p.until("the only one takes everything at once", 0, p.spreadOver("a")); took != 0 {
		t.Errorf("it took %s", took)
	}
	b := p.join("b", units...)
	p.settle()
	took := p.until("a fresh member gets its share", 3*ttl, p.spreadOver("a", "b"))
	if took < ttl {
		t.Errorf("a fresh member was given units after %s", took)
	}
	t.Logf("join: %.1f ttl", float64(took)/float64(ttl))
	c := p.join("c", units...)
	p.until("three share", 3*ttl, p.spreadOver("a", "b", "c"))
	p.pass(ttl)

	before := moves(p)
	p.pass(3 * ttl)
	if after := moves(p); after != before {
		t.Errorf("%d leases moved while nothing happened", after-before)
	}

	b.leave()
	for _, u := range units { // a service gives its leases back when it ends
		b.giveBack(u)
	}
	took = p.until("a member that leaves needs no silence", ttl/2, p.spreadOver("a", "c"))
	t.Logf("leave: %.1f ttl", float64(took)/float64(ttl))

	lost := c.some(t)
	c.frozen = true
	took = p.until("a frozen member's units are taken", 2*ttl, p.spreadOver("a"))
	if took < ttl/2 { // its last heartbeat may have been a third of a ttl before
		t.Errorf("taken after %s of silence", took)
	}
	t.Logf("freeze: %.1f ttl", float64(took)/float64(ttl))
	c.clock.Advance(5 * ttl) // it stood still for longer than the others know
	c.frozen = false
	select {
	case <-lost.Lost():
	case <-time.After(20 * time.Second):
		t.Fatal("a member that stood still does not know that it lost its leases")
	}
	p.settle()
	p.until("it gets its share again", 3*ttl, p.spreadOver("a", "c"))
	if a.gone() {
		t.Error("a ended")
	}
}

// giveBack releases a unit as a service that ends does.
func (n *node) giveBack(unit string) {
	n.mu.Lock()
	l := n.held[n.key(unit)]
	n.mu.Unlock()
	if l != nil {
		l.Release()
	}
}

// some answers a lease that the process holds.
func (n *node) some(t *testing.T) *Lease {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.held {
		return l
	}
	t.Fatal("it holds nothing")
	return nil
}

// moves counts how often a lease was taken, by anybody.
func moves(p *party) (n int) {
	for _, node := range p.nodes {
		families, _ := node.o.Registry.Gather()
		for _, f := range families {
			if f.GetName() != "tidemark_lease_events_total" {
				continue
			}
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetValue() == eventAcquired {
						n += int(m.GetCounter().GetValue())
					}
				}
			}
		}
	}
	return n
}

func TestWallClockJumpsMeanNothing(t *testing.T) {
	p := newParty(t)
	a, b := p.join("a", units...), p.join("b", units...)
	p.pass(4 * ttl)
	p.until("two share", ttl, p.spreadOver("a", "b"))
	before := moves(p)
	a.clock.JumpWall(24 * time.Hour)
	b.clock.JumpWall(-24 * time.Hour)
	p.pass(2 * ttl)
	if after := moves(p); after != before {
		t.Errorf("%d leases moved by a wall clock", after-before)
	}
}

func TestTheSameInstanceRetakesAtOnce(t *testing.T) {
	p := newParty(t)
	first := p.join("a", units...)
	p.until("taken", 0, p.spreadOver("a"))
	other := p.join("b", units...)
	p.until("two share", 3*ttl, p.spreadOver("a", "b"))
	mine, _ := p.owners()
	first.frozen = true // killed
	again := p.join("a", units...)
	p.until("the process that starts again has its units without waiting", 0, func() bool {
		count, _ := p.owners()
		return count["a"] == mine["a"]
	})
	// The one before was not dead after all: it must not take them back.
	first.clock.Advance(ttl)
	p.eventually("the one before gives everything up", func() bool {
		first.mu.Lock()
		defer first.mu.Unlock()
		return len(first.held) == 0
	})
	first.clock.Advance(ttl / 2)
	if count, _ := p.owners(); again.gone() || other.gone() || count["a"] != mine["a"] {
		t.Errorf("owners %v", count)
	}
}

func TestAUnitThatFailsDoesNotComeBackAtOnce(t *testing.T) {
	p := newParty(t)
	a := p.join("a")
	take := func() *Lease {
		got := make(chan *Lease, 1)
		go func() {
			if l, err := a.Acquire(context.Background(), a.key("u1")); err == nil {
				got <- l
			}
		}()
		var l *Lease
		p.until("a takes it", 8*ttl, func() bool {
			select {
			case l = <-got:
				return true
			default:
				return false
			}
		})
		return l
	}
	take().Abandon() // nobody else is there: it may be tried again at once
	p.settle()
	begun := a.clock.Now()
	l := take()
	if took := a.clock.Since(begun); took >= ttl {
		t.Errorf("alone it was tried again after %s", took)
	}
	b := p.join("b", "u1")
	p.pass(2 * ttl)
	l.Abandon()
	p.until("the other one takes it", ttl, func() bool { return b.holds("u1") })
	wanted := func() bool { return b.Wanted(b.key("u1")) }
	go func() {
		if l, err := a.Acquire(context.Background(), a.key("u1")); err == nil {
			t.Cleanup(l.Release)
		}
	}()
	p.pass(2 * ttl)
	if wanted() {
		t.Error("a unit that just failed is wanted again")
	}
	p.until("after a while it is wanted again", 4*ttl, wanted)
}

func TestLostWhenTheServerIsAwayAndRetakenWhenItIsBack(t *testing.T) {
	dir := t.TempDir()
	embed := func() (*natsio.Embedded, *natsio.Conn) {
		server, err := natsio.Embed(t.Context(), natsio.EmbeddedOptions{Dir: dir, Port: -1})
		if err != nil {
			t.Fatal(err)
		}
		c, err := server.Connect(t.Context(), "test")
		if err != nil {
			t.Fatal(err)
		}
		return server, c
	}
	server, c := embed()
	t.Cleanup(c.Close)
	if err := natsio.Provision(t.Context(), c.JS, 1); err != nil {
		t.Fatal(err)
	}
	p := newParty(t)
	p.js = c.JS
	a := p.join("a", "u1")
	p.until("taken", 0, func() bool { return a.holds("u1") })
	l := a.some(t)
	server.Shutdown()
	for i := 0; ; i++ {
		a.clock.Advance(ttl / 12)
		select {
		case <-l.Lost():
			if i < 6 {
				t.Errorf("lost after %d twelfths of a ttl", i+1)
			}
			return
		case <-time.After(5 * time.Millisecond):
		}
		if i > 4*12 {
			t.Fatal("not lost within four ttl")
		}
	}
}

func TestCensus(t *testing.T) {
	p := newParty(t)
	p.join("a")
	b := p.join("b")
	fake := clock.NewFake(time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC))
	c, err := Count(t.Context(), shared.conn.JS, p.role, fake)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if live := c.Live(); len(live) != 2 || live[0] != "a" || live[1] != "b" {
		t.Fatalf("live: %v", live)
	}
	b.frozen = true
	for range 15 {
		p.pass(ttl / 12)
		fake.Advance(ttl / 12)
	}
	p.eventually("only one lives", func() bool { live := c.Live(); return len(live) == 1 && live[0] == "a" })
}

func TestAcquireEndsWithItsContextAndWithTheHolder(t *testing.T) {
	p := newParty(t)
	a, b := p.join("a", "u1"), p.join("b")
	p.until("a has it", 3*ttl, func() bool { return a.holds("u1") })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Acquire(ctx, b.key("u1")); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	b.leave()
	<-b.ended
	if _, err := b.Acquire(t.Context(), b.key("u1")); !errors.Is(err, ErrOver) {
		t.Errorf("ended with %v", err)
	}
	if who, err := a.Who(t.Context(), a.key("u1")); err != nil || who != "http://a" {
		t.Errorf("who: %q, %v", who, err)
	}
}

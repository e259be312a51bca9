package windower

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
)

// process is one windower with a connection and a directory of its own.
type process struct {
	*Service
	conn *natsio.Conn
	stop context.CancelFunc
	done chan error
}

func (w *world) process(server *natsio.Embedded, instance string) *process {
	w.t.Helper()
	conn, err := server.Connect(deadline(w.t), instance)
	must(w.t, err)
	s, err := New(Config{
		Conn: conn, Dir: w.t.TempDir(), Instance: instance, Log: zerolog.Nop(), Registry: prometheus.NewRegistry(),
		LeaseTTL: time.Second, CheckpointEvery: 50 * time.Millisecond,
	})
	must(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{Service: s, conn: conn, stop: cancel, done: make(chan error, 1)}
	go func() { p.done <- s.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		conn.Close()
	})
	return p
}

// owned counts the partitions that are live in a process.
func (p *process) owned() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, u := range p.units {
		if u.state() == roleLive {
			n++
		}
	}
	return n
}

// progress waits until the journals hold COMMITs behind last, whoever writes them.
func (w *world) progress(last []uint64) {
	w.t.Helper()
	for pp := range last {
		await(w.t, fmt.Sprintf("%s up to %d", w.part(pp), last[pp]), func() bool {
			b := w.read(pp)
			return len(b.commits) > 0 && b.commits[len(b.commits)-1].Inputs[0].Seq > last[pp]
		})
	}
}

// TestProcessesShareAndTakeOver lets processes come, leave and die while events flow.
// Every windows journal must hold what the core says, and nothing twice.
func TestProcessesShareAndTakeOver(t *testing.T) {
	server, err := natsio.Embed(deadline(t), natsio.EmbeddedOptions{Dir: t.TempDir(), Port: -1})
	must(t, err)
	defer server.Shutdown()
	own, err := server.Connect(deadline(t), "test")
	must(t, err)
	defer own.Close()
	before := shared.conn
	shared.conn = own // the world of this test lives on its own server, which may be left in any state
	defer func() { shared.conn = before }()
	must(t, natsio.Provision(deadline(t), own.JS, 1))
	const partitions = 6
	w := newWorld(t, partitions)
	docs := documentsOf(t, w.bs.Name, "hourly", "1h")
	docs[0].Stream.Partitions = partitions
	_, err = config.Apply(deadline(t), own.JS, docs, config.Options{Replicas: 1})
	must(t, err)
	w.pol = docs[1].Policy
	last, hour := make([]uint64, partitions), 0
	flow := func() {
		for pp := range partitions {
			last[pp] = w.traffic(pp, hour, 2, 8)
		}
		hour += 2
	}
	shares := func(what string, counts map[*process]int) {
		t.Helper()
		begun := time.Now()
		await(t, what, func() bool {
			for p, n := range counts {
				if p.owned() != n {
					return false
				}
			}
			return true
		})
		t.Logf("%s: %s", what, time.Since(begun).Round(10*time.Millisecond))
		flow()
		w.progress(last)
	}
	flow()
	a := w.process(server, "a")
	shares("one has everything", map[*process]int{a: 6})
	b := w.process(server, "b")
	flow()
	shares("two share", map[*process]int{a: 3, b: 3})
	c := w.process(server, "c")
	flow()
	shares("three share", map[*process]int{a: 2, b: 2, c: 2})
	b.stop()
	must(t, <-b.done)
	shares("one left", map[*process]int{a: 3, c: 3})
	flow()
	a.conn.Close() // killed: no goodbye reaches the server
	shares("one was killed", map[*process]int{c: 6})
	restored := 0
	for _, p := range []*process{b, c} {
		for _, u := range p.units {
			restored += u.outcomes(t, snapshotRestored)
			break // the counter is the process's
		}
	}
	if restored == 0 {
		t.Error("no process took over from a snapshot")
	}
	c.stop()
	must(t, <-c.done)
	w.digest(c.Service)
	for pp := range partitions {
		w.same(pp)
	}
}

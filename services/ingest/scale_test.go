package ingest

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// yieldOf asks the owner of a source partition to hand it over, as the balance does.
func (w *world) yieldOf(n *node, number uint32) {
	w.t.Helper()
	key := n.st().partition("shop", number).leaseKey()
	w.leases.mu.Lock()
	held := w.leases.held[key]
	w.leases.mu.Unlock()
	close(held.yield)
}

// A source partition goes to another process while requests come in: every one of them is
// answered, by being taken in or by being asked to come again, and nothing is lost.
func TestHandOverWhileRequestsComeIn(t *testing.T) {
	w := newWorld(t, 2)
	first := w.run("a").ready()
	second := w.run("b")
	until(t, "the second process stands by", func() bool { return len(second.Problems()) == 0 })
	stop, done := make(chan struct{}), make(chan int, 1)
	go func() {
		sent := 0
		for ; ; sent++ {
			select {
			case <-stop:
				done <- sent
				return
			default:
			}
			for {
				msg := subject.Ingest(w.stream.Name, "shop", 0)
				reply, err := w.conn.NC.Request(msg, []byte(sale(fmt.Sprintf("e%d", sent), "north", sent%60)), 5*time.Second)
				if err == nil && len(reply.Data) > 0 && reply.Data[1] == '"' && string(reply.Data[2:10]) == "accepted" {
					break
				}
				time.Sleep(time.Millisecond) // asked to come again
			}
		}
	}()
	until(t, "some are in", func() bool { return len(w.journal().events()) > 20 })
	epoch := w.lastSource(0).Claim.Epoch
	w.yieldOf(first, 0)
	until(t, "the other process owns it", func() bool { r := w.lastSource(0); return r.Claim.Epoch > epoch && r.Claim.Owner == "b" })
	before := len(w.journal().events())
	until(t, "more come in", func() bool { return len(w.journal().events()) > before+20 })
	close(stop)
	sent := <-done
	second.flushNow()
	w.checkComplete()
	ids := map[string]bool{}
	for _, ev := range w.journal().events() {
		ids[ev.ID] = true
	}
	for i := range sent {
		if !ids[fmt.Sprintf("e%d", i)] {
			t.Fatalf("event e%d of %d was acknowledged and is not there", i, sent)
		}
	}
	// The first one stands by again and tells who owns the partition.
	_, err := first.push(&Request{Items: plain(sale("x", "north", 1))})
	if e := asError(err); e.Status != 421 || e.Address != "http://b" {
		t.Errorf("error %+v", e)
	}
}

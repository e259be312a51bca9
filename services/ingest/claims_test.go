package ingest

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

func TestRestartClaimsANewEpochAndResumesTheMaxima(t *testing.T) {
	w := newWorld(t, 1)
	n := w.run("a").ready()
	n.mustPush(&Request{Items: plain(sale("e1", "north", 30), sale("e2", "north", 10))})
	n.stop()
	if got := w.lastSource(0); got.Kind != "checkpoint" || got.Checkpoint.Offset != 1<<32|2 || got.Checkpoint.MaxEventTime["at@1"].String() != "2026-11-30T10:00:30Z" {
		t.Errorf("last record after the stop: %+v", got)
	}
	n = w.run("a").ready()
	if got := w.lastSource(0); got.Kind != "claim" || got.Claim.Epoch != 2 || got.Claim.Owner != "a" || got.Checkpoint.Generation != 2<<32|1 {
		t.Errorf("record of the second claim: %+v", got)
	}
	n.flushNow()
	if m := w.journal().lastMark(t, "shop", 0, 0); m.Epoch != 2 || m.Offset != 0 || m.MaxEventTime[0].String() != "2026-11-30T10:00:30Z" {
		t.Errorf("mark of the second epoch: %+v", m)
	}
	if reply := n.mustPush(&Request{Items: plain(sale("e3", "north", 20))}); reply.FirstOffset != 2<<32|1 || reply.Epoch != 2 {
		t.Errorf("reply %+v", reply)
	}
	n.flushNow()
	w.checkComplete()
}

func TestCheckpointsFollowWhatIsDurable(t *testing.T) {
	w := newWorld(t, 1)
	n := w.run("a").ready()
	n.mustPush(&Request{Items: plain(sale("e1", "north", 1))})
	until(t, "a checkpoint without any stop", func() bool { r := w.lastSource(0); return r.Kind == "checkpoint" && r.Checkpoint.Offset == 1<<32|1 })
	if got := w.lastSource(1); got.Kind != "claim" {
		t.Errorf("the unused partition wrote %+v", got)
	}
}

func TestFinishedPartitionStaysFinished(t *testing.T) {
	w := newWorld(t, 2)
	n := w.run("a").ready()
	reply := n.mustPush(&Request{Items: plain(sale("e1", "north", 1)), Finish: true})
	if !reply.Finished || reply.Accepted != 1 {
		t.Errorf("reply %+v", reply)
	}
	if got := w.lastSource(0); !got.Checkpoint.Finished || got.Checkpoint.Offset != 1<<32|1 {
		t.Errorf("record %+v", got)
	}
	for pp := range 2 {
		if m := w.journal().lastMark(t, "shop", 0, pp); !m.Finished || m.Offset != 1<<32|1 {
			t.Errorf("mark %+v", m)
		}
	}
	refused := func() {
		t.Helper()
		_, err := n.push(&Request{Items: plain(sale("e2", "north", 1))})
		if e := asError(err); e.Status != 409 || e.Code != "finished" {
			t.Errorf("error %+v", e)
		}
	}
	refused()
	again := func() {
		t.Helper()
		if reply := n.mustPush(&Request{Finish: true}); !reply.Finished {
			t.Errorf("finish asked for again answers %+v", reply)
		}
	}
	again()
	n.stop()
	n = w.run("b").ready()
	refused()
	again()
	n.flushNow()
	if m := w.journal().lastMark(t, "shop", 0, 0); !m.Finished || m.Epoch != 2 {
		t.Errorf("mark of the next owner %+v", m)
	}
	n.mustPush(&Request{Partition: 1, Items: plain(sale("e3", "north", 1))})
}

func TestFinishWithoutEvents(t *testing.T) {
	w := newWorld(t, 1)
	n := w.run("a").ready()
	if reply := n.mustPush(&Request{Finish: true}); !reply.Finished {
		t.Errorf("reply %+v", reply)
	}
}

func TestTwoProcessesHaveOneOwner(t *testing.T) {
	w := newWorld(t, 1)
	first := w.run("a").ready()
	second := w.run("b")
	until(t, "the second process stands by", func() bool { return len(second.Problems()) == 0 })
	_, err := second.push(&Request{Items: plain(sale("e1", "north", 1))})
	if e := asError(err); e.Status != 421 || e.Address != "http://a" || !strings.Contains(e.Hint, "http://a") {
		t.Errorf("error %+v", e)
	}
	first.mustPush(&Request{Items: plain(sale("e1", "north", 1))})
	first.stop()
	second.ready()
	if reply := second.mustPush(&Request{Items: plain(sale("e2", "north", 2))}); reply.Epoch != 2 {
		t.Errorf("reply %+v", reply)
	}
	second.flushNow()
	w.checkComplete()
}

// A zombie is an owner whose partition somebody claimed in spite of its lease.
func TestZombieStopsAtItsCheckpointAndClaimsAgain(t *testing.T) {
	w := newWorld(t, 1)
	n := w.run("a").ready()
	n.mustPush(&Request{Items: plain(sale("e1", "north", 1))})
	foreign := w.lastSource(0)
	foreign.Kind, foreign.Claim = "claim", claim{Epoch: foreign.Claim.Epoch + 1, Owner: "z", Writer: "z"}
	data, err := json.Marshal(foreign)
	if err != nil {
		t.Fatal(err)
	}
	p := n.st().partition("shop", 0)
	p.mu.Lock()
	old := p.own
	p.mu.Unlock()
	if _, err := w.conn.JS.Publish(context.Background(), subject.Source(w.stream.Name, "shop", 0), data); err != nil {
		t.Fatal(err)
	}
	<-old.lost
	n.ready()
	if got := w.lastSource(0); got.Claim.Epoch < 3 || got.Claim.Owner != "a" {
		t.Errorf("record %+v", got)
	}
	n.flushNow()
	if m := w.journal().lastMark(t, "shop", 0, 0); m.Epoch != w.lastSource(0).Claim.Epoch {
		t.Errorf("mark %+v", m)
	}
}

func TestClaimRaceHasOneWinner(t *testing.T) {
	w := newWorld(t, 1)
	n := w.run("a").ready()
	p := n.st().partition("shop", 0)
	rec, seq, err := p.lastRecord(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	rec.Kind, rec.Claim = "claim", claim{Epoch: rec.Claim.Epoch + 1, Owner: "x", Writer: "x"}
	if _, err := p.append(context.Background(), rec, seq); err != nil {
		t.Fatal(err)
	}
	again := rec
	again.Claim.Writer = "y"
	if _, err := p.append(context.Background(), again, seq); err == nil || !strings.Contains(err.Error(), errFenced.Error()) {
		t.Errorf("the second of two equal claims: %v", err)
	}
	// The same record once more is the first one, whose acknowledgement was lost.
	if got, err := p.append(context.Background(), rec, seq); err != nil || got != seq+1 && got <= seq {
		t.Errorf("a claim repeated after a lost acknowledgement: %d, %v", got, err)
	}
}

func TestLostLeaseGivesThePartitionUp(t *testing.T) {
	w := newWorld(t, 1)
	n := w.run("a").ready()
	key := n.st().partition("shop", 0).leaseKey()
	w.leases.mu.Lock()
	held := w.leases.held[key]
	w.leases.mu.Unlock()
	close(held.lost)
	until(t, "claimed again", func() bool { return w.lastSource(0).Claim.Epoch == 2 })
	n.ready().mustPush(&Request{Items: plain(sale("e1", "north", 1))})
}

func TestUnreadableSourceRecordHaltsThePartition(t *testing.T) {
	w := newWorld(t, 1)
	if _, err := w.conn.JS.Publish(context.Background(), subject.Source(w.stream.Name, "shop", 0), []byte(`{"schema":"sourceRecord.v9"}`)); err != nil {
		t.Fatal(err)
	}
	n := w.run("a")
	until(t, "halted", func() bool {
		return strings.Contains(strings.Join(n.Problems(), "\n"), "source partition shop/0") && n.st().owned() == 1
	})
	until(t, "the reason is told", func() bool { return strings.Contains(strings.Join(n.Problems(), "\n"), "sourceRecord.v9") })
	n.mustPush(&Request{Partition: 1, Items: plain(sale("e1", "north", 1))})
}

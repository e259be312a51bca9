package effector

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

func TestACorrectionThatTheOwnerHasNotReadSendsNothing(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable})
	o := w.node(t.TempDir()).hand()
	w.sold("eu-west", 0, 250)
	w.sold("eu-north", 0, 250)
	key, other := w.keyOf("eu-west", 0), w.keyOf("eu-north", 0)
	turnUntil(t, o, key, effect.Prepared)
	turnUntil(t, o, other, effect.Prepared)
	w.sold("eu-west", 0, 40)
	w.sold("eu-north", 0, 260)
	o.look = true
	eventually(t, func() string { // no turn but those of the dispatch itself
		if _, err := o.dispatch(context.Background()); err != nil {
			return err.Error()
		}
		if r := w.now(other); len(r.Attempts) == 0 {
			o.look = true
			return "the other effect is " + string(r.State)
		}
		return ""
	})
	if r := w.now(key); r.State != effect.Voided {
		t.Errorf("the corrected effect is %s", r.State)
	}
	if r := w.now(other); r.Request.Expect.Amount != "260.00" || r.Attempts[0].RevisionsUpTo == 0 {
		t.Errorf("sent as %+v", r.Request)
	}
	o.u.sends.Wait()
	w.executed(key, 0)
	w.executed(other, 1)
}

func TestARuleThatFlipsBackAndForthEndsRight(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable})
	w.gate(effectlog.Global, true)
	w.node(t.TempDir()).start()
	key := w.keyOf("eu-west", 0)
	for range 3 { // before it is sent
		w.sold("eu-west", 0, 250)
		w.await(key, effect.Prepared)
		w.sold("eu-west", 0, 40)
		w.await(key, effect.Voided)
	}
	w.sold("eu-west", 0, 250)
	w.await(key, effect.Prepared)
	w.gate(effectlog.Global, false)
	w.await(key, effect.Acked)
	for n := range 3 { // and afterwards
		w.sold("eu-west", 0, 40)
		r := w.await(key, effect.CompensationRequired)
		if int(r.Corrections) != n+1 {
			t.Errorf("flip %d opened %d corrections", n+1, r.Corrections)
		}
		w.sold("eu-west", 0, 250)
		w.await(key, effect.Acked)
	}
	w.executed(key, 1)
	if r := w.now(key); len(r.Attempts) != 1 || w.sim.Requests(key.String()) != 1 {
		t.Errorf("%d attempts, %d requests", len(r.Attempts), w.sim.Requests(key.String()))
	}
}

func TestAnApprovalOutlivesRevisionsThatChangeNothing(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable, policy: "airlock: {windowOlderThan: 87600h, amountAbove: {field: amount, limit: 1000}}\n"})
	w.gate(effectlog.Global, true)
	w.node(t.TempDir()).start()
	approve := func(key effect.EffectKey) {
		t.Helper()
		done := w.command(effectlog.Command{Key: key, Act: effectlog.ActApprove, Approve: &effectlog.Approve{
			Digest: w.await(key, effect.Held).Request.PayloadDigest, Expires: effect.Time(time.Now().Add(time.Hour).UnixMicro()),
		}})
		if done.Refusal != "" {
			t.Fatalf("approving: %s", done.Refusal)
		}
	}
	w.sold("eu-west", 0, 2500)
	w.sold("eu-west", 1, 2500)
	same, other := w.keyOf("eu-west", 0), w.keyOf("eu-west", 1)
	approve(same)
	approve(other)
	var last uint64
	for range 100 {
		last = w.sold("eu-west", 0, 2500)
	}
	w.sold("eu-west", 1, 2600) // not what was approved
	w.await(other, effect.Held)
	w.gate(effectlog.Global, false)
	r := w.await(same, effect.Acked)
	if r.Approval == nil || r.Approval.Attempt != 1 || r.Attempts[0].RevisionsUpTo < last-1 {
		t.Errorf("sent under %+v as of %d, want %d", r.Approval, r.Attempts[0].RevisionsUpTo, last)
	}
	w.executed(same, 1)
	w.executed(other, 0)
	approve(other)
	if r := w.await(other, effect.Acked); r.Request.Expect.Amount != "2600.00" {
		t.Error(fmt.Sprint("sent with ", r.Request.Expect.Amount))
	}
	w.executed(other, 1)
}

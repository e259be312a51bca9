package effector

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/providersim"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// correcting is the policy of a world whose corrections are carried out by linked effects.
func correcting(mode, amount string) terms {
	return terms{
		adapter: idempotent + queryable,
		policy:  anyAge + fmt.Sprintf("corrections: {mode: %s, payload: {subject: key, amount: %s, undoes: correction.of, n: correction.number}}\n", mode, amount),
	}
}

func (w *world) approve(key effect.EffectKey) *effectlog.Done {
	w.t.Helper()
	return w.command(effectlog.Command{Key: key, Act: effectlog.ActApprove, Approve: &effectlog.Approve{
		Digest: w.now(key).Request.PayloadDigest, Expires: effect.Time(time.Now().Add(time.Hour).UnixMicro()),
	}})
}

func TestACompensationIsHeldAndUndoesOnce(t *testing.T) {
	w := newWorld(t, correcting("compensate", "correction.standing"))
	dir := t.TempDir()
	n := w.node(dir).start()
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	w.await(key, effect.Acked)
	w.sold("eu-west", 0, 40)
	w.await(key, effect.CompensationRequired)
	undo := ledger.CorrectionKey(effect.Compensate, key, 1)
	held := w.await(undo, effect.Held)
	if held.Airlock != ledger.LockLinked || held.Request.Expect.Amount != "250.00" || !strings.Contains(held.Request.Payload, key.String()) {
		t.Errorf("the linked effect is %+v", held.Request)
	}
	w.sold("eu-west", 0, 30) // still nothing should stand: the same linked effect
	must(t, n.stop())
	w.node(t.TempDir()).start()
	if done := w.approve(undo); done.Refusal != "" {
		t.Fatalf("approving the compensation: %s", done.Refusal)
	}
	r := w.await(key, effect.Compensated)
	if r.Link == nil || *r.Link != undo || r.Net.Holds {
		t.Errorf("compensated as %+v", r)
	}
	w.executed(key, 1)
	w.executed(undo, 1)
	w.executed(ledger.CorrectionKey(effect.Compensate, key, 2), 0)
}

func TestACorrectionThatIsRightAgainWithdrawsItsLinkedEffect(t *testing.T) {
	w := newWorld(t, correcting("compensate", "correction.standing"))
	w.node(t.TempDir()).start()
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	w.await(key, effect.Acked)
	w.sold("eu-west", 0, 40)
	undo := ledger.CorrectionKey(effect.Compensate, key, 1)
	w.await(undo, effect.Held)
	w.sold("eu-west", 0, 250) // the refund was withdrawn
	w.await(undo, effect.Voided)
	w.await(key, effect.Acked)
	if done := w.approve(undo); done.Refusal == "" {
		t.Error("a withdrawn compensation was approved")
	}
	w.executed(key, 1)
	w.executed(undo, 0)
}

func TestAWaivedCorrectionWithdrawsItsLinkedEffect(t *testing.T) {
	w := newWorld(t, correcting("compensate", "correction.standing"))
	w.node(t.TempDir()).start()
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	w.await(key, effect.Acked)
	w.sold("eu-west", 0, 40)
	undo := ledger.CorrectionKey(effect.Compensate, key, 1)
	w.await(undo, effect.Held)
	if done := w.command(effectlog.Command{Key: key, Act: effectlog.ActWaive}); done.Refusal != "" {
		t.Fatalf("waiving: %s", done.Refusal)
	}
	w.await(undo, effect.Voided)
	w.executed(undo, 0)
}

func TestAdjustmentsSendTheDifferenceToWhatStands(t *testing.T) {
	w := newWorld(t, correcting("adjust", "correction.delta"))
	w.node(t.TempDir()).start()
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	w.await(key, effect.Acked)
	for i, step := range []struct {
		revenue int
		delta   string
	}{{300, "50.00"}, {120, "-180.00"}, {40, "-120.00"}, {250, "250.00"}} {
		w.sold("eu-west", 0, step.revenue)
		linked := ledger.CorrectionKey(effect.Adjust, key, uint32(i+1))
		r := w.await(linked, effect.Acked)
		if r.Request.Expect.Amount != step.delta {
			t.Errorf("adjustment %d to %d sends %s, want %s", i+1, step.revenue, r.Request.Expect.Amount, step.delta)
		}
		w.await(key, effect.Compensated)
		w.executed(linked, 1)
	}
	if r := w.now(key); r.Corrections != 4 || r.State != effect.Compensated {
		t.Errorf("after all, %s with %d corrections", r.State, r.Corrections)
	}
	w.executed(key, 1)
}

func TestANewerRevisionChangesAnAdjustmentThatWasNotSent(t *testing.T) {
	w := newWorld(t, correcting("adjust", "correction.delta"))
	w.node(t.TempDir()).start()
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	w.await(key, effect.Acked)
	w.gate(effectlog.Global, true)
	w.sold("eu-west", 0, 300)
	linked := ledger.CorrectionKey(effect.Adjust, key, 1)
	w.await(linked, effect.Prepared)
	w.sold("eu-west", 0, 330)
	eventually(t, func() string {
		if got := w.now(linked).Request.Expect.Amount; got != "80.00" {
			return "the adjustment sends " + got
		}
		return ""
	})
	w.gate(effectlog.Global, false)
	w.await(key, effect.Compensated)
	w.executed(linked, 1)
	w.executed(ledger.CorrectionKey(effect.Adjust, key, 2), 0)
}

// What a correction that arrives in doubt asks for waits until the doubt is settled.
func TestAnUnknownOutcomeIsSettledBeforeItIsCompensated(t *testing.T) {
	w := newWorld(t, correcting("compensate", "correction.standing"))
	mode, err := providersim.ParseMode("lose-answer")
	must(t, err)
	drop, err := providersim.ParseMode("drop")
	must(t, err)
	must(t, w.sim.Set(providersim.Rule{Mode: mode}))
	must(t, w.sim.SetQuery(providersim.Rule{Mode: drop, Times: 4}))
	w.node(t.TempDir()).start()
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	w.await(key, effect.Unknown)
	w.sold("eu-west", 0, 40)
	undo := ledger.CorrectionKey(effect.Compensate, key, 1)
	w.await(undo, effect.Held)
	states := []effect.State{}
	for _, r := range w.history(key) {
		states = append(states, r.State)
	}
	last := states[len(states)-2:]
	if last[0] != effect.Reconciled || last[1] != effect.CompensationRequired {
		t.Errorf("its states are %v", states)
	}
	w.executed(key, 1)
}

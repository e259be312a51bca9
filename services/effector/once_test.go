package effector

import (
	"context"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/effectrule"
	"github.com/tidemark-mesh/tidemark/internal/providersim"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

func TestAnEffectRunsOnceOverRestartsAndRevisions(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable})
	dir := t.TempDir()
	n := w.node(dir).start()
	w.sold("eu-west", 0, 250)
	w.sold("eu-east", 0, 99) // below the rule
	key := w.keyOf("eu-west", 0)
	r := w.await(key, effect.Acked)
	if r.Outcome != effect.Applied || len(r.Attempts) != 1 || r.Attempts[0].RevisionsUpTo == 0 {
		t.Errorf("acknowledged as %+v", r)
	}
	w.sold("eu-west", 0, 250) // the same payload under a newer revision
	must(t, n.stop())
	n = w.node(dir).start() // with its files
	w.sold("eu-west", 1, 300)
	w.await(w.keyOf("eu-west", 1), effect.Acked)
	must(t, n.stop())
	w.node(t.TempDir()).start() // without
	w.sold("eu-west", 2, 300)
	w.await(w.keyOf("eu-west", 2), effect.Acked)
	for hour := range 3 {
		w.executed(w.keyOf("eu-west", hour), 1)
	}
	if w.now(w.keyOf("eu-east", 0)) != nil {
		t.Error("a window for which the rule is false has an effect")
	}
	if got := w.now(key); got.State != effect.Acked || len(got.Attempts) != 1 {
		t.Errorf("after restarts the effect is %s with %d attempts", got.State, len(got.Attempts))
	}
}

// turnUntil turns an owner's loop without sending until an effect is in a state.
func turnUntil(t *testing.T, o *owner, key effect.EffectKey, s effect.State) {
	t.Helper()
	eventually(t, func() string {
		_, err := o.turn(context.Background())
		must(t, err)
		r, err := o.view.effect(key)
		must(t, err)
		if r == nil || r.State != s {
			return "not " + string(s)
		}
		return ""
	})
}

// dispatchOnly accepts the DISPATCHING record of an effect and stops before the file.
func dispatchOnly(t *testing.T, o *owner, key effect.EffectKey) []*opened {
	t.Helper()
	d := newDraft(o.view, o.time.now())
	list, err := o.open(context.Background(), d, []effect.EffectKey{key})
	must(t, err)
	if len(list) != 1 {
		t.Fatalf("%d attempts were opened", len(list))
	}
	again, err := o.commitDispatch(context.Background(), d)
	must(t, err)
	if again {
		t.Fatal("a record landed before the dispatch")
	}
	return list
}

func TestADeathBetweenCommitAndFirstByteIsUnknownAndRunsOnce(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable})
	dead := w.node(t.TempDir()).hand()
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	turnUntil(t, dead, key, effect.Prepared)
	dispatchOnly(t, dead, key)
	dead.writer.Abort()

	w.node(t.TempDir()).start()
	w.await(key, effect.Acked)
	w.executed(key, 1)
	var unknown bool
	for _, r := range w.history(key) {
		unknown = unknown || r.State == effect.Unknown
	}
	if !unknown {
		t.Error("the open attempt did not become UNKNOWN at the claim")
	}
}

func TestAZombieThatWasPausedBehindItsCommitSendsNothing(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable})
	node := w.node(t.TempDir())
	zombie := node.hand()
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	turnUntil(t, zombie, key, effect.Prepared)
	list := dispatchOnly(t, zombie, key)

	w.node(t.TempDir()).start() // while the zombie stands still
	w.await(key, effect.Acked)
	w.executed(key, 1)

	must(t, zombie.send(context.Background(), list)) // it wakes up
	node.sends.Wait()
	for _, a := range node.answers.take() {
		if a.answer.Class != effect.NotSent {
			t.Errorf("the zombie's attempt ended as %s", a.answer.Class)
		}
	}
	w.executed(key, 1)
	if _, err := zombie.turn(context.Background()); err == nil {
		t.Error("the zombie committed behind a newer claim")
	}
}

func TestAnAnswerUnderWayWhileAnotherProcessClaimsRunsOnce(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable})
	mode, err := providersim.ParseMode("delay:700ms")
	must(t, err)
	must(t, w.sim.Set(providersim.Rule{Mode: mode, Nth: 1}))
	first := w.node(t.TempDir()).start()
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	ctx := testContext(t)
	must(t, w.sim.AwaitRequests(ctx, key.String(), 1))
	w.node(t.TempDir()).start()
	r := w.await(key, effect.Reconciled)
	if r.Outcome != effect.Applied {
		t.Errorf("outcome is %s", r.Outcome)
	}
	w.executed(key, 1)
	_ = first.stop() // it was fenced
}

func TestALostAnswerIsUnknownUntilTheProviderIsAsked(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable})
	mode, err := providersim.ParseMode("lose-answer")
	must(t, err)
	must(t, w.sim.Set(providersim.Rule{Mode: mode}))
	w.node(t.TempDir()).start()
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	r := w.await(key, effect.Reconciled)
	if r.Step.Name != "reconcile-by-query" || len(r.Attempts) != 1 {
		t.Errorf("it was settled by %s after %d attempts", r.Step.Name, len(r.Attempts))
	}
	w.executed(key, 1)
}

func TestNothingIsSentAgainBehindTheResendDeadline(t *testing.T) {
	brief := "idempotency: {header: Idempotency-Key, retention: 3s, onBodyMismatch: error}\nretry: {mode: auto, first: 50ms, most: 100ms}\n"
	w := newWorld(t, terms{adapter: brief})
	mode, err := providersim.ParseMode("lose-answer")
	must(t, err)
	must(t, w.sim.Set(providersim.Rule{Mode: mode}))
	w.node(t.TempDir()).start()
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	r := w.await(key, effect.Manual)
	if len(r.Attempts) != 1 || w.sim.Requests(key.String()) != 1 {
		t.Errorf("%d attempts, %d requests, want one of each", len(r.Attempts), w.sim.Requests(key.String()))
	}
	w.executed(key, 1)
}

func TestARefusedExecutionIsRejectedAndNeverSentAgain(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable})
	mode, err := providersim.ParseMode("answer-429")
	must(t, err)
	must(t, w.sim.Set(providersim.Rule{Mode: mode, Times: 1}))
	w.node(t.TempDir()).start()
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	r := w.await(key, effect.Acked) // a throttle is no attempt that ran
	if len(r.Attempts) != 1 || r.LastAttempt != 2 {
		t.Errorf("%d attempts are listed, the last is number %d; want 1 and 2", len(r.Attempts), r.LastAttempt)
	}
	w.executed(key, 1)
}

func TestAPauseStopsWhatIsNotDispatched(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable})
	w.node(t.TempDir()).start()
	a := w.generation(1, 0)
	const effects = 60
	for n := range effects / 2 {
		a.accept(a.next("eu-west", hourOf(n), 200+n, nil))
	}
	paused := w.gate(effectlog.Global, true)
	for n := effects / 2; n < effects; n++ {
		a.accept(a.next("eu-west", hourOf(n), 200+n, nil))
	}
	w.await(w.keyOf("eu-west", effects-1), effect.Prepared)
	opened := w.gate(effectlog.Global, false)
	for n := range effects {
		w.await(w.keyOf("eu-west", n), effect.Acked)
		w.executed(w.keyOf("eu-west", n), 1)
	}
	for _, e := range w.entries() {
		for _, data := range e.Records {
			o, err := effectlog.DecodeOwned(data)
			must(t, err)
			if o.Effect != nil && o.Effect.State == effect.Dispatching && e.Seq > paused && e.Seq < opened {
				t.Errorf("sequence %d: dispatched while the gate was closed (%d to %d)", e.Seq, paused, opened)
			}
		}
	}
}

func TestADispatchFailsWhenAPauseLandsFirst(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable})
	o := w.node(t.TempDir()).hand()
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	turnUntil(t, o, key, effect.Prepared)
	d := newDraft(o.view, o.time.now())
	list, err := o.open(context.Background(), d, []effect.EffectKey{key})
	must(t, err)
	if len(list) != 1 {
		t.Fatalf("%d attempts", len(list))
	}
	w.gate(effectlog.Global, true) // decided, not yet written
	again, err := o.commitDispatch(context.Background(), d)
	must(t, err)
	if !again {
		t.Fatal("the dispatch was written behind the pause")
	}
	giveBack(list)
	o.look = true
	if _, err := o.dispatch(context.Background()); err != nil {
		t.Fatal(err)
	}
	if r := w.now(key); r.State != effect.Prepared {
		t.Errorf("the effect is %s", r.State)
	}
	if got := o.closed(w.now(key)); got != string(effectlog.Global) {
		t.Errorf("the closed gate is %q", got)
	}
	w.executed(key, 0)
}

func TestACorrectionBeforeTheDispatchSendsNothing(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable})
	w.gate(effectlog.Global, true)
	w.node(t.TempDir()).start()
	w.sold("eu-west", 0, 250)
	w.sold("eu-north", 0, 400)
	key := w.keyOf("eu-west", 0)
	w.await(key, effect.Prepared)
	w.sold("eu-west", 0, 40) // the refund
	w.sold("eu-north", 0, 300)
	w.await(key, effect.Voided)
	w.gate(effectlog.Global, false)
	r := w.await(w.keyOf("eu-north", 0), effect.Acked)
	if r.Request.Expect.Amount != "300.00" {
		t.Errorf("sent with amount %q, want that of the newest revision", r.Request.Expect.Amount)
	}
	w.executed(key, 0)
	w.executed(w.keyOf("eu-north", 0), 1)
}

func TestACorrectionAfterwardsOpensExactlyOneItem(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable})
	dir := t.TempDir()
	n := w.node(dir).start()
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	w.await(key, effect.Acked)
	w.sold("eu-west", 0, 40)
	w.await(key, effect.CompensationRequired)
	w.sold("eu-west", 0, 30)
	must(t, n.stop())
	w.node(t.TempDir()).start()
	w.sold("eu-west", 1, 250)
	w.await(w.keyOf("eu-west", 1), effect.Acked)
	r := w.now(key)
	if r.State != effect.CompensationRequired || r.Corrections != 1 {
		t.Errorf("the effect is %s with %d corrections, want one open", r.State, r.Corrections)
	}
	done := w.command(effectlog.Command{Key: key, Act: effectlog.ActWaive})
	if done.Refusal != "" || w.now(key).State != effect.Waived {
		t.Errorf("waived: %+v, %s", done, w.now(key).State)
	}
	w.executed(key, 1)
}

func TestAnApprovalIsOfOneDigestAndOneDispatch(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable, policy: "airlock: {windowOlderThan: 87600h, amountAbove: {field: amount, limit: 1000}}\n"})
	w.node(t.TempDir()).start()
	w.sold("eu-west", 0, 2500)
	key := w.keyOf("eu-west", 0)
	held := w.await(key, effect.Held)
	if held.Airlock != effectrule.LockAmount {
		t.Errorf("held by %q", held.Airlock)
	}
	approve := func(r *effect.Record) *effectlog.Done {
		return w.command(effectlog.Command{Key: key, Act: effectlog.ActApprove, Approve: &effectlog.Approve{
			Digest: r.Request.PayloadDigest, Expires: effect.Time(time.Now().Add(time.Hour).UnixMicro()),
		}})
	}
	w.sold("eu-west", 0, 2600) // what was shown is not what would be sent
	eventually(t, func() string {
		if w.now(key).Request.PayloadDigest == held.Request.PayloadDigest {
			return "the newer revision is not bound"
		}
		return ""
	})
	if done := approve(held); done.Refusal != string(ledger.OtherDigest) {
		t.Errorf("approving what was shown before: refusal %q", done.Refusal)
	}
	w.executed(key, 0)
	if done := approve(w.now(key)); done.Refusal != "" {
		t.Fatalf("approving what is shown: %s", done.Refusal)
	}
	r := w.await(key, effect.Acked)
	if r.Approval == nil || r.Approval.Attempt != r.LastAttempt || r.Request.Expect.Amount != "2600.00" {
		t.Errorf("sent under approval %+v with %q", r.Approval, r.Request.Expect.Amount)
	}
	w.executed(key, 1)
}

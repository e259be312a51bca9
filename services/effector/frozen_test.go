package effector

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/effectops"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// freezing is the machine's clock as a process sees it that stood still meanwhile.
type freezing struct {
	clock.Clock
	by atomic.Int64
}

func (c *freezing) Now() time.Time                  { return c.Clock.Now().Add(time.Duration(c.by.Load())) }
func (c *freezing) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func TestAPauseIsExactThoughAnOwnerFreezesBeforeTheFirstByte(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable})
	node := w.node(t.TempDir())
	clk := &freezing{Clock: clock.System()}
	node.clock = clk
	o := node.hand()
	ctx := testContext(t)
	const effects = 100
	a := w.generation(1, 0)
	var keys []effect.EffectKey
	for n := range effects {
		a.accept(a.next("eu-west", hourOf(n), 200+n, nil))
		keys = append(keys, w.keyOf("eu-west", n))
	}
	for _, key := range keys {
		turnUntil(t, o, key, effect.Prepared)
	}
	d := newDraft(o.view, o.time.now())
	list, err := o.open(ctx, d, keys)
	must(t, err)
	again, err := o.commitDispatch(ctx, d)
	must(t, err)
	if again || len(list) < 10 {
		t.Fatalf("%d attempts were opened, again %v", len(list), again)
	}
	must(t, o.send(ctx, list[:4])) // these are sent, and answered to nobody
	for _, op := range list[:4] {
		must(t, w.sim.AwaitExecutions(ctx, op.record.Key.String(), 1))
	}
	must(t, o.note(ctx, list[4:])) // and here the process stands still

	ops := effectops.New(w.conn.JS, w.name, 1)
	person := effectops.Person{Who: "ana", Reason: "a test"}
	paused, err := ops.Pause(ctx, effectlog.Global, person)
	must(t, err)
	var listed, open []effect.EffectKey
	for _, f := range paused.InFlight {
		listed = append(listed, f.Key)
	}
	for _, op := range list {
		open = append(open, op.record.Key)
	}
	for _, all := range [][]effect.EffectKey{listed, open} {
		slices.SortFunc(all, func(a, b effect.EffectKey) int { return slices.Compare(a[:], b[:]) })
	}
	if !slices.Equal(listed, open) {
		t.Errorf("the pause lists %d attempts in flight, %d were open: %v and %v", len(listed), len(open), listed, open)
	}
	executed := len(w.sim.All())

	clk.by.Store(int64(5 * time.Minute)) // it wakes up
	for _, op := range list[4:] {
		o.launch(op)
	}
	node.sends.Wait()
	moved, err := o.turn(ctx)
	must(t, err)
	if !moved {
		t.Error("the answers of the attempts led to nothing")
	}
	sent, err := o.dispatch(ctx)
	must(t, err)
	if sent || len(w.sim.All()) != executed || executed != 4 {
		t.Errorf("dispatched %v, %d executions before the pause returned and %d after", sent, executed, len(w.sim.All()))
	}
	for _, op := range list[4:] {
		if got := w.sim.Requests(op.record.Key.String()); got != 0 {
			t.Errorf("%s reached the provider %d times behind the pause", op.record.Key, got)
		}
		if r := w.now(op.record.Key); r.State != effect.Prepared {
			t.Errorf("%s, which was not sent, is %s", op.record.Key, r.State)
		}
	}
	o.writer.Abort()
	_, err = ops.Resume(ctx, effectlog.Global, person)
	must(t, err)
	w.node(t.TempDir()).start()
	w.counted(map[effect.State]int{effect.Acked: effects})
	w.once(effects)
}

func TestAnAttemptThatIsHeldUpInTheConnectionSendsNothingBehindItsTime(t *testing.T) {
	w := newWorld(t, terms{adapter: queryable})
	node := w.node(t.TempDir())
	clk := &freezing{Clock: clock.System()}
	node.clock = clk
	o := node.hand()
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	turnUntil(t, o, key, effect.Prepared)
	list := dispatchOnly(t, o, key)
	clk.by.Store(int64(time.Second)) // sendWithin, to the microsecond or more
	must(t, o.send(context.Background(), list))
	node.sends.Wait()
	if got := w.sim.Requests(key.String()); got != 0 {
		t.Errorf("%d requests", got)
	}
	turnUntil(t, o, key, effect.Prepared)
}

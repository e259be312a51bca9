package effector

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/providersim"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// replayed is what a replay of old events says of itself.
func replayed(r *revision.Revision) { r.Origin = envelope.OriginReplay }

// addGeneration applies another generation of the job, with a window of its own.
func (w *world) addGeneration(n int, window string) {
	w.t.Helper()
	const kind = "apiVersion: tidemark/v1\nkind: StreamTimePolicy"
	_, text, _ := strings.Cut(documents, kind)
	text, _, _ = strings.Cut(text, "---\n")
	w.apply(testContext(w.t), strings.NewReplacer("NAME", w.name, "WINDOW", window, "generation: 1", fmt.Sprintf("generation: %d", n)).Replace(kind+text))
}

// promote moves the alias of the job as a promote or a rollback does.
func (w *world) promote(epoch uint64, from, to int) {
	w.t.Helper()
	w.control(effectlog.Control{Alias: &effectlog.Alias{Job: "hourly", Epoch: epoch, Canonical: from, Switching: true}})
	w.control(effectlog.Control{Alias: &effectlog.Alias{Job: "hourly", Epoch: epoch + 1, Canonical: to}})
}

// counted waits until so many effects are in each state, and in no other.
func (w *world) counted(want map[effect.State]int) {
	w.t.Helper()
	eventually(w.t, func() string {
		last := map[effect.EffectKey]effect.State{}
		for _, e := range w.entries() {
			for _, data := range e.Records {
				o, err := effectlog.DecodeOwned(data)
				must(w.t, err)
				if o.Effect != nil {
					last[o.Effect.Key] = o.Effect.State
				}
			}
		}
		got := map[effect.State]int{}
		for _, s := range last {
			got[s]++
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Sprintf("effects by state: %v, want %v", got, want)
		}
		return ""
	})
}

// walked waits until everything that a generation has is judged, as the last COMMIT says.
func (w *world) walked(gen int) {
	w.t.Helper()
	fence := partition{stream: w.name}.fence("hourly", gen)
	eventually(w.t, func() string {
		list := w.entries()
		for i := len(list) - 1; i >= 0; i-- {
			if list[i].Commit == nil {
				continue
			}
			for _, p := range list[i].Commit.Inputs {
				if p.Stream == fence && walk(p.Index) == walkNone {
					return ""
				}
			}
			break
		}
		return fmt.Sprintf("generation %d is not judged whole", gen)
	})
}

// once fails if the provider executed anything twice, or not so many effects.
func (w *world) once(effects int) {
	w.t.Helper()
	byKey := map[string]int{}
	for _, r := range w.sim.All() {
		byKey[r.EffectKey]++
	}
	for key, n := range byKey {
		if n > 1 {
			w.t.Errorf("the provider executed %s %d times", key, n)
		}
	}
	if len(byKey) != effects {
		w.t.Errorf("the provider executed %d effects, want %d", len(byKey), effects)
	}
}

func TestReplaysUnderASecondAndAThirdGenerationExecuteNothingAgain(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable})
	const hours = 12
	w.addGeneration(2, "{tumbling: 1h, zone: UTC}")
	w.addGeneration(3, "{tumbling: 1h, zone: UTC}")
	dir := t.TempDir()
	n := w.node(dir).start()
	for hour := range hours {
		w.sold("eu-west", hour, 200+hour)
	}
	w.counted(map[effect.State]int{effect.Acked: hours})
	w.once(hours)

	// The second generation finds less in two hours, nothing worth it in one, and an
	// hour that the first has not.
	second := w.generation(2, 0)
	for hour := range hours + 1 {
		revenue := 200 + hour
		switch hour {
		case 3, 4:
			revenue -= 50
		case 5:
			revenue = 20
		}
		second.accept(second.next("eu-west", hourOf(hour), revenue, replayed))
	}
	third := w.generation(3, 0)
	for hour := range hours + 1 {
		third.accept(third.next("eu-west", hourOf(hour), 200+hour, replayed))
	}
	w.sold("eu-west", -1, 300) // a shadow makes no record before it is canonical
	w.await(w.keyOf("eu-west", -1), effect.Acked)
	w.counted(map[effect.State]int{effect.Acked: hours + 1})

	must(t, n.stop())
	w.promote(2, 1, 2) // with nobody there
	n = w.node(dir).start()
	w.counted(map[effect.State]int{effect.Acked: hours - 2, effect.CompensationRequired: 3, effect.Held: 1})
	for _, hour := range []int{3, 4, 5} {
		if r := w.now(w.keyOf("eu-west", hour)); r.Corrections != 1 {
			t.Errorf("hour %d: %d corrections", hour, r.Corrections)
		}
	}
	second.accept(second.next("eu-west", hourOf(4), 204, replayed)) // a correction that agrees again
	w.await(w.keyOf("eu-west", 4), effect.Acked)

	w.promote(4, 2, 3)
	w.counted(map[effect.State]int{effect.Acked: hours + 1, effect.Held: 1})
	must(t, n.stop())
	w.node(t.TempDir()).start() // folds everything anew
	w.promote(6, 3, 1)          // back
	w.walked(1)
	w.sold("eu-west", -2, 300)
	w.await(w.keyOf("eu-west", -2), effect.Acked)
	w.counted(map[effect.State]int{effect.Acked: hours + 2, effect.Held: 1})
	for hour := range hours {
		if r := w.now(w.keyOf("eu-west", hour)); len(r.Attempts) != 1 || w.sim.Requests(r.Key.String()) != 1 {
			t.Errorf("hour %d: %d attempts, %d requests", hour, len(r.Attempts), w.sim.Requests(r.Key.String()))
		}
	}
	if r := w.now(w.keyOf("eu-west", hours)); r.State != effect.Held || r.LastAttempt != 0 {
		t.Errorf("the hour that only replays have is %s after %d attempts", r.State, r.LastAttempt)
	}
	w.once(hours + 2)
}

func TestAReplayInTheMiddleOfSendingExecutesEachEffectOnce(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable})
	mix, err := providersim.ParseMix("accept=6,lose-answer=2,execute-500=1,delay:30ms=2")
	must(t, err)
	w.sim.SetMix(mix, 7)
	w.addGeneration(2, "{tumbling: 1h, zone: UTC}")
	w.addGeneration(3, "{tumbling: 1h, zone: UTC}")
	const hours = 40
	for gen := 2; gen <= 3; gen++ {
		a := w.generation(gen, 0)
		for hour := range hours {
			a.accept(a.next("eu-west", hourOf(hour), 200+hour, nil))
		}
	}
	w.node(t.TempDir()).start()
	for hour := range hours {
		w.sold("eu-west", hour, 200+hour)
		switch hour {
		case hours / 3:
			w.promote(2, 1, 2)
		case 2 * hours / 3:
			w.promote(4, 2, 3)
		}
	}
	eventually(t, func() string {
		for hour := range hours {
			r := w.now(w.keyOf("eu-west", hour))
			if r == nil {
				return fmt.Sprintf("hour %d has no record", hour)
			}
			if r.State == effect.Held && r.Airlock == "switch" { // a person decides
				continue
			}
			if r.Outcome != effect.Applied {
				return fmt.Sprintf("hour %d is %s", hour, r.State)
			}
		}
		return ""
	})
	for hour := range hours {
		r := w.now(w.keyOf("eu-west", hour))
		want := 1
		if r.State == effect.Held {
			want = 0
		}
		w.executed(r.Key, want)
	}
}

func TestSessionsOfAnotherGapStandOnTheEffectsThatRan(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable, window: "{session: 11m, rule: gap-11-v2}"})
	w.addGeneration(2, "{session: 31m, rule: gap-11-v2}")
	w.addGeneration(3, "{session: 4m, rule: gap-11-v2}")
	n := w.node(t.TempDir()).start()
	a := w.generation(1, 0)
	first, second, alone := session(0, 20), session(30, 50), session(100, 120)
	for i, s := range []revision.Window{first, second, alone} {
		a.accept(a.next("eu-west", s, 250+i, sessionOf))
	}
	one, two, three := w.keyOfWindow("eu-west", first), w.keyOfWindow("eu-west", second), w.keyOfWindow("eu-west", alone)
	w.counted(map[effect.State]int{effect.Acked: 3})

	b := w.generation(2, 0)
	b.accept(b.next("eu-west", session(0, 50), 501, sessionOf))
	b.accept(b.next("eu-west", session(100, 140), 300, sessionOf)) // begins alike, ends later
	b.accept(b.next("eu-west", session(300, 310), 400, sessionOf)) // only here
	w.promote(2, 1, 2)
	w.await(one, effect.CompensationRequired)
	w.await(two, effect.CompensationRequired)
	w.await(three, effect.CompensationRequired)
	w.await(w.keyOfWindow("eu-west", session(300, 310)), effect.Held)
	if r := w.now(two); r.MergedInto == nil || *r.MergedInto != one {
		t.Errorf("the second session's effect is %+v", r)
	}
	if r := w.now(one); r.Covered == nil || *r.Covered != session(0, 50) {
		t.Errorf("the first one covers %v", r.Covered)
	}
	w.counted(map[effect.State]int{effect.CompensationRequired: 3, effect.Held: 1})

	c := w.generation(3, 0) // the lone session falls apart
	c.accept(c.next("eu-west", session(0, 20), 250, sessionOf))
	c.accept(c.next("eu-west", session(100, 108), 150, sessionOf), c.next("eu-west", session(112, 120), 160, sessionOf))
	w.promote(4, 2, 3)
	eventually(t, func() string {
		if r := w.now(three); len(r.Clash) != 2 {
			return fmt.Sprintf("the lone session's effect is %s with %d sessions", r.State, len(r.Clash))
		}
		return ""
	})
	for _, s := range []revision.Window{session(0, 50), session(100, 140), session(100, 108), session(112, 120), session(300, 310)} {
		if key := w.keyOfWindow("eu-west", s); key != one && key != three {
			w.executed(key, 0)
		}
	}
	w.sold2(c) // it goes on
	w.once(4)
	if problems := n.trouble(); len(problems) > 0 {
		t.Error(problems)
	}
}

package effector

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/dispatchfile"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// contents answers everything that a closed view's file says of effects.
func contents(t *testing.T, path string) string {
	t.Helper()
	store, err := checkpoint.Open(path, checkpoint.Kind{Name: ViewKind, Format: ViewFormat, Cache: true})
	must(t, err)
	defer store.Close()
	var out strings.Builder
	must(t, store.View(func(tx *checkpoint.Tx) error {
		for _, name := range []string{effectsBucket, statesBucket, sessionsBucket, ordinalsBucket, attemptsBucket} {
			b, err := tx.Bucket(name)
			if err != nil {
				return err
			}
			err = b.Each(func(key, value []byte) error {
				fmt.Fprintf(&out, "%s %x %s\n", name, key, value)
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}))
	return out.String()
}

func TestAViewFoldedAnewIsTheOneThatWasKept(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable})
	kept := t.TempDir()
	n := w.node(kept).start()
	for hour := range 20 {
		w.sold("eu-west", hour, 90+10*hour)
	}
	w.await(w.keyOf("eu-west", 19), effect.Acked)
	w.sold("eu-west", 19, 10)
	w.await(w.keyOf("eu-west", 19), effect.CompensationRequired)
	must(t, n.stop())
	anew := t.TempDir()
	n = w.node(anew).start()
	w.sold("eu-west", 20, 500)
	w.await(w.keyOf("eu-west", 20), effect.Acked)
	must(t, n.stop())
	n = w.node(kept).start() // reads what it missed
	w.sold("eu-west", 21, 10)
	eventually(t, func() string {
		if v := n.opened(); v == nil || v.population()[effect.Acked] == 0 {
			return "not owned yet"
		}
		return ""
	})
	must(t, n.stop())
	n = w.node(anew).start()
	eventually(t, func() string {
		if n.opened() == nil {
			return "not owned yet"
		}
		return ""
	})
	must(t, n.stop())
	p := partition{stream: w.name}
	if a, b := contents(t, p.viewFile(kept)), contents(t, p.viewFile(anew)); a != b || a == "" {
		t.Errorf("a view that was kept says\n%s\none folded anew\n%s", a, b)
	}
}

func TestAViewOfAnotherPartitionOrAheadOfTheJournalIsSetAside(t *testing.T) {
	path := partition{stream: "orders", number: 1}.viewFile(t.TempDir())
	v, _, err := openView(path, partition{stream: "orders", number: 1})
	must(t, err)
	_, err = v.apply()
	must(t, err)
	must(t, v.close())
	v, aside, err := openView(path, partition{stream: "orders", number: 2})
	must(t, err)
	defer v.close()
	if aside == nil || v.at().Of != "orders/02" || v.at().Seq != 0 {
		t.Errorf("set aside %+v, now %+v", aside, v.at())
	}
}

func TestAnAttemptThatOnlyTheFileKnowsKeepsTheGateClosedUntilRecover(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable})
	dir := t.TempDir()
	n := w.node(dir)
	must(t, os.MkdirAll(dir+"/"+w.name, 0o700))
	file, err := dispatchfile.Open(n.part.dispatchFile(dir))
	must(t, err)
	// The journal's tail with this attempt was lost together with its server.
	sent := w.keyOf("eu-west", 0)
	must(t, file.Bind(context.Background(), dispatchfile.Identity{Stream: n.part.journal(), Created: 1}))
	must(t, file.Append(context.Background(), []dispatchfile.Entry{{Key: sent, Attempt: 1, Epoch: 1, Digest: revision.Digest{1}, Seq: 77}}))
	must(t, file.Close())

	n.start()
	w.sold("eu-west", 0, 250)
	w.sold("eu-west", 1, 250)
	other := w.keyOf("eu-west", 1)
	w.await(other, effect.Prepared)
	r := w.await(sent, effect.Manual) // no query says what it is: only the file knows of it
	if len(r.Attempts) != 1 || !r.Attempts[0].Recovered {
		t.Errorf("recovered as %+v", r)
	}
	eventually(t, func() string {
		if trouble := n.trouble(); len(trouble) != 1 || !strings.Contains(trouble[0], "effects recover") {
			return fmt.Sprint("problems: ", trouble)
		}
		return ""
	})
	w.executed(other, 0)
	if done := w.command(effectlog.Command{Act: effectlog.ActRecover}); done.Refusal != "" {
		t.Fatalf("recover: %s", done.Refusal)
	}
	w.await(other, effect.Acked)
	w.executed(other, 1)
	w.executed(sent, 0)
	must(t, n.stop())
	n = w.node(dir).start() // it stays open
	w.sold("eu-west", 2, 250)
	w.await(w.keyOf("eu-west", 2), effect.Acked)
	if w.now(sent).State != effect.Manual {
		t.Errorf("the effect of the file is %s", w.now(sent).State)
	}
}

func TestProvenanceIsWaitedForWithoutANewRevision(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable, policy: anyAge + "requireProvenance: DATA\n"})
	dir := t.TempDir()
	n := w.node(dir).start()
	a := w.generation(1, 0)
	a.data = base + hour/2 // data reaches to the middle of the hour; idleness closed it
	a.accept(a.next("eu-west", hourOf(0), 250, nil))
	a.accept(a.next("eu-west", hourOf(-1), 250, nil)) // an hour that data has passed
	w.await(w.keyOf("eu-west", -1), effect.Acked)
	key := w.keyOf("eu-west", 0)
	if w.now(key) != nil {
		t.Fatal("an effect was prepared before its provenance")
	}
	must(t, n.stop()) // the revision stands in no record: another process must find it again
	w.node(t.TempDir()).start()
	a.data = base + hour
	a.accept() // a COMMIT without revisions
	w.await(key, effect.Acked)
	w.executed(key, 1)
}

// session is a session of the tests, in minutes from base.
func session(from, to int) revision.Window {
	const minute = envelope.EventTime(60_000_000)
	return revision.Window{Start: base + envelope.EventTime(from)*minute, End: base + envelope.EventTime(to)*minute}
}

func TestSessionsThatMergeAreOneEffect(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable, window: "{session: 11m, rule: gap-11-v2}"})
	w.gate(effectlog.Global, true)
	w.node(t.TempDir()).start()
	a := w.generation(1, 0)
	first, second, whole := session(0, 20), session(30, 50), session(0, 50)
	a.accept(a.next("eu-west", first, 250, sessionOf), a.next("eu-west", second, 300, sessionOf))
	one, two := w.keyOfWindow("eu-west", first), w.keyOfWindow("eu-west", second)
	w.await(one, effect.Prepared)
	w.await(two, effect.Prepared)
	to := a.next("eu-west", whole, 550, sessionOf)
	gone := []*revision.Revision{a.retract("eu-west", first, to.ProjectionID), a.retract("eu-west", second, to.ProjectionID)}
	for _, r := range gone {
		to.Supersedes = append(to.Supersedes, revision.Supersession{ProjectionID: r.ProjectionID, Revision: r.Revision})
	}
	a.accept(gone[0], gone[1], to)
	w.await(two, effect.Voided)
	eventually(t, func() string {
		if r := w.now(one); r.Covered == nil || *r.Covered != whole || r.State != effect.Prepared || r.Request.Expect.Amount != "550.00" {
			return fmt.Sprintf("the first session's effect is %+v", r)
		}
		return ""
	})
	if r := w.now(two); r.MergedInto == nil || *r.MergedInto != one {
		t.Errorf("the other one is %+v", r)
	}
	if w.now(w.keyOfWindow("eu-west", whole)) != nil && one != w.keyOfWindow("eu-west", whole) {
		t.Error("the merged session minted a key of its own")
	}
	w.gate(effectlog.Global, false)
	w.await(one, effect.Acked)
	w.executed(one, 1)
	w.executed(two, 0)
}

func sessionOf(r *revision.Revision) { r.ResultID = strings.Repeat("cd", 32) }

func TestTwoSessionsUnderOneEffectAreNeverSent(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable, window: "{session: 11m, rule: gap-11-v2}"})
	w.gate(effectlog.Global, true)
	w.node(t.TempDir()).start()
	a := w.generation(1, 0)
	whole, first, second := session(0, 50), session(0, 20), session(30, 50)
	a.accept(a.next("eu-west", whole, 550, sessionOf))
	key := w.keyOfWindow("eu-west", whole)
	w.await(key, effect.Prepared)
	// The event between them is withdrawn.
	parts := []*revision.Revision{a.next("eu-west", first, 250, sessionOf), a.next("eu-west", second, 300, sessionOf)}
	a.accept(a.retract("eu-west", whole, parts[0].ProjectionID), parts[0], parts[1])
	eventually(t, func() string {
		if r := w.now(key); r.State != effect.Held || len(r.Clash) != 2 {
			return fmt.Sprintf("the effect is %s with %d sessions", r.State, len(r.Clash))
		}
		return ""
	})
	w.gate(effectlog.Global, false)
	w.sold2(a)
	for _, window := range []revision.Window{whole, first, second} {
		w.executed(w.keyOfWindow("eu-west", window), 0)
	}
}

// sold2 has another session go, which shows that the gate is open.
func (w *world) sold2(a *acceptor) {
	w.t.Helper()
	other := session(0, 5)
	a.accept(a.next("eu-north", other, 700, sessionOf))
	w.await(w.keyOfWindow("eu-north", other), effect.Acked)
}

func TestASwitchJudgesTheCurrentRevisionsOfTheNewGeneration(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable})
	ctx := testContext(t)
	second := strings.ReplaceAll(documents[strings.Index(documents, "---\napiVersion: tidemark/v1\nkind: StreamTimePolicy"):strings.Index(documents, "---\napiVersion: tidemark/v1\nkind: Adapter")], "generation: 1", "generation: 2")
	w.apply(ctx, strings.NewReplacer("NAME", w.name, "WINDOW", "{tumbling: 1h, zone: UTC}").Replace(strings.TrimPrefix(second, "---\n")))
	n := w.node(t.TempDir()).start()
	w.sold("eu-west", 0, 250) // both generations agree
	w.sold("eu-west", 1, 250) // the new one has less
	w.await(w.keyOf("eu-west", 0), effect.Acked)
	w.await(w.keyOf("eu-west", 1), effect.Acked)
	w.gate(effectlog.TypeScope("issue-reward"), true)
	w.sold("eu-west", 2, 250) // never sent, and the new generation has less
	w.sold("eu-west", 3, 250) // never sent, and the new one has another amount
	w.await(w.keyOf("eu-west", 3), effect.Prepared)

	b := w.generation(2, 0)
	b.accept(b.next("eu-west", hourOf(0), 250, nil), b.next("eu-west", hourOf(1), 300, nil), b.next("eu-west", hourOf(2), 20, nil), b.next("eu-west", hourOf(3), 260, nil))
	b.accept(b.next("eu-west", hourOf(1), 20, nil), b.next("eu-west", hourOf(4), 250, nil))
	w.control(effectlog.Control{Alias: &effectlog.Alias{Job: "hourly", Epoch: 2, Canonical: 1, Switching: true}})
	w.control(effectlog.Control{Alias: &effectlog.Alias{Job: "hourly", Epoch: 3, Canonical: 2}})
	w.await(w.keyOf("eu-west", 1), effect.CompensationRequired)
	w.await(w.keyOf("eu-west", 2), effect.Voided)
	first := w.await(w.keyOf("eu-west", 4), effect.Held) // first seen through the switch
	if first.Airlock != "switch" {
		t.Errorf("held by %q", first.Airlock)
	}
	w.gate(effectlog.TypeScope("issue-reward"), false)
	r := w.await(w.keyOf("eu-west", 3), effect.Acked)
	if r.Request.Expect.Amount != "260.00" {
		t.Errorf("sent with %q", r.Request.Expect.Amount)
	}
	if got := w.now(w.keyOf("eu-west", 0)); got.State != effect.Acked {
		t.Errorf("what both agree on is %s", got.State)
	}
	if got := w.now(w.keyOf("eu-west", 1)); got.Corrections != 1 {
		t.Errorf("%d corrections were opened", got.Corrections)
	}
	for hour, want := range []int{1, 1, 0, 1, 0} {
		w.executed(w.keyOf("eu-west", hour), want)
	}
	if problems := n.trouble(); len(problems) > 0 {
		t.Error(problems)
	}
	states := n.opened().population()
	maps.DeleteFunc(states, func(_ effect.State, n int) bool { return n == 0 })
	if got := slices.Sorted(maps.Keys(states)); !slices.Equal(got, []effect.State{effect.Acked, effect.CompensationRequired, effect.Held, effect.Voided}) {
		t.Errorf("states are %v", got)
	}
}

package effector

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// copyJournal keeps the effects journal as it is now. What it answers puts it back, with
// its identity, as a server does that lost what came later.
func (w *world) copyJournal() (back func()) {
	w.t.Helper()
	name := subject.EffectsStream(w.name, 0)
	var kept bytes.Buffer
	of, err := w.conn.Snapshot(testContext(w.t), name, &kept, nil)
	must(w.t, err)
	return func() {
		w.t.Helper()
		ctx := testContext(w.t)
		must(w.t, w.conn.JS.DeleteStream(ctx, name))
		must(w.t, w.conn.Restore(ctx, of, 1, &kept, nil))
		id, err := journal.Identify(ctx, w.conn.JS, name)
		must(w.t, err)
		if id.Created != of.Created {
			w.t.Fatalf("the journal that was put back was made at %d, its copy at %d", id.Created, of.Created)
		}
	}
}

// loseJournal makes the effects journal anew, empty.
func (w *world) loseJournal() {
	w.t.Helper()
	ctx := testContext(w.t)
	s, err := w.conn.JS.Stream(ctx, subject.EffectsStream(w.name, 0))
	must(w.t, err)
	cfg := s.CachedInfo().Config
	first := w.entries()
	must(w.t, w.conn.JS.DeleteStream(ctx, cfg.Name))
	_, err = w.conn.JS.CreateStream(ctx, cfg)
	must(w.t, err)
	for _, e := range first { // what `apply` wrote into it is written again
		if f, err := effectlog.DecodeForeign(e.Control); err == nil && f.Control != nil {
			c := *f.Control
			c.Stamp = w.stamp()
			data, err := c.Encode()
			must(w.t, err)
			w.append(data)
		}
	}
}

// barred waits until a node says that nothing is sent before a recovery.
func (n *node) awaitBarred() {
	n.t.Helper()
	eventually(n.t, func() string {
		if trouble := n.trouble(); len(trouble) != 1 || !strings.Contains(trouble[0], "effects recover") {
			return fmt.Sprint("problems: ", trouble)
		}
		return ""
	})
}

// reopened proves that the gate is closed for an effect of that hour, has it opened by
// `effects recover`, and waits until the effect ran.
func (w *world) reopened(n *node, hour int) {
	w.t.Helper()
	w.sold("eu-west", hour, 500)
	key := w.keyOf("eu-west", hour)
	w.await(key, effect.Prepared)
	n.awaitBarred()
	w.executed(key, 0)
	if done := w.command(effectlog.Command{Act: effectlog.ActRecover}); done.Refusal != "" {
		w.t.Fatalf("recover: %s", done.Refusal)
	}
	w.await(key, effect.Acked)
	w.executed(key, 1)
}

// sentBehind sells an hour and sends its effect; the journal has its DISPATCHING record,
// the provider did it, and the answer is in no record. It answers how to take the record
// of the dispatch back.
func (w *world) sentBehind(dir string) (effect.EffectKey, func()) {
	w.t.Helper()
	n := w.node(dir)
	ctx := testContext(w.t)
	file, v := n.files()
	o, err := n.claim(ctx, ctx, v, file)
	must(w.t, err)
	o.reading = ctx
	o.beat = n.monitor.Start("test")
	must(w.t, o.refresh(ctx))
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	turnUntil(w.t.(*testing.T), o, key, effect.Prepared)
	back := w.copyJournal()
	list := dispatchOnly(w.t.(*testing.T), o, key)
	must(w.t, o.send(ctx, list))
	must(w.t, w.sim.AwaitExecutions(ctx, key.String(), 1))
	n.sends.Wait()
	o.endFeeds()
	o.close()
	must(w.t, file.Close())
	must(w.t, v.close())
	return key, back
}

func TestAJournalThatLostItsLastRecordSendsNothingAgain(t *testing.T) {
	for name, adapter := range map[string]string{
		"idempotent and queryable": idempotent + queryable, "idempotent": idempotent, "queryable": queryable, "neither": "sendUnproven: true\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, terms{adapter: adapter})
			dir := t.TempDir()
			key, back := w.sentBehind(dir)
			back() // the DISPATCHING record is gone, and the view is ahead
			n := w.node(dir).start()
			want := effect.Manual
			if strings.Contains(adapter, "query") {
				want = effect.Reconciled
			}
			w.await(key, want)
			w.reopened(n, 1)
			must(t, n.stop())
			w.node(dir).start()
			w.sold("eu-west", 2, 500)
			w.await(w.keyOf("eu-west", 2), effect.Acked)
			if w.now(key).State != want || w.sim.Requests(key.String()) != 1 {
				t.Errorf("%s after %d requests", w.now(key).State, w.sim.Requests(key.String()))
			}
			w.executed(key, 1)
		})
	}
}

func TestAJournalThatWasCutOrLostExecutesNothingAgain(t *testing.T) {
	for name, lose := range map[string]func(w *world) func(){
		"cut":  (*world).copyJournal,
		"lost": func(w *world) func() { return w.loseJournal },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, terms{adapter: idempotent + queryable})
			dir := t.TempDir()
			back := lose(w)
			n := w.node(dir).start()
			const hours = 8
			for hour := range hours {
				w.sold("eu-west", hour, 200+hour)
			}
			w.counted(map[effect.State]int{effect.Acked: hours})
			must(t, n.stop())
			back()
			n = w.node(dir).start()
			for hour := range hours {
				r := w.await(w.keyOf("eu-west", hour), effect.Reconciled)
				if r.Outcome != effect.Applied || len(r.Attempts) != 1 || !r.Attempts[0].Recovered {
					t.Errorf("hour %d: %+v", hour, r)
				}
			}
			w.reopened(n, hours)
			for hour := range hours + 1 {
				w.executed(w.keyOf("eu-west", hour), 1)
			}
			w.once(hours + 1)
			w.sold("eu-west", 0, 20) // it is a record like any other from now on
			w.await(w.keyOf("eu-west", 0), effect.CompensationRequired)
		})
	}
}

func TestALostOrOlderDispatchFileSendsNothingAgain(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, path string, older []byte){
		"lost":                      func(t *testing.T, path string, _ []byte) { must(t, os.Remove(path)) },
		"rolled back by one record": func(t *testing.T, path string, older []byte) { must(t, os.WriteFile(path, older, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, terms{adapter: queryable}) // what is sent again is executed again
			dir := t.TempDir()
			path := partition{stream: w.name}.dispatchFile(dir)
			n := w.node(dir)
			must(t, os.MkdirAll(filepath.Dir(path), 0o700))
			file, v := n.files()
			must(t, file.Close())
			must(t, v.close())
			older, err := os.ReadFile(path)
			must(t, err)
			key, _ := w.sentBehind(dir)
			lose(t, path, older)
			n = w.node(dir).start()
			w.await(key, effect.Reconciled)
			w.sold("eu-west", 1, 500)
			w.await(w.keyOf("eu-west", 1), effect.Acked) // the journal knows all of it: no gate is closed
			w.once(2)
			if got := w.sim.Requests(key.String()); got != 1 {
				t.Errorf("%d requests", got)
			}
			if trouble := n.trouble(); len(trouble) > 0 {
				t.Error(trouble)
			}
		})
	}
}

func TestATornDispatchFileHaltsUntilItIsTakenAway(t *testing.T) {
	for name, tear := range map[string]func([]byte) []byte{
		"cut":    func(b []byte) []byte { return b[:3*os.Getpagesize()] },
		"zeroed": func(b []byte) []byte { clear(b[2*os.Getpagesize():]); return b },
		"foreign": func([]byte) []byte {
			return []byte("what is this")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, terms{adapter: queryable})
			dir := t.TempDir()
			key, _ := w.sentBehind(dir)
			path := partition{stream: w.name}.dispatchFile(dir)
			whole, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(path, tear(whole), 0o600))
			w.sold("eu-west", 1, 500)

			n := w.node(dir).start()
			if why := n.mustHalt(); !strings.Contains(why, path) {
				t.Errorf("it says %q, and not which file", why)
			}
			w.executed(w.keyOf("eu-west", 1), 0)
			must(t, os.Rename(path, path+".damaged"))
			w.node(dir).start()
			w.await(key, effect.Reconciled)
			w.await(w.keyOf("eu-west", 1), effect.Acked)
			w.once(2)
		})
	}
}

func TestADispatchFileOfAnotherPartitionKeepsTheGateClosed(t *testing.T) {
	other := newWorld(t, terms{adapter: idempotent + queryable})
	theirs := t.TempDir()
	other.sentBehind(theirs)
	w := newWorld(t, terms{adapter: idempotent + queryable})
	dir := t.TempDir()
	path := partition{stream: w.name}.dispatchFile(dir)
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	bytes, err := os.ReadFile(partition{stream: other.name}.dispatchFile(theirs))
	must(t, err)
	must(t, os.WriteFile(path, bytes, 0o600))
	n := w.node(dir).start()
	w.reopened(n, 1)
	w.once(1)
}

// A journal that has lost its begin, or a record in its middle, says nothing reliable of
// any effect.
func TestAJournalWithAHoleHalts(t *testing.T) {
	for name, harm := range map[string]func(s jetstream.Stream, control, commit uint64) error{
		"begin": func(s jetstream.Stream, _, _ uint64) error {
			return s.Purge(context.Background(), jetstream.WithPurgeSequence(2))
		},
		"a control": func(s jetstream.Stream, control, _ uint64) error { return s.DeleteMsg(context.Background(), control) },
		"a commit":  func(s jetstream.Stream, _, commit uint64) error { return s.DeleteMsg(context.Background(), commit) },
		"nothing":   nil,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, terms{adapter: queryable})
			n := w.node(t.TempDir()).start()
			const hours = 4
			for hour := range hours {
				w.sold("eu-west", hour, 200+hour)
				w.await(w.keyOf("eu-west", hour), effect.Acked)
			}
			control := w.gate(effectlog.Global, true)
			w.sold("eu-west", hours, 500)
			w.await(w.keyOf("eu-west", hours), effect.Prepared)
			must(t, n.stop())
			list := w.entries()
			commit := list[slices.IndexFunc(list, func(e *journal.Entry) bool { return len(e.Records) > 0 })].Seq
			s := w.unguarded()
			if harm != nil {
				must(t, harm(s, control, commit))
			}
			n = w.node(t.TempDir()).start() // neither view nor file
			if harm != nil {
				n.mustHalt()
			} else {
				w.gate(effectlog.Global, false)
				w.await(w.keyOf("eu-west", hours), effect.Acked)
				must(t, n.stop())
			}
			for hour := range hours {
				w.executed(w.keyOf("eu-west", hour), 1)
			}
		})
	}
}

// unguarded makes the effects journal anew with the same records, as somebody does who
// copies it into a stream from which messages can be deleted.
func (w *world) unguarded() jetstream.Stream {
	w.t.Helper()
	ctx := testContext(w.t)
	s, err := w.conn.JS.Stream(ctx, subject.EffectsStream(w.name, 0))
	must(w.t, err)
	cfg, state := s.CachedInfo().Config, s.CachedInfo().State
	if s.Purge(ctx) == nil || s.DeleteMsg(ctx, state.LastSeq) == nil {
		w.t.Error("the server lets records of an effects journal be deleted")
	}
	var kept []*nats.Msg
	for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
		m, err := s.GetMsg(ctx, seq)
		must(w.t, err)
		kept = append(kept, &nats.Msg{Subject: m.Subject, Data: m.Data})
	}
	must(w.t, w.conn.JS.DeleteStream(ctx, cfg.Name))
	cfg.DenyDelete, cfg.DenyPurge = false, false
	s, err = w.conn.JS.CreateStream(ctx, cfg)
	must(w.t, err)
	for _, m := range kept {
		_, err := w.conn.JS.PublishMsg(ctx, m)
		must(w.t, err)
	}
	return s
}

// mustHalt waits until a node ends with damage, and answers how it says so.
func (n *node) mustHalt() string {
	n.t.Helper()
	select {
	case err := <-n.done:
		n.stopped = true
		if err == nil || !halts(err) {
			n.t.Fatalf("it ended with %v, want damage", err)
		}
		return err.Error()
	case <-time.After(20 * time.Second):
		n.t.Fatal("it goes on")
	}
	return ""
}

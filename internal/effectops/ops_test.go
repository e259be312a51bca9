package effectops

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// run runs a job and answers its results.
func run(t testing.TB, ops *Ops, order Order, targets []Target) (all []Result) {
	t.Helper()
	must(t, ops.Run(deadline(t), ada, order, targets, func(r Result) error {
		all = append(all, r)
		return nil
	}))
	return all
}

func list(t testing.TB, ops *Ops, f Filter) []Item {
	t.Helper()
	items, err := ops.List(deadline(t), f)
	must(t, err)
	return items
}

var approve = Order{Act: effectlog.ActApprove, Expires: time.Hour}

func TestApprovalIsOfThePayloadThatWasShown(t *testing.T) {
	ops := shop(t, 2)
	begin(t, ops)
	o := own(t, ops, 1)
	w := reward{n: 1, effectType: "issue-reward", airlock: "amountAbove", sendWithin: time.Second}
	key := o.prepare(w)
	items := list(t, ops, Filter{States: []effect.State{effect.Held}})
	if len(items) != 1 || items[0].Record.Key != key || items[0].Partition != 1 {
		t.Fatalf("listed are %+v", items)
	}
	if err := ShownAs(items[0], revision.Digest{1}); !errors.Is(err, ErrOtherDigest) {
		t.Fatalf("another digest: %v", err)
	}
	must(t, ShownAs(items[0], items[0].Record.Request.PayloadDigest))
	wrong := Targets(items)
	wrong[0].Digest = revision.Digest{1}
	if r := run(t, ops, approve, wrong)[0]; r.Result != ResultRefused || r.Refusal != ledger.OtherDigest || r.Why == "" {
		t.Fatalf("approval of another payload: %+v", r)
	}
	r := run(t, ops, approve, Targets(items))[0]
	if r.Result != ResultDone || r.State != effect.Prepared || r.Key != key.String() || r.Job == "" {
		t.Fatalf("%+v", r)
	}
	shown, err := ops.Show(deadline(t), key)
	must(t, err)
	if len(shown.History) != 2 || len(shown.Asked) != 2 || shown.ClosedGate != "" {
		t.Fatalf("%+v", shown)
	}
	if a := shown.Record.Approval; a == nil || a.Sequence != r.Sequence || a.By != ada.Who || shown.Asked[1].Seq != r.Sequence || shown.Asked[1].Done.Step != 2 {
		t.Fatalf("approval %+v of command %+v", a, shown.Asked[1])
	}
	if refusal := o.dispatch(w); refusal != "" {
		t.Fatal(refusal.Why())
	}
}

func TestJobAnswersEachItem(t *testing.T) {
	ops := shop(t, 2)
	begin(t, ops)
	a, b := own(t, ops, 0), own(t, ops, 1)
	w := reward{n: 1, effectType: "issue-reward", sendWithin: time.Second}
	for n := range 5 {
		w.n = n
		a.prepare(w)
	}
	w.n = 7
	b.prepare(w)
	sent := w
	sent.n = 3
	if refusal := a.dispatch(sent); refusal != "" {
		t.Fatal(refusal.Why())
	}
	results := run(t, ops, Order{Act: effectlog.ActHold}, Targets(list(t, ops, Filter{Type: "issue-reward", Adapter: "rewards-api"})))
	counts := map[string]int{}
	for _, r := range results {
		counts[r.Result+" "+string(r.State)+string(r.Refusal)]++
		if r.Job != results[0].Job {
			t.Errorf("two jobs: %+v", r)
		}
	}
	if len(results) != 6 || counts["done HELD"] != 5 || counts["refused in-flight"] != 1 {
		t.Fatalf("%v", counts)
	}
	if items := list(t, ops, Filter{States: []effect.State{effect.Held}, Key: "region-7", Job: "hourly", Adapter: "rewards-api@2", Airlock: ledger.LockOperator}); len(items) != 1 || items[0].Partition != 1 {
		t.Fatalf("%+v", items)
	}
	for _, f := range []Filter{{Type: "mail"}, {Adapter: "rewards-api@1"}, {Job: "daily"}, {Subject: "x"}, {Keys: []effect.EffectKey{{1}}}} {
		if items := list(t, ops, f); len(items) != 0 {
			t.Errorf("%+v takes %+v", f, items)
		}
	}
}

func TestJobOfSeveralStepsAnswersEveryItemInOrder(t *testing.T) {
	ops := shop(t, 1)
	begin(t, ops)
	o := own(t, ops, 0)
	o.prepare(reward{n: 1, effectType: "issue-reward", sendWithin: time.Second})
	targets := make([]Target, jobChunk+2)
	for i := range targets {
		targets[i].Key = effect.EffectKey{1, byte(i)} // of no effect, but for the last
	}
	targets[len(targets)-1] = Targets(list(t, ops, Filter{}))[0]
	results := run(t, ops, Order{Act: effectlog.ActHold, Wait: time.Minute}, targets)
	for i, r := range results {
		want := ResultRefused
		if i == len(targets)-1 {
			want = ResultDone
		}
		if r.Result != want || r.Key != targets[i].Key.String() || i > 0 && r.Sequence <= results[i-1].Sequence {
			t.Fatalf("item %d: %+v", i, r)
		}
	}
	if len(results) != len(targets) {
		t.Fatalf("%d results of %d", len(results), len(targets))
	}
}

// An append whose answer was lost may leave two copies; the owner answers the first.
func TestAnswerToTheFirstCopyOfACommandCounts(t *testing.T) {
	s := &step{order: &Order{Act: effectlog.ActHold}, results: make([]Result, 1), open: map[string]int{"job-00000-0": 0}}
	command := s.command(0, Target{Key: effect.EffectKey{1}}, effectlog.Stamp{ID: "job-00000-0", Basis: 5, Who: "ada", Reason: "drill", At: 1})
	data, err := command.Encode()
	must(t, err)
	entry, err := journal.EncodeEntry(&journal.Entry{Control: data})
	must(t, err)
	must(t, s.hear(journal.Msg{Seq: 13, Data: entry}))
	must(t, s.hear(journal.Msg{Seq: 21, Data: entry}))
	answer := func(seq uint64) []byte {
		data, err := (&effectlog.Done{Sequence: seq, Key: effect.EffectKey{1}, Refusal: "not-held"}).Encode()
		must(t, err)
		c := revision.NewCommit()
		entry, err := journal.EncodeEntry(&journal.Entry{Records: [][]byte{data}, Commit: &c})
		must(t, err)
		return entry
	}
	must(t, s.hear(journal.Msg{Seq: 22, Data: answer(21)}))
	if len(s.open) != 1 {
		t.Fatalf("%+v", s.results[0])
	}
	must(t, s.hear(journal.Msg{Seq: 23, Data: answer(13)}))
	if r := s.results[0]; len(s.open) != 0 || r.Sequence != 13 || r.Result != ResultRefused || r.Refusal != ledger.NotHeld {
		t.Fatalf("%+v", r)
	}
}

// A command is in the journal whether or not somebody is there to answer it.
func TestCommandWaitsForAnOwner(t *testing.T) {
	ops := shop(t, 1)
	begin(t, ops)
	o := own(t, ops, 0)
	key := o.prepare(reward{n: 1, effectType: "issue-reward", sendWithin: time.Second})
	o.stop()
	order := Order{Act: effectlog.ActHold, Wait: 200 * time.Millisecond}
	r := run(t, ops, order, Targets(list(t, ops, Filter{})))[0]
	if r.Result != ResultWaiting || r.Sequence == 0 || r.Why == "" {
		t.Fatalf("%+v", r)
	}
	o = own(t, ops, 0)
	if refusal := o.want(key, func(_ *effectlog.State, r *effect.Record) ledger.Event { return ledger.Escalate{} }); refusal == "" {
		t.Fatal("escalated")
	}
	shown, err := ops.Show(deadline(t), key)
	must(t, err)
	if shown.Record.State != effect.Held || len(shown.Asked) != 1 || shown.Asked[0].Done == nil {
		t.Fatalf("%+v", shown)
	}
}

func TestRecoveryIsAskedOfPartitions(t *testing.T) {
	ops := shop(t, 2)
	begin(t, ops)
	own(t, ops, 0)
	own(t, ops, 1)
	results := run(t, ops, Order{Act: effectlog.ActRecover}, []Target{{Partition: 1}, {Partition: 0}})
	for i, r := range results {
		if r.Partition != i || r.Result != ResultDone || r.Why != "nothing was lost" || r.Key != "" {
			t.Errorf("%+v", r)
		}
	}
	if len(results) != 2 {
		t.Fatalf("%+v", results)
	}
}

func TestPauseHoldsEveryPartitionAndTellsWhatIsInFlight(t *testing.T) {
	ops := shop(t, 2)
	begin(t, ops)
	o := own(t, ops, 0)
	own(t, ops, 1)
	slow := reward{n: 1, effectType: "issue-reward", sendWithin: time.Hour}
	other := reward{n: 2, effectType: "mail", sendWithin: time.Hour}
	next := reward{n: 3, effectType: "issue-reward", sendWithin: time.Hour}
	for _, w := range []reward{slow, other, next} {
		o.prepare(w)
	}
	for _, w := range []reward{slow, other} {
		if refusal := o.dispatch(w); refusal != "" {
			t.Fatal(refusal.Why())
		}
	}
	scope := effectlog.TypeScope("issue-reward")
	type answer struct {
		paused *Paused
		err    error
	}
	answered := make(chan answer, 1)
	go func() {
		paused, err := ops.Pause(deadline(t), scope, ada)
		answered <- answer{paused, err}
	}()
	// The pause has landed once a dispatch is refused for it; it waits for the open attempt.
	for refusal := ledger.Refusal(""); refusal != ledger.GateClosed; {
		if refusal = o.dispatch(next); refusal == "" {
			o.done(next.key(ops.stream), ledger.Answer{Epoch: o.w.Epoch(), Attempt: attempts(t, ops, next), Class: effect.NotSent})
		}
	}
	select {
	case a := <-answered:
		t.Fatalf("the pause returned with an attempt open: %+v", a)
	default:
	}
	o.done(slow.key(ops.stream), ledger.Answer{Epoch: o.w.Epoch(), Attempt: 1, Class: effect.Ambiguous})
	a := <-answered
	must(t, a.err)
	if len(a.paused.Placed) != 2 || a.paused.Placed[0].Sequence == 0 || a.paused.Placed[1].Sequence == 0 {
		t.Fatalf("%+v", a.paused)
	}
	i := slices.IndexFunc(a.paused.InFlight, func(f InFlight) bool { return f.Key == slow.key(ops.stream) })
	if i < 0 || !a.paused.InFlight[i].Closed || a.paused.InFlight[i].State != effect.Unknown {
		t.Fatalf("%+v", a.paused.InFlight)
	}
	for _, f := range a.paused.InFlight {
		if f.Type != "issue-reward" || !f.Closed {
			t.Errorf("%+v", f)
		}
	}
	status, err := ops.Status(deadline(t))
	must(t, err)
	if scopes := Scopes(status); len(scopes) != 1 || scopes[0].Scope != scope || !slices.Equal(scopes[0].Closed, []int{0, 1}) || scopes[0].Stamp.Reason != ada.Reason {
		t.Fatalf("%+v", scopes)
	}
	if status[0].States[effect.Unknown] != 1 || status[0].Begun == 0 || len(status[0].Aliases) != 1 {
		t.Fatalf("%+v", status[0])
	}
	_, err = ops.Resume(deadline(t), scope, ada)
	must(t, err)
	if refusal := o.dispatch(next); refusal != "" {
		t.Fatal(refusal.Why())
	}
}

func attempts(t testing.TB, ops *Ops, w reward) uint32 {
	t.Helper()
	items := list(t, ops, Filter{Keys: []effect.EffectKey{w.key(ops.stream)}})
	return items[0].Record.LastAttempt
}

// Without an owner nobody closes an attempt; its time to be sent passes all the same.
func TestPauseReturnsWhenNothingCanBeSentAnyMore(t *testing.T) {
	ops := shop(t, 1)
	begin(t, ops)
	o := own(t, ops, 0)
	w := reward{n: 1, effectType: "issue-reward", sendWithin: 300 * time.Millisecond}
	o.prepare(w)
	if refusal := o.dispatch(w); refusal != "" {
		t.Fatal(refusal.Why())
	}
	o.stop()
	paused, err := ops.Pause(deadline(t), effectlog.Global, ada)
	must(t, err)
	if len(paused.InFlight) != 1 || paused.InFlight[0].Closed || paused.InFlight[0].State != effect.Dispatching {
		t.Fatalf("%+v", paused.InFlight)
	}
	if left := ops.clk.Since(paused.InFlight[0].until); left < 0 {
		t.Fatalf("it returned %s early", -left)
	}
}

func TestJournalWithoutControlIsClosed(t *testing.T) {
	ops := shop(t, 1)
	o := own(t, ops, 0)
	w := reward{n: 1, effectType: "issue-reward", sendWithin: time.Second}
	o.prepare(w)
	if refusal := o.dispatch(w); refusal != ledger.GateClosed {
		t.Fatalf("refusal %q", refusal)
	}
	status, err := ops.Status(deadline(t))
	must(t, err)
	if scopes := Scopes(status); len(scopes) != 1 || scopes[0].Scope != effectlog.Unset {
		t.Fatalf("%+v", scopes)
	}
}

func TestHistoryThatBreaksTheRulesIsNotShown(t *testing.T) {
	ops := shop(t, 1)
	begin(t, ops)
	o := own(t, ops, 0)
	key := o.prepare(reward{n: 1, effectType: "issue-reward", sendWithin: time.Second})
	o.done(key, ledger.Hold{By: effect.Effector, Rule: "amountAbove"})
	o.stop()
	record := *list(t, ops, Filter{})[0].Record
	record.Step.N = 4
	data, err := record.Encode()
	must(t, err)
	w, _, err := journal.ClaimWriter(deadline(t), ops.js, journal.Settings{
		Stream: subject.EffectsStream(ops.stream, 0), Subject: subject.Effects(ops.stream, 0), Owner: "tests", Strict: true,
	})
	must(t, err)
	defer w.Abort()
	p, err := w.Commit(deadline(t), [][]byte{data}, revision.NewCommit())
	must(t, err)
	<-p.Done()
	if _, err := ops.List(deadline(t), Filter{}); !errors.Is(err, ErrDamaged) {
		t.Fatalf("list: %v", err)
	}
	if _, err := ops.Show(deadline(t), key); !errors.Is(err, ErrDamaged) {
		t.Fatalf("show: %v", err)
	}
}

func TestExportTellsTheWholeJournal(t *testing.T) {
	ops := shop(t, 1)
	begin(t, ops)
	o := own(t, ops, 0)
	key := o.prepare(reward{n: 1, effectType: "issue-reward", sendWithin: time.Second})
	o.prepare(reward{n: 2, effectType: "issue-reward", sendWithin: time.Second})
	run(t, ops, Order{Act: effectlog.ActHold}, Targets(list(t, ops, Filter{Keys: []effect.EffectKey{key}})))
	kinds := func(f Filter) (text string) {
		must(t, ops.Export(deadline(t), f, func(l Line) error {
			switch {
			case l.Effect != nil:
				text += "E"
			case l.Done != nil:
				text += "D"
			case l.Control != nil:
				text += "C"
			case l.Command != nil:
				text += "O"
			}
			return nil
		}))
		return text
	}
	if got := kinds(Filter{}); got != "CEEOED" {
		t.Errorf("whole journal: %s", got)
	}
	if got := kinds(Filter{Keys: []effect.EffectKey{key}}); got != "EE" {
		t.Errorf("one effect: %s", got)
	}
}

func TestUnknownEffectsAndStreams(t *testing.T) {
	ops := shop(t, 1)
	if _, err := ops.Show(deadline(t), effect.EffectKey{1}); !errors.Is(err, ErrNotFound) {
		t.Errorf("show: %v", err)
	}
	if _, err := New(shared.conn.JS, "nowhere", 1).List(deadline(t), Filter{}); !errors.Is(err, ErrNoEffects) {
		t.Errorf("list: %v", err)
	}
	if err := ops.Run(deadline(t), ada, approve, []Target{{Key: effect.EffectKey{1}}}, func(Result) error { return nil }); err == nil {
		t.Error("an effect without payload is approved")
	}
	for _, text := range []string{"switch:hourly", "all", ""} {
		if scope, err := OperatorScope(text); err == nil {
			t.Errorf("%q is %s", text, scope)
		}
	}
}

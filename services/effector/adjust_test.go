package effector

import (
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/effectrule"
	"github.com/tidemark-mesh/tidemark/internal/providersim"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// rule sets what the provider does with the effect of a key.
func (w *world) rule(mode string, key effect.EffectKey, query bool, times int) {
	w.t.Helper()
	m, err := providersim.ParseMode(mode)
	must(w.t, err)
	set := w.sim.Set
	if query {
		set = w.sim.SetQuery
	}
	must(w.t, set(providersim.Rule{Mode: m, Key: key.String(), Times: times}))
}

// judgedBy waits until the newest judgement of an effect is of a revision.
func (w *world) judgedBy(key effect.EffectKey, revision uint64) {
	w.t.Helper()
	eventually(w.t, func() string {
		if r := w.now(key); r == nil || r.Latest.Revision.Revision != revision {
			return "the newest revision is not judged"
		}
		return ""
	})
}

// sentSum answers the sum of what a provider executed for an effect and its adjustments, in
// hundredths.
func (w *world) sentSum(key effect.EffectKey, adjustments int) (sum int) {
	w.t.Helper()
	keys := []effect.EffectKey{key}
	for n := range adjustments {
		keys = append(keys, ledger.CorrectionKey(effect.Adjust, key, uint32(n+1)))
	}
	for _, k := range keys {
		for range w.sim.Executions(k.String()) {
			text := w.now(k).Request.Expect.Amount
			n, sign := 0, 1
			for _, c := range strings.Replace(text, ".", "", 1) {
				if c == '-' {
					sign = -1
					continue
				}
				n = n*10 + int(c-'0')
			}
			sum += sign * n
		}
	}
	return sum
}

func TestAnAdjustmentInDoubtIsSettledBeforeTheNextOne(t *testing.T) {
	w := newWorld(t, correcting("adjust", "correction.delta"))
	dir := t.TempDir()
	n := w.node(dir).start()
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	w.await(key, effect.Acked)
	first, second := ledger.CorrectionKey(effect.Adjust, key, 1), ledger.CorrectionKey(effect.Adjust, key, 2)
	w.rule("lose-answer", first, false, 1)
	w.rule("drop", first, true, 5)
	w.sold("eu-west", 0, 300)
	w.await(first, effect.Unknown)
	done := w.command(effectlog.Command{Key: key, Act: effectlog.ActWaive})
	if done.Refusal != string(ledger.LinkedSent) {
		t.Errorf("waiving what may have been corrected: refusal %q", done.Refusal)
	}
	w.sold("eu-west", 0, 250) // right again, but 50 may be on their way
	w.judgedBy(key, 3)
	if r := w.now(key); r.State != effect.CompensationRequired && r.State != effect.Compensated {
		t.Errorf("the effect is %s while its adjustment is in doubt", r.State)
	}
	must(t, n.stop())
	w.node(t.TempDir()).start() // folds everything anew
	w.await(first, effect.Reconciled)
	w.await(second, effect.Acked)
	w.await(key, effect.Compensated)
	if got := w.sentSum(key, 2); got != 25000 {
		t.Errorf("%d stands outside, want 250.00", got)
	}
	for _, k := range []effect.EffectKey{key, first, second} {
		w.executed(k, 1)
	}
}

func TestAdjustmentsThatWereNotSentGoBackAndForth(t *testing.T) {
	w := newWorld(t, correcting("adjust", "correction.delta"))
	dir := t.TempDir()
	n := w.node(dir).start()
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	w.await(key, effect.Acked)
	w.gate(effectlog.Global, true)
	w.sold("eu-west", 0, 300)
	first, second := ledger.CorrectionKey(effect.Adjust, key, 1), ledger.CorrectionKey(effect.Adjust, key, 2)
	w.await(first, effect.Prepared)
	w.sold("eu-west", 0, 250)
	w.await(first, effect.Voided)
	w.await(key, effect.Acked)
	w.sold("eu-west", 0, 40)
	w.await(second, effect.Prepared)
	must(t, n.stop())
	n = w.node(t.TempDir()).start()
	w.sold("eu-west", 0, 260)
	w.judgedBy(key, 5)
	w.gate(effectlog.Global, false)
	w.await(key, effect.Compensated)
	if got := w.sentSum(key, 2); got != 26000 {
		t.Errorf("%d stands outside, want 260.00", got)
	}
	w.executed(first, 0)
	w.gate(effectlog.Global, true) // after a compensation too
	w.sold("eu-west", 0, 500)
	third := ledger.CorrectionKey(effect.Adjust, key, 3)
	w.await(third, effect.Prepared)
	w.sold("eu-west", 0, 260)
	w.await(third, effect.Voided)
	w.await(key, effect.Compensated)
	w.gate(effectlog.Global, false)
	must(t, n.stop())
	w.executed(third, 0)

	// A view that was kept is the one that is folded anew.
	anew, p := t.TempDir(), partition{stream: w.name}
	for _, dir := range []string{dir, anew} {
		n := w.node(dir).start()
		eventually(t, func() string {
			if v := n.opened(); v == nil || v.population()[effect.Compensated] != 1 {
				return "not owned yet"
			}
			return ""
		})
		must(t, n.stop())
	}
	if a, b := contents(t, p.viewFile(dir)), contents(t, p.viewFile(anew)); a != b || a == "" {
		t.Errorf("a view that was kept says\n%s\none folded anew\n%s", a, b)
	}
}

func TestARuleWithoutAResultCorrectsNothing(t *testing.T) {
	w := newWorld(t, correcting("adjust", "correction.delta"))
	w.node(t.TempDir()).start()
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	w.await(key, effect.Acked)
	a := w.generation(1, 0)
	a.accept(a.next("eu-west", hourOf(0), 300, func(r *revision.Revision) {
		r.Value[1].Text = strings.Repeat("9", 80) + ".00" // wider than any expression can hold
	}))
	w.await(key, effect.CompensationRequired)
	w.sold("eu-west", 1, 200)
	w.await(w.keyOf("eu-west", 1), effect.Acked)
	first := ledger.CorrectionKey(effect.Adjust, key, 1)
	if r := w.now(first); r != nil {
		t.Fatalf("the linked effect is %s, though nothing says what should stand", r.State)
	}
	w.sold("eu-west", 0, 300)
	w.await(key, effect.Compensated)
	if got := w.sentSum(key, 1); got != 30000 {
		t.Errorf("%d stands outside, want 300.00", got)
	}
}

func TestAnAdjustmentWaitsForItsProvenance(t *testing.T) {
	o := correcting("adjust", "correction.delta")
	o.policy += "requireProvenance: DATA\n"
	w := newWorld(t, o)
	dir := t.TempDir()
	n := w.node(dir).start()
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	w.await(key, effect.Acked)
	must(t, n.stop())
	a := w.generation(1, 0)
	a.data = base // an owner that begins here knows of no data behind it
	w.node(t.TempDir()).start()
	w.sold("eu-west", 0, 300)
	w.await(key, effect.CompensationRequired)
	first := ledger.CorrectionKey(effect.Adjust, key, 1)
	if r := w.now(first); r != nil {
		t.Errorf("the linked effect is %s before its provenance is met", r.State)
	}
	a.data = base + 2*hour
	a.accept()
	w.await(first, effect.Acked)
	w.await(key, effect.Compensated)
	w.executed(first, 1)
}

func TestAnAirlockHoldsAnAdjustment(t *testing.T) {
	o := correcting("adjust", "correction.delta")
	o.policy = strings.Replace(o.policy, "87600h}", "87600h, amountAbove: {field: amount, limit: 1000}}", 1)
	w := newWorld(t, o)
	w.node(t.TempDir()).start()
	w.sold("eu-west", 0, 900)
	key := w.keyOf("eu-west", 0)
	w.await(key, effect.Acked)
	w.sold("eu-west", 0, 2500)
	first := ledger.CorrectionKey(effect.Adjust, key, 1)
	if held := w.await(first, effect.Held); held.Airlock != effectrule.LockAmount {
		t.Errorf("held by %q", held.Airlock)
	}
	if done := w.approve(first); done.Refusal != "" {
		t.Fatalf("approving: %s", done.Refusal)
	}
	w.await(key, effect.Compensated)
	w.executed(first, 1)
}

const undoing = `---
apiVersion: tidemark/v1
kind: Adapter
name: NAME-undo@1
type: http
url: URL/v1/issue
allow: [127.0.0.0/8]
evidence: {key: /effectKey, amount: /amount, subject: /subject, ref: /id}
timeout: 1s
sendWithin: 1s
grace: 1s
query: {url: 'URL/v1/by-ref/{effectKey}', absence: authoritative, lateArrivalBound: 10m}
idempotency: {header: Idempotency-Key, retention: 24h, onBodyMismatch: error}
retry: {mode: auto, first: 50ms, most: 200ms}
`

func TestCorrectionsGoThroughAnAdapterOfTheirOwn(t *testing.T) {
	o := correcting("adjust", "correction.delta")
	o.adapter += undoing
	o.policy = strings.Replace(o.policy, "{mode: adjust", "{mode: adjust, adapter: NAME-undo@1", 1)
	w := newWorld(t, o)
	w.node(t.TempDir()).start()
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	w.await(key, effect.Acked)
	first := ledger.CorrectionKey(effect.Adjust, key, 1)
	w.rule("lose-answer", first, false, 1)
	w.sold("eu-west", 0, 300)
	if r := w.await(first, effect.Reconciled); r.Request.Adapter != w.name+"-undo@1" {
		t.Errorf("sent through %s", r.Request.Adapter)
	}
	w.await(key, effect.Compensated)
	w.executed(first, 1)
}

// version applies and activates another version of the policy.
func (w *world) version(n, corrections string) {
	w.t.Helper()
	_, text, _ := strings.Cut(documents, "kind: EffectPolicy")
	text = "apiVersion: tidemark/v1\nkind: EffectPolicy" + strings.Replace(text, "reward@1", "reward@"+n, 1)
	text = strings.Replace(text, "corrections: manual\n", "", 1)
	w.apply(testContext(w.t), strings.NewReplacer("NAME", w.name, "POLICY", anyAge+corrections).Replace(text))
}

func TestAnotherVersionTakesOpenCorrectionsUpAndLeavesThem(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable, policy: anyAge + "corrections: manual\n"})
	n := w.node(t.TempDir()).start()
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	w.await(key, effect.Acked)
	w.sold("eu-west", 0, 40)
	w.await(key, effect.CompensationRequired)
	undo := ledger.CorrectionKey(effect.Compensate, key, 1)
	must(t, n.stop())

	w.version("2", "corrections: {mode: compensate, payload: {subject: key, amount: correction.standing}}\n")
	n = w.node(t.TempDir()).start()
	held := w.await(undo, effect.Held)
	if held.Request.Policy != "reward@2" || held.Request.Expect.Amount != "250.00" {
		t.Errorf("held as %+v", held.Request)
	}
	must(t, n.stop())

	w.version("3", "corrections: {mode: adjust, payload: {subject: key, amount: correction.delta}}\n")
	n = w.node(t.TempDir()).start()
	w.await(undo, effect.Voided)
	w.sold("eu-west", 1, 250)
	w.await(w.keyOf("eu-west", 1), effect.Acked)
	adjust := ledger.CorrectionKey(effect.Adjust, key, 1)
	if w.now(adjust) != nil {
		t.Error("one correction has two linked effects")
	}
	must(t, n.stop())
	w.executed(undo, 0)
	w.executed(adjust, 0)
}

func TestAnAdjustmentThatTheProviderRefusesStaysOpen(t *testing.T) {
	w := newWorld(t, correcting("adjust", "correction.delta"))
	w.node(t.TempDir()).start()
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	w.await(key, effect.Acked)
	first := ledger.CorrectionKey(effect.Adjust, key, 1)
	w.rule("reject", first, false, 0)
	w.sold("eu-west", 0, 300)
	w.await(first, effect.Rejected)
	w.sold("eu-west", 0, 400) // nothing more is tried
	w.judgedBy(key, 3)
	if r := w.now(key); r.State != effect.CompensationRequired || r.Corrections != 1 {
		t.Errorf("the effect is %s with %d corrections", r.State, r.Corrections)
	}
	if done := w.command(effectlog.Command{Key: key, Act: effectlog.ActWaive}); done.Refusal != "" {
		t.Errorf("waiving: %s", done.Refusal)
	}
	w.executed(first, 0)
}

func TestAThrottledCompensationThatIsRightAgainIsWithdrawn(t *testing.T) {
	w := newWorld(t, correcting("adjust", "correction.delta"))
	w.node(t.TempDir()).start()
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	w.await(key, effect.Acked)
	first := ledger.CorrectionKey(effect.Adjust, key, 1)
	w.rule("answer-429", first, false, 0)
	w.sold("eu-west", 0, 300)
	eventually(t, func() string {
		if r := w.now(first); r == nil || r.LastAttempt == 0 {
			return "no attempt was made"
		}
		return ""
	})
	w.sold("eu-west", 0, 250)
	w.await(first, effect.Voided)
	w.await(key, effect.Acked)
	w.executed(first, 0)
}

func TestASwitchOfGenerationsHoldsWhatItAdjusts(t *testing.T) {
	w := newWorld(t, correcting("adjust", "correction.delta"))
	const kind = "apiVersion: tidemark/v1\nkind: StreamTimePolicy"
	_, text, _ := strings.Cut(documents, kind)
	text, _, _ = strings.Cut(text, "---\n")
	w.apply(testContext(t), strings.NewReplacer("NAME", w.name, "WINDOW", "{tumbling: 1h, zone: UTC}", "generation: 1", "generation: 2").Replace(kind+text))
	w.node(t.TempDir()).start()
	w.sold("eu-west", 0, 250)
	w.sold("eu-east", 0, 250)
	west, east := w.keyOf("eu-west", 0), w.keyOf("eu-east", 0)
	w.await(west, effect.Acked)
	w.await(east, effect.Acked)
	pending := ledger.CorrectionKey(effect.Adjust, east, 1)
	w.gate(effectlog.Global, true)
	w.sold("eu-east", 0, 300)
	w.await(pending, effect.Prepared)

	b := w.generation(2, 0) // another sum of one, and nothing of the other
	b.accept(b.next("eu-west", hourOf(0), 270, nil))
	alias := effectlog.Alias{Job: "hourly", Epoch: 9, Canonical: 1, Switching: true}
	w.control(effectlog.Control{Alias: &alias})
	alias.Epoch, alias.Canonical, alias.Switching = 10, 2, false
	w.control(effectlog.Control{Alias: &alias})
	first := ledger.CorrectionKey(effect.Adjust, west, 1)
	held := w.await(first, effect.Held)
	if held.Airlock != ledger.LockSwitch || held.Request.Expect.Amount != "20.00" {
		t.Errorf("held by %q with %s", held.Airlock, held.Request.Expect.Amount)
	}
	w.gate(effectlog.Global, false)
	w.await(pending, effect.Held) // the canonical generation does not have its window
	if done := w.approve(first); done.Refusal != "" {
		t.Fatalf("approving: %s", done.Refusal)
	}
	w.await(west, effect.Compensated)
	w.executed(first, 1)
	w.executed(pending, 0)
}

func TestSessionsThatRanAndMergeAddUp(t *testing.T) {
	o := correcting("adjust", "correction.delta")
	o.window = "{session: 11m, rule: gap-11-v2}"
	w := newWorld(t, o)
	w.node(t.TempDir()).start()
	a := w.generation(1, 0)
	first, second, whole := session(0, 20), session(30, 50), session(0, 50)
	a.accept(a.next("eu-west", first, 250, sessionOf))
	one := w.keyOfWindow("eu-west", first)
	w.await(one, effect.Acked)
	a.accept(a.next("eu-west", second, 300, sessionOf))
	two := w.keyOfWindow("eu-west", second)
	w.await(two, effect.Acked)

	to := a.next("eu-west", whole, 550, sessionOf)
	gone := []*revision.Revision{a.retract("eu-west", first, to.ProjectionID), a.retract("eu-west", second, to.ProjectionID)}
	for _, r := range gone {
		to.Supersedes = append(to.Supersedes, revision.Supersession{ProjectionID: r.ProjectionID, Revision: r.Revision})
	}
	a.accept(gone[0], gone[1], to)
	w.await(one, effect.Compensated)
	w.await(two, effect.Compensated)
	if one, two := w.sentSum(one, 1), w.sentSum(two, 1); one != 55000 || two != 0 {
		t.Errorf("%d stands outside for the effect that stands and %d for the one that merged, want 550.00 and nothing", one, two)
	}
}

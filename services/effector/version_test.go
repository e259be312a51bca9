package effector

import (
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

func TestANewPolicyVersionJudgesAgainWhatWasNeverSent(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable})
	n := w.node(t.TempDir()).start()
	w.sold("eu-west", 0, 250)
	ran := w.keyOf("eu-west", 0)
	w.await(ran, effect.Acked)
	w.gate(effectlog.Global, true)
	w.sold("eu-west", 1, 250) // not enough for the next version
	w.sold("eu-west", 2, 900) // enough
	w.sold("eu-west", 3, 50)  // not for either
	w.await(w.keyOf("eu-west", 2), effect.Prepared)
	_, kind, _ := strings.Cut(documents, "kind: EffectPolicy")
	text := strings.NewReplacer("NAME", w.name, "reward@1", "reward@2", `decimal("100")`, `decimal("500")`, "POLICY", anyAge).Replace("apiVersion: tidemark/v1\nkind: EffectPolicy" + kind)
	w.apply(testContext(t), text)
	n.learn(w.library())
	w.await(w.keyOf("eu-west", 1), effect.Voided)
	eventually(t, func() string {
		if got := w.now(w.keyOf("eu-west", 2)).Request.Policy; got != "reward@2" {
			return "it is bound to " + got
		}
		return ""
	})
	w.gate(effectlog.Global, false)
	w.await(w.keyOf("eu-west", 2), effect.Acked)
	if r := w.now(ran); r.State != effect.Acked || r.Request.Policy != "reward@1" {
		t.Errorf("what ran under version 1 is %s under %s", r.State, r.Request.Policy)
	}
	for hour, want := range []int{1, 0, 1, 0} {
		w.executed(w.keyOf("eu-west", hour), want)
	}
}

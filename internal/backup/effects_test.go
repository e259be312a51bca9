package backup

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

const reward = `
kind: EffectPolicy
name: reward@VERSION
stream: orders
job: hourly-revenue
effectType: issue-reward
subject: key
when: value.orders > VERSION
payload: {account: key}
adapter: rewards-api@1
---
kind: Adapter
name: rewards-api@1
type: http
url: https://rewards.example/v1/issue
evidence: {key: /ref}
`

func rewards(t *testing.T, conn *natsio.Conn, version string) []config.Result {
	t.Helper()
	docs, bad := policy.Parse("reward.yaml", []byte(strings.ReplaceAll(reward, "VERSION", version)))
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	results, err := config.Apply(t.Context(), conn.JS, docs, config.Options{Replicas: 1, Activate: true})
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// effectsState folds an effects journal that holds no effects.
func effectsState(t *testing.T, conn *natsio.Conn, pp int) *effectlog.State {
	t.Helper()
	state := &effectlog.State{}
	err := journal.ReadRange(t.Context(), conn.JS, subject.EffectsStream("orders", pp), 0, 1, 1<<20, func(m journal.Msg) error {
		entry, err := journal.DecodeEntry(m.Seq, m.Data)
		if err != nil {
			return err
		}
		_, err = state.Apply(effectlog.Entry{Seq: m.Seq, Foreign: entry.Control})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// What was sent after a backup is not in it: a restored ledger sends nothing by itself.
func TestARestoredLedgerStartsWithItsGatesClosed(t *testing.T) {
	from := installation(t)
	rewards(t, from, "2")
	rewards(t, from, "1") // the lower version is active on purpose
	dir := filepath.Join(t.TempDir(), "b")
	m, err := Take(t.Context(), from, "orders", dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if m.Journals[0].Name != subject.EffectsStream("orders", 0) || m.Journals[0].Role != roleEffects {
		t.Errorf("%s is copied first: effects are never ahead of results", m.Journals[0].Name)
	}
	to := embed(t)
	if _, err := Restore(t.Context(), to, dir, 1, quiet); err != nil {
		t.Fatal(err)
	}
	sending := effectlog.Sending{EffectType: "issue-reward", Adapter: "rewards-api", Job: "hourly-revenue", Generation: 1}
	for pp := range 8 {
		if before := effectsState(t, from, pp); before.ClosedGate(sending) != "" {
			t.Errorf("partition %d is closed before", pp)
		}
		state := effectsState(t, to, pp)
		if closed := state.ClosedGate(sending); closed != effectlog.Global {
			t.Errorf("partition %d: closed is %q, want the global gate", pp, closed)
		}
		if active, found := state.Active("issue-reward"); !found || active.Policy != "reward@1" {
			t.Errorf("partition %d: active is %+v", pp, active)
		}
	}
	snapshot, err := config.Load(t.Context(), to.JS)
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(snapshot.EffectPolicies, snapshot.IsActive); len(snapshot.EffectPolicies) != 2 || i != 0 || len(snapshot.Adapters) != 1 {
		t.Errorf("restored %+v, active %+v", snapshot.EffectPolicies, snapshot.Active)
	}
}

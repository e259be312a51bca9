package main

import (
	"os"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/effectops"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// effectShapes are the outputs of the effects and gate verbs with every field set.
func effectShapes() (all []struct {
	schema string
	value  any
},
) {
	text, err := os.ReadFile("../../pkg/effect/testdata/record.json")
	if err != nil {
		panic(err)
	}
	record, err := effect.Decode(text)
	if err != nil {
		panic(err)
	}
	const at effect.Time = 1796040000000000
	digest := revision.Digest{0xab}
	stamp := effectlog.Stamp{ID: "3f0c-0001", Basis: 80, Who: "ana@shop", Reason: "drill", At: at}
	item := effectops.Item{Partition: 3, Sequence: 99, Record: record}
	command := &effectlog.Command{Schema: effectlog.CommandSchema, Stamp: stamp, Key: record.Key, Act: effectlog.ActApprove, Approve: &effectlog.Approve{Digest: digest, Expires: at}}
	resolve := &effectlog.Command{Schema: effectlog.CommandSchema, Stamp: stamp, Key: record.Key, Act: effectlog.ActResolve, Resolve: &effectlog.Resolve{Applied: true, Ref: "r-1", Evidence: digest}}
	evidence := &effectlog.Evidence{
		Schema: effectlog.EvidenceSchema, Adapter: "rewards-api@2", Digest: digest,
		Receipt: effect.Receipt{Schema: effect.ReceiptSchema, Key: record.Key, Ref: "r-1", Amount: "129.30", Subject: "eu-west", AppliedAt: at},
	}
	done := &effectlog.Done{Schema: effectlog.DoneSchema, Sequence: 88, Key: record.Key, Step: 9}
	refused := &effectlog.Done{Schema: effectlog.DoneSchema, Sequence: 88, Key: record.Key, Refusal: string(ledger.NotHeld), Note: "n"}
	add := func(schema string, value any) {
		all = append(all, struct {
			schema string
			value  any
		}{schema, value})
	}
	add("effectLine.v1", lineOf(item))
	add("effectShown.v1", &effectops.Shown{
		Item: item, ClosedGate: effectlog.Global, History: []effectops.Step{{Sequence: 99, At: at, Record: record}},
		Asked: []effectops.Asked{{Asked: effectlog.Asked{Seq: 88, Command: command}, Done: done}, {Asked: effectlog.Asked{Seq: 96, Evidence: evidence}}},
	})
	add("effectResult.v1", &effectops.Result{Job: "j", Partition: 3, Key: record.Key.String(), Sequence: 88, Result: effectops.ResultRefused, State: effect.Held, Refusal: ledger.NotHeld, Why: "w"})
	add("effectExport.v1", &effectops.Line{Partition: 3, Sequence: 88, At: at, Command: resolve, Void: effectlog.VoidRepeated})
	add("effectExport.v1", &effectops.Line{Partition: 3, Sequence: 96, At: at, Evidence: evidence})
	add("effectExport.v1", &effectops.Line{Partition: 3, Sequence: 97, At: at, Done: refused})
	for _, c := range []effectlog.Control{
		{Gate: &effectlog.Gate{Scope: effectlog.GenerationScope("hourly-revenue", 14), Closed: true}},
		{Activate: &effectlog.Activate{EffectType: "issue-reward", Policy: "reward@3", PolicyDigest: digest, Adapter: "rewards-api@2", AdapterDigest: digest}},
		{Alias: &effectlog.Alias{Job: "hourly-revenue", Epoch: 2, Canonical: 14, Switching: true}},
	} {
		c.Schema, c.Stamp = effectlog.ControlSchema, stamp
		add("effectExport.v1", &effectops.Line{Partition: 3, Sequence: 96, At: at, Control: &c})
	}
	add("gatePaused.v1", &effectops.Paused{
		Scope: effectlog.AdapterScope("rewards-api"), Placed: []effectops.Placed{{Partition: 3, Sequence: 96}},
		InFlight: []effectops.InFlight{{Partition: 3, Key: record.Key, Type: "issue-reward", Adapter: "rewards-api@2", Attempt: 2, SendBy: at, Closed: true, State: effect.Unknown}},
	})
	add("gateScope.v1", &effectops.ScopeStatus{Scope: effectlog.Global, Closed: []int{3}, Open: []int{0}, Stamp: &stamp})
	return all
}

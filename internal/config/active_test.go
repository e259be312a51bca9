package config

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

const effectDocuments = documents + `---
kind: EffectPolicy
name: reward
version: 1
stream: STREAM
job: hourly
effectType: issue-reward
subject: key
when: value.orders > 10
payload: {account: key, points: 'int(value.revenue)'}
adapter: rewards-api@1
---
kind: Adapter
name: rewards-api
version: 1
type: http
url: https://rewards.example/v1/issue
evidence: {key: /ref, amount: /points, subject: /account}
`

// parseEffects answers the documents of a stream with effects, with texts replaced in pairs.
func parseEffects(t *testing.T, stream string, changes ...string) []policy.Document {
	t.Helper()
	src := effectDocuments
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(src, changes[i]) {
			t.Fatalf("no such text: %s", changes[i])
		}
		src = strings.Replace(src, changes[i], changes[i+1], 1)
	}
	docs, findings := policy.Parse("effects.yaml", []byte(strings.ReplaceAll(src, "STREAM", stream)))
	if len(findings) > 0 {
		t.Fatal(findings)
	}
	return docs
}

// fold answers the state of an effects journal, and how many CONTROL records it has.
func fold(t *testing.T, ctx context.Context, js jetstream.JetStream, bs string, pp int) (*effectlog.State, int) {
	t.Helper()
	stream, err := js.Stream(ctx, subject.EffectsStream(bs, pp))
	if err != nil {
		t.Fatal(err)
	}
	state, controls := &effectlog.State{}, 0
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		message, err := stream.GetMsg(ctx, seq)
		if err != nil {
			t.Fatal(err)
		}
		entry, err := journal.DecodeEntry(seq, message.Data)
		if err != nil {
			t.Fatal(err)
		}
		applied, err := state.Apply(effectlog.Entry{Seq: seq, Foreign: entry.Control})
		if err != nil || applied.Void == effectlog.VoidUnreadable {
			t.Fatal(applied, err)
		}
		if entry.Control != nil {
			controls++
		}
	}
	return state, controls
}

// wantActive says which version both effects journals of a stream make effects with.
func wantActive(t *testing.T, ctx context.Context, js jetstream.JetStream, bs, version string) {
	t.Helper()
	snapshot, err := Load(ctx, js)
	if err != nil {
		t.Fatal(err)
	}
	for pp := range 2 {
		state, _ := fold(t, ctx, js, bs, pp)
		active, found := state.Active("issue-reward")
		if !found || active.Policy != version || active.Adapter != "rewards-api@1" || active.PolicyDigest.String() != digestOf(snapshot, bs+"/"+version) || active.AdapterDigest.String() != digestOf(snapshot, "rewards-api@1") {
			t.Errorf("partition %d: active is %+v, want %s", pp, active, version)
		}
		if alias, found := state.Alias("hourly"); !found || alias.Canonical != 1 || alias.Epoch != 1 || alias.Switching {
			t.Errorf("partition %d: alias %+v", pp, alias)
		}
		if closed := state.ClosedGate(effectlog.Sending{EffectType: "issue-reward", Adapter: "rewards-api", Job: "hourly", Generation: 1}); closed != "" {
			t.Errorf("partition %d: gate %s is closed", pp, closed)
		}
	}
	if len(snapshot.Active) != 1 || snapshot.Active[0].Activate.Policy != version || len(snapshot.Active[0].Journals) != 2 {
		t.Errorf("the bucket says %+v", snapshot.Active)
	}
}

func digestOf(s Snapshot, name string) string {
	for _, e := range s.Entries() {
		if doc := e.Document(); doc.Name() == name {
			return e.Digest
		}
	}
	return "none"
}

func applyEffects(t *testing.T, ctx context.Context, js jetstream.JetStream, docs []policy.Document, o Options) []string {
	t.Helper()
	o.Replicas = 1
	results, err := Apply(ctx, js, docs, o)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range results {
		out = append(out, strings.TrimSpace(r.Name+" "+r.Action+" "+r.Active))
	}
	return out
}

func TestApplyMakesAnEffectPolicyActiveInEveryJournal(t *testing.T) {
	ctx, conn := connect(t)
	docs := parseEffects(t, "eff")
	if got := applyEffects(t, ctx, conn.JS, docs, Options{DryRun: true}); !slices.Equal(got, []string{"eff created", "eff/hourly@1 created", "rewards-api@1 created", "eff/reward@1 created activated"}) {
		t.Errorf("dry run: %v", got)
	}
	if _, err := conn.JS.Stream(ctx, subject.EffectsStream("eff", 0)); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("a dry run provisioned a journal: %v", err)
	}
	if got := applyEffects(t, ctx, conn.JS, docs, Options{Reason: "first reward"}); !slices.Equal(got, []string{"eff created", "eff/hourly@1 created", "rewards-api@1 created", "eff/reward@1 created activated"}) {
		t.Errorf("got %v", got)
	}
	wantActive(t, ctx, conn.JS, "eff", "reward@1")
	state, before := fold(t, ctx, conn.JS, "eff", 1)
	if active, _ := state.Active("issue-reward"); active.Stamp.Reason != "first reward" || active.Stamp.Who != Operator() {
		t.Errorf("stamp %+v", active.Stamp)
	}
	if got := applyEffects(t, ctx, conn.JS, docs, Options{}); !slices.Equal(got, []string{"eff unchanged", "eff/hourly@1 unchanged", "rewards-api@1 unchanged", "eff/reward@1 unchanged active"}) {
		t.Errorf("again: %v", got)
	}
	if _, after := fold(t, ctx, conn.JS, "eff", 1); after != before {
		t.Errorf("applying again wrote %d CONTROL records", after-before)
	}
	for _, name := range []string{"eff", "_"} {
		audits, err := conn.JS.Stream(ctx, subject.AuditStream)
		if err != nil {
			t.Fatal(err)
		}
		bs := strings.TrimPrefix(name, "_")
		if message, err := audits.GetLastMsgForSubject(ctx, subject.Audit(bs, "apply")); err != nil || !strings.Contains(string(message.Data), "unchanged") {
			t.Errorf("audit of %s: %v", name, err)
		}
	}
}

func TestAHigherVersionBecomesActiveAndALowerOneOnlyWhenAsked(t *testing.T) {
	ctx, conn := connect(t)
	first := parseEffects(t, "gen")
	third := parseEffects(t, "gen", "name: reward\nversion: 1", "name: reward\nversion: 3", "value.orders > 10", "value.orders > 30")
	second := parseEffects(t, "gen", "name: reward\nversion: 1", "name: reward\nversion: 2", "value.orders > 10", "value.orders > 20")
	fourth := parseEffects(t, "gen", "name: reward\nversion: 1", "name: reward\nversion: 4", "value.orders > 10", "value.orders > 40")
	last := func(docs []policy.Document, o Options) string {
		got := applyEffects(t, ctx, conn.JS, docs, o)
		return got[len(got)-1]
	}
	for _, tt := range []struct {
		docs         []policy.Document
		force        bool
		says, active string
	}{
		{first, false, "gen/reward@1 created activated", "reward@1"},
		{third, false, "gen/reward@3 created activated", "reward@3"},
		{second, false, "gen/reward@2 created inactive", "reward@3"},
		{first, false, "gen/reward@1 unchanged inactive", "reward@3"},
		{second, true, "gen/reward@2 unchanged activated", "reward@2"},
		{second, true, "gen/reward@2 unchanged active", "reward@2"},
		{third, false, "gen/reward@3 unchanged inactive", "reward@2"},
		{slices.Concat(third, second), false, "gen/reward@3 unchanged inactive", "reward@2"},
		{slices.Concat(third, first), true, "gen/reward@3 unchanged activated", "reward@3"},
		{slices.Concat(third, fourth), false, "gen/reward@4 created activated", "reward@4"},
		{slices.Concat(third, fourth), false, "gen/reward@4 unchanged active", "reward@4"},
	} {
		if got := last(tt.docs, Options{Activate: tt.force}); got != tt.says {
			t.Errorf("got %q, want %q", got, tt.says)
		}
		wantActive(t, ctx, conn.JS, "gen", tt.active)
	}
}

func TestAnApplyThatWasCutOffIsFinishedByTheNextOne(t *testing.T) {
	ctx, conn := connect(t)
	first := parseEffects(t, "cut")
	applyEffects(t, ctx, conn.JS, first, Options{})
	second := parseEffects(t, "cut", "name: reward\nversion: 1", "name: reward\nversion: 2")
	steps, err := plan(second, must(Load(ctx, conn.JS)))
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := conn.JS.KeyValue(ctx, subject.ConfigBucket)
	if err != nil {
		t.Fatal(err)
	}
	active, err := activations(steps, second, must(Load(ctx, conn.JS)), false)
	if err != nil || len(active) != 1 {
		t.Fatal(active, err)
	}
	// What an apply does up to the moment before the document is stored.
	if err := active[0].intend(ctx, bucket); err != nil {
		t.Fatal(err)
	}
	if got := applyEffects(t, ctx, conn.JS, second, Options{}); got[3] != "cut/reward@2 created activated" {
		t.Errorf("got %v", got)
	}
	wantActive(t, ctx, conn.JS, "cut", "reward@2")
	// A journal that was made anew is told again.
	if err := conn.JS.DeleteStream(ctx, subject.EffectsStream("cut", 1)); err != nil {
		t.Fatal(err)
	}
	if got := applyEffects(t, ctx, conn.JS, second, Options{}); got[3] != "cut/reward@2 unchanged activated" {
		t.Errorf("got %v", got)
	}
	wantActive(t, ctx, conn.JS, "cut", "reward@2")
}

func must(s Snapshot, err error) Snapshot {
	if err != nil {
		panic(err)
	}
	return s
}

func TestTwoAppliesDoNotBothMakeAVersionActive(t *testing.T) {
	ctx, conn := connect(t)
	applyEffects(t, ctx, conn.JS, parseEffects(t, "two"), Options{})
	errs := make(chan error, 2)
	for _, version := range []string{"2", "3"} {
		go func() {
			_, err := Apply(ctx, conn.JS, parseEffects(t, "two", "name: reward\nversion: 1", "name: reward\nversion: "+version), Options{Replicas: 1})
			errs <- err
		}()
	}
	failed := 0
	for range 2 {
		if err := <-errs; err != nil {
			failed++
			if !strings.Contains(err.Error(), "apply again") {
				t.Errorf("the loser got %v", err)
			}
		}
	}
	if failed > 1 {
		t.Errorf("%d applies failed", failed)
	}
	applyEffects(t, ctx, conn.JS, parseEffects(t, "two", "name: reward\nversion: 1", "name: reward\nversion: 4"), Options{})
	wantActive(t, ctx, conn.JS, "two", "reward@4")
}

func TestEffectDocumentsNeverChange(t *testing.T) {
	ctx, conn := connect(t)
	applyEffects(t, ctx, conn.JS, parseEffects(t, "imm"), Options{})
	for change, field := range map[[2]string]string{
		{"value.orders > 10", "value.orders > 11"}:                                            "when",
		{"https://rewards.example/v1/issue", "https://rewards.example/v2"}:                    "url",
		{"{account: key, points", "{account: key, extra: '1', points"}:                        "payload.extra",
		{"adapter: rewards-api@1", "adapter: rewards-api@1\nairlock: {firstOfGeneration: 1}"}: "airlock.firstOfGeneration",
	} {
		_, err := Apply(ctx, conn.JS, parseEffects(t, "imm", change[0], change[1]), Options{Replicas: 1})
		var conflict *ConflictError
		if !errors.As(err, &conflict) || conflict.Field != field || !strings.Contains(err.Error(), "higher version") {
			t.Errorf("%s: got %v, want a conflict over %s", change[1], err, field)
		}
	}
	for change, rule := range map[[2]string]string{
		{"subject: key", "subject: key + \"!\""}:             "effect-identity-changed",
		{"value.orders > 10", "value.order > 10"}:            "unknown-field",
		{"adapter: rewards-api@1", "adapter: rewards-api@9"}: "unknown-adapter",
	} {
		docs := parseEffects(t, "imm", "name: reward\nversion: 1", "name: reward\nversion: 2", change[0], change[1])
		_, err := Apply(ctx, conn.JS, docs, Options{Replicas: 1})
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.Findings[0].Rule != rule {
			t.Errorf("%s: got %v, want %s", change[1], err, rule)
		}
	}
	wantActive(t, ctx, conn.JS, "imm", "reward@1")
}

func TestExportedEffectsComeWithTheirAdaptersAndWhatIsActive(t *testing.T) {
	ctx, conn := connect(t)
	applyEffects(t, ctx, conn.JS, parseEffects(t, "exp"), Options{})
	applyEffects(t, ctx, conn.JS, parseEffects(t, "oth", "name: rewards-api", "name: unused-api", "adapter: rewards-api@1", "adapter: unused-api@1"), Options{})
	stored, err := Export(ctx, conn.JS, "exp")
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, s := range stored {
		keys = append(keys, s.Key)
	}
	if want := []string{"stream.exp", "policy.exp.hourly.1", "adapter.rewards-api.1", "effectpolicy.exp.reward.1", "active.exp.issue-reward"}; !slices.Equal(keys, want) {
		t.Fatalf("exported %v, want %v", keys, want)
	}
	if err := conn.JS.DeleteKeyValue(ctx, subject.ConfigBucket); err != nil {
		t.Fatal(err)
	}
	if err := natsio.Provision(ctx, conn.JS, 1); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Import(ctx, conn.JS, stored); err != nil {
			t.Fatal(err)
		}
	}
	if got := applyEffects(t, ctx, conn.JS, parseEffects(t, "exp"), Options{}); got[3] != "exp/reward@1 unchanged active" {
		t.Errorf("after the import: %v", got)
	}
	stored[4].Value = []byte(strings.Replace(string(stored[4].Value), "reward@1", "reward@2", 1))
	var conflict *ConflictError
	if err := Import(ctx, conn.JS, stored); !errors.As(err, &conflict) || conflict.Kind != "activation" {
		t.Errorf("another activation is imported: %v", err)
	}
}

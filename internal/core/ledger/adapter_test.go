package ledger_test

import (
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

func TestResendDeadlines(t *testing.T) {
	for _, c := range []struct {
		name             string
		retention, clock int64
		want             int64 // after the first possible send; 0 = never
	}{
		{"a twentieth of a day", 24 * hour, second, 24*hour - 24*hour/20},
		{"an hour of ten hours", 10 * hour, second, 9 * hour},
		{"twice the clocks' uncertainty", 24 * hour, 2 * hour, 20 * hour},
		{"uncertainty beyond the retention", 24 * hour, 13 * hour, 0},
		{"two hours", 2 * hour, second, hour},
		{"one below two hours", 2*hour - 1, second, minute},
		{"a quarter of an hour", 15 * minute, second, minute},
		{"half of a short one", 80 * second, second, 40 * second},
		{"31 days", 31 * 24 * hour, second, 31*24*hour - 31*24*hour/20},
	} {
		a := ledger.Adapter{Idempotent: true, Retention: c.retention, ClockUncertainty: c.clock}
		if got := a.ResendDeadline(t0); got != t0.Add(c.want) {
			t.Errorf("%s: %d µs after the first send, want %d", c.name, got-t0, c.want)
		}
	}
	for name, a := range map[string]ledger.Adapter{
		"not idempotent":        {Retention: 24 * hour},
		"no retention":          {Idempotent: true},
		"executes another body": {Idempotent: true, Retention: 24 * hour, OnBodyMismatch: ledger.BodyExecute},
	} {
		if got := a.ResendDeadline(t0); got != 0 {
			t.Errorf("%s: %s, want never", name, got)
		}
	}
}

func TestTheFirstByteGoesOutUntilSendByOnBothClocks(t *testing.T) {
	r := in(t, effect.Dispatching)
	a := r.Attempts[0]
	if a.SendBy != t0.Add(6*second) || a.QuietFrom() != t0.Add(26*second) {
		t.Fatalf("sendBy %s, quiet from %s", a.SendBy, a.QuietFrom())
	}
	for _, c := range []struct {
		effector, wall int64
		want           bool
	}{{0, 0, true}, {6, 6, true}, {7, 6, false}, {6, 7, false}} {
		if got := ledger.MaySend(&a, t0.Add(c.effector*second), t0.Add(c.wall*second)); got != c.want {
			t.Errorf("at %d s, wall %d s: %v", c.effector, c.wall, got)
		}
	}
	closed := in(t, effect.Unknown).Attempts[0]
	if ledger.MaySend(&closed, t0, t0) {
		t.Error("a closed attempt sends")
	}
	p := proven()
	if got := p.LostFrom(&a); got != t0.Add(28*second) {
		t.Errorf("lost from %s", got)
	}
}

// The matrix of the design: what is done automatically about an ambiguous result.
func TestPlanIsTheAdapterMatrix(t *testing.T) {
	unknown := in(t, effect.Unknown) // quiet from 26 s, first sent at 1 s
	asked := absent(t)
	contradicted := must(t, asked, judge(judged(6, 0)), t0)
	conflict := must(t, in(t, effect.Dispatching), answer(effect.OtherBytes), t0)
	with := func(change func(*ledger.Adapter)) ledger.Adapter {
		a := proven()
		change(&a)
		return a
	}
	both := proven()
	idempotent := with(func(a *ledger.Adapter) { a.Query = false })
	queryable := with(func(a *ledger.Adapter) { a.Idempotent = false })
	neither := with(func(a *ledger.Adapter) { a.Idempotent, a.Query = false, false })

	for _, c := range []struct {
		name    string
		r       *effect.Record
		a       ledger.Adapter
		at      int64
		want    ledger.Action
		waiting int64
	}{
		{"both: ask", unknown, both, 60, ledger.Ask, 0},
		{"both: ask while an answer may come", unknown, both, 10, ledger.Ask, 0},
		{"both, absent: resend", asked, both, 60, ledger.Resend, 0},
		{"both, absent, answer may come: ask", asked, both, 10, ledger.Ask, 0},
		{"both, past the deadline: ask only", asked, both, 24 * 3600, ledger.Ask, 0},
		{"both, past everything", asked, both, 49 * 3600, ledger.GiveUp, 0},
		{"both, contradicted: ask only", contradicted, both, 60, ledger.Ask, 0},
		{"both, contradicted, past everything", contradicted, both, 49 * 3600, ledger.GiveUp, 0},
		{"idempotent: wait", unknown, idempotent, 10, ledger.Wait, 26},
		{"idempotent: resend", unknown, idempotent, 26, ledger.Resend, 0},
		{"idempotent, past the deadline", unknown, idempotent, 24 * 3600, ledger.GiveUp, 0},
		{"idempotent, contradicted", contradicted, idempotent, 60, ledger.GiveUp, 0},
		{"queryable: ask", unknown, queryable, 60, ledger.Ask, 0},
		{"queryable, absent: ask on", asked, queryable, 3600, ledger.Ask, 0},
		{"queryable, past everything", asked, queryable, 49 * 3600, ledger.GiveUp, 0},
		{"neither: a person at once", unknown, neither, 2, ledger.GiveUp, 0},
		{"a conflict: a person at once", conflict, both, 2, ledger.GiveUp, 0},
		{"an outcome that is known", in(t, effect.Acked), both, 60, ledger.Nothing, 0},
	} {
		action, until := ledger.Plan(c.r, &c.a, t0.Add(c.at*second))
		if action != c.want || c.waiting > 0 && until != t0.Add(c.waiting*second) || c.waiting == 0 && until != 0 {
			t.Errorf("%s: %s until %d, want %s", c.name, action, until, c.want)
		}
	}

	// QueryFor is over, the key may still be sent again, and is asked for first.
	brief := with(func(a *ledger.Adapter) { a.QueryFor = 0 })
	if action, _ := ledger.Plan(unknown, &brief, t0.Add(minute)); action != ledger.Ask {
		t.Errorf("%s, want %s", action, ledger.Ask)
	}
}

// The key's retention is a day, the pool was down until half an hour after it.
func TestARestartBehindTheRetentionSendsNothing(t *testing.T) {
	a := proven()
	a.Query = false
	j := judged(5, 100)
	j.Adapter = a
	now := t0.Add(24*hour + hour/2)
	refused(t, in(t, effect.Unknown), dispatch(j), now, ledger.DeadlinePassed)
	wantState(t, must(t, in(t, effect.Unknown), ledger.Escalate{Adapter: a}, now), effect.Manual)
}

func TestDigestsCoverBytesTypeAdapterAndScope(t *testing.T) {
	q := points(rewardKey(), 100)
	want := ledger.PayloadDigest("issue-reward", &q)
	for name, change := range map[string]func(*effect.Request){
		"payload":     func(q *effect.Request) { q.Payload += " " },
		"adapter":     func(q *effect.Request) { q.Adapter = "rewards-api@3" },
		"url":         func(q *effect.Request) { q.Scope.URL += "/" },
		"account":     func(q *effect.Request) { q.Scope.Account = "a-2" },
		"environment": func(q *effect.Request) { q.Scope.Environment = "live" },
	} {
		other := q
		change(&other)
		if ledger.PayloadDigest("issue-reward", &other) == want {
			t.Errorf("%s is not covered", name)
		}
	}
	if ledger.PayloadDigest("charge", &q) == want {
		t.Error("the effect type is not covered")
	}
	policy := q
	policy.Policy, policy.Expect = "reward@4", effect.Expectation{}
	if ledger.PayloadDigest("issue-reward", &policy) != want {
		t.Error("the policy version is covered: a new one would void approvals of the same payload")
	}
}

func TestKeysOfTheDesign(t *testing.T) {
	if got := rewardKey().String(); got != "0cfe61ce6e9ea7be29b0c22a2fd646c020f12201de82bba34cb5017af9f7a613" {
		t.Errorf("effectKey is %s", got)
	}
	undo, adjust := ledger.CorrectionKey(effect.Compensate, rewardKey(), 1), ledger.CorrectionKey(effect.Adjust, rewardKey(), 1)
	if undo == adjust || undo == ledger.CorrectionKey(effect.Compensate, rewardKey(), 2) {
		t.Error("corrections share a key")
	}
	// H("compensate.v1", effectKey, "1"), committed so that it never changes.
	if got := undo.String(); got != "fddcf6160601d3ac43d1035b545b318d7728a26e5fb0fdf6073bb962a4eef53b" {
		t.Errorf("compensation key is %s", got)
	}
	if got := adjust.String(); got != "3814d6c86e35f9db1f627665e375688b09b1a3e9b09568948484fb9bc3f6ad9a" {
		t.Errorf("adjustment key is %s", got)
	}
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/effectops"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// effectShop is a server with the drafts applied, and nobody who owns the effects.
type effectShop struct {
	t   *testing.T
	url string
}

func newEffectShop(t *testing.T) *effectShop {
	s := &effectShop{t: t, url: documentServer(t)}
	drafts, _ := tidemark(t, exitOK, "", "create", "EffectPolicy")
	s.run(exitOK, drafts, "apply", "-f", "-")
	return s
}

func (s *effectShop) run(code int, stdin string, args ...string) (out, errOut string) {
	s.t.Helper()
	return tidemark(s.t, code, stdin, append(args, "--server", s.url, "--timeout", "5s")...)
}

// write makes effects as an effector would, by the rules of the ledger: one record a step.
func (s *effectShop) write(key, airlock string, events ...ledger.Event) *effect.Record {
	s.t.Helper()
	ctx := context.Background()
	conn, err := natsio.Connect(ctx, natsio.Options{Server: s.url, Name: "effects-test"})
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	w, _, err := journal.ClaimWriter(ctx, conn.JS, journal.Settings{
		Stream: subject.EffectsStream("orders", 0), Subject: subject.Effects("orders", 0), Owner: "test", CoreVersion: 1, Strict: true,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	defer w.Abort()
	var record *effect.Record
	var records [][]byte
	for _, e := range append([]ledger.Event{judgeOf(key, airlock)}, events...) {
		next, why := ledger.Decide(record, e, effect.Time(clock.System().Now().UnixMicro()))
		if why != "" {
			s.t.Fatalf("%T: %s", e, why.Why())
		}
		data, err := next.Encode()
		if err != nil {
			s.t.Fatal(err)
		}
		record, records = next, append(records, data)
	}
	p, err := w.Commit(ctx, records, revision.NewCommit())
	if err != nil {
		s.t.Fatal(err)
	}
	<-p.Done()
	if _, err := p.Result(); err != nil {
		s.t.Fatal(err)
	}
	return record
}

func judgeOf(key, airlock string) ledger.Judge {
	id := effect.Identity{
		Stream: "orders", Job: "hourly-revenue", EffectType: "issue-reward", Key: key, Subject: key, LogicalWindowID: strings.Repeat("b", 64),
		Window: revision.Window{Start: 1796032800000000, End: 1796036400000000},
	}
	return ledger.Judge{Identity: id, Judgement: judgementOf(ledger.Key(&id), airlock)}
}

func judgementOf(key effect.EffectKey, airlock string) ledger.Judgement {
	return ledger.Judgement{
		Revision:  effect.Bound{AliasEpoch: 1, PolicyGeneration: "hourly-revenue@1", ProjectionID: strings.Repeat("a", 64), Revision: 5, Digest: revision.Digest{5}, Sequence: 105},
		Canonical: true, Holds: true, Provenance: true, Live: true, Airlock: airlock,
		Adapter: ledger.Adapter{Query: true, QueryFor: 1 << 40, SendWithin: 50_000, Timeout: 20_000_000},
		Request: effect.Request{
			Policy: "reward@1", Adapter: "rewards-api@1", Scope: effect.Scope{URL: "https://rewards.example/v1"},
			Payload: fmt.Sprintf(`{"effectKey":%q,"secretNote":"for your eyes"}`, key),
		},
	}
}

func TestEffectsVerbsWithoutAnEffector(t *testing.T) {
	s := newEffectShop(t)
	out, _ := s.run(exitOK, "", "effects", "ls", "orders", "-o", "ndjson")
	if out != "" {
		t.Fatalf("there are effects: %s", out)
	}
	held := s.write("eu-west", "amountAbove")
	key := held.Key.String()
	out, _ = s.run(exitOK, "", "effects", "ls", "orders", "--state", "held")
	contains(t, out, key[:shortKey], "eu-west", "HELD", "amountAbove", "2026-11-30T10:00:00Z")
	out, _ = s.run(exitOK, "", "effects", "ls", "orders", "-o", "ndjson", "--type", "issue-reward")
	contains(t, out, key, held.Request.PayloadDigest.String())
	if strings.Contains(out, "for your eyes") {
		t.Errorf("a list shows a payload: %s", out)
	}
	out, _ = s.run(exitOK, "", "effects", "show", "orders", key[:10], "-o", "json")
	contains(t, out, "for your eyes", held.Request.PayloadDigest.String(), `"history"`)

	_, errOut := s.run(exitConflict, "", "effects", "approve", "orders", key, "--digest", strings.Repeat("0a", 32), "--reason", "seen")
	contains(t, errOut, "not the one that was shown")
	// Nobody answers: the command is in the journal all the same.
	out, _ = tidemark(t, exitUnreachable, "", "effects", "approve", "orders", key, "--digest", held.Request.PayloadDigest.String(), "--reason", "seen", "-o", "ndjson", "--server", s.url, "--timeout", "500ms")
	contains(t, out, `"result":"waiting"`, key)
	out, errOut = s.run(exitOK, "", "effects", "hold", "orders", "--all", "--state", "HELD", "--dry-run")
	contains(t, out, "would-hold")
	contains(t, errOut, "1 effects to hold")
	_, errOut = s.run(exitUsage, "", "effects", "hold", "orders", "--all", "--state", "HELD", "--reason", "r")
	contains(t, errOut, "--yes")
	out, _ = s.run(exitOK, "", "effects", "export", "orders")
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		if !json.Valid([]byte(line)) {
			t.Errorf("no JSON: %s", line)
		}
	}
	contains(t, out, `"control"`, `"activate"`, `"command"`, `"effect"`, `"approve"`)
}

func TestEffectsVerbsSayWhatIsWrong(t *testing.T) {
	s := newEffectShop(t)
	a, b := s.write("eu-west", ""), s.write("eu-east", "")
	key := a.Key.String()
	file := filepath.Join(t.TempDir(), "statement.pdf")
	if err := os.WriteFile(file, []byte("paid"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{exitUsage, "no business stream", []string{"effects", "ls", "shop"}},
		{exitUsage, "no state", []string{"effects", "ls", "orders", "--state", "SENT"}},
		{exitUsage, "no effectKey", []string{"effects", "show", "orders", "xyz"}},
		{exitFindings, "no effect 00000000", []string{"effects", "show", "orders", "00000000"}},
		{exitUsage, "--reason", []string{"effects", "hold", "orders", key}},
		{exitUsage, "say which effects", []string{"effects", "hold", "orders", "--reason", "r"}},
		{exitUsage, "not both", []string{"effects", "hold", "orders", key, "--all", "--reason", "r"}},
		{exitUsage, "--digest", []string{"effects", "approve", "orders", key, "--reason", "r"}},
		{exitUsage, "64 digits", []string{"effects", "approve", "orders", key, "--digest", "12", "--reason", "r"}},
		{exitUsage, "--outcome", []string{"effects", "resolve", "orders", key, "--reason", "r"}},
		{exitUsage, "--evidence", []string{"effects", "resolve", "orders", key, "--outcome", "applied", "--reason", "r"}},
		{exitUsage, "--evidence", []string{"effects", "resolve", "orders", key, "--outcome", "compensated", "--evidence", file, "--reason", "r"}},
		{exitUsage, "key partitions", []string{"effects", "recover", "orders", "--partition", "99", "--reason", "r"}},
		{exitUsage, "--scope", []string{"gate", "pause", "orders", "--scope", "all", "--reason", "r"}},
		{exitUsage, "rollout", []string{"gate", "resume", "orders", "--scope", "switch:hourly-revenue", "--reason", "r"}},
		{exitUsage, "records alone", []string{"gate", "pause", "orders", "--scope", "unreadable", "--reason", "r"}},
		{exitUsage, "--reason", []string{"gate", "pause", "orders"}},
	} {
		if _, errOut := s.run(c.code, "", c.args...); !strings.Contains(errOut, c.want) {
			t.Errorf("%v: %q is missing in %q", c.args, c.want, errOut)
		}
	}
	if a.Key == b.Key {
		t.Fatal("two windows have one effect")
	}
}

func TestUnknownEffectsAreAnExitStatus(t *testing.T) {
	s := newEffectShop(t)
	j := judgeOf("eu-west", "")
	s.write("eu-west", "",
		ledger.Dispatch{Epoch: 1, Policy: "reward@1", Adapter: "rewards-api@1", Judgement: j.Judgement, RevisionsUpTo: 1000, Token: true},
		ledger.Answer{Epoch: 1, Attempt: 1, Class: effect.Ambiguous})
	out, _ := s.run(exitUnknown, "", "effects", "ls", "orders")
	contains(t, out, "UNKNOWN")
	s.run(exitOK, "", "effects", "ls", "orders", "--state", "HELD")
}

func TestGateVerbs(t *testing.T) {
	s := newEffectShop(t)
	j := judgeOf("eu-west", "")
	open := s.write("eu-west", "",
		ledger.Dispatch{Epoch: 1, Policy: "reward@1", Adapter: "rewards-api@1", Judgement: j.Judgement, RevisionsUpTo: 1000, Token: true})
	out, errOut := s.run(exitOK, "", "gate", "pause", "orders", "--scope", "type:mail", "--reason", "drill")
	contains(t, errOut, "type:mail is closed", "0 attempts")
	if out != "" {
		t.Errorf("in flight: %s", out)
	}
	out, errOut = s.run(exitUnknown, "", "gate", "pause", "orders", "--scope", "generation:hourly-revenue@1", "--reason", "wrong sums", "-o", "json")
	contains(t, errOut, "1 attempts were in flight, 1 of them are not closed")
	var paused effectops.Paused
	if err := json.Unmarshal([]byte(out), &paused); err != nil || len(paused.InFlight) != 1 || paused.InFlight[0].Key != open.Key {
		t.Fatalf("%s: %v", out, err)
	}
	out, _ = s.run(exitOK, "", "gate", "status", "orders")
	contains(t, out, "generation:hourly-revenue@1", "CLOSED", "wrong sums", "type:mail")
	s.run(exitUsage, "", "gate", "resume", "orders", "--scope", "type:mail", "--reason", "over")
	_, errOut = s.run(exitOK, "", "gate", "resume", "orders", "--scope", "type:mail", "--reason", "over", "--dry-run")
	contains(t, errOut, "nothing was done")
	s.run(exitOK, "", "gate", "resume", "orders", "--scope", "type:mail", "--reason", "over", "--yes")
	out, _ = s.run(exitOK, "", "gate", "status", "orders", "-o", "ndjson")
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		var status effectops.ScopeStatus
		if err := json.Unmarshal([]byte(line), &status); err != nil {
			t.Fatal(err)
		}
		if closed := len(status.Closed) > 0; closed != (status.Scope == "generation:hourly-revenue@1") {
			t.Errorf("%s", line)
		}
	}
}

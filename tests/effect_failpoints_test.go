//go:build heavy

package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/internal/providersim"
)

// effectsOfRound is how many effects a round has, on two key partitions.
const effectsOfRound = 12

// Every step around an effect, in every mode, on the first and the second hit: afterwards
// the provider's own log has every effect once, and the ledger knows that it ran. A point
// that the workload does not come by fails the sweep.
func TestEffectFailpoints(t *testing.T) {
	s := &sweep{binary: filepath.Join(t.TempDir(), "tidemark"), scratch: t.TempDir()}
	build := exec.Command("go", "build", "-tags", "failpoints", "-o", s.binary, "../cmd/tidemark")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	only := regexp.MustCompile(*onlyPoints)
	n := 0
	for _, p := range failpoint.EffectPoints() {
		for _, mode := range pointModes {
			for _, hit := range pointHits {
				r := pointRound{p, mode, hit}
				if !only.MatchString(r.String()) {
					continue
				}
				n++
				began := time.Now()
				if err := s.effectRound(t, r); err != nil {
					t.Errorf("%s: %v", r, err)
					continue
				}
				t.Logf("%s: ok after %.1f s", r, time.Since(began).Seconds())
			}
		}
	}
	if n == 0 {
		t.Fatalf("no round matches %q", *onlyPoints)
	}
}

// effectRound does one round in a fresh directory, with a provider of its own.
func (s *sweep) effectRound(t *testing.T, r pointRound) error {
	dir, err := os.MkdirTemp(s.scratch, "round-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	sim, err := providersim.Start(providersim.Options{
		Log: filepath.Join(dir, "provider.log"), Settings: providersim.Settings{Fields: providersim.Fields{Amount: "/amount", Subject: "/subject"}},
	})
	if err != nil {
		return err
	}
	defer func() {
		if err := sim.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	n := &pointNode{sweep: s, dir: dir + "/data", deadline: time.Now().Add(pointRoundFor)}
	defer n.kill()
	documents := write(t, "grants.yaml", strings.ReplaceAll(grants+idempotent+queryable, "URL", sim.URL()))
	var events strings.Builder
	for i := range effectsOfRound {
		fmt.Fprintf(&events, `{"id":"e-%d","user":"user-%d","n":%d,"at":%d}`+"\n", i, i, 1+i, grantsBegin+int64(i))
	}
	file := write(t, "grants.jsonl", events.String())
	work := func() error {
		if err := n.step("apply", "-f", documents); err != nil {
			return err
		}
		if !n.sent[0] {
			if err := n.step("send", file, "--stream", "grants", "--source", "web", "--partition", "0", "--finish", "--timeout", "5s"); err != nil {
				return err
			}
			n.sent[0] = true
		}
		return n.settleEffects()
	}
	if err = n.start(r.arm(), r); err == nil {
		err = work()
	}
	if errors.Is(err, errDied) {
		if err = n.start("", r); err == nil {
			err = work()
		}
	}
	if err == nil && n.firedAt().IsZero() {
		err = errors.New("the workload never comes by this point")
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, n.logs())
	}
	counts := providersim.Judge(sim.All())
	if len(counts) != effectsOfRound {
		return fmt.Errorf("the provider executed %d effects, want %d", len(counts), effectsOfRound)
	}
	for _, c := range counts {
		if c.Executions != 1 {
			return fmt.Errorf("the provider executed %s %d times", c.EffectKey, c.Executions)
		}
	}
	return nil
}

// settleEffects waits until the ledger knows of every effect that it ran.
func (n *pointNode) settleEffects() error {
	for {
		out, err := n.command("effects", "ls", "grants", "-o", "ndjson")
		if errors.Is(err, errDied) {
			return err
		}
		applied := 0
		for line := range bytes.Lines([]byte(out)) {
			var e struct{ Outcome string }
			if json.Unmarshal(line, &e) == nil && e.Outcome == "APPLIED" {
				applied++
			}
		}
		if applied == effectsOfRound {
			return nil
		}
		if time.Now().After(n.deadline) {
			return fmt.Errorf("%d of %d effects are known to have run: %v\n%s", applied, effectsOfRound, err, out)
		}
		time.Sleep(100 * time.Millisecond) // between two looks
	}
}

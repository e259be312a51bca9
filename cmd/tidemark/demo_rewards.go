package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/tidemark-mesh/tidemark/examples/rewards"
	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/effectops"
	"github.com/tidemark-mesh/tidemark/internal/providersim"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// The demo's rewards.
const (
	rewardURL    = "http://127.0.0.1:9400" // of the provider in the example's documents
	orderParts   = 8                       // key partitions of the example's stream
	demoOtherKey = "us-east"
)

// startProvider starts the provider of the demo's rewards.
func startProvider(log string) (*providersim.Sim, error) {
	sim, err := providersim.Start(providersim.Options{Log: log, Settings: providersim.Settings{Fields: providersim.Fields{Subject: "/account"}}})
	if err != nil {
		return nil, refused(err)
	}
	return sim, nil
}

func (s *story) rewards(ctx context.Context) error {
	s.scene("Hours of 10,000 or more earn a reward, once: a policy, an adapter, and a provider at %s", s.provider.URL())
	docs, found := policy.Parse("examples/rewards/rewards.yaml", []byte(strings.ReplaceAll(string(rewards.Documents), rewardURL, s.provider.URL())))
	if len(found) > 0 {
		return fmt.Errorf("%s:%d: %s: %s", found[0].File, found[0].Line, found[0].Rule, found[0].Message)
	}
	results, err := config.Apply(ctx, s.conn.JS, docs, config.Options{Replicas: 1, Reason: "demo"})
	if err != nil {
		return err
	}
	for _, r := range results {
		s.say("%s %s %s (digest %.12s…)", r.Kind, r.Name, r.Action, r.Digest)
	}
	return nil
}

func (s *story) rewardIssued(ctx context.Context) error {
	s.scene("The hour earned its reward: it is sent once, under a key that names the hour, not the revision")
	item, err := s.reward(ctx, demoKey, effect.Acked)
	if err != nil {
		return err
	}
	return s.executedOnce(item)
}

func (s *story) correction(ctx context.Context) error {
	s.scene("The refund contradicts the reward: no second reward, but a correction that a person decides")
	item, err := s.reward(ctx, demoKey, effect.CompensationRequired)
	if err != nil {
		return err
	}
	return s.executedOnce(item)
}

func (s *story) lostAnswer(ctx context.Context) error {
	s.scene("Another hour, and the provider's answer is lost: UNKNOWN is asked about, never sent blindly again")
	mode, err := providersim.ParseMode("lose-answer")
	if err != nil {
		return err
	}
	if err := s.provider.Set(providersim.Rule{Mode: mode, Times: 1}); err != nil {
		return err
	}
	big := fmt.Sprintf(`{"id":"o-9","order":{"region":%q,"amount":"20000.00","occurred_at":%q}}`, demoOtherKey, clockTime("11:30:00"))
	if err := s.push(ctx, 0, big, order("o-10", "12:06:00", "1.00")); err != nil {
		return err
	}
	if err := s.push(ctx, 1, order("o-11", "12:06:00", "1.00")); err != nil {
		return err
	}
	item, err := s.reward(ctx, demoOtherKey, effect.Reconciled)
	if err != nil {
		return err
	}
	shown, err := s.effects().Show(ctx, item.Record.Key)
	if err != nil {
		return err
	}
	path := make([]string, len(shown.History))
	for i, step := range shown.History {
		path[i] = string(step.Record.State)
	}
	s.say("%s: the query found it under our key", strings.Join(path, " → "))
	return s.executedOnce(item)
}

func (s *story) effects() *effectops.Ops { return effectops.New(s.conn.JS, demoStream, orderParts) }

// reward waits until the reward of a region is in a state, and shows it.
func (s *story) reward(ctx context.Context, region string, want effect.State) (effectops.Item, error) {
	ctx, cancel := context.WithTimeout(ctx, demoWait)
	defer cancel()
	ticker := clock.System().NewTicker(demoStep / 4)
	defer ticker.Stop()
	for {
		items, err := s.effects().List(ctx, effectops.Filter{Key: region})
		if err != nil {
			return effectops.Item{}, err
		}
		if len(items) == 1 && items[0].Record.State == want {
			s.sayReward(items[0].Record)
			return items[0], nil
		}
		select {
		case <-ctx.Done():
			return effectops.Item{}, fmt.Errorf("the reward of %s did not become %s in time", region, want)
		case <-ticker.C():
		}
	}
}

func (s *story) sayReward(r *effect.Record) {
	w := r.Identity.Window
	s.say("%s %s %s to %s: %s, %s (effectKey %.12s…)", r.Identity.EffectType, r.Identity.Key, clockPart(w.Start), clockPart(w.End), r.State, r.Outcome, r.Key)
}

// executedOnce asks the provider's log, which is the judge.
func (s *story) executedOnce(item effectops.Item) error {
	key := item.Record.Key.String()
	done := s.provider.Executions(key)
	if len(done) != 1 {
		return fmt.Errorf("the provider executed the reward %d times", len(done))
	}
	s.say("requests at the provider: %d; executions in its log: %d, amount %s for %s", s.provider.Requests(key), len(done), done[0].AmountText(), done[0].SubjectText())
	return nil
}

package adaptertest

import (
	"context"
	"errors"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adapter"
)

// resends tests what a second send of the same effect does, which is what the ledger
// builds on.
func (s Suite) resends(t *testing.T, c Capabilities) {
	if !c.Idempotent {
		t.Run("a second send executes again, so nothing may be resent", func(t *testing.T) {
			b := s.scene(t, c, endless)
			b.want(b.send(b.call(1)), effect.Executed, 1)
			b.want(b.send(b.call(2)), effect.Executed, 2)
		})
		return
	}
	lose := LoseAnswer
	if !s.has(lose) {
		lose = FailAfter
	}
	t.Run("a second send of the same bytes proves the first", func(t *testing.T) {
		b := s.scene(t, c, patient)
		b.Behave(b.key, lose)
		b.want(b.send(b.call(1)), effect.Ambiguous, 1)
		b.want(b.send(b.call(2)), effect.Executed, 1)
	})
	t.Run("a second send of other bytes is told from execution", func(t *testing.T) {
		b := s.scene(t, c, endless)
		b.want(b.send(b.call(1)), effect.Executed, 1)
		call := b.call(2)
		call.Payload = Payload(b.key, "99", b.expect.Subject)
		b.want(b.send(call), effect.OtherBytes, 1)
	})
	t.Run("a key that was forgotten protects nothing", func(t *testing.T) {
		b := s.scene(t, c, endless)
		b.want(b.send(b.call(1)), effect.Executed, 1)
		b.Forget(b.key)
		b.want(b.send(b.call(2)), effect.Executed, 2)
	})
	t.Run("a resend that is not sent says nothing of the first send", func(t *testing.T) {
		b := s.scene(t, c, patient)
		b.Behave(b.key, lose)
		b.want(b.send(b.call(1)), effect.Ambiguous, 1)
		b.Vanish()
		a := b.send(b.call(2))
		b.want(a, effect.NotSent, 1)
		if !a.Evidence.Key.IsZero() {
			t.Error("the answer names an effect, although nobody answered")
		}
	})
}

// ask asks for the scene's effect.
func (s *scene) ask() (adapter.Finding, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), deadline)
	defer cancel()
	f, err := s.Adapter().Query(ctx, adapter.Question{Key: s.key, Scope: s.Scope(), Expect: s.expect})
	if err != nil {
		s.discreet("error", err.Error())
	}
	return f, err
}

// found asks and checks how many executions are found, with what proves one.
func (s *scene) found(want uint32) {
	s.t.Helper()
	f, err := s.ask()
	if err != nil || f.Found != want {
		s.t.Fatalf("found %d, error %v; want %d", f.Found, err, want)
	}
	if f.Evidence.Source != effect.FromQuery || f.Evidence.Found != want {
		s.t.Errorf("evidence %+v is not that of a query which found %d", f.Evidence, want)
	}
	if want > 0 {
		s.proves(f.Evidence)
	}
}

// asks tests what queries find.
func (s Suite) asks(t *testing.T, c Capabilities) {
	if !c.Query {
		t.Run("there is no query", func(t *testing.T) {
			if _, err := s.scene(t, c, endless).ask(); !errors.Is(err, adapter.ErrNoQuery) {
				t.Errorf("error is %v; want ErrNoQuery", err)
			}
		})
		return
	}
	t.Run("an effect that was never sent is not found", func(t *testing.T) {
		s.scene(t, c, endless).found(0)
	})
	t.Run("an effect whose answer was lost is found", func(t *testing.T) {
		b := s.scene(t, c, patient)
		if s.has(LoseAnswer) {
			b.Behave(b.key, LoseAnswer)
		}
		b.send(b.call(1))
		b.found(1)
	})
	t.Run("an effect may be found only later", func(t *testing.T) {
		b := s.scene(t, c, endless)
		b.Hide(b.key, true)
		b.send(b.call(1))
		b.found(0)
		b.found(0)
		b.Hide(b.key, false)
		b.found(1)
	})
	t.Run("several executions are counted", func(t *testing.T) {
		b := s.scene(t, c, endless)
		b.send(b.call(1))
		b.Forget(b.key)
		b.send(b.call(2))
		b.found(2)
	})
	for _, behaviour := range []Behaviour{QueryFails, QueryBreaks, QueryOther, QueryMangled} {
		if !s.has(behaviour) {
			continue
		}
		t.Run("no absence where the provider "+string(behaviour), func(t *testing.T) {
			b := s.scene(t, c, impatient)
			b.BehaveQuery(b.key, behaviour)
			if f, err := b.ask(); err == nil && f.Evidence.Key == (effect.EffectKey{}) {
				t.Errorf("found %d without an error; nothing was learned", f.Found)
			}
		})
	}
	t.Run("no absence where nobody listens", func(t *testing.T) {
		b := s.scene(t, c, endless)
		b.Vanish()
		if f, err := b.ask(); err == nil {
			t.Errorf("found %d without an error; nothing was learned", f.Found)
		}
	})
}

package adaptertest

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// outcome is what an attempt must end as.
type outcome struct {
	of         Behaviour
	class      effect.Class
	executions int
}

var outcomes = []outcome{
	{Execute, effect.Executed, 1},
	{LoseAnswer, effect.Ambiguous, 1},
	{FailAfter, effect.Ambiguous, 1},
	{Redirect, effect.Ambiguous, 1},
	{HoldAnswer, effect.Ambiguous, 1},
	{HalfAnswer, effect.Ambiguous, 1},
	{Accept, effect.Pending, 1},
	{NoEvidence, effect.Ambiguous, 1},
	{OtherKey, effect.Ambiguous, 1},
	{TwiceNamed, effect.Ambiguous, 1},
	{HugeAnswer, effect.Ambiguous, 1},
	{OtherType, effect.Ambiguous, 1},
	{Refuse, effect.Refused, 0},
	{Throttle, effect.Throttled, 0},
	{InFlight, effect.InFlight, 0},
	{OtherBytes, effect.OtherBytes, 0},
	{Unlisted, effect.Ambiguous, 0},
}

// sends tests how attempts are classified.
func (s Suite) sends(t *testing.T, c Capabilities) {
	for _, o := range outcomes {
		if !s.has(o.of) {
			continue
		}
		t.Run("a provider that "+string(o.of), func(t *testing.T) {
			timeout := endless
			if o.of == LoseAnswer || o.of == HoldAnswer || o.of == HalfAnswer {
				timeout = impatient
			}
			b := s.scene(t, c, timeout)
			b.Behave(b.key, o.of)
			a := b.send(b.call(1))
			b.Release()
			b.want(a, o.class, o.executions)
			if n := b.Requests(b.key); n != 1 {
				t.Errorf("%d requests arrived; want 1", n)
			}
		})
	}
	if s.has(OtherAmount) {
		t.Run("another amount proves nothing", func(t *testing.T) {
			b := s.scene(t, c, endless)
			b.Behave(b.key, OtherAmount)
			a := b.send(b.call(1))
			if a.Class != effect.Executed && a.Class != effect.Ambiguous || b.proven(a.Evidence) {
				t.Errorf("the attempt ended as %s with %+v", a.Class, a.Evidence)
			}
		})
	}
}

// sendsOnce tests that bytes go out once, as they stand, when they may.
func (s Suite) sendsOnce(t *testing.T, c Capabilities) {
	t.Run("the stored bytes arrive", func(t *testing.T) {
		b := s.scene(t, c, endless)
		call := b.call(1)
		call.Payload = append([]byte(" \n"), call.Payload...) // nobody renders them again
		b.want(b.send(call), effect.Executed, 1)
		if got := b.Received(b.key); !bytes.Equal(got, call.Payload) {
			t.Errorf("the provider got %q; want %q", got, call.Payload)
		}
	})
	t.Run("the connection asks once before the first byte", func(t *testing.T) {
		b := s.scene(t, c, endless)
		b.want(b.send(b.call(1)), effect.Executed, 1) // a connection that is kept asks as well
		b.another()
		call, asked, arrived := b.call(1), atomic.Int32{}, atomic.Int32{}
		call.MaySend = func() bool {
			asked.Add(1)
			arrived.Add(int32(b.Requests(b.key)))
			return true
		}
		b.want(b.send(call), effect.Executed, 1)
		if asked.Load() != 1 || arrived.Load() != 0 {
			t.Errorf("MaySend was asked %d times, with %d requests there; want once before any", asked.Load(), arrived.Load())
		}
	})
	for name, maySend := range map[string]func() bool{"no": func() bool { return false }, "nobody to ask": nil} {
		t.Run("nothing is sent after "+name, func(t *testing.T) {
			b := s.scene(t, c, endless)
			call := b.call(1)
			call.MaySend = maySend
			b.want(b.send(call), effect.NotSent, 0)
			b.wantRequests(0)
			b.want(b.send(b.call(2)), effect.Executed, 1) // the adapter goes on
			b.wantRequests(1)
		})
	}
	if s.has(LoseAnswer) {
		t.Run("a kept connection that breaks after execution is not tried again", func(t *testing.T) {
			b := s.scene(t, c, patient)
			for range 3 { // so that a connection is kept
				b.want(b.send(b.call(1)), effect.Executed, 1)
				b.another()
			}
			b.Behave(b.key, LoseAnswer)
			b.want(b.send(b.call(1)), effect.Ambiguous, 1)
			b.wantRequests(1)
		})
	}
	t.Run("effects sent at the same time keep apart", func(t *testing.T) { s.together(t, c) })
}

// givesUp tests calls that cannot be made, or are not waited for.
func (s Suite) givesUp(t *testing.T, c Capabilities) {
	t.Run("a provider that is gone was not sent to", func(t *testing.T) {
		b := s.scene(t, c, endless)
		b.Vanish()
		b.want(b.send(b.call(1)), effect.NotSent, 0)
	})
	t.Run("an empty payload is not sent", func(t *testing.T) {
		b := s.scene(t, c, endless)
		call := b.call(1)
		call.Payload = nil
		b.want(b.send(call), effect.NotSent, 0)
		b.wantRequests(0)
	})
	t.Run("a call that was given up beforehand is not sent", func(t *testing.T) {
		b := s.scene(t, c, endless)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		b.want(b.sendIn(ctx, b.call(1)), effect.NotSent, 0)
		b.wantRequests(0)
	})
	if s.has(HoldAnswer) {
		t.Run("a call that is given up under way is ambiguous", func(t *testing.T) {
			b := s.scene(t, c, endless)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			b.Behave(b.key, HoldAnswer)
			go func() {
				b.await(func() bool { return b.Executions(b.key) > 0 })
				cancel()
			}()
			a := b.sendIn(ctx, b.call(1))
			b.Release()
			b.want(a, effect.Ambiguous, 1)
		})
	}
}

func (s *scene) wantRequests(n int) {
	s.t.Helper()
	if got := s.Requests(s.key); got != n {
		s.t.Errorf("%d requests arrived; want %d", got, n)
	}
}

// together sends many effects at once, some of which lose their answers.
func (s Suite) together(t *testing.T, c Capabilities) {
	b := s.scene(t, c, patient)
	list := make([]*scene, 24)
	for i := range list {
		one := *b
		one.another()
		list[i] = &one
		if i%4 == 3 && s.has(LoseAnswer) {
			one.Behave(one.key, LoseAnswer)
		}
	}
	var all sync.WaitGroup
	for i, one := range list {
		all.Go(func() {
			want := effect.Executed
			if i%4 == 3 && s.has(LoseAnswer) {
				want = effect.Ambiguous
			}
			one.want(one.send(one.call(1)), want, 1)
		})
	}
	all.Wait()
	slices.Reverse(list)
	for _, one := range list {
		one.wantRequests(1)
	}
}

// Package adaptertest holds the tests that every adapter must pass before effects may be
// trusted to it. They run against a provider that the author of the adapter supplies: a
// simulated one, or a sandbox of the real one.
//
// What is judged is the number of executions in the provider's own log, never what it
// answered. A test of an adapter is
//
//	func TestConformance(t *testing.T) {
//		adaptertest.Suite{Open: open, Matrix: adaptertest.Matrix()}.Run(t)
//	}
package adaptertest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adapter"
)

// Suite tests one adapter.
type Suite struct {
	// Open answers a provider and an adapter that reaches it, for one test. What it opens
	// it closes with t.Cleanup.
	Open func(t *testing.T, s Setup) Bench

	Matrix []Capabilities // that the adapter is to be tested with
	Lacks  []Behaviour    // that cannot be had in the protocol
	Verify NewVerifier    // nil = the adapter takes no receipts
}

// Setup is what a test needs.
type Setup struct {
	Capabilities
	Timeout time.Duration // of the adapter, from the first byte to the end of the answer
}

// Timeouts of adapters under test: of those that wait for an answer that never comes, of
// those that do so and then get one, and of the others.
const (
	impatient = 200 * time.Millisecond
	patient   = time.Second
	endless   = 30 * time.Second
)

// Capabilities are what the provider promises and the adapter declares.
type Capabilities struct {
	Idempotent bool // a known key is not executed again, and refused with another body
	Query      bool // by our own key
}

// String answers a name for a test.
func (c Capabilities) String() string {
	return fmt.Sprintf("idempotent=%t query=%t", c.Idempotent, c.Query)
}

// Matrix answers every combination of capabilities.
func Matrix() []Capabilities {
	return []Capabilities{{}, {Query: true}, {Idempotent: true}, {Idempotent: true, Query: true}}
}

// Behaviour is what a provider does with a request.
type Behaviour string

// Behaviours of requests that execute.
const (
	Execute     Behaviour = "executes and proves it"               // what it does unless told otherwise
	LoseAnswer  Behaviour = "executes and loses the answer"        // the connection breaks, or nothing comes
	FailAfter   Behaviour = "executes and answers with a failure"  // such as status 500
	Redirect    Behaviour = "executes and redirects"               // to where the same request executes again
	HoldAnswer  Behaviour = "executes and holds the answer"        // until Release
	HalfAnswer  Behaviour = "executes and breaks off its answer"   // within the body
	Accept      Behaviour = "takes the request and executes later" // declared as pending
	NoEvidence  Behaviour = "executes and names nothing"           // a success without evidence
	OtherKey    Behaviour = "executes and names another key"
	OtherAmount Behaviour = "executes and names another amount"
	TwiceNamed  Behaviour = "executes and names the key twice"   // two members of one name
	HugeAnswer  Behaviour = "executes and answers without end"   // more than 8 MiB, evidence first
	OtherType   Behaviour = "executes and answers in other type" // evidence, but not declared as JSON
)

// Behaviours of requests that do not execute.
const (
	Refuse     Behaviour = "refuses before execution"      // as the adapter declares
	Throttle   Behaviour = "throttles before execution"    // as the adapter declares
	InFlight   Behaviour = "works on the key"              // as the adapter declares
	OtherBytes Behaviour = "knows the key with other body" // as the adapter declares
	Unlisted   Behaviour = "answers what nobody declared"  // such as status 403
)

// Behaviours of queries.
const (
	QueryFails   Behaviour = "fails the query"              // such as status 500
	QueryBreaks  Behaviour = "breaks off the query"         // half an answer, or none
	QueryOther   Behaviour = "finds another key"            // an execution that is not ours
	QueryMangled Behaviour = "answers the query unreadably" // such as members that stand twice
)

// Bench is a provider and an adapter that reaches it. Its provider reads requests of the
// form that Payload answers, and names effectKey, amount and subject where the adapter
// looks for them. It keeps a log of executions of its own.
type Bench interface {
	Adapter() adapter.Adapter
	Scope() effect.Scope
	Secrets() []string // that nothing may show

	// Behave says what becomes of the next request under a key, BehaveQuery of the next
	// query.
	Behave(key effect.EffectKey, b Behaviour)
	BehaveQuery(key effect.EffectKey, b Behaviour)
	Release() // ends HoldAnswer for whoever is held

	Requests(key effect.EffectKey) int    // that arrived, executed or not
	Received(key effect.EffectKey) []byte // the bytes of the last one
	Executions(key effect.EffectKey) int  // in the provider's log
	Hide(key effect.EffectKey, hide bool) // queries do not see its executions while hidden
	Forget(key effect.EffectKey)          // its idempotency; executions stay in the log
	Vanish()                              // nobody listens from now on
}

// Payload answers the request's body that benches read.
func Payload(key effect.EffectKey, amount, subject string) []byte {
	return fmt.Appendf(nil, `{"amount":%s,"effectKey":"%s","subject":"%s"}`, amount, key, subject)
}

// Run runs every test that the adapter's capabilities call for.
func (s Suite) Run(t *testing.T) {
	if s.Open == nil || len(s.Matrix) == 0 {
		t.Fatal("a suite needs Open and at least one entry of Matrix")
	}
	for _, c := range s.Matrix {
		t.Run(c.String(), func(t *testing.T) {
			s.sends(t, c)
			s.sendsOnce(t, c)
			s.givesUp(t, c)
			s.resends(t, c)
			s.asks(t, c)
		})
	}
	if s.Verify != nil {
		t.Run("receipts", s.receipts)
	}
}

func (s Suite) has(b Behaviour) bool { return !slices.Contains(s.Lacks, b) }

// deadline bounds every call; no adapter under test may need so long.
const deadline = time.Minute

// scene is a bench within a test, and the effect that the test is about.
type scene struct {
	t *testing.T
	Bench
	key    effect.EffectKey
	expect effect.Expectation
}

var scenes atomic.Uint64

func (s Suite) scene(t *testing.T, c Capabilities, timeout time.Duration) *scene {
	t.Helper()
	out := &scene{t: t, Bench: s.Open(t, Setup{c, timeout})}
	out.another()
	return out
}

// another makes the scene about an effect that was not there before.
func (s *scene) another() effect.EffectKey {
	n := scenes.Add(1)
	s.key = sha256.Sum256(fmt.Appendf(nil, "%s %d", s.t.Name(), n))
	s.expect = effect.Expectation{Amount: "12.50", Subject: fmt.Sprintf("account-%d", n)}
	return s.key
}

func yes() bool { return true }

// call answers an attempt of the scene's effect.
func (s *scene) call(attempt uint32) adapter.Call {
	return adapter.Call{
		Key: s.key, Attempt: attempt, EffectType: "conformance", Scope: s.Scope(), Expect: s.expect, MaySend: yes,
		Payload:     Payload(s.key, s.expect.Amount, s.expect.Subject),
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
}

// send makes an attempt and checks what holds of every answer.
func (s *scene) send(call adapter.Call) adapter.Answer {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), deadline)
	defer cancel()
	return s.sendIn(ctx, call)
}

func (s *scene) sendIn(ctx context.Context, call adapter.Call) adapter.Answer {
	s.t.Helper()
	a := s.Adapter().Send(ctx, call)
	if !slices.Contains(effect.Classes(), a.Class) {
		s.t.Errorf("%q is no class", a.Class)
	}
	if e := a.Evidence; e.Source != effect.FromAnswer || e.Attempt != call.Attempt || e.Class != a.Class {
		s.t.Errorf("evidence has source %q, attempt %d and class %q; want those of the answer to attempt %d, %s", e.Source, e.Attempt, e.Class, call.Attempt, a.Class)
	}
	if a.RetryAfter != 0 && (a.RetryAfter < time.Second || a.RetryAfter > 24*time.Hour) {
		s.t.Errorf("RetryAfter is %s; want 0, or 1s to 24h", a.RetryAfter)
	}
	s.discreet("Detail", a.Detail)
	return a
}

// discreet checks that a text for people shows nothing of the effect's content.
func (s *scene) discreet(what, text string) {
	s.t.Helper()
	for _, secret := range append(s.Secrets(), s.expect.Subject) {
		if secret != "" && strings.Contains(text, secret) {
			s.t.Errorf("%s %q shows a secret, or what the payload says", what, text)
		}
	}
}

// want checks how an attempt ended and how often the effect was executed, which may take
// the provider longer than the adapter waited.
func (s *scene) want(a adapter.Answer, class effect.Class, executions int) {
	s.t.Helper()
	if a.Class != class {
		s.t.Errorf("the attempt ended as %s (%s); want %s", a.Class, a.Detail, class)
	}
	s.await(func() bool { return s.Executions(s.key) >= executions })
	if n := s.Executions(s.key); n != executions {
		s.t.Errorf("the provider executed the effect %d times; want %d", n, executions)
	}
	if class == effect.Executed {
		s.proves(a.Evidence)
	}
}

// await waits until a condition holds, or long enough to be sure that it will not.
func (s *scene) await(holds func() bool) {
	ctx, cancel := context.WithTimeout(s.t.Context(), deadline)
	defer cancel()
	for !holds() && ctx.Err() == nil {
		look, next := context.WithTimeout(ctx, 2*time.Millisecond)
		<-look.Done()
		next()
	}
}

// proves checks that evidence names the scene's effect.
func (s *scene) proves(e effect.Evidence) {
	s.t.Helper()
	if !s.proven(e) || e.Digest.IsZero() {
		s.t.Errorf("evidence %+v does not name effect %s with amount %s and subject %s, and the digest of what said so", e, s.key, s.expect.Amount, s.expect.Subject)
	}
}

func (s *scene) proven(e effect.Evidence) bool {
	return e.Key == s.key && sameAmount(e.Amount, s.expect.Amount) && e.Subject == s.expect.Subject
}

func sameAmount(a, b string) bool {
	x, okX := new(big.Rat).SetString(a)
	y, okY := new(big.Rat).SetString(b)
	return okX && okY && x.Cmp(y) == 0
}

// Package adapter is what stands between the effector and a provider: it sends the stored
// bytes of an effect once, and says in which class the attempt ended and what proves it.
//
// An adapter decides nothing. Whether an attempt may be made, and what its end means for
// the effect, is the business of the ledger. What an adapter owes is never to call an
// attempt anything but effect.Ambiguous where it cannot tell. Package adaptertest holds
// the tests that every adapter must pass.
package adapter

import (
	"context"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// Adapter reaches one provider. Its methods may be called at the same time, but not after
// Close.
type Adapter interface {
	// Send makes exactly one attempt: the bytes of call.Payload reach the provider once
	// or not at all, whatever becomes of connections. It answers when the attempt ended,
	// at the latest when the adapter's timeout or ctx is over. It has no error: whatever
	// goes wrong is a class.
	//
	// effect.NotSent is answered only if no byte went out: the name was not resolved, the
	// connection or its TLS not established, or MaySend said no. A cancelled ctx is
	// ambiguous unless that is so.
	Send(ctx context.Context, call Call) Answer

	// Query asks the provider what it has under our key. An error says that nothing was
	// learned, and is no absence; it repeats no body and no secret. An adapter without a
	// query answers ErrNoQuery.
	Query(ctx context.Context, question Question) (Finding, error)

	// Close gives up connections. Attempts that are open end as they may.
	Close() error
}

// Call is one attempt.
type Call struct {
	Key        effect.EffectKey
	Attempt    uint32 // from 1
	EffectType string
	Scope      effect.Scope // frozen with the first attempt; its URL is where the call goes
	Payload    []byte       // sent as it stands; never empty, and not to be changed
	Expect     effect.Expectation

	// MaySend is asked once, by the connection itself, immediately before the first byte
	// of the request; after a no nothing is written, and the attempt ends as
	// effect.NotSent. It must be quick and may be called from another goroutine. A nil
	// MaySend sends nothing.
	MaySend func() bool

	TraceParent string // of W3C Trace Context; empty for none
}

// Answer is how an attempt ended.
type Answer struct {
	Class effect.Class

	// Evidence holds what the provider named, whatever the class. With effect.Executed it
	// names the key of the call, and amount and subject as the provider has them. They
	// need not be what was expected: the ledger compares, and what differs is a conflict.
	Evidence effect.Evidence

	// RetryAfter is how long the provider asks to be left alone, within one second and
	// one day; 0 where it asks for nothing.
	RetryAfter time.Duration

	// Detail says in a few words what happened, for people: never payload, body or secret.
	Detail string
}

// Question asks for an effect.
type Question struct {
	Key    effect.EffectKey
	Scope  effect.Scope
	Expect effect.Expectation
}

// Finding is what the provider has under our key. Evidence.Found repeats Found; where it
// is 1, Evidence names what was found, which need not be what was expected: who reads it
// compares.
type Finding struct {
	Found    uint32
	Evidence effect.Evidence
}

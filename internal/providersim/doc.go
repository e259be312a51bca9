// Package providersim is a provider of outside actions that can be made to misbehave: a
// real HTTP server with idempotency keys, queries, lists and signed receipts, and a log of
// its own of what it executed.
//
// The log is the judge. It is append-only and fsynced before an execution counts as one,
// so that "at most once per effectKey" is decided by what the provider did, never by what
// it answered or what its caller believes.
//
// It shares no code with the adapters that call it.
package providersim

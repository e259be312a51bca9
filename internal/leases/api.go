// Package leases tells who should try to own a partition. A lease is a liveness hint
// only: the journal decides who wins.
package leases

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Holder keeps leases for one process.
type Holder struct{}

// New answers a Holder. instance names the process; a process that starts again under
// the same instance takes its own leases back at once. address is shown to others (421).
func New(js jetstream.JetStream, instance, address string, ttl time.Duration) *Holder {
	panic("contract only")
}

// Acquire blocks until the lease named key (subject.Lease) is ours or ctx ends. A foreign
// lease counts as free once its entry did not change for ttl on our own monotonic clock,
// or its holder released it. The answer's Lost is closed when renewal fails for ttl or another holder took it.
func (h *Holder) Acquire(ctx context.Context, key string) (*Lease, error) { panic("contract only") }

// Lease is one held lease.
type Lease struct{}

// Lost is closed when the lease is no longer ours.
func (l *Lease) Lost() <-chan struct{} { panic("contract only") }

// Release gives the lease back.
func (l *Lease) Release() { panic("contract only") }

// Who answers the address of the current holder of key, "" if none.
func (h *Holder) Who(ctx context.Context, key string) (address string, err error) {
	panic("contract only")
}

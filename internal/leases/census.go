package leases

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Census tells who is alive in a role, for programs that are no member themselves.
type Census struct {
	clk   clock.Clock
	start time.Time
	stop  context.CancelFunc

	mu      sync.Mutex
	members map[string]counted
}

// counted is one member: how long it may be silent, and when its heartbeat was seen.
type counted struct {
	ttl  time.Duration
	seen time.Duration
}

// Count begins to watch the members of a role and answers once those there are known.
// Close ends it.
func Count(ctx context.Context, js jetstream.JetStream, role string, clk clock.Clock) (*Census, error) {
	kv, err := js.KeyValue(ctx, subject.LeaseBucket)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", subject.LeaseBucket, err)
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	w, err := kv.Watch(watching, subject.MembersOf(role))
	if err != nil {
		stop()
		return nil, fmt.Errorf("watch the members of %s: %w", role, err)
	}
	c := &Census{clk: clk, start: clk.Now(), stop: stop, members: map[string]counted{}}
	known := make(chan struct{})
	go func() {
		for e := range w.Updates() {
			if e == nil {
				close(known)
				continue
			}
			c.note(e)
		}
	}()
	select {
	case <-known:
		return c, nil
	case <-ctx.Done():
		stop()
		return nil, fmt.Errorf("read the members of %s: %w", role, ctx.Err())
	}
}

func (c *Census) note(e jetstream.KeyValueEntry) {
	instance, ok := subject.ParseMember(e.Key())
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var m memberEntry
	if e.Operation() != jetstream.KeyValuePut || json.Unmarshal(e.Value(), &m) != nil {
		delete(c.members, instance)
		return
	}
	c.members[instance] = counted{time.Duration(m.TTLMs) * time.Millisecond, c.clk.Since(c.start)}
}

// Live answers the instances whose heartbeat did not stand still for their ttl since the
// census began, in order.
func (c *Census) Live() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clk.Since(c.start)
	var live []string
	for instance, m := range c.members {
		if now-m.seen < m.ttl {
			live = append(live, instance)
		}
	}
	slices.Sort(live)
	return live
}

// Close ends the watch.
func (c *Census) Close() { c.stop() }

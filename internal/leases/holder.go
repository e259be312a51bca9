package leases

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// DefaultTTL is how long a silent process is waited for.
const DefaultTTL = 3 * time.Second

const (
	// askTimeout bounds one question to a server: without a leader it may stay unanswered.
	askTimeout = 2 * time.Second
	// leaveFor bounds how long a process that ends is waited for to give its leases back.
	leaveFor = 30 * time.Second
	// forget is after how many ttl of silence a member's entry is deleted.
	forget = 20
	// yieldsAtOnce bounds how many units a process hands over at the same time.
	yieldsAtOnce = 4
)

// Options of a Holder.
type Options struct {
	JS       jetstream.JetStream
	Role     string // the service; leases of a role have subject.Lease(Role, …) as keys
	Instance string // names the process; one that starts again under it takes its own leases back at once
	Address  string // told to others (421)
	TTL      time.Duration
	Clock    clock.Clock
	Log      zerolog.Logger
	Registry *prometheus.Registry
}

// Holder keeps the leases of one process in one role. Safe for concurrent use.
type Holder struct {
	o       Options
	session string
	start   time.Time
	metrics *metrics
	kicked  chan struct{} // something to look at before the next tick
	rewatch chan struct{} // the watch is to begin anew
	over    chan struct{} // closed when Run has ended

	mu         sync.Mutex
	bucket     jetstream.KeyValue
	view       *view
	contenders map[string]*contender
	held       map[string]*Lease
	penalties  map[string]penalty
	target     map[string]string // who should have each unit, by instance
	beat       beat
	leaving    bool
}

// New answers a Holder that does nothing until Run.
func New(o Options) (*Holder, error) {
	if o.TTL <= 0 {
		o.TTL = DefaultTTL
	}
	if o.Clock == nil {
		o.Clock = clock.System()
	}
	m, err := newMetrics(o.Registry, o.Role)
	if err != nil {
		return nil, fmt.Errorf("leases: %w", err)
	}
	session := uuid.NewString()
	return &Holder{
		o: o, session: session, start: o.Clock.Now(), metrics: m,
		kicked: make(chan struct{}, 1), rewatch: make(chan struct{}, 1), over: make(chan struct{}),
		view: newView(o.TTL, o.Instance, session), contenders: map[string]*contender{},
		held: map[string]*Lease{}, penalties: map[string]penalty{}, target: map[string]string{},
	}, nil
}

func (h *Holder) now() time.Duration { return h.o.Clock.Since(h.start) }

// tick is how often everything is looked at.
func (h *Holder) tick() time.Duration { return max(h.o.TTL/12, time.Millisecond) }

// Run keeps the process a member until ctx ends; then it wants nothing any more, waits
// until its leases are given back, and leaves. Acquire works while Run does.
func (h *Holder) Run(ctx context.Context) {
	defer close(h.over)
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	updates, beats := make(chan update), make(chan beaten, 1)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer end()
	tasks.Go(func() { h.watch(life, updates) })
	ticker := h.o.Clock.NewTicker(h.tick())
	defer ticker.Stop()
	leave := ctx.Done()
	var left time.Duration
	for {
		select {
		case u := <-updates:
			h.seen(u)
		case b := <-beats:
			h.beaten(b)
		case <-ticker.C():
			h.look(life)
		case <-h.kicked:
		case <-leave:
			leave, left = nil, h.now()
			h.setLeaving()
		}
		h.evaluate()
		if send := h.nextBeat(); send != nil {
			tasks.Go(func() { beats <- send(life) })
		}
		if leave == nil && (h.idle() || h.now()-left >= leaveFor) {
			h.depart(life)
			return
		}
	}
}

func (h *Holder) setLeaving() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leaving = true
}

// idle tells whether nothing is held or waited for, and no heartbeat is on its way.
func (h *Holder) idle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.held) == 0 && len(h.contenders) == 0 && !h.beat.flying
}

// kick asks for a look before the next tick.
func (h *Holder) kick() {
	select {
	case h.kicked <- struct{}{}:
	default:
	}
}

// evaluate computes the spread anew, wakes contenders that should try, and asks holders
// of what belongs elsewhere to yield.
func (h *Holder) evaluate() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	units := make([]string, 0, len(h.held)+len(h.contenders))
	for key := range h.held {
		units = append(units, key)
	}
	for key := range h.contenders {
		units = append(units, key)
	}
	all := h.view.candidates()
	h.metrics.members.Set(float64(len(all) + 1))
	if !h.leaving {
		all = append(all, candidate{h.o.Instance, func(key string) bool { return h.counts(key, now) }})
	}
	h.target = spread(units, all)
	for key, c := range h.contenders {
		if _, try := h.decide(key, now); try {
			c.poke()
		}
	}
	h.yield(now)
}

// counts tells whether we take part in the spread for a unit: we hold it, or would take it.
func (h *Holder) counts(key string, now time.Duration) bool {
	if h.held[key] != nil {
		return true
	}
	return h.contenders[key] != nil && !h.penalised(key, now) && h.view.established()
}

// decide answers whether a contender should try now, and the revision it must find.
func (h *Holder) decide(key string, now time.Duration) (revision uint64, try bool) {
	v := h.view
	if !v.synced || !v.begun || v.superior || h.leaving {
		return 0, false
	}
	if l := v.leases[key]; l != nil && l.held && l.entry.Instance == h.o.Instance {
		return l.revision, true // of the process before us, or of an answer that was lost
	}
	free, ok := v.freeFor(key, now)
	if !ok {
		return 0, false
	}
	// A third longer than it takes a fresh member to count: of several that start together
	// the preferred one is the first.
	patience := h.o.TTL + h.o.TTL/3
	return v.leases[key].revision, h.target[key] == h.o.Instance || free >= patience || v.alone()
}

// yield asks holders of units that belong elsewhere for a while to hand them over, a few
// at a time. In order of the key, so that it does not depend on chance which go first.
func (h *Holder) yield(now time.Duration) {
	asked := 0
	var next []*Lease
	for key, l := range h.held {
		switch to := h.target[key]; {
		case l.yielding:
			asked++
		case h.leaving || to == "" || to == h.o.Instance:
			l.elsewhere = false
		case !l.elsewhere:
			l.elsewhere, l.elsewhereAt = true, now
		case now-l.elsewhereAt >= h.o.TTL/3:
			next = append(next, l)
		}
	}
	sortByKey(next)
	for _, l := range next {
		if asked == yieldsAtOnce {
			return
		}
		asked++
		l.yielding = true
		h.o.Log.Info().Str("unit", l.key).Str("to", h.target[l.key]).Msg("leases: handing over to the member that should have it")
		close(l.yield)
	}
}

// open answers the bucket. A handle is kept: opening asks the server.
func (h *Holder) open(ctx context.Context) (jetstream.KeyValue, error) {
	h.mu.Lock()
	kv := h.bucket
	h.mu.Unlock()
	if kv != nil {
		return kv, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	kv, err := h.o.JS.KeyValue(ctx, subject.LeaseBucket)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", subject.LeaseBucket, err)
	}
	h.mu.Lock()
	h.bucket = kv
	h.mu.Unlock()
	return kv, nil
}

// Who answers the address of the process that owns a unit, "" when nobody alive does.
func (h *Holder) Who(_ context.Context, key string) (address string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.view.synced {
		return "", fmt.Errorf("lease %s: the leases were not read yet", key)
	}
	if l := h.view.leases[key]; l != nil && h.view.behind(l) {
		return l.entry.Address, nil
	}
	return "", nil
}

// Wanted tells whether another living process would take a unit that we hold: what helps
// it to take over quickly is worth doing.
func (h *Holder) Wanted(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.view.members {
		if !h.view.silent(m) && m.wants[unitHash(key)] {
			return true
		}
	}
	return false
}

package leases

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// beat is how our heartbeat goes.
type beat struct {
	flying  bool          // one is on its way
	began   time.Duration // when the last one was sent
	after   time.Duration // due then, since the last one failed; 0 = it did not
	renewed time.Duration // when the last one that succeeded was sent
	acked   uint64        // its revision
	ackedAt time.Duration
	wants   string // what it said
}

// beaten is the end of one heartbeat.
type beaten struct {
	began    time.Duration
	wants    string
	revision uint64
	err      error
}

// update is one change of the bucket; synced says that what follows is new.
type update struct {
	key      string
	data     []byte // nil: deleted
	revision uint64
	synced   bool
}

// seen takes in one change.
func (h *Holder) seen(u update) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	if u.synced {
		h.view.synced = true
		return
	}
	if instance, ok := subject.ParseMember(u.key); ok {
		h.view.memberSeen(instance, u.data, u.revision, now)
		if h.view.superior && len(h.held) > 0 {
			h.o.Log.Error().Str("instance", h.o.Instance).Msg("leases: another process runs under this instance; its data directory was copied, or this process stood still for long; everything is left to it")
			h.dropAll(eventSuperseded)
		}
		return
	}
	h.view.leaseSeen(u.key, u.data, u.revision)
	l := h.held[u.key]
	if l == nil || u.revision <= l.revision {
		return
	}
	if e := h.view.leases[u.key]; !e.held || e.entry.Term != l.term {
		h.drop(l, eventTaken)
	}
}

// look is what every tick asks: are our own leases still good, is there something to tidy.
func (h *Holder) look(life context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	if len(h.held) > 0 && now-h.beat.renewed >= h.o.TTL {
		h.o.Log.Warn().Dur("silent", now-h.beat.renewed).Int("units", len(h.held)).Msg("leases: no heartbeat was accepted for a ttl, everything is given up")
		h.dropAll(eventExpired)
	}
	if h.view.superior && now-h.view.superiorAt >= h.o.TTL {
		h.view.superior = false // the other one under our instance is silent by the rule for anybody
	}
	if h.beat.acked > h.view.own && now-h.beat.ackedAt >= h.o.TTL {
		h.beat.ackedAt = now // the watch does not show what the server took
		select {
		case h.rewatch <- struct{}{}:
		default:
		}
	}
	h.tidy(life, now)
}

// tidy deletes entries of members silent for long, and leases in our own name that
// nothing in this process stands behind.
func (h *Holder) tidy(life context.Context, now time.Duration) {
	v := h.view
	if !v.begun || v.echo-v.first < h.o.TTL || v.superior {
		return
	}
	for instance, m := range v.members {
		if v.echo-m.changed >= forget*h.o.TTL {
			delete(v.members, instance)
			go h.remove(life, subject.Member(h.o.Role, instance), m.revision)
		}
	}
	for key, l := range v.leases {
		if !l.held || l.entry.Instance != h.o.Instance || h.held[key] != nil || h.contenders[key] != nil {
			l.orphanAt = 0
			continue
		}
		if l.orphanAt == 0 {
			l.orphanAt = now
		}
		if now-l.orphanAt >= h.o.TTL {
			l.orphanAt = now // once a ttl
			go h.remove(life, key, l.revision)
		}
	}
}

// remove deletes an entry that still has the revision. When it fails, the next look tries again.
func (h *Holder) remove(ctx context.Context, key string, revision uint64) {
	kv, err := h.open(ctx)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_ = kv.Delete(ctx, key, jetstream.LastRevision(revision))
}

// nextBeat answers the heartbeat that is due, nil when none is.
func (h *Holder) nextBeat() func(context.Context) beaten {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	if !h.view.synced || h.view.superior || h.beat.flying || now < h.beat.after {
		return nil
	}
	text := h.wants(now).encode()
	since := now - h.beat.began
	if h.beat.after == 0 && h.beat.began != 0 && since < h.o.TTL/3 && (text == h.beat.wants || since < h.tick()) {
		return nil
	}
	h.beat.flying, h.beat.began = true, max(now, 1)
	expect := max(h.view.own, h.beat.acked)
	entry := encode(memberEntry{
		Instance: h.o.Instance, Address: h.o.Address, Session: h.session, TTLMs: h.o.TTL.Milliseconds(), Wants: text,
	})
	return func(ctx context.Context) beaten {
		b := beaten{began: now, wants: text}
		b.revision, b.err = h.put(ctx, subject.Member(h.o.Role, h.o.Instance), entry, expect)
		return b
	}
}

// wants is what we tell others: what we hold, and what we would take.
func (h *Holder) wants(now time.Duration) wants {
	w := wants{}
	if h.leaving {
		return w
	}
	for key := range h.held {
		w[unitHash(key)] = true
	}
	for key := range h.contenders {
		if !h.penalised(key, now) {
			w[unitHash(key)] = true
		}
	}
	return w
}

// put writes an entry that must be at a revision; 0 is one that never was.
func (h *Holder) put(ctx context.Context, key string, entry []byte, expect uint64) (uint64, error) {
	kv, err := h.open(ctx)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, min(askTimeout, max(h.o.TTL/3, 10*time.Millisecond)))
	defer cancel()
	return kv.Update(ctx, key, entry, expect)
}

// beaten notes the end of a heartbeat. One that failed is sent again at the next tick; a
// refused one may follow one of ours whose answer was lost, which the watch will show.
func (h *Holder) beaten(b beaten) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beat.flying = false
	if b.err != nil {
		// A connection that is down refuses at once: without a pause this would spin.
		h.beat.after = h.now() + h.tick()
		h.o.Log.Debug().Err(b.err).Msg("leases: a heartbeat was not accepted")
		return
	}
	h.beat.after = 0
	h.beat.renewed, h.beat.acked, h.beat.wants, h.beat.ackedAt = b.began, b.revision, b.wants, h.now()
}

// depart deletes our entries.
func (h *Holder) depart(ctx context.Context) {
	h.mu.Lock()
	h.dropAll(eventExpired)
	doomed := map[string]uint64{}
	for key, l := range h.view.leases {
		if l.held && l.entry.Instance == h.o.Instance && l.entry.Session == h.session {
			doomed[key] = l.revision
		}
	}
	if h.view.begun && !h.view.superior {
		doomed[subject.Member(h.o.Role, h.o.Instance)] = max(h.view.own, h.beat.acked)
	}
	h.mu.Unlock()
	for key, revision := range doomed {
		h.remove(ctx, key, revision)
	}
}

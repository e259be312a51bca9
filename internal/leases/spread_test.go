package leases

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-mesh/tidemark/internal/clock"
)

func everything(string) bool { return true }

func named(n int) (out []candidate) {
	for i := range n {
		out = append(out, candidate{fmt.Sprintf("member-%d", i), everything})
	}
	return out
}

func keys(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("windower.orders.hourly=2E1=2E%02d", i))
	}
	return out
}

func TestSpreadIsEvenAndTheSameEverywhere(t *testing.T) {
	for _, units := range []int{1, 2, 4, 8, 64, 200} {
		for members := 1; members <= 6; members++ {
			all := named(members)
			got := spread(keys(units), all)
			load := map[string]int{}
			for _, to := range got {
				load[to]++
			}
			share := (units + members - 1) / members
			for m, n := range load {
				if n > share {
					t.Errorf("%d units, %d members: %s has %d", units, members, m, n)
				}
			}
			if len(got) != units {
				t.Errorf("%d units, %d members: %d are placed", units, members, len(got))
			}
			// Order of units and members is of no meaning.
			turned, back := keys(units), named(members)
			for i := range turned[:units/2] {
				turned[i], turned[units-1-i] = turned[units-1-i], turned[i]
			}
			for i := range back[:members/2] {
				back[i], back[members-1-i] = back[members-1-i], back[i]
			}
			for key, to := range spread(turned, back) {
				if got[key] != to {
					t.Fatalf("%s is placed at %s and at %s", key, got[key], to)
				}
			}
		}
	}
}

func TestSpreadMovesLittle(t *testing.T) {
	units := keys(64)
	for members := 1; members < 6; members++ {
		before, after := spread(units, named(members)), spread(units, named(members+1))
		moved, must := 0, 0
		for key, to := range after {
			if before[key] != to {
				moved++
			}
			if to == fmt.Sprintf("member-%d", members) {
				must++
			}
		}
		t.Logf("%d to %d members: %d of 64 units move, %d to the new one", members, members+1, moved, must)
		if moved > 2*must {
			t.Errorf("%d to %d members: %d units move, %d would do", members, members+1, moved, must)
		}
	}
}

func TestSpreadAsksWhoWants(t *testing.T) {
	units := keys(4)
	only := units[2]
	all := append(named(1), candidate{"choosy", func(key string) bool { return key == only }})
	got := spread(units, all)
	for _, u := range units {
		if u != only && got[u] != "member-0" {
			t.Errorf("%s is placed at %q", u, got[u])
		}
	}
	if got := spread(units, []candidate{{"nothing", func(string) bool { return false }}}); len(got) != 0 {
		t.Errorf("unwanted units are placed: %v", got)
	}
}

func entryOf(t *testing.T, instance, session string, units ...string) []byte {
	t.Helper()
	w := wants{}
	for _, u := range units {
		w[unitHash(u)] = true
	}
	data, err := json.Marshal(memberEntry{Instance: instance, Session: session, Wants: w.encode()})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// What a view did not see is held against nobody.
func TestBlindTimeIsNoSilence(t *testing.T) {
	const ttl = 3 * time.Second
	v := newView(ttl, "me", "s")
	v.memberSeen("other", entryOf(t, "other", "o", "u"), 1, 0)
	v.synced = true
	own := entryOf(t, "me", "s")
	rev := uint64(1)
	beat := func(at time.Duration) {
		rev++
		v.memberSeen("me", own, rev, at)
	}
	beat(0)
	lease, err := json.Marshal(leaseEntry{Instance: "other", Session: "o"})
	if err != nil {
		t.Fatal(err)
	}
	v.leaseSeen("u", lease, 100)
	// Time passes, but nothing is shown to us: we cannot tell.
	if _, free := v.freeFor("u", time.Minute); free {
		t.Fatal("silence was concluded without seeing ourselves")
	}
	// The server is back. Our heartbeat comes first; the other gets a ttl to show itself.
	beat(time.Minute)
	if _, free := v.freeFor("u", time.Minute); free {
		t.Fatal("silence was concluded over a time that was not seen")
	}
	for s := 1; s <= 2; s++ {
		beat(time.Minute + time.Duration(s)*time.Second)
	}
	if _, free := v.freeFor("u", time.Minute+2*time.Second); free {
		t.Fatal("silent after less than a ttl")
	}
	beat(time.Minute + ttl)
	if _, free := v.freeFor("u", time.Minute+ttl); !free {
		t.Fatal("not silent after a ttl that was seen")
	}
	if !v.alone() || !v.established() {
		t.Error("somebody is left")
	}
}

func TestLeasesOfAnEndedSession(t *testing.T) {
	const ttl = 3 * time.Second
	v := newView(ttl, "me", "s")
	v.synced = true
	v.memberSeen("me", entryOf(t, "me", "s"), 1, 0)
	v.memberSeen("other", entryOf(t, "other", "first"), 2, 0)
	lease, err := json.Marshal(leaseEntry{Instance: "other", Session: "first"})
	if err != nil {
		t.Fatal(err)
	}
	v.leaseSeen("u", lease, 3)
	// The other process starts again: it is to have its unit back before anybody.
	v.memberSeen("other", entryOf(t, "other", "second"), 4, time.Second)
	v.memberSeen("me", entryOf(t, "me", "s"), 5, 2*time.Second)
	if _, free := v.freeFor("u", 2*time.Second); free {
		t.Error("taken from a process that just starts again")
	}
	v.memberSeen("other", entryOf(t, "other", "second"), 6, 3*time.Second)
	v.memberSeen("me", entryOf(t, "me", "s"), 7, 4*time.Second)
	if _, free := v.freeFor("u", 4*time.Second); !free {
		t.Error("a unit that the new process does not take is never free")
	}
	// An entry that goes away frees at once.
	v.leaseSeen("u", nil, 8)
	if _, free := v.freeFor("u", 4*time.Second); !free {
		t.Error("given back, yet not free")
	}
	v.memberSeen("other", nil, 9, 4*time.Second)
	if len(v.candidates()) != 0 || !v.alone() {
		t.Error("a member that left counts")
	}
	// Old news change nothing.
	v.leaseSeen("u", lease, 3)
	if v.leases["u"].held {
		t.Error("an old entry came back")
	}
}

// A heartbeat that fails at once, as it does while the connection is down, is sent again
// at the next tick and not before, also when there is something new to say.
func TestFailedHeartbeatsKeepAPause(t *testing.T) {
	fake := clock.NewFake(time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC))
	for name, said := range map[string]string{"the same": wants{}.encode(), "something new": "other"} {
		h, err := New(Options{Role: "r", Instance: "a", TTL: ttl, Clock: fake, Registry: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		h.view.synced, h.beat.wants = true, said
		for round := range 3 {
			if h.nextBeat() == nil {
				t.Fatalf("%s: no heartbeat in round %d", name, round)
			}
			h.beaten(beaten{began: h.now(), err: errors.New("outbound buffer limit exceeded")})
			if h.nextBeat() != nil {
				t.Fatalf("%s: a heartbeat follows a failed one without a pause", name)
			}
			fake.Advance(h.tick())
		}
	}
}

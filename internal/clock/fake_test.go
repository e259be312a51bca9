package clock

import (
	"testing"
	"time"
)

var start = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

func TestSinceIsMonotonic(t *testing.T) {
	f := NewFake(start)
	at := f.Now()
	f.JumpWall(-time.Hour)
	f.Advance(5 * time.Second)
	if got := f.Since(at); got != 5*time.Second {
		t.Fatalf("since %s", got)
	}
	if got := f.Since(at.Add(2 * time.Second)); got != 3*time.Second {
		t.Fatalf("since a later moment %s", got)
	}
	if want := start.Add(5*time.Second - time.Hour); !f.Now().Equal(want) {
		t.Fatalf("wall %s", f.Now())
	}
	if got := f.Since(at.UTC()); got != 5*time.Second-time.Hour {
		t.Fatalf("without a reading %s", got)
	}
}

func fired(c <-chan time.Time) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestTimersFireInOrder(t *testing.T) {
	f := NewFake(start)
	late, early, never := f.NewTimer(3*time.Second), f.NewTimer(time.Second), f.NewTimer(9*time.Second)
	f.JumpWall(time.Hour)
	if fired(early.C()) {
		t.Fatal("a wall jump fired a timer")
	}
	f.Advance(5 * time.Second)
	first, second := <-early.C(), <-late.C()
	if second.Sub(first) != 2*time.Second || fired(never.C()) {
		t.Fatalf("%s, %s", first, second)
	}
	if !never.Stop() || early.Stop() {
		t.Fatal("Stop does not tell what waited")
	}
	late.Reset(time.Second)
	f.Advance(time.Second)
	late.Reset(time.Second) // takes the unread tick away
	if fired(late.C()) {
		t.Fatal("stale tick after Reset")
	}
	if now := f.NewTimer(0); !fired(now.C()) {
		t.Fatal("a timer of nothing waits")
	}
}

func TestTickerDropsTicks(t *testing.T) {
	f := NewFake(start)
	ticker := f.NewTicker(time.Second)
	f.Advance(10 * time.Second)
	if !fired(ticker.C()) || fired(ticker.C()) {
		t.Fatal("one tick is kept")
	}
	f.Advance(time.Second)
	if !fired(ticker.C()) {
		t.Fatal("no tick")
	}
	ticker.Stop()
	f.Advance(time.Minute)
	if fired(ticker.C()) {
		t.Fatal("tick after Stop")
	}
}

func TestAwaitTimers(t *testing.T) {
	f := NewFake(start)
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-f.NewTimer(time.Second).C()
	}()
	f.AwaitTimers(1)
	f.Advance(time.Second)
	<-done
}

func TestSystemClock(t *testing.T) {
	c := System()
	at := c.Now()
	timer, ticker := c.NewTimer(time.Millisecond), c.NewTicker(time.Millisecond)
	<-timer.C()
	<-ticker.C()
	ticker.Stop()
	timer.Reset(time.Hour)
	if !timer.Stop() || c.Since(at) < time.Millisecond {
		t.Fatal("the system clock stands still")
	}
}

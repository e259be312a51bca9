package heartbeat

import (
	"strings"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/clock"
)

func TestALoopThatDoesNotTurnIsLate(t *testing.T) {
	c := clock.NewFake(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	m := New(c)
	slow, gone := m.Start("slow"), m.Start("gone")
	c.Advance(Overdue)
	if late := m.Late(); len(late) != 0 {
		t.Fatalf("at the bound: %v", late)
	}
	gone.Stop()
	c.Advance(time.Second)
	if late := m.Late(); len(late) != 1 || !strings.HasPrefix(late[0], "slow has not turned for 1m31s") {
		t.Fatalf("beyond it: %v", late)
	}
	slow.Rest()
	if late := m.Late(); len(late) != 0 {
		t.Fatalf("while it waits: %v", late)
	}
	slow.Beat()
	if late := m.Late(); len(late) != 0 {
		t.Fatalf("after a beat: %v", late)
	}
}

func TestAWallClockJumpMakesNothingLate(t *testing.T) {
	c := clock.NewFake(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	m := New(c)
	m.Start("loop")
	c.JumpWall(time.Hour)
	if late := m.Late(); len(late) != 0 {
		t.Fatalf("after a jump: %v", late)
	}
}

func TestANilMonitorTakesEveryCall(t *testing.T) {
	var m *Monitor
	l := m.Start("loop")
	l.Beat()
	l.Stop()
	if late := m.Late(); late != nil {
		t.Fatalf("late: %v", late)
	}
}

package failpoint

import (
	"testing"
	"time"
)

func TestArmsHitsByNumber(t *testing.T) {
	a, err := parse(" windower/before-commit=crash@2; journal/after-append=error@1;journal/after-append=stall(250ms)@3;")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []mode{none, crash, none} {
		if do, n := a.hit("windower/before-commit"); do.mode != want || n != i+1 {
			t.Errorf("hit %d is %q as number %d, want %q", i+1, do.mode, n, want)
		}
	}
	want := []action{{mode: fail}, {}, {mode: stall, wait: 250 * time.Millisecond}, {}}
	for i := range want {
		if do, _ := a.hit("journal/after-append"); do != want[i] {
			t.Errorf("hit %d is %v, want %v", i+1, do, want[i])
		}
	}
	if do, _ := a.hit("projector/before-cas"); do.mode != none {
		t.Errorf("a point that is not armed does %q", do.mode)
	}
}

func TestRefusesWhatWouldTestNothing(t *testing.T) {
	for _, text := range []string{
		"windower/before-comit=crash@1", "windower/before-commit=crash", "windower/before-commit=crash@0", "windower/before-commit=crash@x",
		"windower/before-commit=panic@1", "windower/before-commit=stall@1", "windower/before-commit=stall(x)@1", "windower/before-commit=stall(-1s)@1",
		"windower/before-commit=stall(1s@1", "crash@1", "windower/before-commit",
	} {
		if _, err := parse(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestNeedsOfPointsCanBeArmed(t *testing.T) {
	for _, p := range append(Points(), EffectPoints()...) {
		if _, err := parse(p.Needs); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}

package dirlock

import (
	"errors"
	"path/filepath"
	"testing"
)

func TestOneHolderAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b.lock")
	first, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Acquire(path); !errors.Is(err, ErrHeld) {
		t.Fatalf("a second holder is answered %v", err)
	}
	first.Release()
	first.Release()
	second, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	second.Release()
	if _, err := Acquire(filepath.Join(path, "no directory")); err == nil || errors.Is(err, ErrHeld) {
		t.Fatalf("a path that cannot be is answered %v", err)
	}
}

//go:build !failpoints

package failpoint

import "testing"

func TestWithoutTheTagNothingHappens(t *testing.T) {
	t.Setenv(Variable, "windower/before-commit=error@1")
	if err := Hit("windower/before-commit"); err != nil {
		t.Error(err)
	}
}

// The empty loop and the loop with a point take the same time: nothing is called.
func BenchmarkHit(b *testing.B) {
	for b.Loop() {
		if err := Hit("windower/before-commit"); err != nil {
			b.Fatal(err)
		}
	}
}

package revision

import (
	"strings"
	"testing"
)

// Every byte at every place of a word and of its rest.
func TestPlain(t *testing.T) {
	for size := 1; size <= 17; size++ {
		for at := range size {
			for b := range 256 {
				for _, around := range []string{"a", "\x7f", "\xff", "!", "#", "["} {
					s := strings.Repeat(around, at) + string([]byte{byte(b)}) + strings.Repeat(around, size-at-1)
					if got, want := plain(s), b >= ' ' && b != '"' && b != '\\'; got != want {
						t.Fatalf("plain(%q) is %v", s, got)
					}
				}
			}
		}
	}
	if !plain("") {
		t.Error("nothing is not plain")
	}
}

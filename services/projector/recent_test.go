package projector

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Whatever the order of puts, a recent is walked from any key on as a sorted map is.
func TestRecentIsWalkedInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, want := newRecent(0), map[string]string{}
		spread := rapid.SampledFrom([]int{50, 5000, 1 << 20}).Draw(t, "spread")
		rising := rapid.Bool().Draw(t, "rising")
		for i := range rapid.IntRange(0, 3*partKeys).Draw(t, "puts") {
			n := rapid.IntRange(0, spread).Draw(t, "key")
			if rising {
				n = i
			}
			key, value := fmt.Sprintf("%07d", n), fmt.Sprint(i)
			r.put(key, []byte(value))
			want[key] = value
		}
		from := fmt.Sprintf("%07d", rapid.IntRange(0, spread+1).Draw(t, "from"))
		var keys []string
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if key >= from {
				keys = append(keys, key)
			}
		}
		var got []string
		for w := r.from(from); ; w.next() {
			key, more := w.head()
			if !more {
				break
			}
			if string(r.rows[key]) != want[key] {
				t.Fatalf("%s holds %s, want %s", key, r.rows[key], want[key])
			}
			got = append(got, key)
		}
		if !slices.Equal(got, keys) {
			t.Fatalf("from %s: %d keys %v, want %d %v", from, len(got), got, len(keys), keys)
		}
	})
	var none *recent
	if w := none.from(""); len(w.keys) != 0 {
		t.Error("what is not there has keys")
	}
}

// Row keys by key keep the order of keys and times, and come apart again.
func TestRowKeysKeepTheirOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune{0, 1, 'a', 'b', 255}), 1, 4, -1)
		time := rapid.IntRange(-3, 3)
		draw := func(name string) (string, [2]int) {
			end := time.Draw(t, name+" end")
			return text.Draw(t, name+" key"), [2]int{end, end - rapid.IntRange(1, 3).Draw(t, name+" length")}
		}
		k1, w1 := draw("one")
		k2, w2 := draw("two")
		one, two := byKey.rowKey(nil, k1, between(w1[1], w1[0])), byKey.rowKey(nil, k2, between(w2[1], w2[0]))
		want := slices.Compare([]string{k1}, []string{k2})
		if want == 0 {
			want = slices.Compare(w1[:], w2[:])
		}
		if got := slices.Compare(one, two); got != want {
			t.Fatalf("%q %v and %q %v: order %d, want %d", k1, w1, k2, w2, got, want)
		}
		if w, key := byKey.split(one); string(key) != k1 || w != between(w1[1], w1[0]) {
			t.Fatalf("%q %v comes apart as %q %v", k1, w1, key, w)
		}
		if past := pastKey(nil, k1); slices.Compare(one, past) >= 0 || k2 > k1 && slices.Compare(two, past) < 0 {
			t.Fatalf("%q: behind its rows is not behind them, or behind those of %q", k1, k2)
		}
	})
}

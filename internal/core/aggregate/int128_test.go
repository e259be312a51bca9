package aggregate

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func (a int128) big() *big.Int {
	n := new(big.Int).Lsh(big.NewInt(a.hi), 64)
	return n.Add(n, new(big.Int).SetUint64(a.lo))
}

func drawInt128(t *rapid.T, label string) int128 {
	hi := rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{0, -1, -1 << 63, 1<<63 - 1})).Draw(t, label+" high")
	lo := rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{0, 1, 1<<64 - 1, 1 << 63})).Draw(t, label+" low")
	return int128{hi, lo}
}

func TestInt128EqualsBigIntegers(t *testing.T) {
	least, greatest := int128{hi: -1 << 63}.big(), int128{1<<63 - 1, 1<<64 - 1}.big()
	fits := func(n *big.Int) bool { return n.Cmp(least) >= 0 && n.Cmp(greatest) <= 0 }
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawInt128(t, "a"), drawInt128(t, "b")
		want := new(big.Int).Add(a.big(), b.big())
		if sum, ok := a.add(b); ok != fits(want) || ok && sum.big().Cmp(want) != 0 {
			t.Fatalf("%v + %v is %v, %v", a.big(), b.big(), sum.big(), ok)
		}
		want.Sub(a.big(), b.big())
		if diff, ok := a.sub(b); ok != fits(want) || ok && diff.big().Cmp(want) != 0 {
			t.Fatalf("%v - %v is %v, %v", a.big(), b.big(), diff.big(), ok)
		}
		if got := string(a.appendDecimal(nil, 0)); got != a.big().String() {
			t.Fatalf("%v is written %s", a.big(), got)
		}
	})
}

func TestInt128RoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawInt128(t, "a")
		back, rest, err := decodeInt128(append(a.appendState(nil), 1))
		if err != nil || back != a || len(rest) != 1 {
			t.Fatalf("%v came back as %v: %v", a.big(), back.big(), err)
		}
		digits := rapid.IntRange(0, 24).Draw(t, "digits")
		text := string(a.appendDecimal(nil, digits))
		if a == (int128{hi: -1 << 63}) {
			return // its magnitude is out of range; no sum of int64 values comes near
		}
		if back, err := parseDecimal(text, digits); err != nil || back != a {
			t.Fatalf("%s came back as %v: %v", text, back.big(), err)
		}
	})
}

package effectrule

import (
	"errors"
	"math/big"
	"strings"
	"testing"
)

func TestDecimalsAreReadStrictly(t *testing.T) {
	for _, text := range []string{"0", "-0.10", "12930.50", "007", "123456789012345678901234567890123456789012345678901234567890.12345678901234567"} {
		d, err := parseDecimal(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if want := strings.TrimPrefix(text, "00"); d.String() != want {
			t.Errorf("%s is written %s", text, d)
		}
	}
	for _, text := range []string{"", "-", ".5", "5.", "+1", "1e3", "1_000", " 1", "0x1", "1.2.3", "--1", "١", "NaN", strings.Repeat("9", 78), "0." + strings.Repeat("0", 37)} {
		if d, err := parseDecimal(text); err == nil {
			t.Errorf("%q is read as %s", text, d)
		}
	}
}

func TestQuotientsRoundHalfToEven(t *testing.T) {
	for _, tt := range []struct {
		a, b  string
		scale int64
		want  string
	}{
		{"1", "3", 4, "0.3333"},
		{"2", "3", 4, "0.6667"},
		{"-2", "3", 4, "-0.6667"},
		{"2", "-3", 4, "-0.6667"},
		{"1", "8", 2, "0.12"},
		{"3", "8", 2, "0.38"},
		{"-1", "8", 2, "-0.12"},
		{"-3", "8", 2, "-0.38"},
		{"5", "10", 0, "0"},
		{"15", "10", 0, "2"},
		{"-5", "10", 0, "0"},
		{"1.00", "0.125", 0, "8"},
	} {
		a, errA := parseDecimal(tt.a)
		b, errB := parseDecimal(tt.b)
		got, err := a.divided(b, tt.scale)
		if errA != nil || errB != nil || err != nil || got.String() != tt.want {
			t.Errorf("%s / %s at %d: %s, %v; want %s", tt.a, tt.b, tt.scale, got, err, tt.want)
		}
	}
	if _, err := wholeDecimal(1).divided(wholeDecimal(0), 2); !errors.Is(err, errDivideByZero) {
		t.Errorf("division by zero: %v", err)
	}
	for _, scale := range []int64{-1, 37, 1 << 40} {
		if _, err := wholeDecimal(1).rounded(scale); !errors.Is(err, errScale) {
			t.Errorf("scale %d: %v", scale, err)
		}
	}
}

// FuzzDecimal compares sums, products and orders with those of rational numbers.
func FuzzDecimal(f *testing.F) {
	f.Add("12930.50", "-0.015")
	f.Add("0", "1")
	f.Add("99999999999999999999999999999999999999", "0.000000000000000001")
	f.Fuzz(func(t *testing.T, x, y string) {
		a, errA := parseDecimal(x)
		b, errB := parseDecimal(y)
		if errA != nil || errB != nil {
			return
		}
		ra, okA := new(big.Rat).SetString(a.String())
		rb, okB := new(big.Rat).SetString(b.String())
		if !okA || !okB {
			t.Fatalf("%s or %s is no number", a, b)
		}
		if a.compare(b) != ra.Cmp(rb) {
			t.Fatalf("%s and %s compare as %d", a, b, a.compare(b))
		}
		check := func(op string, got decimal, err error, want *big.Rat) {
			if err != nil {
				return
			}
			if r, ok := new(big.Rat).SetString(got.String()); !ok || r.Cmp(want) != 0 {
				t.Fatalf("%s %s %s is %s", a, op, b, got)
			}
		}
		sum, err := a.plus(b)
		check("+", sum, err, new(big.Rat).Add(ra, rb))
		difference, err := a.minus(b)
		check("-", difference, err, new(big.Rat).Sub(ra, rb))
		product, err := a.times(b)
		check("*", product, err, new(big.Rat).Mul(ra, rb))
	})
}

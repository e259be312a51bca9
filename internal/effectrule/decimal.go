package effectrule

import (
	"errors"
	"math/big"
	"strings"
)

// Bounds of a decimal: wide enough for the product of two sums of 128 bits.
const (
	maxDigits = 77
	maxScale  = 36
)

var (
	errNoDecimal    = errors.New("no decimal: write digits, such as 10000 or 99.50")
	errDecimalWide  = errors.New("a decimal has more than 77 digits, or more than 36 behind the point")
	errDivideByZero = errors.New("division by zero")
	errScale        = errors.New("a scale is 0 to 36")
	errIntWide      = errors.New("the number does not fit 64 bits")
)

// decimal is an exact number: unscaled / 10^scale. Values are never changed.
type decimal struct {
	unscaled *big.Int
	scale    int
}

// parseDecimal reads digits with a point and a sign, and keeps the zeros behind the point.
func parseDecimal(text string) (decimal, error) {
	digits, negative := strings.CutPrefix(text, "-")
	whole, fraction, point := strings.Cut(digits, ".")
	if whole == "" || point && fraction == "" || !allDigits(whole) || !allDigits(fraction) {
		return decimal{}, errNoDecimal
	}
	if len(whole)+len(fraction) > 2*maxDigits {
		return decimal{}, errDecimalWide
	}
	n, ok := new(big.Int).SetString(whole+fraction, 10)
	if !ok {
		return decimal{}, errNoDecimal
	}
	if negative {
		n.Neg(n)
	}
	return bounded(n, len(fraction))
}

func allDigits(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < '0' || r > '9' })
}

func wholeDecimal(n int64) decimal { return decimal{unscaled: big.NewInt(n)} }

var widest = new(big.Int).Exp(big.NewInt(10), big.NewInt(maxDigits), nil)

func bounded(n *big.Int, scale int) (decimal, error) {
	if scale > maxScale || n.CmpAbs(widest) >= 0 {
		return decimal{}, errDecimalWide
	}
	return decimal{unscaled: n, scale: scale}, nil
}

func tenTo(n int) *big.Int {
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
}

// String writes scale digits behind the point; zero has no sign.
func (d decimal) String() string {
	digits := new(big.Int).Abs(d.unscaled).String()
	if d.scale > 0 {
		if missing := d.scale + 1 - len(digits); missing > 0 {
			digits = strings.Repeat("0", missing) + digits
		}
		digits = digits[:len(digits)-d.scale] + "." + digits[len(digits)-d.scale:]
	}
	if d.unscaled.Sign() < 0 {
		return "-" + digits
	}
	return digits
}

// aligned answers both numbers unscaled at the larger of their scales.
func aligned(a, b decimal) (x, y *big.Int, scale int) {
	scale = max(a.scale, b.scale)
	x = new(big.Int).Mul(a.unscaled, tenTo(scale-a.scale))
	y = new(big.Int).Mul(b.unscaled, tenTo(scale-b.scale))
	return x, y, scale
}

func (d decimal) compare(e decimal) int {
	x, y, _ := aligned(d, e)
	return x.Cmp(y)
}

func (d decimal) plus(e decimal) (decimal, error) {
	x, y, scale := aligned(d, e)
	return bounded(x.Add(x, y), scale)
}

func (d decimal) minus(e decimal) (decimal, error) {
	x, y, scale := aligned(d, e)
	return bounded(x.Sub(x, y), scale)
}

func (d decimal) times(e decimal) (decimal, error) {
	return bounded(new(big.Int).Mul(d.unscaled, e.unscaled), d.scale+e.scale)
}

// divided answers d / e with scale digits behind the point, rounded half to even.
func (d decimal) divided(e decimal, scale int64) (decimal, error) {
	if e.unscaled.Sign() == 0 {
		return decimal{}, errDivideByZero
	}
	if scale < 0 || scale > maxScale {
		return decimal{}, errScale
	}
	x, y, _ := aligned(d, e)
	return bounded(quotient(x.Mul(x, tenTo(int(scale))), y), int(scale))
}

// rounded answers d with scale digits behind the point, rounded half to even.
func (d decimal) rounded(scale int64) (decimal, error) {
	return d.divided(wholeDecimal(1), scale)
}

// quotient answers x / y rounded half to even, as averages are. y is not zero.
func quotient(x, y *big.Int) *big.Int {
	q, rest := new(big.Int).QuoRem(x, y, new(big.Int))
	twice := rest.Lsh(rest, 1)
	away := twice.CmpAbs(y)
	if away > 0 || away == 0 && q.Bit(0) == 1 {
		if x.Sign()*y.Sign() < 0 {
			return q.Sub(q, big.NewInt(1))
		}
		return q.Add(q, big.NewInt(1))
	}
	return q
}

// truncated answers d without what stands behind the point, toward zero.
func (d decimal) truncated() (int64, error) {
	n := new(big.Int).Quo(d.unscaled, tenTo(d.scale))
	if !n.IsInt64() {
		return 0, errIntWide
	}
	return n.Int64(), nil
}

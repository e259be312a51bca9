package aggregate

import "math/bits"

// avgDigits is how many digits an average has beyond the scale of its value.
const avgDigits = 6

// avg is the exact sum divided by the count, rounded once, half to even, to the value's
// scale plus six digits. It is always quoted: an average of ints is a decimal too.
type avg struct{ scale int }

func newAvg(d declaration) (Func, error) {
	scale, err := numberOf(d.value)
	if err != nil {
		return nil, err
	}
	return avg{scale: scale}, nil
}

func (avg) Name() string { return "avg" }

func (avg) Add(c *Cell, in *Input) error { return addNumber(c, in.Value.Int) }

func (avg) Remove(c *Cell, in *Input) error { return removeNumber(c, in.Value.Int) }

func (a avg) AppendResult(dst []byte, c *Cell) ([]byte, bool) {
	hi, lo := c.number().magnitude()
	hi, lo = divideHalfEven(hi, lo, uint64(c.N))
	return appendMagnitude(dst, c.Hi < 0, hi, lo, a.scale+avgDigits), true
}

func (a avg) Decimals() (int, bool) { return a.scale + avgDigits, true }

func (avg) AppendState(dst []byte, c *Cell) []byte { return appendNumber(dst, c) }

func (avg) DecodeState(data []byte, c *Cell) ([]byte, error) { return decodeNumber(data, c) }

// divideHalfEven answers 10^avgDigits * (hi, lo) / n, rounded half to even. n is positive
// and the quotient of (hi, lo) by n is an int64 in size, as that of any average is; so
// the answer fits in 128 bits.
func divideHalfEven(hi, lo, n uint64) (qhi, qlo uint64) {
	const unit = 1_000_000
	high, rest := hi/n, hi%n
	whole, rest := bits.Div64(rest, lo, n)
	fhi, flo := bits.Mul64(rest, unit)
	frac, rest := bits.Div64(fhi, flo, n) // rest < n, so frac < unit

	qhi, qlo = bits.Mul64(whole, unit)
	qhi += high * unit
	qlo, carry := bits.Add64(qlo, frac, 0)
	qhi += carry
	if left := n - rest; rest > left || rest == left && qlo&1 == 1 {
		qlo, carry = bits.Add64(qlo, 1, 0)
		qhi += carry
	}
	return qhi, qlo
}

package aggregate

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"strconv"
)

// int128 is a signed number in two's complement. Its methods report overflow, they never wrap.
type int128 struct {
	hi int64
	lo uint64
}

func (c *Cell) number() int128 { return int128{c.Hi, c.Lo} }

func (c *Cell) setNumber(n int128) { c.Hi, c.Lo = n.hi, n.lo }

func fromInt64(n int64) int128 { return int128{n >> 63, uint64(n)} }

// add answers a+b; ok is false when the sum needs more than 128 bits.
func (a int128) add(b int128) (sum int128, ok bool) {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, _ := bits.Add64(uint64(a.hi), uint64(b.hi), carry)
	sum = int128{int64(hi), lo}
	return sum, (a.hi^sum.hi)&(b.hi^sum.hi) >= 0
}

// sub answers a-b; ok is false when the difference needs more than 128 bits.
func (a int128) sub(b int128) (diff int128, ok bool) {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, _ := bits.Sub64(uint64(a.hi), uint64(b.hi), borrow)
	diff = int128{int64(hi), lo}
	return diff, (a.hi^b.hi)&(a.hi^diff.hi) >= 0
}

// magnitude answers |a| as an unsigned number of 128 bits.
func (a int128) magnitude() (hi, lo uint64) {
	if a.hi >= 0 {
		return uint64(a.hi), a.lo
	}
	lo, borrow := bits.Sub64(0, a.lo, 0)
	hi, _ = bits.Sub64(0, uint64(a.hi), borrow)
	return hi, lo
}

// appendDecimal writes a scaled number with exactly digits digits after the point; with
// none there is no point. Zero has no sign.
func (a int128) appendDecimal(dst []byte, digits int) []byte {
	hi, lo := a.magnitude()
	return appendMagnitude(dst, a.hi < 0, hi, lo, digits)
}

func appendMagnitude(dst []byte, negative bool, hi, lo uint64, digits int) []byte {
	if negative && hi|lo != 0 {
		dst = append(dst, '-')
	}
	var room [64]byte
	text := appendUint128(room[:0], hi, lo)
	if digits == 0 {
		return append(dst, text...)
	}
	if len(text) <= digits {
		dst = append(dst, '0', '.')
		for i := len(text); i < digits; i++ {
			dst = append(dst, '0')
		}
		return append(dst, text...)
	}
	point := len(text) - digits
	dst = append(append(dst, text[:point]...), '.')
	return append(dst, text[point:]...)
}

// appendUint128 writes an unsigned number, 19 digits at a time.
func appendUint128(dst []byte, hi, lo uint64) []byte {
	if hi == 0 {
		return strconv.AppendUint(dst, lo, 10)
	}
	const chunk = 10_000_000_000_000_000_000
	high, rest := hi/chunk, hi%chunk
	low, last := bits.Div64(rest, lo, chunk)
	dst = appendUint128(dst, high, low)
	var room [20]byte
	digits := strconv.AppendUint(room[:0], last, 10)
	for i := len(digits); i < 19; i++ {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}

// parseDecimal reads what appendDecimal wrote with the same number of digits.
func parseDecimal(text string, digits int) (int128, error) {
	rest, negative := text, false
	if rest != "" && rest[0] == '-' {
		rest, negative = rest[1:], true
	}
	var hi, lo uint64
	point, seen := len(rest)-digits-1, 0
	for i := 0; i < len(rest); i++ {
		if digits > 0 && i == point {
			if rest[i] != '.' {
				return int128{}, fmt.Errorf("%q has not %d digits after the point", text, digits)
			}
			continue
		}
		d := rest[i] - '0'
		top, low := bits.Mul64(lo, 10)
		over, high := bits.Mul64(hi, 10)
		low, carry := bits.Add64(low, uint64(d), 0)
		high, carry = bits.Add64(high, top, carry)
		if d > 9 {
			return int128{}, fmt.Errorf("%q is no number", text)
		}
		if over|carry != 0 || high > math.MaxInt64 {
			return int128{}, fmt.Errorf("%q: %w", text, ErrOverflow)
		}
		hi, lo, seen = high, low, seen+1
	}
	if seen == 0 || digits > 0 && point < 1 {
		return int128{}, fmt.Errorf("%q is no number with %d digits after the point", text, digits)
	}
	n := int128{int64(hi), lo}
	if negative {
		n, _ = int128{}.sub(n)
	}
	return n, nil
}

// appendState writes the number zigzag in two varints: small magnitudes are short.
func (a int128) appendState(dst []byte) []byte {
	sign := uint64(a.hi >> 63)
	hi := uint64(a.hi)<<1 | a.lo>>63
	dst = binary.AppendUvarint(dst, hi^sign)
	return binary.AppendUvarint(dst, a.lo<<1^sign)
}

func decodeInt128(data []byte) (a int128, rest []byte, err error) {
	hi, data, err := decodeUvarint(data)
	if err != nil {
		return int128{}, nil, err
	}
	lo, data, err := decodeUvarint(data)
	if err != nil {
		return int128{}, nil, err
	}
	sign := -(lo & 1)
	hi, lo = hi^sign, lo^sign
	return int128{int64(hi>>1 | sign<<63), lo>>1 | hi<<63}, data, nil
}

package envelope

import (
	"errors"
	"math"
)

// Why a text is no number of the declared kind. They are told apart because a value of
// the wrong shape and a value with too many decimals are different faults of a producer.
var (
	ErrNumberFormat    = errors.New("no decimal number such as 12.50")
	ErrNumberRange     = errors.New("number does not fit 64 bits at its scale")
	ErrNumberPrecision = errors.New("number has non-zero digits beyond its scale")
)

// ParseDecimal reads a number written as in JSON (exponents allowed) and answers it
// times 10^scale, exactly: 12.5 at scale 2 is 1250, as are 12.500 and 1.25e1. scale is 0
// to 18. Errors are ErrNumberFormat, ErrNumberRange and ErrNumberPrecision; a number
// that has both of the latter faults gives ErrNumberRange.
func ParseDecimal[T string | []byte](text T, scale int) (int64, error) {
	i, negative := 0, false
	if len(text) > 0 && text[0] == '-' {
		i, negative = 1, true
	}
	whole := i
	for i < len(text) && text[i]-'0' <= 9 {
		i++
	}
	if i == whole || text[whole] == '0' && i > whole+1 {
		return 0, ErrNumberFormat
	}
	end, fraction := i, 0
	if i < len(text) && text[i] == '.' {
		i++
		for i < len(text) && text[i]-'0' <= 9 {
			i++
		}
		if fraction = i - end - 1; fraction == 0 {
			return 0, ErrNumberFormat
		}
		end = i
	}
	exponent, ok := parseExponent(text[i:])
	if !ok {
		return 0, ErrNumberFormat
	}
	return scaled(text[whole:end], exponent-int64(fraction)+int64(scale), negative)
}

// parseExponent reads "", "e5", "E-05" and saturates far beyond what can matter: no text
// has enough digits to make up for 10^(2^40).
func parseExponent[T string | []byte](text T) (int64, bool) {
	if len(text) == 0 {
		return 0, true
	}
	if text[0]|0x20 != 'e' {
		return 0, false
	}
	i, negative := 1, false
	if len(text) > 1 && (text[1] == '+' || text[1] == '-') {
		i, negative = 2, text[1] == '-'
	}
	if i == len(text) {
		return 0, false
	}
	var value int64
	for ; i < len(text); i++ {
		digit := text[i] - '0'
		if digit > 9 {
			return 0, false
		}
		value = min(value*10+int64(digit), 1<<40)
	}
	if negative {
		value = -value
	}
	return value, true
}

// scaled answers the digits of text (a point among them is passed over) times 10^shift.
func scaled[T string | []byte](text T, shift int64, negative bool) (int64, error) {
	keep := int64(len(text)) + shift // digits that stand before the point after the shift
	for i := range len(text) {
		if text[i] == '.' {
			keep--
			break
		}
	}
	limit := uint64(math.MaxInt64)
	if negative {
		limit++
	}
	var value uint64
	precise, seen := true, int64(0)
	for i := range len(text) {
		if text[i] == '.' {
			continue
		}
		digit := uint64(text[i] - '0')
		if seen++; seen > keep {
			precise = precise && digit == 0
			continue
		}
		if value > (limit-digit)/10 {
			return 0, ErrNumberRange
		}
		value = value*10 + digit
	}
	if !precise {
		return 0, ErrNumberPrecision
	}
	for ; seen < keep && value != 0; seen++ {
		if value > limit/10 {
			return 0, ErrNumberRange
		}
		value *= 10
	}
	if negative {
		return int64(-value), nil
	}
	return int64(value), nil
}

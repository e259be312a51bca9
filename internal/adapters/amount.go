package adapters

import "strings"

// maxDigits bounds a decimal once its exponent is written out.
const maxDigits = 128

// plainAmount writes a decimal as digits with at most one point and no exponent, so that
// evidence is compared by value whichever way a provider writes numbers. What is no
// decimal, or too long to be an amount, is not answered.
func plainAmount(text string) (string, bool) {
	digits, negative := strings.CutPrefix(text, "-")
	mantissa, exponent := digits, 0
	if at := strings.IndexAny(digits, "eE"); at >= 0 {
		var ok bool
		if exponent, ok = smallInt(digits[at+1:]); !ok {
			return "", false
		}
		mantissa = digits[:at]
	}
	whole, fraction, point := strings.Cut(mantissa, ".")
	if !allDigits(whole) || point && !allDigits(fraction) || len(mantissa) > maxDigits {
		return "", false
	}
	whole, fraction = shift(whole, fraction, exponent)
	whole, fraction = strings.TrimLeft(whole, "0"), strings.TrimRight(fraction, "0")
	if whole == "" {
		whole = "0"
	}
	plain := whole
	if fraction != "" {
		plain += "." + fraction
	}
	if negative && plain != "0" {
		plain = "-" + plain
	}
	return plain, len(plain) <= maxDigits
}

// shift moves the point by places to the right, or to the left if they are negative.
func shift(whole, fraction string, places int) (string, string) {
	if places < 0 {
		whole = strings.Repeat("0", -places) + whole
		at := len(whole) + places
		return whole[:at], whole[at:] + fraction
	}
	fraction += strings.Repeat("0", places)
	return whole + fraction[:places], fraction[places:]
}

// smallInt reads the exponent of an amount, of which none has more than two digits.
func smallInt(text string) (int, bool) {
	digits, negative := strings.CutPrefix(text, "-")
	if !negative {
		digits = strings.TrimPrefix(digits, "+")
	}
	if !allDigits(digits) || len(digits) > 2 {
		return 0, false
	}
	n := 0
	for _, c := range []byte(digits) {
		n = n*10 + int(c-'0')
	}
	if negative {
		n = -n
	}
	return n, true
}

func allDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

package policy

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Duration is a length of time in microseconds. Only a window's offset may be negative.
type Duration int64

// Units of Duration.
const (
	Microsecond Duration = 1
	Millisecond          = 1000 * Microsecond
	Second               = 1000 * Millisecond
	Minute               = 60 * Second
	Hour                 = 60 * Minute
	Day                  = 24 * Hour
)

type durationUnit struct {
	name string
	size Duration
}

// durationUnits are in the order in which String writes them.
var durationUnits = []durationUnit{
	{"d", Day}, {"h", Hour}, {"m", Minute}, {"s", Second}, {"ms", Millisecond}, {"µs", Microsecond},
}

// ParseDuration reads a duration as Go writes it ("1h30m", "-1.5s", "250µs", "0"), with
// the unit d for 24 hours. What is finer than a microsecond or beyond 292,000 years is
// refused, never rounded.
func ParseDuration(text string) (Duration, error) {
	rest, negative := text, false
	if rest != "" && (rest[0] == '-' || rest[0] == '+') {
		negative = rest[0] == '-'
		rest = rest[1:]
	}
	if rest == "0" {
		return 0, nil
	}
	if rest == "" {
		return 0, fmt.Errorf("%q is no duration: write a number and a unit, such as 90s, 15m, 1h30m or 2d", text)
	}
	var total Duration
	for rest != "" {
		part, after, err := durationPart(rest)
		if err != nil {
			return 0, fmt.Errorf("%q is no duration: %w", text, err)
		}
		if total > math.MaxInt64-part {
			return 0, fmt.Errorf("%q is no duration: it is longer than 292,000 years", text)
		}
		total, rest = total+part, after
	}
	if negative {
		total = -total
	}
	return total, nil
}

// durationPart reads one number with its unit from the head of text.
func durationPart(text string) (part Duration, rest string, err error) {
	end := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end == 0 {
		return 0, "", fmt.Errorf("a number is missing before %q", text)
	}
	if end < 0 {
		return 0, "", fmt.Errorf("a unit (d, h, m, s, ms, µs) is missing after %s", text)
	}
	number, tail := text[:end], text[end:]
	end = strings.IndexAny(tail, "0123456789.")
	if end < 0 {
		end = len(tail)
	}
	name, rest := tail[:end], tail[end:]
	switch name {
	case "us", "μs":
		name = "µs"
	}
	for _, unit := range durationUnits {
		if unit.name == name {
			part, err = exactly(number, unit.size)
			return part, rest, err
		}
	}
	return 0, "", fmt.Errorf("%q is no unit; units are d, h, m, s, ms and µs", name)
}

// exactly answers number × unit, or an error when that is no whole number of microseconds.
func exactly(number string, unit Duration) (Duration, error) {
	if len(number) > 40 {
		return 0, fmt.Errorf("%.10s… has more digits than a duration can hold", number)
	}
	value, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, fmt.Errorf("%q is no number", number)
	}
	value.Mul(value, new(big.Rat).SetInt64(int64(unit)))
	switch {
	case !value.IsInt():
		return 0, fmt.Errorf("%s is finer than a microsecond", number)
	case !value.Num().IsInt64():
		return 0, fmt.Errorf("%s is longer than 292,000 years", number)
	}
	return Duration(value.Num().Int64()), nil
}

// String writes d in the one spelling that documents and digests use: whole numbers of
// the units d, h, m, s, ms, µs from the largest down, without zeros ("1d12h", "1s500ms",
// "-5m"); "0s" for nothing.
func (d Duration) String() string {
	if d == 0 {
		return "0s"
	}
	var b strings.Builder
	rest := uint64(d)
	if d < 0 {
		b.WriteByte('-')
		rest = -rest
	}
	for _, unit := range durationUnits {
		if n := rest / uint64(unit.size); n > 0 {
			b.WriteString(strconv.FormatUint(n, 10))
			b.WriteString(unit.name)
			rest %= uint64(unit.size)
		}
	}
	return b.String()
}

// plus answers d + e, saturating.
func (d Duration) plus(e Duration) Duration {
	if sum := d + e; e < 0 || sum >= d {
		return sum
	}
	return math.MaxInt64
}

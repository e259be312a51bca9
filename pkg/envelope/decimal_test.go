package envelope_test

import (
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"pgregory.net/rapid"
)

func TestParseDecimal(t *testing.T) {
	for _, c := range []struct {
		text  string
		scale int
		want  int64
		err   error
	}{
		{"12.50", 2, 1250, nil},
		{"12.5", 2, 1250, nil},
		{"1.500", 2, 150, nil},
		{"1.25e1", 2, 1250, nil},
		{"125E-1", 2, 1250, nil},
		{"0", 2, 0, nil},
		{"-0", 2, 0, nil},
		{"-0.00", 0, 0, nil},
		{"-3", 0, -3, nil},
		{"0e999999999999999999999", 2, 0, nil},
		{"0.000e-999", 2, 0, nil},
		{"100e-2", 0, 1, nil},
		{"1e18", 0, 1e18, nil},
		{"0.01", 2, 1, nil},
		{"0.1e-1", 2, 1, nil},
		{"12e+0", 0, 12, nil},
		{"9223372036854775807", 0, 9223372036854775807, nil},
		{"-9223372036854775808", 0, -9223372036854775808, nil},
		{"92233720368547758.07", 2, 9223372036854775807, nil},
		{"1" + strings.Repeat("0", 3000) + "e-3000", 0, 1, nil},
		{"0." + strings.Repeat("0", 3000) + "1e3001", 0, 1, nil},
		{"9223372036854775808", 0, 0, envelope.ErrNumberRange},
		{"-9223372036854775809", 0, 0, envelope.ErrNumberRange},
		{"92233720368547758.08", 2, 0, envelope.ErrNumberRange},
		{"1e999", 2, 0, envelope.ErrNumberRange},
		{"1e99999999999999999999999", 2, 0, envelope.ErrNumberRange},
		{"1e19", 0, 0, envelope.ErrNumberRange},
		{"9" + strings.Repeat("9", 30) + ".5", 0, 0, envelope.ErrNumberRange},
		{"12.505", 2, 0, envelope.ErrNumberPrecision},
		{"1e-3", 2, 0, envelope.ErrNumberPrecision},
		{"1e-999999999999999999999", 2, 0, envelope.ErrNumberPrecision},
		{"0.5", 0, 0, envelope.ErrNumberPrecision},
		{"", 2, 0, envelope.ErrNumberFormat},
		{"-", 2, 0, envelope.ErrNumberFormat},
		{"+1", 2, 0, envelope.ErrNumberFormat},
		{"1.", 2, 0, envelope.ErrNumberFormat},
		{".5", 2, 0, envelope.ErrNumberFormat},
		{"01", 2, 0, envelope.ErrNumberFormat},
		{"1e", 2, 0, envelope.ErrNumberFormat},
		{"1e+", 2, 0, envelope.ErrNumberFormat},
		{" 1", 2, 0, envelope.ErrNumberFormat},
		{"1 ", 2, 0, envelope.ErrNumberFormat},
		{"1,5", 2, 0, envelope.ErrNumberFormat},
		{"NaN", 2, 0, envelope.ErrNumberFormat},
		{"0x1", 2, 0, envelope.ErrNumberFormat},
		{"1_000", 2, 0, envelope.ErrNumberFormat},
		{"1.2.3", 2, 0, envelope.ErrNumberFormat},
	} {
		got, err := envelope.ParseDecimal(c.text, c.scale)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%.40s at scale %d: got %d, %v; want %d, %v", c.text, c.scale, got, err, c.want, c.err)
		}
	}
}

func TestParseDecimalAgainstBig(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,12})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "text")
		scale := rapid.IntRange(0, 18).Draw(t, "scale")
		exact, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatalf("big.Rat does not read %q", text)
		}
		exact.Mul(exact, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)))
		got, err := envelope.ParseDecimal([]byte(text), scale)
		switch {
		case exact.IsInt() && exact.Num().IsInt64():
			if err != nil || exact.Num().Int64() != got {
				t.Fatalf("%q at %d: got %d, %v; want %s", text, scale, got, err, exact.Num())
			}
		case exact.IsInt() || new(big.Int).Quo(exact.Num(), exact.Denom()).CmpAbs(new(big.Int).Lsh(big.NewInt(1), 64)) > 0:
			if !errors.Is(err, envelope.ErrNumberRange) {
				t.Fatalf("%q at %d: got %v", text, scale, err)
			}
		case err == nil:
			t.Fatalf("%q at %d: got %d without an error", text, scale, got)
		}
	})
}

func TestParseRFC3339AgainstTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		micros := rapid.Int64Range(-62_167_219_200_000_000, 253_402_300_799_999_999).Draw(t, "micros")
		offset := rapid.IntRange(-14*60, 14*60).Draw(t, "offset")
		at := time.UnixMicro(micros).In(time.FixedZone("", offset*60))
		if at.Year() < 0 || at.Year() > 9999 {
			return
		}
		text := at.Format("2006-01-02T15:04:05.000000Z07:00")
		got, fine, ok := envelope.ParseRFC3339(text)
		if !ok || fine || int64(got) != micros {
			t.Fatalf("%s: got %d, %v, %v; want %d", text, got, fine, ok, micros)
		}
	})
}

func TestParseRFC3339(t *testing.T) {
	const second = 1796032800000000 // 2026-11-30T10:00:00Z
	for _, c := range []struct {
		text string
		want envelope.EventTime
		fine bool
		ok   bool
	}{
		{"2026-11-30T10:00:00Z", second, false, true},
		{"2026-11-30T12:00:00+02:00", second, false, true},
		{"2026-11-29T22:30:00-11:30", second, false, true},
		{"2026-11-30T10:00:00.000001Z", second + 1, false, true},
		{"2026-11-30T10:00:00.25Z", second + 250000, false, true},
		{"2026-11-30T10:00:00.123456000000Z", second + 123456, false, true},
		{"2026-11-30T10:00:00.1234567Z", second + 123456, true, true},
		{"2026-11-30T10:00:00.00000000001Z", second, true, true},
		{"2024-02-29T00:00:00Z", 1709164800000000, false, true},
		{"2023-02-29T00:00:00Z", 0, false, false},
		{"1900-02-29T00:00:00Z", 0, false, false},
		{"2026-13-01T00:00:00Z", 0, false, false},
		{"2026-00-01T00:00:00Z", 0, false, false},
		{"2026-04-31T00:00:00Z", 0, false, false},
		{"2026-11-30T24:00:00Z", 0, false, false},
		{"2026-11-30T10:60:00Z", 0, false, false},
		{"2026-11-30T10:00:60Z", 0, false, false},
		{"2026-11-30T10:00:00", 0, false, false},
		{"2026-11-30T10:00:00,5Z", 0, false, false},
		{"2026-11-30T10:00:00.Z", 0, false, false},
		{"2026-11-30 10:00:00Z", 0, false, false},
		{"2026-11-30T10:00:00+2:00", 0, false, false},
		{"2026-11-30T10:00:00+24:00", 0, false, false},
		{"2026-11-30T10:00:00Z ", 0, false, false},
		{"2026-11-30", 0, false, false},
		{"-026-11-30T10:00:00Z", 0, false, false},
		{"+inf", 0, false, false},
		{"", 0, false, false},
	} {
		got, fine, ok := envelope.ParseRFC3339(c.text)
		if ok != c.ok || ok && (got != c.want || fine != c.fine) {
			t.Errorf("%s: got %d, %v, %v", c.text, got, fine, ok)
		}
	}
}

func TestEventTimeText(t *testing.T) {
	for _, want := range []envelope.EventTime{envelope.MinEventTime, envelope.MaxEventTime, 0, -1, 1796032800000001} {
		got, err := envelope.ParseEventTime(want.String())
		if err != nil || got != want {
			t.Errorf("%s: got %d, %v", want, got, err)
		}
	}
	if _, err := envelope.ParseEventTime("2026-11-30T10:00:00.00000000001Z"); err == nil {
		t.Error("a time finer than a microsecond is accepted")
	}
}

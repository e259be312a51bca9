package policy

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestParseDuration(t *testing.T) {
	tests := []struct {
		text string
		want Duration
		long string
	}{
		{"0", 0, "0s"},
		{"0s", 0, "0s"},
		{"-0", 0, "0s"},
		{"60m", Hour, "1h"},
		{"3600s", Hour, "1h"},
		{"1h0m0s", Hour, "1h"},
		{"24h", Day, "1d"},
		{"1d12h", 36 * Hour, "1d12h"},
		{"1.5s", 1500 * Millisecond, "1s500ms"},
		{".5d", 12 * Hour, "12h"},
		{"1.s", Second, "1s"},
		{"250us", 250, "250µs"},
		{"250µs", 250, "250µs"},
		{"250μs", 250, "250µs"},
		{"0.000001s", 1, "1µs"},
		{"-1h30m", -90 * Minute, "-1h30m"},
		{"+5m", 5 * Minute, "5m"},
		{"1h1h", 2 * Hour, "2h"},
		{"9223372036854775807us", math.MaxInt64, "106751991d4h54s775ms807µs"},
	}
	for _, tt := range tests {
		got, err := ParseDuration(tt.text)
		if err != nil || got != tt.want || got.String() != tt.long {
			t.Errorf("ParseDuration(%q) = %d %q, %v; want %d %q", tt.text, got, got, err, tt.want, tt.long)
		}
	}
	for _, text := range []string{"", "-", "5", "m", "5 m", "1.5us", "1..5s", ".", ".s", "1h-5m", "5min", "1e3s", "9223372036854775808us", "200000000d", "100000000d100000000d", "0x5s", "5ns", "∞", "1000000000000000000000000000000000000000000000000s"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("ParseDuration(%q) = %d, want an error", text, got)
		}
	}
}

func TestDurationRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Duration(rapid.Int64Min(-math.MaxInt64).Draw(t, "d"))
		back, err := ParseDuration(d.String())
		if err != nil || back != d {
			t.Fatalf("%d is written %q and read as %d, %v", d, d, back, err)
		}
	})
}

package policy

import (
	"testing"
	"time"
)

func TestZonesComeFromTheEmbeddedDatabase(t *testing.T) {
	t.Setenv("ZONEINFO", "/nowhere")
	for zone, offset := range map[string]int{"UTC": 0, "Europe/Paris": 7200, "Asia/Kathmandu": 20700, "America/Los_Angeles": -25200} {
		at, err := Location(zone)
		if err != nil {
			t.Fatal(err)
		}
		if _, got := time.Unix(1_750_000_000, 0).In(at).Zone(); got != offset {
			t.Errorf("%s is %d s from UTC, want %d", zone, got, offset)
		}
	}
	for _, zone := range []string{"", "Local", "Europe", "Europe/Parris", "europe/paris", "../etc/passwd", "Europe/"} {
		if _, err := Location(zone); err == nil {
			t.Errorf("zone %q was found", zone)
		}
	}
}

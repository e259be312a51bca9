package effectrule

import (
	"slices"
	"testing"
)

func TestCorrectionsAreLinted(t *testing.T) {
	for _, tt := range []struct{ edit, rule string }{
		{"corrections: {mode: adjust, payload: {account: key, of: correction.of, n: correction.number, points: int(correction.delta), was: correction.standing, month: window.start.month()}} #", ""},
		{"corrections: {mode: compensate, payload: {account: key, points: value.orders}} #", "unknown-field"},
		{"corrections: {mode: compensate, payload: {account: key}} #", "evidence-not-in-payload"},
		{"corrections: {mode: compensate, payload: {account: key, points: correction.number > 1}} #", "evidence-type"},
	} {
		found := Lint(design(t, "corrections: manual ", tt.edit).all, nil)
		if tt.rule == "" && len(found) == 0 {
			continue
		}
		if got := rules(found); !slices.Equal(got, []string{tt.rule}) || found[0].Line != 13 {
			t.Errorf("%s: %v, want %q in line 13", tt.edit, found, tt.rule)
		}
	}
}

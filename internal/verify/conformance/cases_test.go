package conformance

import (
	"slices"
	"strings"
	"testing"
)

// cases are those of the literature that the suite translates: by their letters assigners,
// firing and lateness, panes and revisions, sessions, generators of watermarks, idleness
// and merging of inputs, and what nobody pins.
func cases() []string {
	return strings.Fields(`
		A1 A2 A3 A5 A6 A8 A9 A11 A13 A15
		B1 B2 B3 B4 B5 B6 B7 B8 B10 B12 B13 B14 B15 B17 B19 B20 B21 B22
		C1 C2 C4 C5 C7 C8 C9 C10 C12
		D1 D2 D3 D4 D5 D8 D10 D11 D13 D14 D15 D16 D17 D18 D19 D20
		E1 E2 E3 E4
		F1 F2 F3 F4 F5 F6 F7 F8 F11 F12 F13 F16
		G1 G2 G3 G4 G5 G6 G7 G8 G9 G10 G11 G12`)
}

// TestEveryCaseHasATrace: no case is left out, and none is made up.
func TestEveryCaseHasATrace(t *testing.T) {
	files := map[string][]string{}
	for _, tr := range traces(t) {
		for _, c := range tr.Cases {
			files[c] = append(files[c], tr.Name)
			if !slices.Contains(cases(), c) {
				t.Errorf("%s translates %s, which is no case", tr.Name, c)
			}
			if prefix := strings.ToLower(c[:1]); !strings.HasPrefix(tr.Name, prefix) {
				t.Errorf("%s translates %s: its name must begin with %s", tr.Name, c, prefix)
			}
		}
	}
	for _, c := range cases() {
		if len(files[c]) == 0 {
			t.Errorf("case %s has no trace", c)
		}
	}
}

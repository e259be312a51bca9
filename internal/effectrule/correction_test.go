package effectrule

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

const adjusting = `corrections: {mode: adjust, payload: {account: key, of: correction.of, n: correction.number, points: int(correction.delta), was: correction.standing, month: window.start.month()}} #`

func TestACorrectionSendsTheDifference(t *testing.T) {
	d := design(t, "corrections: manual ", adjusting)
	if found := Lint(d.all, nil); len(found) > 0 {
		t.Fatal(found)
	}
	c, found := CompileCorrection(d.effect, d.job, d.adapter)
	if len(found) > 0 {
		t.Fatal(found)
	}
	if c.Mode() != effect.Adjust {
		t.Errorf("mode %s", c.Mode())
	}
	in := CorrectionInput{Key: key(t), Of: key(t), Number: 2, Standing: "129", Identity: effect.Identity{Key: "eu-west", Window: hour(t, "1").Window}}
	in.Of[0] = 0xff
	for wanted, points := range map[string]string{"": "-129", "130": "1", "129.00": "0", "-1": "-130"} {
		in.Wanted = wanted
		got, err := c.Fill(in)
		want := `{"account":"eu-west","effectKey":"` + in.Key.String() + `","month":"2026-11","n":2,"of":"` + in.Of.String() + `","points":` + points + `,"was":"129"}`
		if err != nil || string(got.Payload) != want || !got.Holds || got.Expect != (effect.Expectation{Amount: points, Subject: "eu-west"}) {
			t.Errorf("wanted %q: %s, %+v, %v; want %s", wanted, got.Payload, got.Expect, err, want)
		}
	}
	in.Standing = "much"
	if _, err := c.Fill(in); !errors.Is(err, errNoDecimal) || strings.Contains(err.Error(), "much") {
		t.Errorf("an amount that is none: %v", err)
	}
}

func TestCorrectionsAreLinted(t *testing.T) {
	for _, tt := range []struct{ edit, rule string }{
		{"corrections: {mode: compensate, payload: {account: key, points: value.orders}} #", "unknown-field"},
		{"corrections: {mode: compensate, payload: {account: key}} #", "evidence-not-in-payload"},
		{"corrections: {mode: compensate, payload: {account: key, points: correction.number > 1}} #", "evidence-type"},
	} {
		found := Lint(design(t, "corrections: manual ", tt.edit).all, nil)
		if got := rules(found); !slices.Equal(got, []string{tt.rule}) || found[0].Line != 13 {
			t.Errorf("%s: %v, want %s in line 13", tt.edit, found, tt.rule)
		}
	}
	d := design(t)
	if c, found := CompileCorrection(d.effect, d.job, d.adapter); c != nil || found != nil {
		t.Errorf("manual corrections compile to %v, %v", c, found)
	}
}

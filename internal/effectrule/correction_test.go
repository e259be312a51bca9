package effectrule

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

const adjusting = `corrections: {mode: adjust, payload: {account: key, of: correction.of, n: correction.number, points: int(correction.delta), was: correction.standing, month: window.start.month()}} #`

func TestCorrectionsAreLinted(t *testing.T) {
	for _, tt := range []struct{ edit, rule string }{
		{adjusting, ""},
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

func TestWithoutAnAmountInTheEvidenceThereIsNoDifference(t *testing.T) {
	const noAmount = "evidence: {key: /ref, subject: /account}"
	for edit, rule := range map[string]string{
		adjusting: "adjust-without-amount",
		"corrections: {mode: compensate, payload: {account: key, of: correction.of, points: int(correction.standing)}} #": "unknown-field",
	} {
		found := Lint(design(t, "corrections: manual ", edit, "evidence: {key: /ref, amount: /points, subject: /account}", noAmount).all, nil)
		if got := rules(found); !slices.Equal(got, []string{rule}) {
			t.Errorf("%s: %v, want %s", edit, found, rule)
		}
	}
}

// correction answers the compiled corrections of the design's policy after edits.
func correction(t *testing.T, edits ...string) *Correction {
	t.Helper()
	d := design(t, edits...)
	if found := Lint(d.all, nil); len(found) > 0 {
		t.Fatal(found)
	}
	c, found := CompileCorrection(d.effect, d.job, d.adapter, d.adapter)
	if len(found) > 0 || c == nil {
		t.Fatal(c, found)
	}
	return c
}

// corrected is the second correction of an effect of 129 points.
func corrected(t *testing.T, wanted string) CorrectionInput {
	t.Helper()
	in := CorrectionInput{Key: key(t), Of: key(t), Number: 2, RevisionKey: "eu-west", Window: hour(t, "1").Window, Standing: "129", Wanted: wanted, Nth: 10}
	in.Of[0] = 0xff
	return in
}

func TestACorrectionSendsTheDifference(t *testing.T) {
	c := correction(t, "corrections: manual ", adjusting)
	if c.Mode() != effect.Adjust {
		t.Errorf("mode %s", c.Mode())
	}
	for wanted, points := range map[string]string{"0": "-129", "130": "1", "128.50": "0", "-1": "-130", "9007199254740993": "9007199254740864"} {
		in := corrected(t, wanted)
		got, err := c.Judge(in)
		want := `{"account":"eu-west","effectKey":"` + in.Key.String() + `","month":"2026-11","n":2,"of":"` + in.Of.String() + `","points":` + points + `,"was":"129"}`
		if err != nil || string(got.Payload) != want || !got.Holds || got.Expect != (effect.Expectation{Amount: points, Subject: "eu-west"}) {
			t.Errorf("wanted %q: %s, %+v, %v; want %s", wanted, got.Payload, got.Expect, err, want)
		}
	}
	if got, err := c.Judge(corrected(t, "129.00")); err != nil || got.Holds {
		t.Errorf("a difference of nothing is sent: %+v, %v", got, err)
	}
	for _, in := range []CorrectionInput{{Standing: "much", Wanted: "1"}, {Standing: "1", Wanted: "much"}, {Wanted: "1"}} {
		if _, err := c.Judge(in); !errors.Is(err, ErrExpression) || strings.Contains(err.Error(), "much") {
			t.Errorf("an amount that is none: %v", err)
		}
	}
}

func TestACompensationNeedsNoAmountThatItDoesNotName(t *testing.T) {
	c := correction(t, "corrections: manual ", "corrections: {mode: compensate, payload: {account: key, of: correction.of, points: 0}} #")
	in := corrected(t, "0")
	in.Standing = ""
	got, err := c.Judge(in)
	if want := `{"account":"eu-west","effectKey":"` + in.Key.String() + `","of":"` + in.Of.String() + `","points":0}`; err != nil || string(got.Payload) != want || c.Mode() != effect.Compensate {
		t.Errorf("%s, %v; want %s", got.Payload, err, want)
	}
	c = correction(t, "corrections: manual ", "corrections: {mode: compensate, payload: {account: key, points: int(-correction.delta)}} #")
	if got, err := c.Judge(corrected(t, "0")); err != nil || got.Expect.Amount != "129" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := c.Judge(in); !errors.Is(err, ErrExpression) {
		t.Errorf("an amount that is not known: %v", err)
	}
}

func TestAirlocksHoldCorrections(t *testing.T) {
	limited := []string{"corrections: manual ", adjusting, "limit: 100000", "limit: 50"}
	for _, tt := range []struct {
		edits  []string
		change func(*CorrectionInput)
		want   string
	}{
		{limited, func(*CorrectionInput) {}, LockAmount}, // 129 taken back
		{limited, func(in *CorrectionInput) { in.Wanted = "179" }, ""},
		{limited, func(in *CorrectionInput) { in.Wanted = "180" }, LockAmount},
		{limited, func(in *CorrectionInput) { in.Wanted, in.Nth = "150", 9 }, LockFirst},
		{limited, func(in *CorrectionInput) { in.Wanted, in.WindowAge = "150", int64(48*policy.Hour)+1 }, LockOldness},
	} {
		in := corrected(t, "0")
		tt.change(&in)
		if got, err := correction(t, tt.edits...).Judge(in); err != nil || got.Airlock != tt.want {
			t.Errorf("%+v: airlock %q, %v; want %q", in, got.Airlock, err, tt.want)
		}
	}
	elsewhere := correction(t, "corrections: manual ", "corrections: {mode: compensate, payload: {account: key, points: string(correction.delta)}} #", "limit: 100000", "limit: 50")
	if got, err := elsewhere.Judge(corrected(t, "0")); err != nil || got.Airlock != LockAmount {
		t.Errorf("airlock %q, %v", got.Airlock, err)
	}
}

func TestManualCorrectionsSendNothing(t *testing.T) {
	d := design(t)
	if c, found := CompileCorrection(d.effect, d.job, d.adapter, d.adapter); c != nil || found != nil {
		t.Errorf("manual corrections compile to %v, %v", c, found)
	}
}

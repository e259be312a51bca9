package effect_test

import (
	"bytes"
	_ "embed"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

//go:embed testdata/record.json
var golden string

const keyText = "0cfe61ce6e9ea7be29b0c22a2fd646c020f12201de82bba34cb5017af9f7a613"

func key(t testing.TB) effect.EffectKey {
	t.Helper()
	k, err := effect.ParseEffectKey(keyText)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestStates(t *testing.T) {
	want := map[effect.State]effect.Outcome{
		effect.Prepared: effect.NotApplied, effect.Held: effect.NotApplied, effect.Dispatching: effect.Undetermined,
		effect.Acked: effect.Applied, effect.Unknown: effect.Undetermined, effect.Reconciled: effect.Applied,
		effect.Rejected: effect.NotApplied, effect.Voided: effect.NotApplied, effect.Manual: effect.Undetermined,
		effect.CompensationRequired: effect.Applied, effect.Compensated: effect.Applied, effect.Waived: effect.Applied,
	}
	if len(effect.States()) != len(want) {
		t.Errorf("%d states, want %d", len(effect.States()), len(want))
	}
	for _, s := range effect.States() {
		if got := s.Outcome(); got != want[s] || !s.Known() {
			t.Errorf("outcome of %s is %s, want %s", s, got, want[s])
		}
	}
	if effect.None.Known() || effect.None.Outcome() != effect.NotApplied || effect.State("SENT").Known() {
		t.Error("a state that is none is known")
	}
}

func TestEffectKeysHaveOneText(t *testing.T) {
	k := key(t)
	if k.String() != keyText || k.IsZero() || !(effect.EffectKey{}).IsZero() {
		t.Errorf("key is %s", k)
	}
	for _, text := range []string{"", keyText[1:], keyText + "0", strings.ToUpper(keyText), "g" + keyText[1:], " " + keyText[1:]} {
		if _, err := effect.ParseEffectKey(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestTimesHaveOneText(t *testing.T) {
	for text, ok := range map[string]bool{
		"2026-11-30T11:00:00Z": true, "2026-11-30T11:00:00.5Z": true, "2026-11-30T11:00:00.000001Z": true,
		"1970-01-01T00:00:00Z": true, "9999-12-31T23:59:59.999999Z": true,
		"2026-11-30T11:00:00.50Z": false, "2026-11-30T11:00:00.0000001Z": false, "2026-11-30T11:00:00+00:00": false,
		"2026-11-30T12:00:00+01:00": false, "1969-12-31T23:59:59Z": false, "2026-11-30": false, "": false,
	} {
		var at effect.Time
		err := at.UnmarshalText([]byte(text))
		if (err == nil) != ok || ok && at.String() != text {
			t.Errorf("%q: %s, %v", text, at, err)
		}
	}
	for _, at := range []effect.Time{-1, effect.MaxTime + 1} {
		if _, err := at.MarshalText(); err == nil {
			t.Errorf("%d is written", int64(at))
		}
	}
}

func TestTimesStayWithinTheirBounds(t *testing.T) {
	for _, c := range []struct {
		t    effect.Time
		d    int64
		want effect.Time
	}{
		{5, 3, 8},
		{5, -3, 2},
		{5, -6, 0},
		{5, 0, 5},
		{effect.MaxTime - 1, 1, effect.MaxTime},
		{effect.MaxTime, 1, effect.MaxTime},
		{5, 1<<63 - 1, effect.MaxTime},
		{5, -1 << 63, 0},
	} {
		if got := c.t.Add(c.d); got != c.want {
			t.Errorf("%d + %d is %d, want %d", c.t, c.d, got, c.want)
		}
	}
}

// example answers a record that has everything, as testdata/record.json has it.
func example(t testing.TB) *effect.Record {
	t.Helper()
	r, err := effect.Decode([]byte(golden))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestARecordIsWrittenAsItWasRead(t *testing.T) {
	data, err := example(t).Encode()
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.TrimSpace(golden); string(data) != want {
		t.Errorf("got  %s\nwant %s", data, want)
	}
}

func TestPayloadsKeepTheirBytes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := example(t)
		r.Request.Payload = keyText + rapid.String().Draw(rt, "payload")
		data, err := r.Encode()
		if err != nil {
			rt.Fatal(err)
		}
		back, err := effect.Decode(data)
		if err != nil || back.Request.Payload != r.Request.Payload {
			rt.Fatalf("%q became %q: %v", r.Request.Payload, back.Request.Payload, err)
		}
	})
}

func TestDecodeIsStrict(t *testing.T) {
	for name, change := range map[string]struct{ old, replacement string }{
		"unknown member":       {`"state":`, `"colour":"red","state":`},
		"unknown inner member": {`"n":9,`, `"n":9,"m":1,`},
		"twin":                 {`"lastAttempt":2`, `"lastAttempt":2,"lastAttempt":2`},
		"other case":           {`"lastAttempt"`, `"LastAttempt"`},
		"missing member":       {`"lastAttempt":2,`, ``},
		"empty optional":       {`"lastAttempt":2`, `"lastAttempt":2,"conflict":""`},
		"other number":         {`"lastAttempt":2`, `"lastAttempt":2.0`},
		"text for a number":    {`"lastAttempt":2`, `"lastAttempt":"2"`},
		"key in capitals":      {keyText[:8], "0CFE61CE"},
		"another outcome":      {`"outcome":"APPLIED"`, `"outcome":"UNDETERMINED"`},
		"trailing bytes":       {`}` + "\n", `} {}` + "\n"},
		"no JSON":              {`{"schema"`, `{schema`},
		"lone surrogate":       {`"who":"ana"`, `"who":"\ud800"`},
	} {
		changed := strings.Replace(golden, change.old, change.replacement, 1)
		if changed == golden {
			t.Fatalf("%s: nothing changed", name)
		}
		if _, err := effect.Decode([]byte(changed)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if _, err := effect.Decode(bytes.Repeat([]byte(" "), effect.MaxRecordSize+1)); err == nil {
		t.Error("a record without bounds is taken")
	}
	spaced := strings.ReplaceAll(strings.Replace(golden, `"conflict":"`+example(t).Conflict+`"`, `"conflict":null`, 1), `,"`, ` , "`)
	if _, err := effect.Decode([]byte(spaced)); err != nil {
		t.Errorf("space and a null member: %v", err)
	}
}

func TestErrorsDoNotRepeatThePayload(t *testing.T) {
	const secret = "4111111111111111"
	for name, payload := range map[string]string{
		"number":   secret,
		"object":   `{"card":"` + secret + `"}`,
		"no key":   `"` + secret + `"`,
		"no UTF-8": "\"" + secret + "\xff\"",
	} {
		from := strings.Index(golden, `"payload":`) + len(`"payload":`)
		to := strings.Index(golden, `,"payloadDigest"`)
		_, err := effect.Decode([]byte(golden[:from] + payload + golden[to:]))
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReceipts(t *testing.T) {
	r := effect.Receipt{Schema: effect.ReceiptSchema, Key: key(t), Ref: "r-1", Amount: "100", Subject: "eu-west", AppliedAt: 1796036400000000}
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"schema":"effectReceipt.v1","effectKey":"` + keyText + `","ref":"r-1","amount":"100","subject":"eu-west","appliedAt":"2026-11-30T11:00:00Z"}`
	if string(data) != want {
		t.Errorf("got %s", data)
	}
	back, err := effect.DecodeReceipt(data)
	if err != nil || *back != r {
		t.Errorf("%+v, %v", back, err)
	}
	e := r.Evidence(revision.Digest{7})
	if e.Source != effect.FromReceipt || e.Key != r.Key || e.Amount != "100" || e.Subject != "eu-west" || e.Ref != "r-1" || e.Digest[0] != 7 {
		t.Errorf("evidence %+v", e)
	}
	for name, change := range map[string]func(*effect.Receipt){
		"schema":    func(r *effect.Receipt) { r.Schema = "" },
		"key":       func(r *effect.Receipt) { r.Key = effect.EffectKey{} },
		"ref":       func(r *effect.Receipt) { r.Ref = "" },
		"amount":    func(r *effect.Receipt) { r.Amount = strings.Repeat("9", effect.MaxName+1) },
		"subject":   func(r *effect.Receipt) { r.Subject = "\xff" },
		"appliedAt": func(r *effect.Receipt) { r.AppliedAt = 0 },
	} {
		broken := r
		change(&broken)
		if _, err := broken.Encode(); err == nil {
			t.Errorf("%s is not looked at", name)
		}
	}
	if _, err := effect.DecodeReceipt([]byte(`{"schema":"effectReceipt.v1"}`)); err == nil {
		t.Error("half a receipt is taken")
	}
}

// FuzzDecode reads records and receipts: what is taken writes itself back the same.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(golden))
	f.Add([]byte(`{"schema":"effectReceipt.v1","effectKey":"` + keyText + `","ref":"r-1","appliedAt":"2026-11-30T11:00:00Z"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := effect.Decode(data); err == nil {
			text, err := r.Encode()
			if err != nil {
				t.Fatal(err)
			}
			back, err := effect.Decode(text)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if again, err := back.Encode(); err != nil || !bytes.Equal(text, again) {
				t.Fatalf("%s became %s: %v", text, again, err)
			}
		}
		if r, err := effect.DecodeReceipt(data); err == nil {
			text, err := r.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if back, err := effect.DecodeReceipt(text); err != nil || *back != *r {
				t.Fatalf("%s: %v", text, err)
			}
		}
	})
}

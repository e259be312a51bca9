package effectlog

import (
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

const noon effect.Time = 1796040000000000

var (
	someKey    = effect.EffectKey{1, 2, 3}
	someDigest = revision.Digest{4, 5, 6}
)

func stamp(id string, basis uint64) Stamp {
	return Stamp{ID: "record-" + id, Basis: basis, Who: "ada@shop", Reason: "drill", At: noon}
}

// controls, commands and evidence hold one valid record of each form.
func controls() []*Control {
	return []*Control{
		{Stamp: stamp("a", 0), Gate: &Gate{Scope: Global, Closed: true}},
		{Stamp: stamp("b", 9), Gate: &Gate{Scope: GenerationScope("hourly-revenue", 14)}},
		{Stamp: stamp("c", 9), Gate: &Gate{Scope: Unreadable}},
		{Stamp: stamp("d", 9), Activate: &Activate{EffectType: "issue-reward", Policy: "reward@3", PolicyDigest: someDigest, Adapter: "rewards-api@2", AdapterDigest: someDigest}},
		{Stamp: stamp("e", 9), Alias: &Alias{Job: "hourly-revenue", Epoch: 3, Canonical: 14, Switching: true}},
	}
}

func commands() []*Command {
	all := []*Command{
		{Act: ActApprove, Approve: &Approve{Digest: someDigest, Expires: noon + 1}},
		{Act: ActResolve, Resolve: &Resolve{Applied: true, Ref: "pay-<1>", Evidence: someDigest}},
		{Act: ActResolve, Resolve: &Resolve{Evidence: someDigest}},
	}
	for _, act := range Acts() {
		if act != ActApprove && act != ActResolve {
			all = append(all, &Command{Act: act})
		}
	}
	for _, c := range all {
		c.Stamp = stamp("x", 7)
		if c.Act != ActRecover {
			c.Key = someKey
		}
	}
	return all
}

func evidence() *Evidence {
	return &Evidence{Adapter: "rewards-api@2", Digest: someDigest, Receipt: effect.Receipt{Key: someKey, Ref: "pay-1", AppliedAt: noon}}
}

func dones() []*Done {
	return []*Done{
		{Sequence: 8, Key: someKey, Step: 4},
		{Sequence: 8, Key: someKey, Refusal: "not-held", Note: "it is PREPARED"},
		{Sequence: 8, Note: "3 attempts taken in"},
	}
}

type encoder interface{ Encode() ([]byte, error) }

func bytesOf(t testing.TB, e encoder) []byte {
	t.Helper()
	data, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// foreigners answers the bytes of every form of foreign record.
func foreigners(t testing.TB) (all [][]byte) {
	for _, c := range controls() {
		all = append(all, bytesOf(t, c))
	}
	for _, c := range commands() {
		all = append(all, bytesOf(t, c))
	}
	return append(all, bytesOf(t, evidence()))
}

func again(t testing.TB, f Foreign) []byte {
	t.Helper()
	switch {
	case f.Control != nil && f.Command == nil && f.Evidence == nil:
		return bytesOf(t, f.Control)
	case f.Command != nil && f.Control == nil && f.Evidence == nil:
		return bytesOf(t, f.Command)
	case f.Evidence != nil && f.Control == nil && f.Command == nil:
		return bytesOf(t, f.Evidence)
	}
	t.Fatalf("not exactly one kind: %+v", f)
	return nil
}

func TestRecordsSurviveTheirJSON(t *testing.T) {
	for _, data := range foreigners(t) {
		f, err := DecodeForeign(data)
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if text := again(t, f); string(text) != string(data) {
			t.Errorf("%s became %s", data, text)
		}
		if _, err := DecodeOwned(data); err == nil {
			t.Errorf("the owner may write %s", data)
		}
	}
	for _, d := range dones() {
		data := bytesOf(t, d)
		o, err := DecodeOwned(data)
		if err != nil || o.Done == nil || o.Effect != nil || *o.Done != *d {
			t.Errorf("%s: %+v, %v", data, o, err)
		}
		if _, err := DecodeForeign(data); err == nil {
			t.Errorf("others may write %s", data)
		}
	}
}

func TestOtherFormsOfARecordAreRefused(t *testing.T) {
	const valid = `{"schema":"effectControl.v1","stamp":{"id":"record-a","basis":0,"who":"ada","reason":"drill","at":"2026-11-30T12:00:00Z"},"gate":{"scope":"global","closed":true}}`
	if _, err := DecodeForeign([]byte(valid)); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"unknown member":    {`"closed":true`, `"closed":true,"until":"x"`},
		"repeated member":   {`"closed":true`, `"closed":true,"closed":false`},
		"another case":      {`"closed"`, `"Closed"`},
		"missing member":    {`,"closed":true`, ``},
		"null":              {`"closed":true`, `"closed":null`},
		"wrong type":        {`"closed":true`, `"closed":"true"`},
		"another time":      {`12:00:00Z`, `12:00:00.0Z`},
		"number form":       {`"basis":0`, `"basis":0.0`},
		"negative":          {`"basis":0`, `"basis":-1`},
		"no reason":         {`"drill"`, `""`},
		"no person":         {`"ada"`, `""`},
		"short id":          {`record-a`, `a`},
		"id with a space":   {`record-a`, `record a`},
		"unknown schema":    {`effectControl.v1`, `effectControl.v2`},
		"unknown scope":     {`"global"`, `"all"`},
		"scope of a switch": {`"global"`, `"switch:hourly-revenue"`},
		"nothing in it":     {`,"gate":{"scope":"global","closed":true}`, ``},
		"two things in it":  {`,"gate"`, `,"alias":{"job":"j","epoch":1,"canonical":1,"switching":false},"gate"`},
		"trailing bytes":    {`true}}`, `true}}x`},
	} {
		text := strings.Replace(valid, change[0], change[1], 1)
		if text == valid {
			t.Fatalf("%s: nothing changed", name)
		}
		if f, err := DecodeForeign([]byte(text)); err == nil {
			t.Errorf("%s: taken as %+v", name, f)
		}
	}
}

func TestBrokenRulesAreRefused(t *testing.T) {
	long := strings.Repeat("x", effect.MaxReason+1)
	for name, e := range map[string]encoder{
		"closed unreadable":       &Control{Stamp: stamp("a", 0), Gate: &Gate{Scope: Unreadable, Closed: true}},
		"generation zero":         &Control{Stamp: stamp("a", 0), Gate: &Gate{Scope: "generation:j@0"}},
		"generation with a sign":  &Control{Stamp: stamp("a", 0), Gate: &Gate{Scope: "generation:j@+1"}},
		"type without name":       &Control{Stamp: stamp("a", 0), Gate: &Gate{Scope: "type:"}},
		"version without number":  &Control{Stamp: stamp("a", 0), Activate: &Activate{EffectType: "t", Policy: "p", PolicyDigest: someDigest, Adapter: "a@1", AdapterDigest: someDigest}},
		"version zero":            &Control{Stamp: stamp("a", 0), Activate: &Activate{EffectType: "t", Policy: "p@0", PolicyDigest: someDigest, Adapter: "a@1", AdapterDigest: someDigest}},
		"no digest":               &Control{Stamp: stamp("a", 0), Activate: &Activate{EffectType: "t", Policy: "p@1", Adapter: "a@1", AdapterDigest: someDigest}},
		"epoch zero":              &Control{Stamp: stamp("a", 0), Alias: &Alias{Job: "j", Canonical: 1}},
		"no generation":           &Control{Stamp: stamp("a", 0), Alias: &Alias{Job: "j", Epoch: 1}},
		"unknown act":             &Command{Stamp: stamp("a", 0), Key: someKey, Act: "send"},
		"act without key":         &Command{Stamp: stamp("a", 0), Act: ActHold},
		"recovery of a key":       &Command{Stamp: stamp("a", 0), Act: ActRecover, Key: someKey},
		"approval of nothing":     &Command{Stamp: stamp("a", 0), Key: someKey, Act: ActApprove},
		"approval without digest": &Command{Stamp: stamp("a", 0), Key: someKey, Act: ActApprove, Approve: &Approve{Expires: noon}},
		"approval without end":    &Command{Stamp: stamp("a", 0), Key: someKey, Act: ActApprove, Approve: &Approve{Digest: someDigest}},
		"approval with a hold":    &Command{Stamp: stamp("a", 0), Key: someKey, Act: ActHold, Approve: &Approve{Digest: someDigest, Expires: noon}},
		"finding without proof":   &Command{Stamp: stamp("a", 0), Key: someKey, Act: ActResolve, Resolve: &Resolve{Applied: true}},
		"long reason":             &Command{Stamp: Stamp{ID: "record-a", Who: "ada", Reason: long, At: noon}, Key: someKey, Act: ActHold},
		"no time":                 &Command{Stamp: Stamp{ID: "record-a", Who: "ada", Reason: "drill"}, Key: someKey, Act: ActHold},
		"unsigned bytes":          &Evidence{Adapter: "a@1", Receipt: evidence().Receipt},
		"answer to nothing":       &Done{Key: someKey, Step: 1},
		"done and refused":        &Done{Sequence: 1, Key: someKey, Step: 1, Refusal: "sent"},
		"step of nothing":         &Done{Sequence: 1, Step: 1},
		"refusal that is no name": &Done{Sequence: 1, Key: someKey, Refusal: "not held"},
	} {
		if data, err := e.Encode(); err == nil {
			t.Errorf("%s: encoded as %s", name, data)
		}
	}
}

func TestErrorsDoNotRepeatValues(t *testing.T) {
	data := strings.Replace(string(bytesOf(t, commands()[0])), `"basis":7`, `"basis":"hunter2"`, 1)
	_, err := DecodeForeign([]byte(data))
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error is %v", err)
	}
}

func TestScopesAreReadAsWritten(t *testing.T) {
	for _, s := range []Scope{Global, Unreadable, TypeScope("issue-reward"), AdapterScope("rewards-api"), GenerationScope("hourly-revenue", 14), SwitchScope("hourly-revenue")} {
		if got, err := ParseScope(string(s)); err != nil || got != s {
			t.Errorf("%s: %s, %v", s, got, err)
		}
	}
	for _, text := range []string{"", "Global", "type", "type:", "type:a b", "generation:j", "generation:j@", "generation:j@01", "generation:@1", "no-control", "partition:0"} {
		if s, err := ParseScope(text); err == nil {
			t.Errorf("%q is %s", text, s)
		}
	}
}

func FuzzDecodeForeign(f *testing.F) {
	for _, data := range foreigners(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		record, err := DecodeForeign(data)
		if err != nil {
			return
		}
		text := again(t, record)
		same, err := DecodeForeign(text)
		if err != nil || string(again(t, same)) != string(text) {
			t.Fatalf("%s is read again as %s, %v", text, again(t, same), err)
		}
		var s State
		if _, err := s.Apply(Entry{Seq: 1, Foreign: data}); err != nil {
			t.Fatalf("a journal of one record: %v", err)
		}
	})
}

func FuzzDecodeOwned(f *testing.F) {
	for _, d := range dones() {
		f.Add(bytesOf(f, d))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		record, err := DecodeOwned(data)
		if err != nil {
			return
		}
		var text []byte
		if record.Done != nil {
			text = bytesOf(t, record.Done)
		} else {
			text = bytesOf(t, record.Effect)
		}
		if _, err := DecodeOwned(text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	})
}

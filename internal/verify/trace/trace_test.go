package trace

import (
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

func TestParse(t *testing.T) {
	tr, err := Parse("t", `
policy size=3s offset=-100 D=5m values=v:decimal:2 # a comment
note free text = anything
frame writer=w n=7
E id=a t=11:05:00.000001 v=1.5
R id=b withdraws=a t=11:05:00.000001 v=1.5
end
E id=c part=0 t=-1us
W to=1000
expect rev rev=1
check w t=1000
`)
	if err != nil {
		t.Fatal(err)
	}
	if len(tr.Frames) != 3 || tr.Frames[0].Envelope.Number != 7 || len(tr.Frames[0].Steps) != 2 {
		t.Fatalf("frames %+v", tr.Frames)
	}
	a, b := tr.Frames[0].Envelope.Records[0].Event, tr.Frames[0].Envelope.Records[1].Event
	if a.Digest != b.Digest || string(a.Data) != `{"key":"k","t":1796036700000001,"v":"1.5"}` || a.Values[0].Int != 150 {
		t.Errorf("event %+v with data %s", a, a.Data)
	}
	c := tr.Frames[1].Envelope.Records[0].Event
	if b.Op != envelope.Retract || b.Withdraws != "a" || c.SourceOffset != 3 || c.Times[0] != -1 {
		t.Errorf("events %+v, %+v", b, c)
	}
	mark := tr.Frames[2]
	if m := mark.Envelope.Records[0].Mark; m.MaxEventTime[0] != 301_000_000 {
		t.Errorf("W is a mark of %+v", m)
	}
	if len(mark.Steps[0].Expect) != 1 || len(mark.Steps[0].Checks) != 1 {
		t.Errorf("step %+v", mark.Steps[0])
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "no policy line",
		"E t=0":                        "before the policy line",
		"policy\npolicy":               "second policy line",
		"policy siez=3":                "does not know",
		"policy\nE colour=red":         "does not know",
		"policy\nX a=1":                "unknown line",
		"policy\nE t":                  "no name=value",
		"policy\nE t=later":            "RFC 3339",
		"policy\nE v=1.5":              "value v",
		"policy\nexpect rev":           "before the first record",
		"policy\nframe\nE t=0":         "has no end",
		"policy\nend":                  "end without frame",
		"policy sources=a:2\nW to=1":   "one source partition",
		"policy\nE origin=moon":        "unknown origin",
		"policy results=sum\nE t=0":    "no result",
		"policy\nframe\nE t=0\nframe ": "has no end",
	} {
		if _, err := Parse("t", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", text, err, want)
		}
	}
}

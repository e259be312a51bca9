package trace

import (
	"reflect"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
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

func TestParseWindows(t *testing.T) {
	for line, want := range map[string]policy.WindowSpec{
		"policy size=3s offset=1s":                 {Kind: policy.Tumbling, Size: 3 * policy.Second, Offset: policy.Second, Zone: "UTC"},
		"policy size=10 every=5":                   {Kind: policy.Hopping, Size: 10 * policy.Millisecond, Every: 5 * policy.Millisecond, Zone: "UTC"},
		"policy gap=11m rule=gap-11-v2":            {Kind: policy.Session, Gap: 11 * policy.Minute, Rule: "gap-11-v2", Zone: "UTC"},
		"policy calendar=day zone=Europe/Paris":    {Kind: policy.Calendar, Calendar: policy.CalendarDay, Zone: "Europe/Paris"},
		"policy gap=1 size=5":                      {Kind: policy.Session, Gap: policy.Millisecond, Rule: "gap", Zone: "UTC"},
		"case A1 B2\npolicy calendar=month size=5": {Kind: policy.Calendar, Calendar: policy.CalendarMonth, Zone: "UTC"},
	} {
		tr, err := Parse("t", line)
		if err != nil || tr.Policy.Window != want {
			t.Errorf("%q: window %+v, error %v, want %+v", line, tr.Policy.Window, err, want)
		}
	}
}

func TestParseReopen(t *testing.T) {
	tr, err := Parse("t", `
policy gap=10
E id=a t=0
place name=here
E id=b t=1
reopen key=k epoch=3 asof=here add=a,web+b withdraw=r restore=none parts=2 generation=other
reopen late=yes
`)
	if err != nil {
		t.Fatal(err)
	}
	if tr.Places["here"] != 1 {
		t.Errorf("places %v", tr.Places)
	}
	want := Reopen{
		Key: "k", Epoch: 3, AsOf: "here", Add: []Ref{{"shop", "a"}, {"web", "b"}}, Withdraw: []Ref{{"shop", "r"}}, Parts: 2, Other: true,
	}
	if got := tr.Frames[2].Steps[0].Reopen; !reflect.DeepEqual(*got, want) {
		t.Errorf("reopen %+v, want %+v", *got, want)
	}
	if got := tr.Frames[3].Steps[0].Reopen; !got.Late || !got.Auto || got.Key != "k" || got.Parts != 1 {
		t.Errorf("reopen %+v", *got)
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
		"policy\nreopen asof=nowhere":  "no place",
		"policy\nreopen restore=maybe": "auto or none",
		"policy\nreopen parts=many":    "invalid syntax",
		"policy\nframe\nplace name=a":  "between frames",
		"policy\nplace":                "needs a name",
		"policy generation=x":          "invalid syntax",
		"policy\nframe\nE t=0\nframe ": "has no end",
	} {
		if _, err := Parse("t", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", text, err, want)
		}
	}
}

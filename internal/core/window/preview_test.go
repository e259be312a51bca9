package window

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// shown answers the previews that are due, in short, or "-" when none are due.
func (f *feeder) shown() string {
	if !f.op.PreviewsDue() {
		return "-"
	}
	var out []string
	f.op.Previews(func(p *revision.Preview) {
		out = append(out, fmt.Sprintf("%s[%d,%d)=%d", p.Key, int64(p.Window.Start), int64(p.Window.End), p.Events))
	})
	return strings.Join(out, " ")
}

func (f *feeder) keyed(key, id string, at envelope.EventTime) {
	f.t.Helper()
	f.apply(&envelope.Record{Event: &envelope.Event{ID: id, Source: "shop", Key: key, Times: []envelope.EventTime{at}, Values: []envelope.Value{{Int: 100}}}})
}

func earlyFeeder(t *testing.T, window policy.WindowSpec) *feeder {
	f := newFeeder(t, window)
	f.op.cfg.Policy.Early = 30 * policy.Second
	op, err := New(f.op.cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.op = op
	return f
}

func TestPreviewsShowWhatChangedInOpenWindows(t *testing.T) {
	f := earlyFeeder(t, tumbling10)
	if f.shown() != "-" {
		t.Error("previews without any mark")
	}
	f.keyed("b", "1", 1)
	f.keyed("a", "2", 12)
	f.keyed("a", "3", 2)
	for _, c := range []struct {
		w       envelope.EventTime
		seconds int64
		event   string
		want    string
	}{
		{0, 100, "", "a[0,10)=1 b[0,10)=1 a[10,20)=1"},
		{0, 129, "4", "-"}, // 29 s after the last ones
		{0, 130, "", "a[0,10)=2"},
		{0, 160, "", ""}, // nothing changed
		{0, 190, "5", "a[0,10)=3"},
		{10, 220, "6", ""}, // the window reached its end
	} {
		if c.event != "" {
			f.keyed("a", c.event, 3)
		}
		f.mark(c.w, c.seconds)
		if got := f.shown(); got != c.want {
			t.Errorf("at %d s: %q, want %q", c.seconds, got, c.want)
		}
	}
	if f.count(CountRevisions) != 2 {
		t.Error("previews are no revisions")
	}
}

func TestPreviewsOfSessions(t *testing.T) {
	f := earlyFeeder(t, policy.WindowSpec{Kind: policy.Session, Gap: 10, Rule: "gap"})
	f.keyed("b", "1", 20)
	f.keyed("a", "2", 20)
	f.keyed("a", "3", 1)
	f.mark(0, 1)
	if got, want := f.shown(), "a[1,11)=1 a[20,30)=1 b[20,30)=1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	f.keyed("a", "4", 10)
	f.keyed("a", "5", 11)
	f.mark(0, 31)
	if got, want := f.shown(), "a[1,30)=4"; got != want {
		t.Errorf("%q, want %q: a session that took others in", got, want)
	}
	if out := f.mark(30, 61); len(out) != 2 || out[0].Proposal.Inputs.Events != 4 || out[0].Proposal.Revision != 1 {
		t.Errorf("got %+v: previews change nothing", out)
	}
}

func TestNoPreviewsWithoutATrigger(t *testing.T) {
	f := newFeeder(t, tumbling10)
	f.keyed("a", "1", 1)
	f.mark(0, 100)
	if f.shown() != "-" {
		t.Error("previews of a policy that has no trigger.early")
	}
}

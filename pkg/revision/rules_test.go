package revision_test

import (
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

func TestValidate(t *testing.T) {
	if err := example().Validate(); err != nil {
		t.Fatalf("the example breaks a rule: %v", err)
	}
	retract := example()
	retract.Op, retract.Value, retract.Inputs.Events = revision.Retract, nil, 0
	if err := retract.Validate(); err != nil {
		t.Errorf("a RETRACT breaks a rule: %v", err)
	}
	for want, change := range map[string]func(*revision.Revision){
		"business stream is not named":   func(r *revision.Revision) { r.Stream = "" },
		"job is not named":               func(r *revision.Revision) { r.Job = "" },
		"policy digest must both":        func(r *revision.Revision) { r.PolicyDigest = "" },
		"key has 0 bytes":                func(r *revision.Revision) { r.Key = "" },
		"key has 257 bytes":              func(r *revision.Revision) { r.Key = strings.Repeat("k", 257) },
		"valid UTF-8":                    func(r *revision.Revision) { r.Key = "\xff" },
		"start before it ends":           func(r *revision.Revision) { r.Window.End = r.Window.Start },
		"logicalWindowId":                func(r *revision.Revision) { r.LogicalWindowID = "x" },
		"projectionId must":              func(r *revision.Revision) { r.ProjectionID = strings.ToUpper(r.ProjectionID) },
		"resultId":                       func(r *revision.Revision) { r.ResultID = "x" },
		"numbered from 1":                func(r *revision.Revision) { r.Revision = 0 },
		"revision 1 has no predecessor":  func(r *revision.Revision) { r.Revision = 1 },
		"must name its predecessor":      func(r *revision.Revision) { r.Predecessor = nil },
		"it must be 1":                   func(r *revision.Revision) { r.Predecessor.Revision = 2 },
		"predecessor has no digest":      func(r *revision.Revision) { r.Predecessor.Digest = revision.Digest{} },
		"revision 1 cannot be a RETRACT": func(r *revision.Revision) { r.Revision, r.Predecessor, r.Op = 1, nil, revision.Retract },
		"neither UPSERT":                 func(r *revision.Revision) { r.Op = "DELETE" },
		"neither ON_TIME_EMITTED":        func(r *revision.Revision) { r.State = revision.Finalized },
		"none of ON_TIME":                func(r *revision.Revision) { r.Firing = "EARLY" },
		"origin 4":                       func(r *revision.Revision) { r.Origin = 4 },
		"cause is not named":             func(r *revision.Revision) { r.Cause = "" },
		"if and only if":                 func(r *revision.Revision) { r.Value = nil },
		"sorted and distinct":            func(r *revision.Revision) { r.Value[1].Name = r.Value[0].Name },
		"without a name":                 func(r *revision.Revision) { r.Delta[0].Name = "" },
		"must be quoted or an integer":   func(r *revision.Revision) { r.Value[1].Quoted = false },
		"key partition is negative":      func(r *revision.Revision) { r.Inputs.Partition = -1 },
		"inputs begin after":             func(r *revision.Revision) { r.Inputs.First = r.Inputs.Last + 1 },
		"at least one event":             func(r *revision.Revision) { r.Inputs.Events = 0 },
		"offsets of shop/1 begin after":  func(r *revision.Revision) { r.Inputs.Offsets[0].Last = 1 },
		"offsets must be sorted":         func(r *revision.Revision) { r.Inputs.Offsets = append(r.Inputs.Offsets, r.Inputs.Offsets[0]) },
		"RETRACT counts no events":       func(r *revision.Revision) { r.Op, r.Value = revision.Retract, nil },
	} {
		r := example()
		change(r)
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
}

func TestFinality(t *testing.T) {
	const day, gap = 24 * 3600 * 1_000_000, 11 * 60 * 1_000_000
	const none = envelope.MaxEventTime // no session is open
	r := example()
	end := r.Window.End
	for _, c := range []struct {
		rule    revision.Finality
		w, open envelope.EventTime
		want    revision.OutputState
	}{
		{revision.Finality{Lateness: day}, envelope.MinEventTime, none, revision.Corrected},
		{revision.Finality{Lateness: day}, end + day - 1, none, revision.Corrected},
		{revision.Finality{Lateness: day}, end + day, none, revision.Finalized},
		{revision.Finality{Lateness: day}, envelope.MaxEventTime, none, revision.Finalized},
		{revision.Finality{}, end, none, revision.Finalized},
		{revision.Finality{Lateness: 1<<63 - 1}, end + day, none, revision.Corrected},
		{revision.Finality{Lateness: 1<<63 - 1}, envelope.MaxEventTime, none, revision.Finalized},
		{revision.Finality{Lateness: day, Gap: gap}, end + day + gap - 1, none, revision.Corrected},
		{revision.Finality{Lateness: day, Gap: gap}, end + day + gap, none, revision.Finalized},
		{revision.Finality{Lateness: day, Gap: gap}, end + day + gap, end, revision.Finalized},
		{revision.Finality{Lateness: day, Gap: gap}, end + day + gap, end - 1, revision.Corrected},
	} {
		if got := c.rule.State(r, c.w, c.open); got != c.want {
			t.Errorf("%+v at W %s, open from %s: %s, want %s", c.rule, c.w, c.open, got, c.want)
		}
	}
	if got := (revision.Finality{Lateness: day}).State(nil, envelope.MaxEventTime, none); got != revision.Open {
		t.Errorf("a window never published is %s", got)
	}
}

func TestCanaryServes(t *testing.T) {
	served := 0
	for i := range 10_000 {
		key := strings.Repeat("k", i%7) + string(rune('a'+i%26)) + strings.Repeat("x", i/260) + string(rune(0x100+i))
		if revision.CanaryServes(key, 0) || !revision.CanaryServes(key, 100) {
			t.Fatalf("key %q at 0 or 100 percent", key)
		}
		for p := 1; p < 100; p += 14 {
			if revision.CanaryServes(key, p) && !revision.CanaryServes(key, p+1) {
				t.Fatalf("key %q is served at %d percent and not above", key, p)
			}
		}
		if revision.CanaryServes(key, 25) {
			served++
		}
	}
	if served < 2300 || served > 2700 {
		t.Errorf("25 percent serve %d of 10000 keys", served)
	}
	// SHA-256("eu-west") begins with 50121d09, which is 4361 mod 10,000.
	if revision.CanaryServes("eu-west", 43) || !revision.CanaryServes("eu-west", 44) {
		t.Error("the vector eu-west is served from another percentage on")
	}
}

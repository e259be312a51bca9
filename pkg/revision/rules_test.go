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

func TestStateAt(t *testing.T) {
	const day = 24 * 3600 * 1_000_000
	r := example()
	final := r.Window.End.Add(day)
	for _, c := range []struct {
		w    envelope.EventTime
		l    int64
		want revision.OutputState
	}{
		{envelope.MinEventTime, day, revision.Corrected},
		{final - 1, day, revision.Corrected},
		{final, day, revision.Finalized},
		{envelope.MaxEventTime, day, revision.Finalized},
		{r.Window.End, 0, revision.Finalized},
		{final, 1<<63 - 1, revision.Corrected},
		{envelope.MaxEventTime, 1<<63 - 1, revision.Finalized},
	} {
		if got := revision.StateAt(r, c.w, c.l); got != c.want {
			t.Errorf("at W %s with L %d: %s, want %s", c.w, c.l, got, c.want)
		}
	}
	if got := revision.StateAt(nil, envelope.MaxEventTime, day); got != revision.Open {
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

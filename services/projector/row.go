package projector

import (
	"encoding/json"
	"fmt"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Provenances of a result: whether the data itself reached the window's end.
const (
	provenanceData     = "DATA"
	provenanceExcluded = "IDLE_EXCLUDED"
	provenanceAdvanced = "IDLE_ADVANCED"
)

// row is one result as readers get it: what most of them want on top, and the revision
// as it stands in the revisions stream.
type row struct {
	Key              string               `json:"key"`
	Start            envelope.EventTime   `json:"start"`
	End              envelope.EventTime   `json:"end"`
	Revision         uint64               `json:"revision"`
	Op               revision.Op          `json:"op"`
	State            revision.OutputState `json:"state"`
	Value            json.RawMessage      `json:"value"`
	Job              string               `json:"job"`
	PolicyGeneration string               `json:"policyGeneration"`
	Firing           revision.Firing      `json:"firing"`
	ValueChanged     bool                 `json:"valueChanged"`
	Provenance       string               `json:"provenance"`
	ProjectionID     string               `json:"projectionId"`
	ResultID         string               `json:"resultId,omitempty"`     // sessions: one for one set of members
	Supersedes       []superseded         `json:"supersedes,omitempty"`   // sessions: what it took the place of
	SupersededBy     string               `json:"supersededBy,omitempty"` // sessions: projection that took its place
	Record           json.RawMessage      `json:"record"`
}

// superseded names a projection and the revision that retracted it.
type superseded struct {
	ProjectionID string `json:"projectionId"`
	Revision     uint64 `json:"revision"`
}

// renderCurrent answers the current row of a window under the watermarks committed last.
// The revision's own watermarks count as well: it may have been accepted in a commit
// that covers only a part of the windower's, whose watermarks are not committed yet.
func renderCurrent(p *policy.StreamTimePolicy, c *revision.Commit, text []byte) (json.RawMessage, error) {
	r, err := revision.ParseJSON(text)
	if err != nil {
		return nil, fmt.Errorf("row of the view: %w", err)
	}
	w, wdata, state := r.Watermark.At, r.Watermark.Data, r.State
	if c != nil {
		w, wdata, state = max(w, c.W), max(wdata, c.Wdata), finality(p).State(r, c.W, c.OpenFrom)
	}
	return render(r, text, state, provenance(p, w, wdata, r.Window.End))
}

// renderPast answers a row of the ledger: state and provenance as they were then.
func renderPast(p *policy.StreamTimePolicy, r *revision.Revision, text []byte) (json.RawMessage, error) {
	return render(r, text, r.State, provenance(p, r.Watermark.At, r.Watermark.Data, r.Window.End))
}

func render(r *revision.Revision, text []byte, state revision.OutputState, provenance string) (json.RawMessage, error) {
	value, err := fieldsJSON(r.Value)
	if err != nil {
		return nil, err
	}
	var supersedes []superseded
	for _, s := range r.Supersedes {
		supersedes = append(supersedes, superseded(s))
	}
	return json.Marshal(row{
		Key: r.Key, Start: r.Window.Start, End: r.Window.End, Revision: r.Revision, Op: r.Op, State: state,
		Value: value, Job: r.Job, PolicyGeneration: r.PolicyGeneration, Firing: r.Firing,
		ValueChanged: r.ValueChanged, Provenance: provenance,
		ProjectionID: r.ProjectionID, ResultID: r.ResultID, Supersedes: supersedes, SupersededBy: r.SupersededBy, Record: text,
	})
}

// finality is the rule by which windows of a policy become final.
func finality(p *policy.StreamTimePolicy) revision.Finality {
	return revision.Finality{Lateness: int64(p.AllowedLateness), Gap: int64(p.Window.Gap)}
}

// provenance says what carried the watermark over the window's end. DATA: every source
// partition's own event times did. Otherwise idleness had a part in it: partitions left
// out (IDLE_EXCLUDED), or, where the policy lets time pass when all are idle
// (allIdle: advance), possibly quiet time alone (IDLE_ADVANCED). The COMMITs do not tell
// these two apart, so a policy with allIdle: advance gets the weaker word.
func provenance(p *policy.StreamTimePolicy, w, wdata, end envelope.EventTime) string {
	switch {
	case wdata >= end:
		return provenanceData
	case w >= end && p.AllIdle == policy.Advance:
		return provenanceAdvanced
	}
	return provenanceExcluded
}

// fieldsJSON writes named results as one object in their order.
func fieldsJSON(fields []revision.Field) (json.RawMessage, error) {
	out := []byte{'{'}
	for i, f := range fields {
		if i > 0 {
			out = append(out, ',')
		}
		name, err := json.Marshal(f.Name)
		if err != nil {
			return nil, err
		}
		value := []byte(f.Text)
		if f.Quoted {
			if value, err = json.Marshal(f.Text); err != nil {
				return nil, err
			}
		}
		out = append(append(append(out, name...), ':'), value...)
	}
	return append(out, '}'), nil
}

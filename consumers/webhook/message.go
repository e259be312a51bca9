package webhook

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Types of messages.
const (
	TypeUpsert   = "revision.upsert"
	TypeRetract  = "revision.retract"
	TypeSwitched = "generation.switched"
)

// message is the body of a delivery.
type message struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      any       `json:"data"`
}

// revisionData is what receivers get of a revision: the members of revision.v1 that say
// what it is and what it replaces, as they were published.
type revisionData struct {
	Stream           json.RawMessage `json:"stream"`
	Job              json.RawMessage `json:"job"`
	PolicyGeneration json.RawMessage `json:"policyGeneration"`
	PolicyDigest     json.RawMessage `json:"policyDigest"`
	Key              json.RawMessage `json:"key"`
	Window           json.RawMessage `json:"window"`
	LogicalWindowID  json.RawMessage `json:"logicalWindowId"`
	ProjectionID     json.RawMessage `json:"projectionId"`
	Op               json.RawMessage `json:"op"`
	Revision         json.RawMessage `json:"revision"`
	Predecessor      json.RawMessage `json:"predecessor,omitempty"`
	State            json.RawMessage `json:"state,omitempty"`
	WindowState      json.RawMessage `json:"windowState,omitempty"`
	Firing           json.RawMessage `json:"firing"`
	Origin           json.RawMessage `json:"origin"`
	Cause            json.RawMessage `json:"cause"`
	ValueChanged     json.RawMessage `json:"valueChanged"`
	Value            json.RawMessage `json:"value"`
	Delta            json.RawMessage `json:"delta,omitempty"`
	AggregateDigest  json.RawMessage `json:"aggregateDigest"`
	Supersedes       json.RawMessage `json:"supersedes"`
	SupersededBy     json.RawMessage `json:"supersededBy,omitempty"`
}

// deliveryOf answers the delivery of a revision and its body.
func (e *Endpoint) deliveryOf(r *revision.Revision, generation int, now time.Time) (*Delivery, []byte, error) {
	if _, err := revision.ParseDigest(r.ProjectionID); err != nil {
		return nil, nil, fmt.Errorf("revision %d of projection %q: %w", r.Revision, r.ProjectionID, err)
	}
	d := &Delivery{
		ID: e.webhookID(r.ProjectionID, r.Revision), Type: TypeUpsert, ProjectionID: r.ProjectionID, Revision: r.Revision, Key: r.Key,
		Generation: generation, Digest: r.AggregateDigest.String(), State: StateQueued, QueuedAt: now, Due: now,
		Linked: r.SupersededBy != "" || len(r.Supersedes) > 0, TraceParent: r.TraceParent,
	}
	if r.Op == revision.Retract {
		d.Type = TypeRetract
	}
	var data revisionData
	if err := json.Unmarshal(r.AppendJSON(nil), &data); err != nil {
		return nil, nil, fmt.Errorf("revision %d of projection %s: %w", r.Revision, r.ProjectionID, err)
	}
	data.WindowState, data.State = data.State, nil
	if e.Mode == ModeUpsert {
		data.Delta = nil // against a predecessor that the receiver may never get
	}
	body, err := encode(message{d.Type, now, data})
	return d, body, err
}

// switchOf answers the delivery that tells of another generation. Readers can move from
// one to another and back, so the time is part of its name.
func (e *Endpoint) switchOf(from, to int, now time.Time) (*Delivery, []byte, error) {
	d := &Delivery{
		ID: fmt.Sprintf("%s_switch_%d_%d_%d", e.Name, from, to, now.UnixMicro()), Type: TypeSwitched, Generation: to,
		State: StateQueued, QueuedAt: now, Due: now,
	}
	body, err := encode(message{d.Type, now, map[string]any{
		"stream": e.Stream, "job": e.Job,
		"from": e.Job + "@" + strconv.Itoa(from), "policyGeneration": e.Job + "@" + strconv.Itoa(to),
	}})
	return d, body, err
}

// webhookID names a message for all its attempts. It has no dot: the dot separates what is
// signed.
func (e *Endpoint) webhookID(projectionID string, number uint64) string {
	return e.Name + "_" + projectionID + "_" + strconv.FormatUint(number, 10)
}

func encode(m message) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("body of a delivery: %w", err)
	}
	return body, nil
}

package config

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/effectrule"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

const (
	actionCreated   = "created"
	actionUpdated   = "updated"
	actionUnchanged = "unchanged"
)

// step is one document on its way into the bucket.
type step struct {
	doc     policy.Document
	key     string
	action  string
	applied uint64 // revision in the bucket that the step replaces
}

// Apply checks documents against what is applied and stores them: streams first, then
// policies, adapters and effect policies; provisions their journals; sets the canonical
// alias of a job's first generation; makes the highest new version of an effect policy
// active, by CONTROL records in every effects journal of its stream. Nothing is written
// if any document is refused. A changed document under an
// applied name or generation is a *ConflictError that names the differing field; one that
// lint or this version refuses is a *RefusedError. Applying again what is applied repairs
// what is missing and says unchanged.
func Apply(ctx context.Context, js jetstream.JetStream, docs []policy.Document, o Options) ([]Result, error) {
	snapshot, err := Load(ctx, js)
	if err != nil {
		return nil, err
	}
	steps, err := plan(docs, snapshot)
	if err != nil {
		return nil, err
	}
	active, err := activations(steps, docs, snapshot, o.Activate)
	if err != nil {
		return nil, err
	}
	if o.DryRun || len(steps) == 0 {
		return resultsOf(steps, active), nil
	}
	if err := natsio.Provision(ctx, js, o.Replicas); err != nil {
		return nil, err
	}
	bucket, err := js.KeyValue(ctx, subject.ConfigBucket)
	if err != nil {
		return nil, fmt.Errorf("config bucket: %w", err)
	}
	for i := range active {
		if err := active[i].intend(ctx, bucket); err != nil {
			return nil, err
		}
	}
	for _, s := range steps {
		if err := provision(ctx, js, s.doc, streamOf(s.doc, docs, snapshot), o.Replicas); err != nil {
			return nil, err
		}
		if err := store(ctx, bucket, s); err != nil {
			return nil, err
		}
	}
	for i := range active {
		if err := active[i].tell(ctx, js, bucket, o.Reason); err != nil {
			return nil, err
		}
	}
	results := resultsOf(steps, active)
	return results, audit(ctx, js, steps, results, o.Reason)
}

func resultsOf(steps []step, active []activation) []Result {
	results := make([]Result, len(steps))
	for i, s := range steps {
		results[i] = Result{Kind: s.doc.Kind(), Name: s.doc.Name(), Action: s.action, Digest: s.doc.Digest()}
		for _, a := range active {
			if s.doc.Effect != nil && a.policy.Name() == s.doc.Name() {
				results[i].Active = a.state
			}
		}
	}
	return results
}

// plan decides every document before anything is written.
func plan(docs []policy.Document, snapshot Snapshot) ([]step, error) {
	var steps []step
	for _, doc := range docs {
		s := step{doc: doc, key: keyOf(doc), action: actionCreated}
		if slices.ContainsFunc(steps, func(other step) bool { return other.key == s.key && other.doc.Digest() == doc.Digest() }) {
			continue // the same document in two files
		}
		if entry, found := snapshot.Find(doc); found {
			if err := conflict(entry, doc); err != nil {
				return nil, err
			}
			s.applied, s.action = entry.Revision, actionUpdated
			if entry.Digest == doc.Digest() {
				s.action = actionUnchanged
			}
		}
		steps = append(steps, s)
	}
	if findings := Lint(docs, snapshot.Documents()); len(findings) > 0 {
		return nil, &RefusedError{Findings: findings}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return rank(a.doc, b.doc) })
	return steps, nil
}

// Lint answers what policy.Lint finds, and what is wrong with the expressions.
func Lint(docs, applied []policy.Document) []policy.Finding {
	return append(policy.Lint(docs, applied), effectrule.Lint(docs, applied)...)
}

// keyOf answers the key of a document in the bucket.
func keyOf(doc policy.Document) string {
	switch {
	case doc.Policy != nil:
		return subject.ConfigPolicy(doc.Policy.Stream, doc.Policy.Job, doc.Policy.Generation)
	case doc.Effect != nil:
		return subject.ConfigEffectPolicy(doc.Effect.Stream, doc.Effect.Name, doc.Effect.Version)
	case doc.Adapter != nil:
		return subject.ConfigAdapter(doc.Adapter.Name, doc.Adapter.Version)
	}
	return subject.ConfigStream(doc.Stream.Name)
}

// order answers when a document is stored: what others need comes before them.
func order(doc policy.Document) int {
	kinds := []string{policy.KindBusinessStream, policy.KindStreamTimePolicy, policy.KindAdapter, policy.KindEffectPolicy}
	return slices.Index(kinds, doc.Kind())
}

// rank puts documents in the order of their kinds, and generations and versions in order.
func rank(a, b policy.Document) int {
	if by := cmp.Compare(order(a), order(b)); by != 0 {
		return by
	}
	switch {
	case a.Stream != nil:
		return strings.Compare(a.Name(), b.Name())
	case a.Effect != nil:
		return cmp.Or(strings.Compare(a.Effect.Stream, b.Effect.Stream), strings.Compare(a.Effect.Name, b.Effect.Name), cmp.Compare(a.Effect.Version, b.Effect.Version))
	case a.Adapter != nil:
		return cmp.Or(strings.Compare(a.Adapter.Name, b.Adapter.Name), cmp.Compare(a.Adapter.Version, b.Adapter.Version))
	}
	return cmp.Or(
		strings.Compare(a.Policy.Stream, b.Policy.Stream),
		strings.Compare(a.Policy.Job, b.Policy.Job),
		cmp.Compare(a.Policy.Generation, b.Policy.Generation),
	)
}

// conflict answers the *ConflictError of a change that an applied document does not allow.
func conflict(entry Entry, doc policy.Document) error {
	applied := entry.Document()
	diffs := policy.Differing(applied, doc)
	if len(diffs) == 0 {
		return nil
	}
	if doc.Stream != nil && doc.Stream.SchemaGeneration > entry.Stream.SchemaGeneration {
		diffs = slices.DeleteFunc(diffs, func(d policy.FieldDiff) bool {
			gained := d.Old == "" && (strings.HasPrefix(d.Field, "values.") || strings.HasPrefix(d.Field, "eventTime."))
			return gained || d.Field == "schemaGeneration"
		})
	}
	if len(diffs) == 0 {
		return nil
	}
	// The number of key partitions is what a reader of the error must know first: it is
	// the one that can never change.
	first := max(0, slices.IndexFunc(diffs, func(d policy.FieldDiff) bool { return d.Field == "partitions" }))
	d := diffs[first]
	return &ConflictError{Kind: doc.Kind(), Name: doc.Name(), Field: d.Field, Applied: d.Old, Given: d.New}
}

func streamOf(doc policy.Document, docs []policy.Document, snapshot Snapshot) *policy.BusinessStream {
	for _, other := range append(slices.Clone(docs), snapshot.Documents()...) {
		if other.Stream != nil && other.Stream.Name == doc.BusinessStream() {
			return other.Stream
		}
	}
	return doc.Stream
}

// provision makes sure of the journals of a document before services can see it.
func provision(ctx context.Context, js jetstream.JetStream, doc policy.Document, bs *policy.BusinessStream, replicas int) error {
	switch {
	case doc.Stream != nil:
		return natsio.ProvisionStream(ctx, js, bs.Name, bs.Partitions, replicas)
	case doc.Effect != nil:
		return natsio.ProvisionEffects(ctx, js, bs.Name, bs.Partitions, replicas)
	case doc.Adapter != nil:
		return nil
	}
	p := doc.Policy
	if err := natsio.ProvisionPolicy(ctx, js, p.Stream, p.Job, p.Generation, bs.Partitions, replicas); err != nil {
		return err
	}
	return ensureAlias(ctx, js, p)
}

// ensureAlias makes the first applied generation of a job canonical; later ones find an
// alias there and leave it alone.
func ensureAlias(ctx context.Context, js jetstream.JetStream, p *policy.StreamTimePolicy) error {
	alias := revision.Alias{Job: p.Job, Canonical: p.Generation, Epoch: 1}
	message := &nats.Msg{Subject: subject.Alias(p.Stream, p.Job), Header: nats.Header{}, Data: alias.AppendJSON(nil)}
	message.Header.Set(subject.HeaderSchema, revision.SchemaAlias)
	_, err := js.PublishMsg(ctx, message,
		jetstream.WithExpectStream(subject.RevisionsStream(p.Stream)),
		jetstream.WithExpectLastSequencePerSubject(0))
	var refused *jetstream.APIError
	if errors.As(err, &refused) && (refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || refused.ErrorCode == wrongLastSequenceReplicated) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("canonical alias of %s/%s: %w", p.Stream, p.Job, err)
	}
	return nil
}

// wrongLastSequenceReplicated is what replicated streams answer for the same conflict.
const wrongLastSequenceReplicated jetstream.ErrorCode = 10164

// store writes one document; a race with another apply is a conflict unless both wrote the same.
func store(ctx context.Context, bucket jetstream.KeyValue, s step) error {
	var err error
	switch s.action {
	case actionUnchanged:
		return nil
	case actionCreated:
		_, err = bucket.Create(ctx, s.key, encode(s.doc))
	default:
		_, err = bucket.Update(ctx, s.key, encode(s.doc), s.applied)
	}
	if err == nil {
		return nil
	}
	now, loadErr := bucket.Get(ctx, s.key)
	if loadErr != nil {
		return fmt.Errorf("storing %s %s: %w", s.doc.Kind(), s.doc.Name(), err)
	}
	entry, decodeErr := decode(s.key, now.Revision(), now.Value())
	if decodeErr != nil {
		return decodeErr
	}
	if entry.Digest == s.doc.Digest() {
		return nil
	}
	applied := entry.Document()
	if diffs := policy.Differing(applied, s.doc); now.Revision() != s.applied && len(diffs) > 0 {
		return &ConflictError{Kind: s.doc.Kind(), Name: s.doc.Name(), Field: diffs[0].Field, Applied: diffs[0].Old, Given: diffs[0].New}
	}
	return fmt.Errorf("storing %s %s: %w", s.doc.Kind(), s.doc.Name(), err)
}

// audit writes one record a business stream, and one of adapters: who applied what and why.
// When is the time at which the journal took it.
func audit(ctx context.Context, js jetstream.JetStream, steps []step, results []Result, reason string) error {
	byStream := map[string][]Result{}
	for i, r := range results {
		bs := steps[i].doc.BusinessStream()
		byStream[bs] = append(byStream[bs], r)
	}
	for _, bs := range slices.Sorted(maps.Keys(byStream)) {
		record, err := json.Marshal(struct {
			Who       string   `json:"who"`
			Verb      string   `json:"verb"`
			Reason    string   `json:"reason,omitempty"`
			Documents []Result `json:"documents"`
		}{Operator(), "apply", reason, byStream[bs]})
		if err != nil {
			return fmt.Errorf("audit record: %w", err)
		}
		if _, err := js.Publish(ctx, subject.Audit(bs, "apply"), record, jetstream.WithExpectStream(subject.AuditStream)); err != nil {
			return fmt.Errorf("the documents are applied, but the audit record of it is not written: %w; apply again", err)
		}
	}
	return nil
}

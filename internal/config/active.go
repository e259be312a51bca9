package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Active is what `apply` last made active for an effect type, and in which effects
// journals it has said so. The journals decide; this only spares reading them.
type Active struct {
	Stream     string                  `json:"stream"`
	EffectType string                  `json:"effectType"`
	Activate   effectlog.Activate      `json:"activate"`
	Journals   map[string]ActivatedFor `json:"journals"` // by stream name
	Revision   uint64                  `json:"-"`        // of the bucket
}

// ActivatedFor is a journal that has the CONTROL records: which one, since a stream of
// that name may be made anew, and where its last one stands.
type ActivatedFor struct {
	Created  int64  `json:"created"`
	Sequence uint64 `json:"sequence"`
}

// States of an effect policy version in a Result.
const (
	activated     = "activated"
	alreadyActive = "active"
	inactive      = "inactive"
)

// IsActive tells whether an entry is the version of an effect policy that apply last made
// active.
func (s Snapshot) IsActive(e Entry) bool {
	return e.Effect != nil && slices.ContainsFunc(s.Active, func(a Active) bool {
		return a.Stream == e.Effect.Stream && a.EffectType == e.Effect.EffectType && a.Activate.Policy == e.Effect.Ref()
	})
}

func decodeActive(key string, revision uint64, data []byte) (Active, error) {
	var a Active
	if err := json.Unmarshal(data, &a); err != nil {
		return Active{}, &damagedError{key: key, revision: revision, cause: err.Error()}
	}
	if subject.ConfigActive(a.Stream, a.EffectType) != key || a.Activate.EffectType != a.EffectType {
		return Active{}, &damagedError{key: key, revision: revision, cause: "it speaks of another effect type"}
	}
	a.Revision = revision
	return a, nil
}

// activation is an effect policy on its way into the effects journals.
type activation struct {
	bs     *policy.BusinessStream
	policy policy.Document
	want   effectlog.Activate
	before Active // what apply made active last; its Revision is 0 where there is none
	state  string // of the policy afterwards
}

// activations decides which of the given effect policies become active: of each effect
// type the highest version given, unless a version was made active that is not lower and
// nothing new is given, so that applying again undoes no one's choice. force takes the
// highest version given whatever is active.
func activations(steps []step, docs []policy.Document, snapshot Snapshot, force bool) ([]activation, error) {
	var out []activation
	all := slices.Concat(docs, snapshot.Documents())
	for _, s := range steps {
		p := s.doc.Effect
		if p == nil {
			continue
		}
		a := activation{bs: streamOf(s.doc, docs, snapshot), policy: s.doc, state: inactive}
		adapter := slices.IndexFunc(all, func(d policy.Document) bool { return d.Adapter != nil && d.Adapter.Ref() == p.Adapter })
		if adapter < 0 {
			return nil, fmt.Errorf("%s %s: adapter %s is not applied; apply its document first", s.doc.Kind(), s.doc.Name(), p.Adapter)
		}
		a.want = effectlog.Activate{EffectType: p.EffectType, Policy: p.Ref(), Adapter: p.Adapter}
		var err error
		if a.want.PolicyDigest, err = revision.ParseDigest(s.doc.Digest()); err != nil {
			return nil, fmt.Errorf("digest of %s: %w", s.doc.Name(), err)
		}
		if a.want.AdapterDigest, err = revision.ParseDigest(all[adapter].Digest()); err != nil {
			return nil, fmt.Errorf("digest of adapter %s: %w", p.Adapter, err)
		}
		if i := slices.IndexFunc(snapshot.Active, func(x Active) bool { return x.Stream == p.Stream && x.EffectType == p.EffectType }); i >= 0 {
			a.before = snapshot.Active[i]
		}
		_, now, _ := policy.ParsePolicyGeneration(a.before.Activate.Policy) // 0 where nothing was made active
		highest := !slices.ContainsFunc(steps, func(o step) bool {
			q := o.doc.Effect
			return q != nil && q.Stream == p.Stream && q.EffectType == p.EffectType && q.Version > p.Version
		})
		switch {
		case a.before.Activate == a.want && (highest || !force):
			a.state = alreadyActive
		case highest && (force || now == 0 || s.action == actionCreated && p.Version > now):
			a.state = activated
		}
		out = append(out, a)
	}
	// A version that is active already gives way to a higher one that becomes active now.
	for i := range out {
		if out[i].state == alreadyActive && slices.ContainsFunc(out, func(o activation) bool {
			return o.state == activated && o.policy.BusinessStream() == out[i].policy.BusinessStream() && o.want.EffectType == out[i].want.EffectType
		}) {
			out[i].state = inactive
		}
	}
	return out, nil
}

// intend notes in the bucket what is about to be made active, before any journal is told:
// an apply that was cut off is finished by the next one.
func (a *activation) intend(ctx context.Context, bucket jetstream.KeyValue) error {
	if a.state != activated {
		return nil
	}
	next := Active{Stream: a.bs.Name, EffectType: a.want.EffectType, Activate: a.want, Journals: map[string]ActivatedFor{}, Revision: a.before.Revision}
	return a.note(ctx, bucket, next)
}

func (a *activation) note(ctx context.Context, bucket jetstream.KeyValue, next Active) error {
	data, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("activation of %s: %w", a.policy.Name(), err)
	}
	key := subject.ConfigActive(next.Stream, next.EffectType)
	if next.Revision == 0 {
		next.Revision, err = bucket.Create(ctx, key, data)
	} else {
		next.Revision, err = bucket.Update(ctx, key, data, next.Revision)
	}
	var refused *jetstream.APIError
	if errors.Is(err, jetstream.ErrKeyExists) || errors.As(err, &refused) && (refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || refused.ErrorCode == wrongLastSequenceReplicated) {
		return fmt.Errorf("another apply made a version of %s/%s active meanwhile; look with `tidemark get`, then apply again: %w", next.Stream, next.EffectType, err)
	}
	if err != nil {
		return fmt.Errorf("activation of %s: %w", a.policy.Name(), err)
	}
	a.before = next
	return nil
}

// tell writes CONTROL records into every effects journal that does not have them: the
// canonical generation of the job, then the active version. Records that stand there
// already count for nothing.
func (a *activation) tell(ctx context.Context, js jetstream.JetStream, bucket jetstream.KeyValue, reason string) error {
	if a.state == inactive {
		return nil
	}
	next := a.before
	next.Journals = map[string]ActivatedFor{}
	alias, err := canonical(ctx, js, a.bs.Name, a.policy.Effect.Job)
	if err != nil {
		return err
	}
	news := false
	for pp := range a.bs.Partitions {
		name := subject.EffectsStream(a.bs.Name, pp)
		stream, err := js.Stream(ctx, name)
		if err != nil {
			return fmt.Errorf("effects journal %s: %w", name, err)
		}
		info := stream.CachedInfo()
		created := subject.Created(info.Config.Metadata, info.Created)
		if had := a.before.Journals[name]; had.Created == created && had.Sequence > 0 && had.Sequence <= info.State.LastSeq {
			next.Journals[name] = had
			continue
		}
		news = true
		seq, err := control(ctx, js, a.bs.Name, pp, info.State.LastSeq, reason, alias, &a.want)
		if err != nil {
			return err
		}
		next.Journals[name] = ActivatedFor{Created: created, Sequence: seq}
	}
	if !news {
		return nil
	}
	if a.state == alreadyActive {
		a.state = activated
	}
	return a.note(ctx, bucket, next)
}

// control appends the records to one journal and answers the sequence of the last.
func control(ctx context.Context, js jetstream.JetStream, bs string, pp int, last uint64, reason string, alias *effectlog.Alias, want *effectlog.Activate) (uint64, error) {
	name := subject.EffectsStream(bs, pp)
	if reason == "" {
		reason = "apply"
	}
	for _, record := range []effectlog.Control{{Alias: alias}, {Activate: want}} {
		record.Stamp = effectlog.Stamp{ID: uuid.NewString(), Basis: last, Who: bound(Operator(), effect.MaxName), Reason: bound(reason, effect.MaxReason), At: effect.Time(clock.System().Now().UnixMicro())}
		data, err := record.Encode()
		if err != nil {
			return 0, fmt.Errorf("CONTROL record for %s: %w", name, err)
		}
		if last, err = journal.AppendControl(ctx, js, name, subject.Effects(bs, pp), data); err != nil {
			return 0, fmt.Errorf("the documents are applied, but effects journal %s was not told which version is active: %w; apply again", name, err)
		}
	}
	return last, nil
}

// bound cuts text to most bytes, at the end of a character.
func bound(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}

// canonical answers a job's alias, as the revisions journal has it.
func canonical(ctx context.Context, js jetstream.JetStream, bs, job string) (*effectlog.Alias, error) {
	stream, err := js.Stream(ctx, subject.RevisionsStream(bs))
	if err != nil {
		return nil, fmt.Errorf("revisions journal of %s: %w", bs, err)
	}
	message, err := stream.GetLastMsgForSubject(ctx, subject.Alias(bs, job))
	if err != nil {
		return nil, fmt.Errorf("canonical alias of %s/%s: %w; apply a generation of the job first", bs, job, err)
	}
	alias, err := revision.ParseAlias(message.Data)
	if err != nil {
		return nil, fmt.Errorf("canonical alias of %s/%s: %w", bs, job, err)
	}
	return &effectlog.Alias{Job: job, Epoch: alias.Epoch, Canonical: alias.Canonical, Switching: alias.Switching != 0}, nil
}

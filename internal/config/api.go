// Package config keeps documents in the tm_config bucket and tells services when they change.
package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// CoreVersion is raised whenever the pure core could produce other records from the same
// journal. It is pinned in a generation at its first apply.
const CoreVersion = window.CoreVersion

// Entry is one applied document.
type Entry struct {
	Stream      *policy.BusinessStream   // one of the four is set
	Policy      *policy.StreamTimePolicy //
	Effect      *policy.EffectPolicy     //
	Adapter     *policy.Adapter          //
	Digest      string
	CoreVersion int    // policies
	Canonical   []byte // canonical JSON of the parsed document
	Revision    uint64 // of the bucket
}

// Document answers the entry as a document without file and line.
func (e *Entry) Document() policy.Document {
	return policy.Document{Stream: e.Stream, Policy: e.Policy, Effect: e.Effect, Adapter: e.Adapter}
}

// Snapshot is every applied document, sorted by name (policies: stream, job, generation;
// effect policies: stream, name, version; adapters: name, version).
type Snapshot struct {
	Streams        []Entry
	Policies       []Entry
	EffectPolicies []Entry
	Adapters       []Entry
	Active         []Active // sorted by stream and effect type
}

// Entries answers every document's entry: streams, policies, adapters, effect policies.
func (s Snapshot) Entries() []Entry {
	return slices.Concat(s.Streams, s.Policies, s.Adapters, s.EffectPolicies)
}

// Documents answers every document, in the order of Entries.
func (s Snapshot) Documents() []policy.Document {
	entries := s.Entries()
	out := make([]policy.Document, len(entries))
	for i := range entries {
		out[i] = entries[i].Document()
	}
	return out
}

// Find answers the applied document that doc would replace: same kind and name.
func (s Snapshot) Find(doc policy.Document) (Entry, bool) {
	for _, e := range s.Entries() {
		applied := e.Document()
		if applied.Kind() == doc.Kind() && applied.Name() == doc.Name() {
			return e, true
		}
	}
	return Entry{}, false
}

// Options of Apply.
type Options struct {
	Replicas int    // of the journals that are created: 1 or 3
	DryRun   bool   // check and plan, write nothing
	Activate bool   // make the effect policies active even where another version is
	Reason   string // why, for the audit record
}

// Result says what Apply did, or with DryRun would do, with one document.
type Result struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Action string `json:"action"` // created, updated (a stream that gained values or extractors), unchanged
	Digest string `json:"digest"`
	// Active says of effect policies whether effects are made by this version now:
	// activated, active or inactive.
	Active string `json:"active,omitempty"`
}

// ConflictError is a changed document under a name or generation already applied (exit 4).
type ConflictError struct {
	Kind, Name string
	Field      string // the first field that differs
	Applied    string // its values as JSON; "" where the field is absent
	Given      string
}

func (e *ConflictError) Error() string {
	advice := "a version never changes: write the change under a higher version"
	switch e.Kind {
	case policy.KindStreamTimePolicy:
		advice = "a generation never changes: write the change under a higher generation"
	case policy.KindBusinessStream:
		advice = "an applied stream only gains values and extractors, together with a higher schemaGeneration: for any other change use another stream"
	}
	return fmt.Sprintf("%s %s is already applied with another %s (applied: %s, given: %s); %s",
		e.Kind, e.Name, e.Field, orAbsent(e.Applied), orAbsent(e.Given), advice)
}

func orAbsent(text string) string {
	if text == "" {
		return "absent"
	}
	return text
}

// RefusedError carries what lint found, or what this version cannot run (exit 5).
type RefusedError struct {
	Findings []policy.Finding
}

func (e *RefusedError) Error() string {
	lines := make([]string, len(e.Findings))
	for i, f := range e.Findings {
		lines[i] = f.String()
	}
	return "nothing was applied:\n" + strings.Join(lines, "\n")
}

// value is what stands in the bucket.
type value struct {
	APIVersion  string          `json:"apiVersion"`
	Kind        string          `json:"kind"`
	Document    json.RawMessage `json:"document"` // canonical
	Digest      string          `json:"digest"`
	CoreVersion int             `json:"coreVersion,omitempty"` // policies
}

// encode answers the bucket's value of a document.
func encode(doc policy.Document) []byte {
	v := value{APIVersion: policy.APIVersion, Kind: doc.Kind(), Document: doc.Canonical(), Digest: doc.Digest()}
	if doc.Policy != nil {
		v.CoreVersion = CoreVersion
	}
	out, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("config: a canonical document is JSON: %v", err))
	}
	return out
}

// decode reads a bucket's value and checks its digest.
func decode(key string, revision uint64, data []byte) (Entry, error) {
	damaged := func(cause any) (Entry, error) {
		return Entry{}, &damagedError{key: key, revision: revision, cause: fmt.Sprint(cause)}
	}
	var v value
	if err := json.Unmarshal(data, &v); err != nil {
		return damaged(err)
	}
	doc, err := policy.FromCanonical(v.Document)
	if err != nil {
		return damaged(err)
	}
	if got := doc.Digest(); got != v.Digest {
		return damaged(fmt.Sprintf("its digest is %s, not %s as stored", got, v.Digest))
	}
	return Entry{
		Stream: doc.Stream, Policy: doc.Policy, Effect: doc.Effect, Adapter: doc.Adapter, Digest: v.Digest, CoreVersion: v.CoreVersion,
		Canonical: doc.Canonical(), Revision: revision,
	}, nil
}

// damagedError is a value of the bucket that no apply can have written.
type damagedError struct {
	key      string
	revision uint64
	cause    string
}

func (e *damagedError) Error() string {
	return fmt.Sprintf("document %s in the config bucket, revision %d, is damaged: %s; put back an older value from `nats kv history %s %s`", e.key, e.revision, e.cause, subject.ConfigBucket, e.key)
}

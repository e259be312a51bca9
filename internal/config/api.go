// Package config keeps documents in the tm_config bucket and tells services when they change.
package config

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// CoreVersion is raised whenever the pure core could produce other records from the same
// journal. It is pinned in a generation at its first apply.
const CoreVersion = 1

// Entry is one applied document.
type Entry struct {
	Stream      *policy.BusinessStream   // one of the two is set
	Policy      *policy.StreamTimePolicy //
	Digest      string
	CoreVersion int    // policies
	Canonical   []byte // canonical JSON of the parsed document
	Revision    uint64 // of the bucket
}

// Snapshot is every applied document, sorted by name (policies: stream, job, generation).
type Snapshot struct {
	Streams  []Entry
	Policies []Entry
}

// Result says what Apply did with one document.
type Result struct {
	Kind, Name, Action, Digest string // Action: created, unchanged
}

// Apply checks documents against what is applied and stores them: streams first, then
// policies; provisions their streams; sets the canonical alias of a job's first
// generation. Nothing is written if any document is refused. A changed document under an
// applied name or generation is a *ConflictError that names the differing field.
func Apply(ctx context.Context, js jetstream.JetStream, docs []policy.Document, replicas int, dryRun bool) ([]Result, error) {
	panic("contract only")
}

// ConflictError is a changed document under a name or generation already applied (exit 4).
type ConflictError struct {
	Name, Field, Applied, Given string
}

func (e *ConflictError) Error() string { panic("contract only") }

// Load reads every document.
func Load(ctx context.Context, js jetstream.JetStream) (Snapshot, error) { panic("contract only") }

// Watch calls changed with every new snapshot, the first one at once, until ctx ends.
// It outlives reconnects.
func Watch(ctx context.Context, js jetstream.JetStream, changed func(Snapshot)) error {
	panic("contract only")
}

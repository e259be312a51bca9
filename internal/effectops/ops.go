// Package effectops is what operators do with effects: list and show them, put commands
// about them into the effects journals, and open and close gates. The command line and the
// HTTP API are both made of it.
//
// Everything is read from the effects journals and verified there, so it works without the
// effector; what changes an effect is done by the owner of its key partition, which answers
// each command in the journal. Reading takes time and memory in proportion to the journals:
// the last record of every effect is held.
package effectops

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Errors of this package.
var (
	// ErrNoEffects: the business stream has no effects journals.
	ErrNoEffects = errors.New("no effects journal")
	// ErrNotFound: no journal has an effect with that key.
	ErrNotFound = errors.New("no such effect")
	// ErrOtherDigest: what was shown is not what would be sent now.
	ErrOtherDigest = errors.New("the payload is not the one that was shown")
	// ErrDamaged: a journal holds what no owner may have written.
	ErrDamaged = errors.New("effects journal does not verify")
)

// Ops works on the effects of one business stream. Its methods may be used by several
// goroutines.
type Ops struct {
	js         jetstream.JetStream
	stream     string
	partitions int
	clk        clock.Clock
}

// New answers the operator's side of a business stream with so many key partitions.
func New(js jetstream.JetStream, stream string, partitions int) *Ops {
	return &Ops{js: js, stream: stream, partitions: partitions, clk: clock.System()}
}

// Person is who decides, and why; both stand in every record that is written.
type Person struct {
	Who    string
	Reason string
}

// stamp makes the stamp of a record for a journal that ends at basis.
func (o *Ops) stamp(id string, basis uint64, p Person) effectlog.Stamp {
	return effectlog.Stamp{ID: id, Basis: basis, Who: p.Who, Reason: p.Reason, At: effect.Time(o.clk.Now().UnixMicro())}
}

func newID() string { return uuid.NewString() }

// audit notes an act in the audit journal. It comes before the act, and again behind it
// with the results.
func (o *Ops) audit(ctx context.Context, verb string, p Person, details map[string]any) error {
	details["by"] = p.Who
	return config.Audit(ctx, o.js, o.stream, verb, p.Reason, details)
}

// Partitions answers how many key partitions the business stream has.
func (o *Ops) Partitions() int { return o.partitions }

func (o *Ops) identity(ctx context.Context, pp int) (journal.Identity, error) {
	id, err := journal.Identify(ctx, o.js, subject.EffectsStream(o.stream, pp))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return id, fmt.Errorf("%s, key partition %d: %w; apply an effect policy first", o.stream, pp, ErrNoEffects)
	}
	return id, err
}

// append writes a foreign record into the journal of a partition.
func (o *Ops) append(ctx context.Context, pp int, record []byte) (uint64, error) {
	return journal.AppendControl(ctx, o.js, subject.EffectsStream(o.stream, pp), subject.Effects(o.stream, pp), record)
}

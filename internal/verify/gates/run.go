package gates

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/verify/oracle"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Errors of Run; use errors.Is.
var (
	// ErrUnknownStream tells that no document of that name is applied.
	ErrUnknownStream = errors.New("nothing to verify")
	// ErrBeyondOracle tells that a policy asks for what the oracle cannot recompute.
	ErrBeyondOracle = errors.New("cannot be verified by this version")
)

// Options narrow a run.
type Options struct {
	Generation string                   // "job@n"; "" = every generation
	Key        string                   // compare this key only
	From, To   envelope.EventTime       // compare windows with start in [From, To); To 0 = no bound
	Progress   func(done, total uint64) // events journal messages read; may be nil
}

// covers answers whether a window is within the options.
func (o *Options) covers(key string, start envelope.EventTime) bool {
	return (o.Key == "" || o.Key == key) && (o.From == 0 || start >= o.From) && (o.To == 0 || start < o.To)
}

// unit is one (policy generation, key partition) under verification.
type unit struct {
	entry    config.Entry
	pp       int
	oracle   *oracle.Oracle
	accepted *accepted              // what readers see
	proposed *proposed              // what the windows journal says
	until    revision.InputPosition // how far the oracle goes in the events journal
	in       uint64                 // events of the policy's sources up to until, each frame once
	keys     map[string]bool        // of these events; sessions only
	refused  []string               // answers to REOPENs, by the oracle
}

// Run verifies a business stream. An error means that it could not be verified, not
// that a gate failed.
func Run(ctx context.Context, js jetstream.JetStream, stream string, o Options) (Report, error) {
	snapshot, err := config.Load(ctx, js)
	if err != nil {
		return Report{}, err
	}
	bs := findStream(snapshot, stream)
	if bs == nil {
		return Report{}, fmt.Errorf("%w: business stream %s is not applied; `tidemark get` lists what is", ErrUnknownStream, stream)
	}
	t := newTally()
	report := Report{Stream: stream}
	var units []*unit
	for _, entry := range snapshot.Policies {
		p := entry.Policy
		if p.Stream != stream || o.Generation != "" && p.PolicyGeneration() != o.Generation {
			continue
		}
		report.Generations = append(report.Generations, p.PolicyGeneration())
		for pp := range bs.Partitions {
			u, err := newUnit(ctx, js, t, bs, entry, pp)
			if err != nil {
				return Report{}, fmt.Errorf("%s key partition %s: %w", p.PolicyGeneration(), subject.PP(pp), err)
			}
			units = append(units, u)
		}
	}
	if len(units) == 0 && o.Generation == "" {
		return Report{}, fmt.Errorf("%w: business stream %s has no policy; apply one with `tidemark apply`", ErrUnknownStream, stream)
	}
	if len(units) == 0 {
		return Report{}, fmt.Errorf("%w: business stream %s has no policy generation %s; `tidemark get` lists those that are applied", ErrUnknownStream, stream, o.Generation)
	}
	if err := readInputs(ctx, js, t, bs, units, &report, o.Progress); err != nil {
		return Report{}, err
	}
	for _, u := range units {
		u.compare(t, &o, &report)
	}
	report.Gates = t.gates()
	report.Notes = t.notes
	report.OK = true
	for _, g := range report.Gates {
		report.OK = report.OK && g.OK
	}
	return report, nil
}

func findStream(s config.Snapshot, name string) *policy.BusinessStream {
	for _, e := range s.Streams {
		if e.Stream.Name == name {
			return e.Stream
		}
	}
	return nil
}

// newUnit reads what readers see and what the windows journal says, up to one COMMIT of
// the projector that covers whole marks.
func newUnit(ctx context.Context, js jetstream.JetStream, t *tally, bs *policy.BusinessStream, entry config.Entry, pp int) (*unit, error) {
	p := entry.Policy
	o, err := oracle.New(bs, p)
	if err != nil {
		return nil, beyond(err)
	}
	u := &unit{entry: entry, pp: pp}
	u.watch(o)
	for {
		if u.accepted, err = readAccepted(ctx, js, t, bs.Name, p, pp); err != nil {
			return nil, err
		}
		windows := revision.InputPosition{Seq: 1}
		if u.accepted.commit != nil {
			windows = u.accepted.commit.Inputs[0]
		}
		if u.proposed, err = readProposed(ctx, js, bs.Name, entry, pp, windows); err != nil {
			return nil, err
		}
		u.until = revision.InputPosition{Seq: 1}
		if u.proposed.commit != nil {
			u.until = u.proposed.commit.Inputs[0]
		}
		if u.until.Outputs == 0 && windows.Index == 0 {
			u.accepted.report(t)
			u.proposed.report(t)
			return u, nil
		}
		// In the middle of a mark's outputs: what readers see is no state of the oracle. It soon will be.
		if err := pause(ctx); err != nil {
			return nil, fmt.Errorf("the outputs of one mark were not all accepted in time: %w", err)
		}
	}
}

// beyond says why a policy cannot be verified, and what to do.
func beyond(cause error) error {
	return fmt.Errorf("%w: %w; verify another generation with --generation, or use a version that knows such policies", ErrBeyondOracle, cause)
}

// watch makes o the unit's oracle and notes what it answers to REOPENs.
func (u *unit) watch(o *oracle.Oracle) {
	u.oracle = o
	if u.entry.Policy.Window.Kind == policy.Session {
		u.keys = map[string]bool{}
	}
	o.Watch(func(out oracle.Output) {
		if r := out.Refused; r != nil {
			u.refused = append(u.refused, refusedText(r.Key, r.Epoch, r.AsOf.Seq, r.AsOf.Index, r.Why))
		}
	})
}

func pause(ctx context.Context) error {
	timer := clock.System().NewTimer(pauseTime)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return nil
	}
}

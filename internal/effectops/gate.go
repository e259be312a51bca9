package effectops

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/journal"
)

// Placed is the CONTROL record of a gate in the journal of one partition.
type Placed struct {
	Partition int    `json:"partition"`
	Sequence  uint64 `json:"sequence"`

	acknowledged time.Time // on our monotonic clock, after the journal had it
}

// controlTries bounds how often a record that landed too late is written again.
const controlTries = 4

// Resume opens the gate of a scope in every key partition. Effects that were never sent
// are judged again before any goes.
func (o *Ops) Resume(ctx context.Context, scope effectlog.Scope, p Person) ([]Placed, error) {
	if err := o.audit(ctx, "gate-resume", p, map[string]any{"scope": scope}); err != nil {
		return nil, err
	}
	placed, _, err := o.move(ctx, effectlog.Gate{Scope: scope}, p)
	return placed, err
}

// move writes the CONTROL into every journal, all at once so that a pause is quick, and
// answers the fold of each up to its record.
func (o *Ops) move(ctx context.Context, gate effectlog.Gate, p Person) ([]Placed, []*ledgerOf, error) {
	placed, folds, errs := make([]Placed, o.partitions), make([]*ledgerOf, o.partitions), make([]error, o.partitions)
	var all sync.WaitGroup
	for pp := range o.partitions {
		all.Go(func() {
			placed[pp], folds[pp], errs[pp] = o.moveIn(ctx, pp, gate, p)
			if errs[pp] != nil {
				errs[pp] = fmt.Errorf("key partition %d: %w", pp, errs[pp])
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, nil, fmt.Errorf("gate %s is not known to have moved everywhere; run the same command again: %w", gate.Scope, err)
	}
	return placed, folds, nil
}

// moveIn writes the CONTROL into one journal and reads back that it counts.
func (o *Ops) moveIn(ctx context.Context, pp int, gate effectlog.Gate, p Person) (Placed, *ledgerOf, error) {
	for range controlTries {
		id, err := o.identity(ctx, pp)
		if err != nil {
			return Placed{}, nil, err
		}
		control := &effectlog.Control{Stamp: o.stamp(newID(), id.Last, p), Gate: &gate}
		data, err := control.Encode()
		if err != nil {
			return Placed{}, nil, err
		}
		seq, err := o.append(ctx, pp, data)
		if err != nil {
			return Placed{}, nil, err
		}
		placed := Placed{Partition: pp, acknowledged: o.clk.Now()}
		fold, err := o.ledger(ctx, pp, seq, func(h held) error {
			if h.Control != nil && h.Control.Stamp.ID == control.Stamp.ID && h.Void == "" {
				placed.Sequence = h.seq
			}
			return nil
		})
		if err != nil {
			return placed, nil, fmt.Errorf("the record is written at sequence %d, but the journal was not read through: %w", seq, err)
		}
		if placed.Sequence != 0 {
			return placed, fold, nil
		}
	}
	return Placed{}, nil, fmt.Errorf("the record landed too late %d times", controlTries)
}

// follow reads the journal of a fold on until done, which is asked after every message,
// until the time that due says is left has passed, or until ctx ends.
func (o *Ops) follow(ctx context.Context, l *ledgerOf, done func() bool, due func() time.Duration) error {
	if done() {
		return nil
	}
	reader, err := journal.Read(ctx, o.js, l.stream, l.created, l.last+1)
	if err != nil {
		return err
	}
	defer reader.Close()
	for {
		timer := o.clk.NewTimer(max(due(), 0))
		select {
		case m, ok := <-reader.C():
			timer.Stop()
			if !ok {
				return reader.Err()
			}
			if _, err := l.take(m); err != nil {
				return err
			}
			if done() {
				return nil
			}
		case <-timer.C():
			return nil
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

package effectops

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Item is an effect as its journal has it now.
type Item struct {
	Partition int            `json:"partition"`
	Sequence  uint64         `json:"sequence"` // of the commit with the record
	Record    *effect.Record `json:"record"`
}

// ledgerOf is the fold of one effects journal, verified step by step.
type ledgerOf struct {
	stream  string
	pp      int
	created int64
	state   effectlog.State
	effects map[effect.EffectKey]Item
	chain   journal.Chain
	epoch   uint64
	last    uint64
}

// held is what one message of the journal held.
type held struct {
	seq uint64
	at  time.Time
	effectlog.Applied
}

func (o *Ops) newLedger(pp int) *ledgerOf {
	l := &ledgerOf{stream: subject.EffectsStream(o.stream, pp), pp: pp, effects: map[effect.EffectKey]Item{}}
	l.chain.Start()
	return l
}

// ledger folds the journal of a partition as it is now, or up to sequence upTo if that is
// not 0. each is told of every message that holds something; it may be nil.
func (o *Ops) ledger(ctx context.Context, pp int, upTo uint64, each func(held) error) (*ledgerOf, error) {
	id, err := o.identity(ctx, pp)
	if err != nil {
		return nil, err
	}
	l := o.newLedger(pp)
	l.created = id.Created
	if upTo == 0 {
		upTo = id.Last
	}
	if upTo == 0 {
		return l, nil
	}
	err = journal.ReadRange(ctx, o.js, l.stream, id.Created, 1, upTo, func(m journal.Msg) error {
		h, err := l.take(m)
		if err == nil && each != nil && (h.Void != "" || h.Foreign != (effectlog.Foreign{}) || len(h.Effects)+len(h.Done) > 0) {
			err = each(h)
		}
		return err
	})
	return l, err
}

// ledgers folds the journals of all key partitions, a few at a time.
func (o *Ops) ledgers(ctx context.Context) ([]*ledgerOf, error) {
	folds, errs := make([]*ledgerOf, o.partitions), make([]error, o.partitions)
	var all sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for pp := range o.partitions {
		all.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			folds[pp], errs[pp] = o.ledger(ctx, pp, 0, nil)
		})
	}
	all.Wait()
	return folds, errors.Join(errs...)
}

// take folds one message in and verifies it: the chain over COMMITs, the order of steps
// of every effect, answers to what was asked.
func (l *ledgerOf) take(m journal.Msg) (held, error) {
	h := held{seq: m.Seq, at: m.Time}
	e, err := journal.DecodeEntry(m.Seq, m.Data)
	if err != nil {
		return h, l.damaged(m.Seq, err)
	}
	l.last = m.Seq
	switch {
	case e.Claim != nil:
		l.epoch = max(l.epoch, e.Claim.Epoch)
	case e.Commit != nil && e.Commit.Epoch < l.epoch:
		return h, l.damaged(m.Seq, fmt.Errorf("a COMMIT of epoch %d stands behind the claim of epoch %d", e.Commit.Epoch, l.epoch))
	case e.Commit != nil:
		if err := l.chain.Next(l.stream, m.Seq, e.Commit); err != nil {
			return h, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	if h.Applied, err = l.state.Apply(effectlog.Entry{Seq: m.Seq, Foreign: e.Control, Records: e.Records}); err != nil {
		return h, l.damaged(m.Seq, err)
	}
	for _, r := range h.Effects {
		if err := ledger.Follow(l.effects[r.Key].Record, r); err != nil {
			return h, l.damaged(m.Seq, fmt.Errorf("effect %s: %w", r.Key, err))
		}
		l.effects[r.Key] = Item{Partition: l.pp, Sequence: m.Seq, Record: r}
	}
	return h, nil
}

func (l *ledgerOf) damaged(seq uint64, err error) error {
	return fmt.Errorf("stream %s, sequence %d: %w: %w; restore the stream from a backup", l.stream, seq, ErrDamaged, err)
}

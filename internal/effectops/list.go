package effectops

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// List answers the effects that f takes, by window, business key and effectKey.
func (o *Ops) List(ctx context.Context, f Filter) ([]Item, error) {
	folds, err := o.ledgers(ctx)
	if err != nil {
		return nil, err
	}
	var items []Item
	for _, l := range folds {
		for _, item := range l.effects {
			if f.Takes(item.Record) {
				items = append(items, item)
			}
		}
	}
	slices.SortFunc(items, byWindow)
	return items, nil
}

func byWindow(a, b Item) int {
	x, y := &a.Record.Identity, &b.Record.Identity
	return cmp.Or(
		cmp.Compare(x.Window.Start, y.Window.Start), cmp.Compare(x.Window.End, y.Window.End), strings.Compare(x.Key, y.Key),
		bytes.Compare(a.Record.Key[:], b.Record.Key[:]),
	)
}

// Step is one record of an effect's history.
type Step struct {
	Sequence uint64         `json:"sequence"`
	At       effect.Time    `json:"at"` // when the journal took it
	Record   *effect.Record `json:"record"`
}

// Asked is a command or a receipt about an effect, and its answer once there is one.
type Asked struct {
	effectlog.Asked
	Done *effectlog.Done `json:"done,omitempty"`
}

// Shown is all that the journal says of one effect.
type Shown struct {
	Item
	ClosedGate effectlog.Scope `json:"closedGate,omitempty"` // what holds it back now
	History    []Step          `json:"history"`
	Asked      []Asked         `json:"asked,omitempty"`
}

// Show answers one effect with its history; ErrNotFound if there is none.
func (o *Ops) Show(ctx context.Context, key effect.EffectKey) (*Shown, error) {
	for pp := range o.partitions {
		shown := &Shown{}
		l, err := o.ledger(ctx, pp, 0, func(h held) error {
			shown.note(key, h)
			return nil
		})
		if err != nil {
			return nil, err
		}
		item, there := l.effects[key]
		if !there {
			continue
		}
		shown.Item = item
		shown.ClosedGate = l.state.ClosedGate(sending(item.Record))
		return shown, nil
	}
	return nil, fmt.Errorf("effect %s: %w in %s", key, ErrNotFound, o.stream)
}

func (s *Shown) note(key effect.EffectKey, h held) {
	for _, r := range h.Effects {
		if r.Key == key {
			s.History = append(s.History, Step{Sequence: h.seq, At: effect.Time(h.at.UnixMicro()), Record: r})
		}
	}
	asked := effectlog.Asked{Seq: h.seq, Command: h.Command, Evidence: h.Evidence}
	if (h.Command != nil || h.Evidence != nil) && h.Void == "" && asked.Key() == key {
		s.Asked = append(s.Asked, Asked{Asked: asked})
	}
	for _, d := range h.Done {
		if i := slices.IndexFunc(s.Asked, func(a Asked) bool { return a.Seq == d.Sequence }); i >= 0 {
			s.Asked[i].Done = d
		}
	}
}

// sending answers which gates a dispatch of r asks.
func sending(r *effect.Record) effectlog.Sending {
	q := effectlog.Sending{EffectType: r.Identity.EffectType, Job: r.Identity.Job}
	if r.Request != nil {
		q.Adapter = unversioned(r.Request.Adapter)
	}
	if r.Bound != nil {
		_, q.Generation = generationOf(r.Bound.PolicyGeneration)
	}
	return q
}

// Line is one record of an export, in the order of its journal.
type Line struct {
	Partition int                 `json:"partition"`
	Sequence  uint64              `json:"sequence"`
	At        effect.Time         `json:"at"` // when the journal took it
	Effect    *effect.Record      `json:"effect,omitempty"`
	Done      *effectlog.Done     `json:"done,omitempty"`
	Control   *effectlog.Control  `json:"control,omitempty"`
	Command   *effectlog.Command  `json:"command,omitempty"`
	Evidence  *effectlog.Evidence `json:"evidence,omitempty"`
	Void      effectlog.Void      `json:"void,omitempty"` // why a record of others counts for nothing
}

// Export tells each record of every effects journal, key partition by key partition, after
// it was verified. With a filter that is not empty only the histories of effects that it
// takes when their record is written are told.
func (o *Ops) Export(ctx context.Context, f Filter, each func(Line) error) error {
	for pp := range o.partitions {
		_, err := o.ledger(ctx, pp, 0, func(h held) error {
			for _, line := range lines(pp, h) {
				if !f.Empty() && (line.Effect == nil || !f.Takes(line.Effect)) {
					continue
				}
				if err := each(line); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func lines(pp int, h held) (all []Line) {
	head := Line{Partition: pp, Sequence: h.seq, At: effect.Time(h.at.UnixMicro())}
	if h.Foreign != (effectlog.Foreign{}) || h.Void != "" {
		line := head
		line.Control, line.Command, line.Evidence, line.Void = h.Control, h.Command, h.Evidence, h.Void
		all = append(all, line)
	}
	for _, r := range h.Effects {
		line := head
		line.Effect = r
		all = append(all, line)
	}
	for _, d := range h.Done {
		line := head
		line.Done = d
		all = append(all, line)
	}
	return all
}

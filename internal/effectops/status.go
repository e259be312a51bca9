package effectops

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// Status is what the journal of one key partition says beside its effects.
type Status struct {
	Partition  int                     `json:"partition"`
	Sequence   uint64                  `json:"sequence"`             // up to which it was read
	Begun      uint64                  `json:"begun,omitempty"`      // first CONTROL; none = nothing is sent
	Unreadable uint64                  `json:"unreadable,omitempty"` // a record that this version cannot read: nothing is sent
	Gates      []effectlog.GateState   `json:"gates"`
	Active     []effectlog.ActiveState `json:"active"`
	Aliases    []effectlog.AliasState  `json:"aliases"`
	Asked      int                     `json:"asked"` // commands and receipts without an answer
	States     map[effect.State]int    `json:"states"`
}

// Status answers the status of every key partition.
func (o *Ops) Status(ctx context.Context) ([]Status, error) {
	folds, err := o.ledgers(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Status, o.partitions)
	for pp, l := range folds {
		s := Status{
			Partition: pp, Sequence: l.last, Begun: l.state.Begun(), Unreadable: l.state.Unreadable(),
			Gates: l.state.Gates(), Active: l.state.Actives(), Aliases: l.state.Aliases(), Asked: len(l.state.Asked()),
			States: map[effect.State]int{},
		}
		for _, item := range l.effects {
			s.States[item.Record.State]++
		}
		all[pp] = s
	}
	return all, nil
}

// ScopeStatus is a scope over all key partitions.
type ScopeStatus struct {
	Scope  effectlog.Scope  `json:"scope"`
	Closed []int            `json:"closed"` // key partitions
	Open   []int            `json:"open"`
	Stamp  *effectlog.Stamp `json:"stamp,omitempty"` // of the last record about it; none for what no operator closed
}

// Scopes answers every scope that was ever moved, and those that are closed without an
// operator: a journal without CONTROL, an unreadable record, a switch under way.
func Scopes(all []Status) []ScopeStatus {
	found := map[effectlog.Scope]*ScopeStatus{}
	note := func(scope effectlog.Scope, pp int, closed bool, stamp *effectlog.Stamp) {
		s := found[scope]
		if s == nil {
			s = &ScopeStatus{Scope: scope, Closed: []int{}, Open: []int{}}
			found[scope] = s
		}
		if closed {
			s.Closed = append(s.Closed, pp)
		} else {
			s.Open = append(s.Open, pp)
		}
		if stamp != nil && (s.Stamp == nil || s.Stamp.At < stamp.At) {
			s.Stamp = stamp
		}
	}
	for i := range all {
		s := &all[i]
		if s.Begun == 0 {
			note(effectlog.Unset, s.Partition, true, nil)
		}
		if s.Unreadable != 0 {
			note(effectlog.Unreadable, s.Partition, true, nil)
		}
		for j := range s.Gates {
			note(s.Gates[j].Scope, s.Partition, s.Gates[j].Closed, &s.Gates[j].Stamp)
		}
		for j := range s.Aliases {
			if s.Aliases[j].Switching {
				note(effectlog.SwitchScope(s.Aliases[j].Job), s.Partition, true, &s.Aliases[j].Stamp)
			}
		}
	}
	scopes := make([]ScopeStatus, 0, len(found))
	for _, s := range slices.SortedFunc(maps.Values(found), func(a, b *ScopeStatus) int { return cmp.Compare(a.Scope, b.Scope) }) {
		scopes = append(scopes, *s)
	}
	return scopes
}

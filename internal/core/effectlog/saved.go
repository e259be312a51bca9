package effectlog

import (
	"encoding/json"
	"fmt"
)

// saved is the JSON form of a State, for a checkpoint of the fold.
type saved struct {
	Last       uint64        `json:"last"`
	Begun      uint64        `json:"begun"`
	Unreadable uint64        `json:"unreadable,omitempty"`
	Gates      []GateState   `json:"gates,omitempty"`
	Active     []ActiveState `json:"active,omitempty"`
	Aliases    []AliasState  `json:"aliases,omitempty"`
	Asked      []Asked       `json:"asked,omitempty"`
	Landed     []landing     `json:"landed,omitempty"`
}

// MarshalJSON writes the state for a checkpoint. It is no contract: a checkpoint of
// another version is made anew from the journal.
func (s *State) MarshalJSON() ([]byte, error) {
	return json.Marshal(saved{
		Last: s.last, Begun: s.begun, Unreadable: s.unreadable, Gates: s.Gates(), Active: s.Actives(),
		Aliases: s.Aliases(), Asked: s.asked, Landed: s.landed,
	})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *State) UnmarshalJSON(data []byte) error {
	var from saved
	if err := json.Unmarshal(data, &from); err != nil {
		return fmt.Errorf("effects journal: state: %w", err)
	}
	*s = State{last: from.Last, begun: from.Begun, unreadable: from.Unreadable, asked: from.Asked, landed: from.Landed}
	for _, g := range from.Gates {
		put(&s.gates, g.Scope, g)
	}
	for _, a := range from.Active {
		put(&s.active, a.EffectType, a)
	}
	for _, a := range from.Aliases {
		put(&s.aliases, a.Job, a)
	}
	for _, l := range from.Landed {
		put(&s.seen, l.ID, l.Seq)
	}
	return nil
}

package effector

import (
	"maps"
	"slices"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// streamStatus says how the partitions of a business stream stand in this process.
type streamStatus struct {
	Stream     string            `json:"stream"`
	Instance   string            `json:"instance"`
	Partitions []partitionStatus `json:"partitions"`
}

// partitionStatus is one key partition. Only its owner knows more than the role.
type partitionStatus struct {
	Partition int                     `json:"partition"`
	Role      role                    `json:"role"`
	Epoch     uint64                  `json:"epoch,omitempty"`
	Problems  []string                `json:"problems"`
	Journal   uint64                  `json:"journal,omitempty"` // sequence up to which the effects journal is taken in
	Effects   map[effect.State]int    `json:"effects,omitempty"`
	Open      int                     `json:"open"` // attempts under way
	Gates     []effectlog.GateState   `json:"gates,omitempty"`
	Active    []effectlog.ActiveState `json:"active,omitempty"`
	Aliases   []effectlog.AliasState  `json:"aliases,omitempty"`
}

func (s *Service) status(name string, st *stream) streamStatus {
	out := streamStatus{Stream: name, Instance: s.cfg.Instance, Partitions: []partitionStatus{}}
	for _, u := range st.units {
		out.Partitions = append(out.Partitions, u.status())
	}
	return out
}

func (u *unit) status() partitionStatus {
	problems := u.trouble()
	u.mu.Lock()
	v := u.view
	p := partitionStatus{Partition: u.part.number, Role: u.role, Epoch: u.epoch, Problems: []string{}, Open: u.watching.open}
	u.mu.Unlock()
	p.Problems = append(p.Problems, problems...)
	if v == nil {
		return p
	}
	p.Journal = v.at().Seq
	p.Effects = v.population()
	maps.DeleteFunc(p.Effects, func(_ effect.State, n int) bool { return n == 0 })
	p.Gates, p.Active, p.Aliases = v.gates()
	p.Gates = slices.DeleteFunc(p.Gates, func(g effectlog.GateState) bool { return !g.Closed })
	return p
}

package effectlog

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// State is what an effects journal says beside the effects themselves. The zero State is
// that of an empty journal; it closes every gate.
type State struct {
	last       uint64
	begun      uint64 // sequence of the first CONTROL
	unreadable uint64 // sequence of the record that closes the scope Unreadable
	gates      map[Scope]GateState
	active     map[string]ActiveState
	aliases    map[string]AliasState
	asked      []Asked // by sequence
	seen       map[string]uint64
	landed     []landing // of seen, by sequence
}

// GateState is the last word on a scope.
type GateState struct {
	Gate
	Stamp Stamp  `json:"stamp"`
	Seq   uint64 `json:"sequence"`
}

// ActiveState is what is active for an effect type.
type ActiveState struct {
	Activate
	Stamp Stamp  `json:"stamp"`
	Seq   uint64 `json:"sequence"`
}

// AliasState is the last word on a job.
type AliasState struct {
	Alias
	Stamp Stamp  `json:"stamp"`
	Seq   uint64 `json:"sequence"`
}

// Asked is a COMMAND or EVIDENCE record that has no Done yet.
type Asked struct {
	Seq      uint64    `json:"sequence"`
	Command  *Command  `json:"command,omitempty"`
	Evidence *Evidence `json:"evidence,omitempty"`
}

// Key answers the effect that is spoken of; none for Recover.
func (a *Asked) Key() effect.EffectKey {
	if a.Evidence != nil {
		return a.Evidence.Receipt.Key
	}
	return a.Command.Key
}

type landing struct {
	ID  string `json:"id"`
	Seq uint64 `json:"sequence"`
}

// Entry is a message of the journal: a foreign record, or the records of a commit, or
// nothing (a claim, padding).
type Entry struct {
	Seq     uint64
	Foreign []byte
	Records [][]byte
}

// Void names why a foreign record counts for nothing; "" if it counts.
type Void string

// Reasons.
const (
	VoidRepeated   Void = "repeated"        // a record with this id stands before it
	VoidLate       Void = "late"            // more than Span behind its basis
	VoidAhead      Void = "ahead"           // its basis is not before it: another journal was meant
	VoidEpoch      Void = "epoch-not-above" // an alias that is not above the job's last
	VoidUnreadable Void = "unreadable"
)

// Applied is what an entry held.
type Applied struct {
	Foreign
	Void    Void
	Why     error // with VoidUnreadable
	Effects []*effect.Record
	Done    []*Done
}

// Apply takes the next entry in. It fails, and changes nothing, where the sequence does not
// rise, a record of the owner cannot be read, or a Done answers what is not asked: the
// journal is then not one that an owner wrote, and the partition must stop. A foreign
// record that cannot be read does not fail: if it might be a CONTROL, it closes the scope
// Unreadable.
func (s *State) Apply(e Entry) (Applied, error) {
	if e.Seq <= s.last {
		return Applied{}, fmt.Errorf("effects journal: sequence %d comes after %d", e.Seq, s.last)
	}
	var a Applied
	var err error
	if len(e.Records) > 0 {
		a, err = s.owned(e)
		if err != nil {
			return Applied{}, fmt.Errorf("effects journal at sequence %d: %w", e.Seq, err)
		}
	}
	if e.Foreign != nil {
		a.Foreign, a.Void, a.Why = s.foreign(e.Seq, e.Foreign)
	}
	s.last = e.Seq
	s.forget()
	return a, nil
}

// owned reads a commit's records, all of them before the first counts.
func (s *State) owned(e Entry) (Applied, error) {
	var a Applied
	answered := make(map[uint64]bool)
	for i, data := range e.Records {
		o, err := DecodeOwned(data)
		if err != nil {
			return Applied{}, fmt.Errorf("record %d: %w", i, err)
		}
		if o.Effect != nil {
			a.Effects = append(a.Effects, o.Effect)
			continue
		}
		at, open := s.find(o.Done.Sequence)
		if !open || answered[o.Done.Sequence] {
			return Applied{}, fmt.Errorf("record %d: it answers sequence %d, where nothing waits for an answer", i, o.Done.Sequence)
		}
		if o.Done.Key != s.asked[at].Key() {
			return Applied{}, fmt.Errorf("record %d: it answers sequence %d for another effectKey", i, o.Done.Sequence)
		}
		answered[o.Done.Sequence] = true
		a.Done = append(a.Done, o.Done)
	}
	s.asked = slices.DeleteFunc(s.asked, func(asked Asked) bool { return answered[asked.Seq] })
	return a, nil
}

func (s *State) find(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(s.asked, seq, func(a Asked, seq uint64) int {
		switch {
		case a.Seq < seq:
			return -1
		case a.Seq > seq:
			return 1
		}
		return 0
	})
}

func (s *State) foreign(seq uint64, data []byte) (Foreign, Void, error) {
	f, err := DecodeForeign(data)
	if err != nil {
		// A command or a receipt cannot be a pause; anything else might be.
		schema, _ := schemaOf(data)
		if schema != CommandSchema && schema != EvidenceSchema {
			s.unreadable = seq
		}
		return Foreign{}, VoidUnreadable, err
	}
	switch {
	case f.Control != nil:
		return f, s.control(seq, f.Control), nil
	case f.Command != nil:
		void := s.stamp(seq, &f.Command.Stamp)
		if void == "" {
			s.asked = append(s.asked, Asked{Seq: seq, Command: f.Command})
		}
		return f, void, nil
	}
	s.asked = append(s.asked, Asked{Seq: seq, Evidence: f.Evidence})
	return f, "", nil
}

// stamp judges a stamp and remembers its id.
func (s *State) stamp(seq uint64, stamp *Stamp) Void {
	_, repeated := s.seen[stamp.ID]
	switch {
	case repeated:
		return VoidRepeated
	case stamp.Basis >= seq:
		return VoidAhead
	case stamp.Late(seq):
		return VoidLate
	}
	if s.seen == nil {
		s.seen = make(map[string]uint64)
	}
	s.seen[stamp.ID] = seq
	s.landed = append(s.landed, landing{ID: stamp.ID, Seq: seq})
	return ""
}

// forget drops ids whose copies are late from now on: a basis is before its record.
func (s *State) forget() {
	n := 0
	for n < len(s.landed) && s.last-s.landed[n].Seq > Span {
		delete(s.seen, s.landed[n].ID)
		n++
	}
	if n > 0 {
		s.landed = slices.Clone(s.landed[n:])
	}
}

func (s *State) control(seq uint64, c *Control) Void {
	if void := s.stamp(seq, &c.Stamp); void != "" {
		return void
	}
	switch {
	case c.Gate != nil && c.Gate.Scope == Unreadable:
		s.unreadable = 0
	case c.Gate != nil:
		put(&s.gates, c.Gate.Scope, GateState{Gate: *c.Gate, Stamp: c.Stamp, Seq: seq})
	case c.Activate != nil:
		put(&s.active, c.Activate.EffectType, ActiveState{Activate: *c.Activate, Stamp: c.Stamp, Seq: seq})
	case c.Alias.Epoch <= s.aliases[c.Alias.Job].Epoch:
		return VoidEpoch
	default:
		put(&s.aliases, c.Alias.Job, AliasState{Alias: *c.Alias, Stamp: c.Stamp, Seq: seq})
	}
	if s.begun == 0 {
		s.begun = seq
	}
	return ""
}

func put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[key] = value
}

// Last answers the sequence of the last entry taken in.
func (s *State) Last() uint64 { return s.last }

// Sending says what a dispatch is of.
type Sending struct {
	EffectType string
	Adapter    string // name, without version
	Job        string
	Generation int
}

// ClosedGate answers the first closed scope that holds a dispatch back, "" if all are open:
// a journal without any CONTROL, an unreadable record, then global, type, adapter,
// generation and switch. A job without alias has its switch scope closed.
func (s *State) ClosedGate(q Sending) Scope {
	if s.begun == 0 {
		return Unset
	}
	if s.unreadable != 0 {
		return Unreadable
	}
	for _, scope := range []Scope{Global, TypeScope(q.EffectType), AdapterScope(q.Adapter), GenerationScope(q.Job, q.Generation)} {
		if s.gates[scope].Closed {
			return scope
		}
	}
	if alias, known := s.aliases[q.Job]; !known || alias.Switching {
		return SwitchScope(q.Job)
	}
	return ""
}

// Unreadable answers the sequence of the record that closes the scope Unreadable, 0 if
// that is open.
func (s *State) Unreadable() uint64 { return s.unreadable }

// Begun answers the sequence of the first CONTROL that counts, 0 if there is none.
func (s *State) Begun() uint64 { return s.begun }

// Gates answers the last word on every scope that was ever moved, by scope.
func (s *State) Gates() []GateState { return sorted(s.gates) }

// Active answers what is active for an effect type.
func (s *State) Active(effectType string) (ActiveState, bool) {
	a, ok := s.active[effectType]
	return a, ok
}

// Actives answers all that is active, by effect type.
func (s *State) Actives() []ActiveState { return sorted(s.active) }

// Alias answers the last word on a job's canonical generation.
func (s *State) Alias(job string) (AliasState, bool) {
	a, ok := s.aliases[job]
	return a, ok
}

// Aliases answers the last word on every job, by job.
func (s *State) Aliases() []AliasState { return sorted(s.aliases) }

// Asked answers what waits for an answer, by sequence. The caller does not change it.
func (s *State) Asked() []Asked { return s.asked }

func sorted[K ~string, V any](m map[K]V) []V {
	values := make([]V, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		values = append(values, m[key])
	}
	return values
}

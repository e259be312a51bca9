package gates

import "fmt"

// maxDetails bounds how many findings a gate shows; all are counted.
const maxDetails = 10

// Gate is one row of a report.
type Gate struct {
	Name    string   `json:"gate"`
	Must    string   `json:"mustBe"`
	Checked uint64   `json:"checked"` // how many things were looked at
	Wrong   uint64   `json:"wrong"`
	OK      bool     `json:"ok"`
	Details []string `json:"details,omitempty"` // the first findings
}

// Report is what verify answers (schema verifyReport.v1).
type Report struct {
	Stream      string   `json:"stream"`
	Generations []string `json:"generations"`
	Events      uint64   `json:"events"`
	Quarantined uint64   `json:"quarantined"`
	Replayed    uint64   `json:"replayed"` // quarantined events that were taken in again
	Windows     uint64   `json:"windows"`
	OK          bool     `json:"ok"`
	Gates       []Gate   `json:"gates"`
	Notes       []string `json:"notes,omitempty"` // facts that are no failure, e.g. GAP records
}

func (g *Gate) look(n uint64) { g.Checked += n }

func (g *Gate) fail(format string, args ...any) {
	g.Wrong++
	if len(g.Details) < maxDetails {
		g.Details = append(g.Details, fmt.Sprintf(format, args...))
	}
}

// tally holds every gate while a report is made.
type tally struct {
	results, values, frames, offsets, twice, replays Gate
	conservation, late, conflicts, revisions, chains Gate
	groups, members, refused                         Gate
	notes                                            []string
}

func newTally() *tally {
	return &tally{
		results:      Gate{Name: "results equal the oracle, per window", Must: "100 %"},
		values:       Gate{Name: "current value minus recomputation", Must: "0"},
		frames:       Gate{Name: "frames missing per writer", Must: "0"},
		offsets:      Gate{Name: "source offsets missing up to the last mark", Must: "0"},
		twice:        Gate{Name: "source offsets applied twice", Must: "0"},
		replays:      Gate{Name: "replayed events without their quarantine record", Must: "0"},
		conservation: Gate{Name: "in = applied + duplicate + conflict + quarantined + too late", Must: "equal"},
		late:         Gate{Name: "late records equal the oracle's", Must: "100 %"},
		conflicts:    Gate{Name: "conflict records equal the oracle's", Must: "100 %"},
		revisions:    Gate{Name: "revision gaps, backward steps, wrong predecessors, wrong digests", Must: "0"},
		groups:       Gate{Name: "sessions replaced in one batch, sessions of a key apart", Must: "always"},
		members:      Gate{Name: "events of sessions in exactly one current session", Must: "100 %"},
		refused:      Gate{Name: "answers to REOPENs equal the oracle's", Must: "100 %"},
		chains:       Gate{Name: "journal hash chains", Must: "whole"},
	}
}

func (t *tally) gates() []Gate {
	all := []*Gate{&t.results, &t.values, &t.frames, &t.offsets, &t.twice, &t.replays, &t.conservation, &t.late, &t.conflicts, &t.refused, &t.groups, &t.members, &t.revisions, &t.chains}
	out := make([]Gate, len(all))
	for i, g := range all {
		g.OK = g.Wrong == 0
		out[i] = *g
	}
	return out
}

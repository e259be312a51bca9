package gates

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/internal/verify/oracle"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// compare judges one unit against its oracle.
func (u *unit) compare(t *tally, o *Options, report *Report) {
	u.compareRows(t, o, report)
	u.compareLate(t)
	u.compareConflicts(t)
	u.compareCounts(t)
	u.compareRefused(t)
	u.compareMembers(t, o)
}

func (u *unit) name() string {
	return u.entry.Policy.PolicyGeneration() + " key partition " + subject.PP(u.pp)
}

// compareRows holds every current row against the oracle's, both ways.
func (u *unit) compareRows(t *tally, o *Options, report *Report) {
	expected := map[rowKey]bool{}
	for _, want := range u.oracle.Rows() {
		k := rowKey{want.Key, want.Start, want.End}
		expected[k] = true
		if !o.covers(want.Key, want.Start) {
			continue
		}
		report.Windows++
		t.results.look(1)
		t.values.look(1)
		got := u.accepted.rows[k]
		if got == nil {
			t.results.fail("%s: key %q window %s: readers see nothing, the oracle has revision %d %v", u.name(), want.Key, want.Start, want.Revision, want.Value)
			t.values.fail("%s: key %q window %s is missing", u.name(), want.Key, want.Start)
			continue
		}
		if why := valueDiffers(got, &want); why != "" {
			t.values.fail("%s: key %q window %s: %s", u.name(), want.Key, want.Start, why)
			t.results.fail("%s: key %q window %s: %s", u.name(), want.Key, want.Start, why)
			continue
		}
		if why := rowDiffers(got, &want); why != "" {
			t.results.fail("%s: key %q window %s: %s", u.name(), want.Key, want.Start, why)
		}
	}
	for k, got := range u.accepted.rows {
		if !expected[k] && o.covers(k.key, k.start) {
			t.results.look(1)
			t.results.fail("%s: key %q window %s: readers see revision %d, the oracle has no such window", u.name(), k.key, k.start, got.Revision)
		}
	}
}

func valueDiffers(got *revision.Revision, want *oracle.Row) string {
	value := map[string]string{}
	for _, f := range got.Value {
		value[f.Name] = f.Text
	}
	if want.Retracted {
		if got.Op != revision.Retract {
			return fmt.Sprintf("readers see %v, the oracle has it retracted", value)
		}
		return ""
	}
	if !maps.Equal(value, want.Value) {
		return fmt.Sprintf("readers see %v, the oracle has %v", value, want.Value)
	}
	return ""
}

func rowDiffers(got *revision.Revision, want *oracle.Row) string {
	switch {
	case got.Revision != want.Revision:
		return fmt.Sprintf("revision %d, the oracle has %d", got.Revision, want.Revision)
	case got.Inputs.Events != want.Events:
		return fmt.Sprintf("%d events, the oracle has %d", got.Inputs.Events, want.Events)
	case fmt.Sprintf("%x", got.Inputs.IDDigest) != want.IDDigest:
		return fmt.Sprintf("idDigest %x, the oracle has %s", got.Inputs.IDDigest, want.IDDigest)
	case got.ResultID != want.ResultID:
		return fmt.Sprintf("resultId %s, the oracle has %s", got.ResultID, want.ResultID)
	case got.SupersededBy != want.SupersededBy:
		return fmt.Sprintf("it is superseded by %q, the oracle's by %q", got.SupersededBy, want.SupersededBy)
	case !slices.Equal(got.Supersedes, want.Supersedes):
		return fmt.Sprintf("it supersedes %v, the oracle's %v", got.Supersedes, want.Supersedes)
	case got.State != want.State || got.Firing != want.Firing || got.Cause != want.Cause || got.Origin != want.Origin || got.ValueChanged != want.ValueChanged:
		return fmt.Sprintf("%s, %s, %s, origin %d, valueChanged %t; the oracle has %s, %s, %s, origin %d, valueChanged %t",
			got.State, got.Firing, got.Cause, got.Origin, got.ValueChanged, want.State, want.Firing, want.Cause, want.Origin, want.ValueChanged)
	}
	return ""
}

// compareLate holds late records against the oracle's, in order.
func (u *unit) compareLate(t *tally) {
	var got, want []string
	for _, l := range u.proposed.late {
		got = append(got, fmt.Sprintf("%s/%s key %q at %d/%d window %s to %s", l.Event.Source, l.Event.ID, l.Event.Key, l.Event.Place.Seq, l.Event.Place.Index, l.Window.Start, l.Window.End))
	}
	for _, l := range u.oracle.Late() {
		want = append(want, fmt.Sprintf("%s/%s key %q at %d/%d window %s to %s", l.Source, l.ID, l.Key, l.Seq, l.Index, l.Start, l.End))
	}
	compareLists(&t.late, u.name()+": late record", got, want)
}

func (u *unit) compareConflicts(t *tally) {
	var got, want []string
	for _, c := range u.proposed.conflicts {
		got = append(got, fmt.Sprintf("%s/%s key %q at %d/%d", c.Event.Source, c.Event.ID, c.Event.Key, c.Event.Place.Seq, c.Event.Place.Index))
	}
	for _, c := range u.oracle.Conflicts() {
		want = append(want, fmt.Sprintf("%s/%s key %q at %d/%d", c.Source, c.ID, c.Key, c.Seq, c.Index))
	}
	compareLists(&t.conflicts, u.name()+": conflict record", got, want)
}

func compareLists(g *Gate, what string, got, want []string) {
	g.look(uint64(max(len(got), len(want))))
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			g.fail("%s missing: %s", what, want[i])
		case i >= len(want):
			g.fail("%s too many: %s", what, got[i])
		case got[i] != want[i]:
			g.fail("%s %s, the oracle has %s", what, got[i], want[i])
		}
	}
}

// compareCounts checks conservation: every event that stands in the journal once was
// counted once, as what the oracle says it was.
func (u *unit) compareCounts(t *tally) {
	c := u.oracle.Counts()
	g := &t.conservation
	g.look(u.in)
	out := c.Applied + c.Duplicate + c.Conflict + c.TooLate + c.NoTime
	if u.in != out {
		g.fail("%s: %d events in, %d accounted for by the oracle", u.name(), u.in, out)
	}
	expected := map[string]uint64{
		window.CountApplied: c.Applied, window.CountDuplicate: c.Duplicate, window.CountConflict: c.Conflict,
		window.CountTooLate: c.TooLate, window.CountNoTime: c.NoTime, window.CountReopened: c.Reopened,
	}
	for _, name := range slices.Sorted(maps.Keys(expected)) {
		if got := u.proposed.count(name); got != expected[name] {
			g.fail("%s: the COMMIT counts %d %s, the oracle %d", u.name(), got, name, expected[name])
		}
	}
	if u.proposed.commit == nil {
		return
	}
	if got := fmt.Sprintf("%x", u.proposed.commit.IDDigest); got != fmt.Sprintf("%032x", c.IDDigest) {
		g.fail("%s: the COMMIT's idDigest is %s, the oracle's %032x", u.name(), got, c.IDDigest)
	}
}

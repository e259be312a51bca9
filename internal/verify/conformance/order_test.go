package conformance

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"pgregory.net/rapid"
)

// TestOrderDoesNotMatterForAnyWindow: once all is final, the results of one set of events
// are the same for every order of arrival and wherever marks stand, for every kind of
// window and every aggregate.
func TestOrderDoesNotMatterForAnyWindow(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		lines := randomTrace(seed, false)
		policy, events := endless(lines[0]), []string{}
		for _, line := range lines {
			if line[0] == 'E' || line[0] == 'R' {
				events = append(events, line)
			}
		}
		end := lines[len(lines)-1]
		var want map[string]string
		for order := range uint64(3) {
			rnd := rand.New(rand.NewPCG(seed, order))
			rnd.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
			got := results(t, append([]string{policy, "loose"}, marked(rnd, events, end)...))
			if want == nil {
				want = got
			}
			if !maps.Equal(got, want) {
				rt.Fatalf("seed %d, order %d:\n got  %v\n want %v", seed, order, got, want)
			}
		}
	})
}

// endless makes a policy under which nothing is ever too late or forgotten, with one
// source partition.
func endless(policy string) string {
	fields := strings.Fields(policy)
	for i, f := range fields {
		switch name, _, _ := strings.Cut(f, "="); name {
		case "L", "ids":
			fields[i] = name + "=100000d"
		case "sources":
			fields[i] = "sources=shop:1"
		}
	}
	return strings.Join(fields, " ")
}

// marked answers the events with marks between them, and the last mark of all.
func marked(rnd *rand.Rand, events []string, end string) (out []string) {
	for _, line := range events {
		out = append(out, line)
		if rnd.IntN(4) == 0 {
			for _, field := range strings.Fields(line) {
				if at, ok := strings.CutPrefix(field, "t="); ok {
					out = append(out, "M max="+at)
				}
			}
		}
	}
	return append(out, end)
}

// results answers what readers see in the end.
func results(t *testing.T, lines []string) map[string]string {
	t.Helper()
	r := newRunner(t, read(t, slices.Clone(lines)), mode{})
	r.run()
	out := map[string]string{}
	for at, row := range r.rows {
		if row.Op == revision.Upsert {
			out[at.key+" "+interval(at.Window)] = fmt.Sprintf("%s %x %s", fieldText(row.Value), row.Inputs.IDDigest, row.ResultID)
		}
	}
	return out
}

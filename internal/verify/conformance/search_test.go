package conformance

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/verify/trace"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"pgregory.net/rapid"
)

// failure is what a tester that only remembers panics with.
type failure struct{ text string }

// remembering is a tester for a trace that may fail: the failure is the answer.
type remembering struct{}

func (remembering) Helper() {}

func (remembering) Fatal(args ...any) { panic(failure{fmt.Sprint(args...)}) }

func (remembering) Fatalf(format string, args ...any) { panic(failure{fmt.Sprintf(format, args...)}) }

// try runs a trace and answers how it failed, or "".
func try(lines []string, m mode) (failed string) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			failed = r.text
		default:
			failed = fmt.Sprintf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	newRunner(remembering{}, read(remembering{}, lines), m).run()
	return ""
}

func read(tb tester, lines []string) *trace.Trace {
	tb.Helper()
	tr, err := trace.Parse("random", strings.Join(lines, "\n"))
	if err != nil {
		tb.Fatalf("unreadable: %v", err)
	}
	return tr
}

// finally compares what readers see after everything late was handed back with a batch
// computation over all unique events that were not withdrawn.
func (r *runner) finally() {
	got, want := map[string]string{}, map[string]string{}
	for at, row := range r.rows {
		if row.Op == revision.Upsert {
			got[at.key+" "+interval(at.Window)] = fmt.Sprintf("%d events %x", row.Inputs.Events, row.Inputs.IDDigest)
		}
	}
	for at, members := range r.batch() {
		var digest [16]byte
		for _, e := range members {
			digest = addHash(digest, e.event.Source, e.event.ID)
		}
		want[at.key+" "+interval(at.Window)] = fmt.Sprintf("%d events %x", len(members), digest)
	}
	if !maps.Equal(got, want) {
		r.t.Fatalf("in the end:\n  readers see %v\n  a batch has %v", got, want)
	}
}

// batch answers the windows over all unique events that were not withdrawn.
func (r *runner) batch() map[rowID][]*entry {
	first, withdrawn := map[[3]string]*entry{}, map[[3]string]bool{}
	for _, at := range r.journalOrder() {
		e := r.events[at]
		if e.event.Withdraws != "" {
			withdrawn[[3]string{e.key, e.event.Source, e.event.Withdraws}] = true
		} else if id := [3]string{e.key, e.event.Source, e.event.ID}; first[id] == nil {
			first[id] = e
		}
	}
	byKey := map[string][]*entry{}
	for id, e := range first {
		if !withdrawn[id] {
			byKey[e.key] = append(byKey[e.key], e)
		}
	}
	out := map[rowID][]*entry{}
	for key, list := range byKey {
		slices.SortFunc(list, func(a, b *entry) int { return int(a.event.Time - b.event.Time) })
		if r.policy.Window.Kind == policy.Session {
			batchSessions(out, key, list, int64(r.policy.Window.Gap))
			continue
		}
		for _, e := range list {
			for _, w := range r.oracle.Windows(e.event.Time) {
				out[rowID{key, w}] = append(out[rowID{key, w}], e)
			}
		}
	}
	return out
}

// batchSessions cuts sorted events where the distance is the gap or more.
func batchSessions(out map[rowID][]*entry, key string, list []*entry, gap int64) {
	for from, i := 0, 1; i <= len(list); i++ {
		if i < len(list) && int64(list[i].event.Time-list[i-1].event.Time) < gap {
			continue
		}
		w := revision.Window{Start: list[from].event.Time, End: list[i-1].event.Time.Add(gap)}
		out[rowID{key, w}], from = list[from:i], i
	}
}

func (r *runner) journalOrder() []journalPlace {
	return slices.SortedFunc(maps.Keys(r.events), func(a, b journalPlace) int {
		if a.seq != b.seq {
			return int(int64(a.seq) - int64(b.seq))
		}
		return int(a.index) - int(b.index)
	})
}

// minimise answers the shortest trace it finds that still fails: of the lines from..to
// some are left out, in ever smaller stretches.
func minimise(lines []string, from, to int, fails func([]string) bool) []string {
	for size := to - from; size >= 1; size /= 2 {
		for shorter := true; shorter; {
			shorter = false
			for at := from; at+size <= to; {
				without := append(slices.Clone(lines[:at]), lines[at+size:]...)
				if fails(without) {
					lines, to, shorter = without, to-size, true
				} else {
					at += size
				}
			}
		}
	}
	return lines
}

// shortest answers the shortest trace that fails as lines do. The policy stays, and that
// outputs are not stated. A trace that differs from a batch computation in the end keeps
// what hands late events back there: without it every trace would differ.
func shortest(lines []string, m mode, why string) []string {
	const end = "in the end"
	atEnd := strings.HasPrefix(why, end)
	to := len(lines)
	if atEnd {
		to = slices.Index(lines, "batch")
	}
	return minimise(lines, 2, to, func(l []string) bool {
		now := try(l, m)
		return now != "" && !strings.HasPrefix(now, "unreadable") && strings.HasPrefix(now, end) == atEnd
	})
}

// keep writes a failing trace where every later run finds it.
func keep(tb tester, seed uint64, lines []string, why string) string {
	tb.Helper()
	file := filepath.Join("testdata", "found", fmt.Sprintf("seed-%d.txt", seed))
	why = strings.ReplaceAll(why, "\n", "\n# ")
	text := fmt.Sprintf("# Seed %d failed:\n# %s\n%s\n", seed, why, strings.Join(lines, "\n"))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
	return file
}

// search runs the trace of a seed in every mode. One that fails is minimised and kept.
func search(tb tester, seed uint64, modes ...mode) {
	tb.Helper()
	lines := randomTrace(seed, seed%2 == 0)
	for _, m := range modes {
		if why := try(lines, m); why != "" {
			short := shortest(lines, m, why)
			tb.Fatalf("seed %d, %+v: %s\nminimised to %s", seed, m, why, keep(tb, seed, short, try(short, m)))
		}
	}
}

// TestMinimise: what is left of a failing list is what makes it fail.
func TestMinimise(t *testing.T) {
	lines := strings.Fields("policy loose a b c d e f g h i j batch")
	got := minimise(lines, 2, 12, func(l []string) bool { return slices.Contains(l, "c") && slices.Contains(l, "h") })
	if want := "policy loose c h batch"; strings.Join(got, " ") != want {
		t.Errorf("minimised to %v, want %s", got, want)
	}
}

// everyMode answers the modes a trace is run in.
func everyMode() []mode { return []mode{{}, {restore: true}, {repeat: true}} }

// TestFixedSeeds: whatever happens, core and oracle say the same, restored or not, with
// events repeated or not; W never falls, revisions follow one another, no session stands
// beside another that it shares events with, and in the end readers see what a batch
// computation over all unique events gives. The seeds are the same in every run.
func TestFixedSeeds(t *testing.T) {
	for seed := range uint64(60) {
		search(t, seed, everyMode()...)
	}
}

// TestRandomTraces is TestFixedSeeds with new seeds in every run.
func TestRandomTraces(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		search(t, rapid.Uint64().Draw(rt, "seed"), rapid.SampledFrom(everyMode()).Draw(rt, "mode"))
	})
}

package conformance

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/internal/verify/trace"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"pgregory.net/rapid"
)

// policyLine is the policy of the random journals; L is filled in.
const policyLine = "policy size=40 offset=-7 L=%s D=10 T=5 idle=advance ids=%s retractions=yes sources=shop:3 results=n=count(),sum=sum(v),top=max(v)\n"

// journal draws lines of a random trace: few keys and ids, so that duplicates, withdrawals
// and windows meet. Data follows from the id, so there are no conflicts unless asked for.
func journal(t *rapid.T, conflicts bool) []string {
	var lines []string
	for range rapid.IntRange(1, 60).Draw(t, "lines") {
		id := rapid.IntRange(0, 11).Draw(t, "id")
		part := id % 3
		data := fmt.Sprintf("key=k%d part=%d t=%d v=%d", id%2, part, id*17-30, id*id-20)
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			lines = append(lines, fmt.Sprintf("R id=r%d withdraws=e%d %s", id, id, data))
		case 1, 2, 3, 4, 5:
			if conflicts && rapid.IntRange(0, 5).Draw(t, "conflict") == 0 {
				data += " note=x"
			}
			lines = append(lines, fmt.Sprintf("E id=e%d %s", id, data))
		default:
			lines = append(lines, fmt.Sprintf("M part=%d max=%d quiet=%d now=%d", rapid.IntRange(0, 3).Draw(t, "part"),
				rapid.IntRange(-40, 200).Draw(t, "max"), rapid.IntRange(0, 8).Draw(t, "quiet"), rapid.IntRange(0, 60).Draw(t, "now")*1000))
		}
	}
	return lines
}

// closing lines end every source partition, so that everything fires.
func closing() []string {
	return []string{"M part=0 max=9999 finished=yes", "M part=1 max=9999 finished=yes", "M part=2 max=9999 finished=yes"}
}

func parse(t testing.TB, lateness, ids string, lines []string) *trace.Trace {
	t.Helper()
	tr, err := trace.Parse("random", fmt.Sprintf(policyLine, lateness, ids)+strings.Join(lines, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// records answers all records that a journal gives. between is called before every record.
func records(t testing.TB, tr *trace.Trace, between func(*window.Operator) *window.Operator) (out [][]byte, op *window.Operator) {
	t.Helper()
	cfg := window.Config{Stream: tr.Stream, Policy: tr.Policy, PolicyDigest: "digest"}
	op, err := window.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range tr.Frames {
		op = between(op)
		op.BeginFrame(uint64(i+1), f.Envelope)
		for n := range f.Envelope.Records {
			if again := between(op); again != op {
				op = again
				op.BeginFrame(uint64(i+1), f.Envelope)
			}
			if err := op.Apply(n, &f.Envelope.Records[n]); err != nil {
				t.Fatal(err)
			}
			out = append(out, drain(t, op)...)
		}
		op.EndFrame()
	}
	return out, op
}

func straight(op *window.Operator) *window.Operator { return op }

// current folds proposals to current rows, and checks that revisions follow one another
// and that deltas add up.
func current(t testing.TB, out [][]byte) map[string]string {
	t.Helper()
	type head struct {
		revision uint64
		digest   revision.Digest
		events   int64
	}
	heads, rows := map[string]head{}, map[string]string{}
	for _, data := range out {
		shown := show(t, data)
		if shown[""] != "rev" {
			continue
		}
		rec, err := record.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		p, at := rec.Proposal, shown["key"]+" "+shown["win"]
		h := heads[at]
		if p.Revision != h.revision+1 || p.Revision > 1 && p.Predecessor.Digest != h.digest {
			t.Fatalf("%s: revision %d does not follow revision %d", at, p.Revision, h.revision)
		}
		var change int64
		if _, err := fmt.Sscanf(strings.TrimPrefix(fieldText(p.Delta), "n:"), "%d", &change); err != nil {
			t.Fatal(err)
		}
		h = head{p.Revision, rec.Digest, h.events + change}
		if h.events != int64(p.Inputs.Events) {
			t.Fatalf("%s: deltas add up to %d events, the revision counts %d", at, h.events, p.Inputs.Events)
		}
		heads[at] = h
		rows[at] = shown["value"] + fmt.Sprintf(" %x", p.Inputs.IDDigest)
		if p.Op == revision.Retract {
			delete(rows, at)
		}
	}
	return rows
}

// naive recomputes the final rows from all events at once: first of each id, without
// those withdrawn.
func naive(t testing.TB, tr *trace.Trace) map[string]string {
	t.Helper()
	first, withdrawn := map[string]*envelope.Event{}, map[string]bool{}
	var order []string
	for _, f := range tr.Frames {
		for _, r := range f.Envelope.Records {
			ev := r.Event
			switch {
			case ev == nil:
			case ev.Op == envelope.Retract:
				withdrawn[ev.Withdraws] = true
			case first[ev.ID] == nil:
				first[ev.ID] = ev
				order = append(order, ev.ID)
			}
		}
	}
	members := map[string][]*envelope.Event{}
	for _, id := range order {
		if withdrawn[id] {
			continue
		}
		size, offset, t := int64(tr.Policy.Window.Size), int64(tr.Policy.Window.Offset), int64(first[id].Times[0])
		n := (t - offset) / size
		if (t-offset)%size < 0 {
			n--
		}
		w := revision.Window{Start: envelope.EventTime(n*size + offset), End: envelope.EventTime((n+1)*size + offset)}
		at := first[id].Key + " " + interval(w)
		members[at] = append(members[at], first[id])
	}
	rows := map[string]string{}
	for at, list := range members {
		var sum, top int64
		var digest [16]byte
		for i, ev := range list {
			sum += ev.Values[0].Int
			if i == 0 || ev.Values[0].Int > top {
				top = ev.Values[0].Int
			}
			digest = addHash(digest, ev.Source, ev.ID)
		}
		rows[at] = fmt.Sprintf("n:%d,sum:%d,top:%d %x", len(list), sum, top, digest)
	}
	return rows
}

// TestFinalEqualsRecomputation: without TOO_LATE events the last revisions are what a
// recomputation from all events gives, whatever the order of events, marks, withdrawals.
func TestFinalEqualsRecomputation(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tr := parse(t, "9000000", "9000000d", append(journal(rt, false), closing()...))
		tr.Policy.AllowedLateness = 1 << 60
		tr.Policy.RetainIDs = 1 << 62
		// W = +inf would be past every lateness: leave the last partition open.
		last := tr.Frames[len(tr.Frames)-1].Envelope.Records[0].Mark
		last.Finished, last.Pending, last.Epoch = false, 1, 99
		out, _ := records(t, tr, straight)
		got, want := current(t, out), naive(t, tr)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			rt.Fatalf("got  %v\nwant %v", got, want)
		}
	})
}

// TestRestoresChangeNothing: a snapshot and restore anywhere, chunks of any size and
// writing over the frame's memory leave the sequence of records as it is.
func TestRestoresChangeNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tr := parse(t, "60", "130", append(journal(rt, true), closing()...))
		want, plain := records(t, tr, straight)
		cfg := window.Config{Stream: tr.Stream, Policy: tr.Policy, PolicyDigest: "digest"}
		pairs, stored := map[string][]byte{}, map[string][]byte{}
		got, restored := records(t, tr, func(op *window.Operator) *window.Operator {
			if !rapid.Bool().Draw(rt, "restore") {
				return op
			}
			return checkpoint(t, op, cfg, pairs)
		})
		if !slices.EqualFunc(got, want, bytes.Equal) {
			rt.Fatalf("%d records after restores, %d without, or others", len(got), len(want))
		}
		// What Deltas add up to is what one Delta of the undisturbed operator holds.
		checkpoint(t, restored, cfg, pairs)
		checkpoint(t, plain, cfg, stored)
		for key, value := range stored {
			if key[0] != 'k' && key[0] != 'w' && key[0] != 'i' && !bytes.Equal(pairs[key], value) {
				rt.Fatalf("pair %q differs", key)
			}
		}
		if len(pairs) != len(stored) {
			rt.Fatalf("%d pairs after many Deltas, %d after one", len(pairs), len(stored))
		}
	})
}

// TestOrderDoesNotMatter: as long as all is on time, results do not depend on the order
// of arrival.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var events []string
		for _, line := range journal(rt, false) {
			if line[0] != 'M' {
				events = append(events, line)
			}
		}
		var want map[string]string
		for seed := range uint64(3) {
			rand.New(rand.NewPCG(seed, 1)).Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
			out, op := records(t, parse(t, "0", "9000d", append(slices.Clone(events), closing()...)), straight)
			got := current(t, out)
			_, _, counts, digest := op.Totals()
			got["totals"] = fmt.Sprintf("%v %x", counts, digest)
			if want == nil {
				want = got
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				rt.Fatalf("order %d: got %v\nwant %v", seed, got, want)
			}
		}
	})
}

// TestWatermarkNeverFalls: neither W nor Wdata, as operator and commits see them.
func TestWatermarkNeverFalls(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w, data := envelope.MinEventTime, envelope.MinEventTime
		records(t, parse(t, "60", "200", append(journal(rt, true), closing()...)), func(op *window.Operator) *window.Operator {
			nw, nd, _, _ := op.Totals()
			if nw < w || nd < data {
				rt.Fatalf("fell from %s, %s to %s, %s", w, data, nw, nd)
			}
			w, data = nw, nd
			return op
		})
	})
}

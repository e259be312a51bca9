package gates

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/internal/verify/oracle"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// A gate that cannot fail proves nothing: here every gate meets what it is for.

const minute = envelope.EventTime(60_000_000)

func documents() (*policy.BusinessStream, *policy.StreamTimePolicy) {
	return &policy.BusinessStream{
			Name: "s", Partitions: 1, Key: []string{"/k"},
			Values:     []policy.ValueSpec{{Name: "v", Path: "/v", Type: policy.Int}},
			Extractors: []policy.Extractor{{Name: "at@1", Path: "/t", Format: policy.UnixUs}},
		}, &policy.StreamTimePolicy{
			Stream: "s", Job: "j", Generation: 1, Extractor: "at@1", Sources: []policy.SourceRef{{Name: "src", Partitions: 1}},
			Window: policy.WindowSpec{Kind: policy.Tumbling, Size: policy.Minute}, AllowedLateness: policy.Minute, RetainIDs: policy.Hour,
			Aggregates: []policy.AggregateSpec{{Name: "n", Func: "count"}, {Name: "sum", Func: "sum", Arg: "v"}},
		}
}

func event(id string, at envelope.EventTime, v int) *envelope.Event {
	data := fmt.Sprintf(`{"k":"a","t":%d,"v":%d}`, int64(at), v)
	digest, err := envelope.DigestJSON([]byte(data))
	if err != nil {
		panic(err)
	}
	return &envelope.Event{ID: id, Source: "src", Key: "a", Times: []envelope.EventTime{at}, Values: []envelope.Value{{Int: int64(v)}}, Digest: digest, Data: []byte(data)}
}

func mark(to envelope.EventTime) *envelope.Mark {
	return &envelope.Mark{Source: "src", Epoch: 1, Generation: 1, MaxEventTime: []envelope.EventTime{to}, Writer: "w"}
}

// world is what the engine and the oracle make of one journal: two windows, one late
// record, one conflict.
func world(t *testing.T) *unit {
	t.Helper()
	_, p := documents()
	return worldOf(t, p,
		envelope.Record{Event: event("1", 10*minute, 5)},
		envelope.Record{Event: event("2", 11*minute, 7)},
		envelope.Record{Event: event("2", 11*minute, 8)}, // another payload
		envelope.Record{Mark: mark(14 * minute)},
		envelope.Record{Event: event("3", 1*minute, 9)}, // too late
		envelope.Record{Mark: mark(15 * minute)},
	)
}

// worldOf is what the engine and the oracle make of one frame under a policy.
func worldOf(t *testing.T, p *policy.StreamTimePolicy, records ...envelope.Record) *unit {
	t.Helper()
	bs, _ := documents()
	op, err := window.New(window.Config{Stream: bs, Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	o, err := oracle.New(bs, p)
	if err != nil {
		t.Fatal(err)
	}
	u := &unit{entry: config.Entry{Policy: p}, proposed: &proposed{}, accepted: newAccepted(p)}
	u.watch(o)
	static := record.Static{Stream: bs.Name, Job: p.Job, PolicyGeneration: p.PolicyGeneration()}
	f := &envelope.Frame{Extractors: []string{"at@1"}, Values: []string{"v"}, Records: records}
	op.BeginFrame(1, f)
	for i := range f.Records {
		if err := op.Apply(i, &f.Records[i]); err != nil {
			t.Fatal(err)
		}
		var batch []*revision.Revision
		for raw, more := op.Next(nil); more; raw, more = op.Next(nil) {
			r, err := record.Decode(raw)
			if err != nil {
				t.Fatal(err)
			}
			if r.Proposal != nil {
				static.Fill(r.Proposal)
				batch = append(batch, r.Proposal)
				u.accepted.rows[rowKey{r.Proposal.Key, r.Proposal.Window.Start, r.Proposal.Window.End}] = r.Proposal
			}
			if err := u.proposed.take(raw); err != nil {
				t.Fatal(err)
			}
		}
		u.accepted.takeGroups(batch, uint64(i))
	}
	op.EndFrame()
	c := revision.NewCommit()
	_, _, c.Counts, c.IDDigest = op.Totals()
	c.OpenFrom = op.OpenFrom()
	u.proposed.commit, u.until = &c, op.Position()
	if err := u.take(1, f, true); err != nil {
		t.Fatal(err)
	}
	return u
}

// judge compares the unit and answers the names of the gates that fail.
func judge(u *unit) []string {
	t := newTally()
	u.accepted.report(t)
	u.compare(t, &Options{}, &Report{})
	var failed []string
	for _, g := range t.gates() {
		if !g.OK {
			failed = append(failed, g.Name)
		}
	}
	return failed
}

func TestAWholeWorldPassesEveryGate(t *testing.T) {
	u := world(t)
	if failed := judge(u); failed != nil {
		t.Fatalf("failed: %v", failed)
	}
	if len(u.accepted.rows) != 2 || len(u.proposed.late) != 1 || len(u.proposed.conflicts) != 1 {
		t.Fatalf("the world has %d rows, %d late records, %d conflicts", len(u.accepted.rows), len(u.proposed.late), len(u.proposed.conflicts))
	}
}

func TestGatesFailOnWhatTheyAreFor(t *testing.T) {
	row := rowKey{"a", 10 * minute, 11 * minute}
	for name, c := range map[string]struct {
		damage func(*unit)
		gate   string
	}{
		"a wrong value":        {func(u *unit) { u.accepted.rows[row].Value[1].Text = "6" }, "current value minus recomputation"},
		"a missing row":        {func(u *unit) { delete(u.accepted.rows, row) }, "results equal the oracle"},
		"a row too many":       {func(u *unit) { u.accepted.rows[rowKey{key: "b"}] = &revision.Revision{Key: "b", Revision: 1} }, "results equal the oracle"},
		"a wrong revision":     {func(u *unit) { u.accepted.rows[row].Revision = 2 }, "results equal the oracle"},
		"another member":       {func(u *unit) { u.accepted.rows[row].Inputs.IDDigest[0]++ }, "results equal the oracle"},
		"a late record lost":   {func(u *unit) { u.proposed.late = nil }, "late records"},
		"a late record twice":  {func(u *unit) { u.proposed.late = append(u.proposed.late, u.proposed.late[0]) }, "late records"},
		"a conflict lost":      {func(u *unit) { u.proposed.conflicts = nil }, "conflict records"},
		"an event uncounted":   {func(u *unit) { u.in++ }, "in = applied"},
		"a count that is off":  {func(u *unit) { u.proposed.commit.Counts[0].N++ }, "in = applied"},
		"another id digest":    {func(u *unit) { u.proposed.commit.IDDigest[3]++ }, "in = applied"},
		"a retracted live row": {func(u *unit) { u.accepted.rows[row].Op, u.accepted.rows[row].Value = revision.Retract, nil }, "current value"},
	} {
		t.Run(name, func(t *testing.T) {
			u := world(t)
			c.damage(u)
			if failed := judge(u); !strings.Contains(strings.Join(failed, "; "), c.gate) {
				t.Errorf("gates that failed: %v, want %q", failed, c.gate)
			}
		})
	}
}

func TestMissingAndRepeatedOffsetsAreFound(t *testing.T) {
	tl := newTally()
	p := newPositions()
	const epoch = uint64(3) << epochShift
	for _, n := range []uint64{1, 2, 4, 130, 2} {
		p.add("src", 0, epoch|n, &tl.twice)
	}
	p.mark(&envelope.Mark{Source: "src", Offset: epoch | 130})
	p.check(&tl.offsets)
	if tl.twice.Wrong != 1 {
		t.Errorf("%d repeated offsets, want 1: %v", tl.twice.Wrong, tl.twice.Details)
	}
	if tl.offsets.Wrong != 126 { // 3 and 5 to 129
		t.Errorf("%d missing offsets, want 126: %v", tl.offsets.Wrong, tl.offsets.Details)
	}
}

func TestMissingFramesAreFoundAndGapsAreNamed(t *testing.T) {
	writers := map[string]*writerFrames{}
	for _, n := range []uint64{1, 2, 5} {
		noteFrame(writers, &envelope.Frame{Writer: "w", Number: n})
	}
	noteFrame(writers, &envelope.Frame{Writer: "w", Number: 6, Records: []envelope.Record{{Mark: &envelope.Mark{Writer: "w", Frames: 5}}}})
	tl := newTally()
	checkFrames(tl, 0, writers, []envelope.Gap{{Writer: "w", First: 4, Last: 4, Reason: "disk lost"}})
	if tl.frames.Wrong != 1 {
		t.Errorf("%d missing frames, want 1: %v", tl.frames.Wrong, tl.frames.Details)
	}
	if len(tl.notes) != 1 || !strings.Contains(tl.notes[0], "disk lost") {
		t.Errorf("notes: %v", tl.notes)
	}
}

func TestBrokenRevisionChainsAreFound(t *testing.T) {
	base := func() *revision.Revision {
		return &revision.Revision{
			Stream: "s", Job: "j", PolicyGeneration: "j@1", PolicyDigest: strings.Repeat("0", 64), Key: "a", Window: revision.Window{Start: 0, End: minute},
			LogicalWindowID: strings.Repeat("1", 64), ProjectionID: strings.Repeat("2", 64), Op: revision.Upsert, Revision: 1, State: revision.OnTimeEmitted,
			Firing: revision.FiringOnTime, Cause: revision.CauseOnTime, Value: []revision.Field{{Name: "n", Text: "1"}}, Inputs: revision.Inputs{Events: 1, First: 1, Last: 1},
		}
	}
	first := base()
	second := base()
	second.Revision, second.State, second.Firing = 2, revision.Corrected, revision.FiringLate
	second.Predecessor = &revision.Predecessor{Revision: 1, Digest: first.ComputeDigest()}
	wrong := *second
	wrong.Predecessor = &revision.Predecessor{Revision: 1}
	for name, c := range map[string]struct {
		chain []*revision.Revision
		wrong uint64
	}{
		"whole":             {[]*revision.Revision{first, second}, 0},
		"a gap":             {[]*revision.Revision{second}, 1},
		"a step back":       {[]*revision.Revision{first, second, first}, 1},
		"wrong predecessor": {[]*revision.Revision{first, &wrong}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, p := documents()
			a := newAccepted(p)
			var digest revision.Digest
			for i, r := range c.chain {
				digest = a.accept(uint64(i+1), r, digest)
			}
			if a.revisions.Wrong != c.wrong {
				t.Errorf("%d findings, want %d: %v", a.revisions.Wrong, c.wrong, a.revisions.Details)
			}
		})
	}
}

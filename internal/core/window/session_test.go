package window

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/identity"
	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"pgregory.net/rapid"
)

// TestDistanceExactlyTheGapDoesNotJoin: on time, late, and in either order.
func TestDistanceExactlyTheGapDoesNotJoin(t *testing.T) {
	const gap = 11 * policy.Minute
	for _, c := range []struct {
		name     string
		distance policy.Duration
		sessions int
	}{
		{"a microsecond less", gap - 1, 1},
		{"the gap", gap, 2},
		{"a microsecond more", gap + 1, 2},
	} {
		for _, order := range [][2]envelope.EventTime{{0, envelope.EventTime(c.distance)}, {envelope.EventTime(c.distance), 0}} {
			for _, late := range []bool{false, true} {
				l := newLab(t, gap, policy.Day).restoring()
				l.add(labEvent{1, order[0]})
				if late {
					l.mark(envelope.EventTime(policy.Hour), 1)
				}
				l.add(labEvent{2, order[1]})
				l.mark(envelope.EventTime(2*policy.Hour), 2)
				l.equalsBatch(l.live)
				if n, _, _ := l.op.Sizes(); n != c.sessions {
					t.Errorf("%s, %v, late %v: %d sessions, want %d", c.name, order, late, n, c.sessions)
				}
			}
		}
	}
}

// TestLatenessOfASessionEventIsItsOwn: on [t, t+G), whatever it would join.
func TestLatenessOfASessionEventIsItsOwn(t *testing.T) {
	const gap, lateness = 10, 5
	for _, c := range []struct {
		w    envelope.EventTime
		took bool
	}{{114, true}, {115, false}} { // t+G+L = 115
		l := newLab(t, gap, lateness)
		l.add(labEvent{1, 105})
		l.mark(c.w, 1)
		if took := l.add(labEvent{2, 100}); took != c.took {
			t.Errorf("W %d: an event at 100 was taken in: %v, want %v", c.w, took, c.took)
		}
	}
}

// TestSessionRecords: a late bridge retracts both sessions and publishes theirs in one
// group; bounds that come back go on counting.
func TestSessionRecords(t *testing.T) {
	type row struct {
		start, end int64
		op         revision.Op
		number     uint64
		firing     revision.Firing
		cause      string
	}
	l := newLab(t, 10, 1000)
	var got []row
	l.changed = func() {
		for _, r := range l.group {
			got = append(got, row{int64(r.Window.Start), int64(r.Window.End), r.Op, r.Revision, r.Firing, r.Cause})
		}
	}
	a, b, bridge := labEvent{1, 0}, labEvent{2, 15}, labEvent{3, 8}
	l.add(a)
	l.add(b)
	l.mark(30, 1)
	l.add(bridge)
	l.mark(30, 2)
	l.withdraw(bridge)
	l.mark(30, 3)
	want := []row{
		{0, 10, revision.Upsert, 1, revision.FiringOnTime, revision.CauseOnTime},
		{15, 25, revision.Upsert, 1, revision.FiringOnTime, revision.CauseOnTime},
		{0, 10, revision.Retract, 2, revision.FiringLate, revision.CauseLateEvent},
		{15, 25, revision.Retract, 2, revision.FiringLate, revision.CauseLateEvent},
		{0, 25, revision.Upsert, 1, revision.FiringLate, revision.CauseLateEvent},
		{0, 25, revision.Retract, 2, revision.FiringLate, revision.CauseRetraction},
		{0, 10, revision.Upsert, 3, revision.FiringLate, revision.CauseRetraction},
		{15, 25, revision.Upsert, 3, revision.FiringLate, revision.CauseRetraction},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

// TestALostMemberRetractsAtTheNextMark: the session that goes on is not due yet, and an
// emptied one never is.
func TestALostMemberRetractsAtTheNextMark(t *testing.T) {
	l := newLab(t, 10, 1000).restoring()
	a, b := labEvent{1, 0}, labEvent{2, 5}
	l.add(a)
	l.add(b)
	l.mark(15, 1) // [0, 15)
	l.add(labEvent{3, 14})
	l.withdraw(a)
	l.mark(16, 2)
	if r := l.rows[revision.Window{Start: 0, End: 15}].revision; r.Op != revision.Retract || r.SupersededBy != "" || r.Cause != revision.CauseRetraction {
		t.Errorf("the row that lost a member is %+v", r)
	}
	l.withdraw(b)
	l.withdraw(labEvent{3, 14})
	l.mark(50, 3)
	l.equalsBatch(nil)
	if n, _, _ := l.op.Sizes(); n != 0 {
		t.Errorf("%d empty sessions are held", n)
	}
}

// TestOpenFrom: the least start of what waits to be published, also when that moves on.
func TestOpenFrom(t *testing.T) {
	l := newLab(t, 10, 1000).restoring()
	check := func(want envelope.EventTime) {
		t.Helper()
		if got := l.op.OpenFrom(); got != want {
			t.Errorf("openFrom is %d, want %d", got, want)
		}
	}
	check(envelope.MaxEventTime)
	l.add(labEvent{1, 100})
	check(100)
	l.add(labEvent{2, 95})
	l.add(labEvent{3, 200})
	check(95)
	l.withdraw(labEvent{2, 95})
	check(100)
	l.mark(150, 1)
	check(200)
	l.add(labEvent{4, 105})
	check(100)
	l.mark(150, 2)
	check(200)
	l.mark(210, 3)
	check(envelope.MaxEventTime)
}

// TestOpenFromInsideAMark: a session counts as open until the last record of its group
// was taken.
func TestOpenFromInsideAMark(t *testing.T) {
	l := newLab(t, 10, 1000)
	for i := range 3 {
		l.add(labEvent{i + 1, envelope.EventTime(100 * i)})
	}
	l.seq++
	l.op.BeginFrame(l.seq, l.frame())
	m := &envelope.Mark{Source: "shop", Epoch: 1, MaxEventTime: []envelope.EventTime{500}}
	if err := l.op.Apply(0, &envelope.Record{Mark: m}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []envelope.EventTime{0, 100, 200, envelope.MaxEventTime} {
		if got := l.op.OpenFrom(); got != want {
			t.Errorf("openFrom is %d, want %d", got, want)
		}
		l.op.Next(nil)
	}
}

// TestAcceptedEventsFindTheirSessions: sessions are forgotten as soon as they may be, and
// still every event that is taken in finds each session that it touches.
func TestAcceptedEventsFindTheirSessions(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		gap := rapid.SampledFrom([]int64{1, 3, 10, 5000}).Draw(rt, "G")
		lateness := rapid.SampledFrom([]int64{0, 1, 5, 20, 9000}).Draw(rt, "L")
		l := newLab(rt, policy.Duration(gap), policy.Duration(lateness))
		far := gap + lateness
		var w, now int64
		for n := range rapid.IntRange(10, 80).Draw(rt, "records") {
			if rapid.IntRange(0, 3).Draw(rt, "kind") == 0 {
				w += rapid.Int64Range(0, gap+2).Draw(rt, "step")
				now += 100 // more than the grace
				l.mark(envelope.EventTime(w), now)
				continue
			}
			e := labEvent{n + 1, envelope.EventTime(w + rapid.Int64Range(-far-2, gap).Draw(rt, "t"))}
			own := revision.Window{Start: e.at, End: e.at.Add(gap)}
			touched := batch(l.live, gap)
			if !l.add(e) {
				if int64(e.at)+far > w {
					rt.Fatalf("an event at %d was refused at W %d", e.at, w)
				}
				continue
			}
			start, end := own.Start, own.End
			for _, s := range touched {
				if s.Start < own.End && own.Start < s.End {
					start, end = min(start, s.Start), max(end, s.End)
				}
			}
			found, ok := l.op.Find("k", e.at)
			if !ok || found.Window.Start != start || found.Window.End != end {
				rt.Fatalf("at W %d an event at %d is in %v, want [%d, %d)", w, e.at, found.Window, start, end)
			}
		}
		l.mark(envelope.EventTime(w+3*far+10), now+100)
		l.mark(envelope.EventTime(w+3*far+10), now+200)
		l.equalsBatch(l.live)
		if windows, _, _ := l.op.Sizes(); windows != 0 {
			rt.Fatalf("%d sessions are held for ever", windows)
		}
	})
}

// TestSessionsForgetEverything: sessions, rows, numbers of retracted bounds, keys.
func TestSessionsForgetEverything(t *testing.T) {
	l := newLab(t, 10, 20).restoring()
	l.cfg.Policy.RetainIDs = 30
	l.op, l.shadow = l.fresh(), l.fresh()
	for i := range 50 {
		at := envelope.EventTime(i * 7)
		e := labEvent{i + 1, at}
		l.add(e)
		if i%3 == 0 {
			l.mark(at, int64(i))
		}
		if i%5 == 0 {
			l.withdraw(e)
		}
	}
	l.mark(10_000_000, 100)
	l.mark(10_000_000, 161)
	windows, ids, keys := l.op.Sizes()
	s := l.op.sessions
	if windows+ids+keys != 0 || len(s.rows) != len(s.spare) || len(s.table) != len(s.free) {
		t.Errorf("%d sessions, %d ids, %d keys, %d rows, %d slots are left", windows, ids, keys, len(s.rows)-len(s.spare), len(s.table)-len(s.free))
	}
	for key := range l.pairs {
		if key[0] == pairSession || key[0] == pairSessionKey {
			t.Errorf("a checkpoint still holds %q", key)
		}
	}
}

// TestArrivalOrderOfSessionsDoesNotMatter: once all is final the rows are those of a batch.
func TestArrivalOrderOfSessionsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := newLab(rt, 10, 10_000).restoring()
		l.chains(rapid.IntRange(2, 5).Draw(rt, "limit"))
		events := make([]labEvent, rapid.IntRange(1, 60).Draw(rt, "events"))
		for i := range events {
			events[i] = labEvent{i + 1, envelope.EventTime(rapid.Int64Range(0, 300).Draw(rt, "t"))}
		}
		var now int64
		for _, e := range rapid.Permutation(events).Draw(rt, "order") {
			l.add(e)
			if rapid.IntRange(0, 4).Draw(rt, "mark") == 0 {
				now++
				l.mark(envelope.EventTime(rapid.Int64Range(0, 400).Draw(rt, "W")), now)
			}
		}
		l.mark(1_000, now+1)
		l.equalsBatch(l.live)
		if len(l.live) != len(events) {
			rt.Fatalf("%d of %d events were taken in", len(l.live), len(events))
		}
	})
}

// TestThousandsMergeInAChain: groups of at most 400 left to right; between them every
// event that was published is in one row.
func TestThousandsMergeInAChain(t *testing.T) {
	const sessions, gap = 3000, 10
	l := newLab(t, gap, 1_000_000)
	for i := range sessions {
		l.add(labEvent{i + 1, envelope.EventTime(i * gap)})
	}
	l.mark(sessions*gap+gap, 1)
	for i := range sessions - 1 {
		l.add(labEvent{sessions + i + 1, envelope.EventTime(i*gap + gap/2)})
	}
	l.largest, l.groups, l.gapless = 0, 0, true
	l.mark(sessions*gap+gap, 2)
	l.equalsBatch(l.live)
	// 3000 rows: each group but the last leaves 399 fewer.
	if want := 1 + (sessions-400+398)/399; l.groups != want || l.largest != 401 {
		t.Errorf("%d groups, the largest has %d records; want %d of at most 401", l.groups, l.largest, want)
	}
}

// TestLateBridgesNeverHideAnEvent: whenever a group is whole, every published event is in
// exactly one row.
func TestLateBridgesNeverHideAnEvent(t *testing.T) {
	const bridges, gap = 10_000, 100
	l := newLab(t, gap, 1<<40)
	l.gapless = true
	random := rand.New(rand.NewPCG(7, 11))
	n := 0
	for i := range bridges {
		for _, at := range []int{0, 150} { // the next pair is out of reach
			n++
			l.add(labEvent{n, envelope.EventTime(i*400 + at)})
		}
	}
	l.mark(bridges*400+gap, 1)
	for done, i := range random.Perm(bridges) {
		n++
		l.add(labEvent{n, envelope.EventTime(i*400 + 51 + random.IntN(49))})
		if done%(1+random.IntN(8)) == 0 {
			l.mark(bridges*400+gap, int64(done))
		}
	}
	l.mark(bridges*400+gap, bridges)
	l.equalsBatch(l.live)
}

// TestMergeLimitKeepsAGroupInACommit: the largest group of policies with long names.
func TestMergeLimitKeepsAGroupInACommit(t *testing.T) {
	const commit = 900<<10 - 16<<10
	for _, results := range []int{1, 40} {
		l := newLab(t, 10, 1_000_000)
		name := string(slices.Repeat([]byte("n"), 60))
		l.cfg.Policy.Aggregates = nil
		for i := range results {
			l.cfg.Policy.Aggregates = append(l.cfg.Policy.Aggregates, policy.AggregateSpec{Name: name + string(rune('A'+i/26)) + string(rune('a'+i%26)), Func: "sum", Arg: "v"})
		}
		l.cfg.Policy.Sources[0].Partitions = 16
		op := l.fresh()
		key := string(slices.Repeat([]byte("k"), 256))
		sessions := op.sessions.limit
		apply := func(r envelope.Record) (largest int) {
			l.seq++
			op.BeginFrame(l.seq, l.frame())
			if err := op.Apply(0, &r); err != nil {
				t.Fatal(err)
			}
			for more := true; more; {
				bytes, _ := op.GroupBytes()
				largest = max(largest, bytes)
				_, more = op.Next(nil)
			}
			op.EndFrame()
			return largest
		}
		add := func(n int, at envelope.EventTime) {
			ev := l.event(labEvent{n, at}, envelope.Assert)
			ev.Key, ev.SourcePartition, ev.SourceOffset, ev.Values[0].Int = key, uint32(n%16), 1<<60, -1<<62
			apply(envelope.Record{Event: ev})
		}
		var marks []envelope.Mark
		for p := range 16 {
			marks = append(marks, envelope.Mark{Source: "shop", Partition: uint32(p), Epoch: 1, MaxEventTime: []envelope.EventTime{1 << 40}})
		}
		mark := func() (largest int) {
			for i := range marks {
				largest = max(largest, apply(envelope.Record{Mark: &marks[i]}))
			}
			return largest
		}
		l.cfg.Policy.AllowedLateness = policy.Duration(1) << 50
		op = l.fresh()
		for i := range sessions {
			add(i, envelope.EventTime(i*10))
		}
		mark()
		for i := range sessions - 1 {
			add(sessions+i, envelope.EventTime(i*10+5))
		}
		if largest := mark(); largest == 0 || largest+6*(sessions+1) > commit {
			t.Errorf("%d results: a group of %d rows has %d bytes", results, sessions, largest)
		}
	}
}

// TestSessionsMoveTogetherAfterAPeak: a restore numbers them anew when most slots are
// free, and the pairs follow.
func TestSessionsMoveTogetherAfterAPeak(t *testing.T) {
	l := newLab(t, 10, 20)
	l.pairs = map[string][]byte{}
	const peak = 10_000
	for i := range peak {
		l.add(labEvent{i + 1, envelope.EventTime(i * 20)})
	}
	l.op = l.restore(l.op)
	l.mark(20*(peak-3), 1)
	l.mark(20*(peak-3), 100)
	for range 2 { // the first restore moves them, the second reads what that left
		l.op = l.restore(l.op)
		if n, _, _ := l.op.Sizes(); n == 0 || len(l.op.sessions.table) != n {
			t.Fatalf("%d sessions stand in %d slots", n, len(l.op.sessions.table))
		}
	}
	pairs := 0
	for key := range l.pairs {
		if key[0] == pairSession {
			pairs++
		}
	}
	if n, _, _ := l.op.Sizes(); pairs != n {
		t.Errorf("%d pairs for %d sessions", pairs, n)
	}
	l.add(labEvent{peak + 1, 20*peak - 30})
	l.op = l.restore(l.op)
	l.mark(30*peak, 101)
	l.equalsBatch(l.live)
}

// TestASessionThatCannotBeComputedHalts: the groups before it are whole and taken; the
// error names key, session and event, and the state is not stored any more.
func TestASessionThatCannotBeComputedHalts(t *testing.T) {
	l := newLab(t, 10, 20)
	l.cfg.Policy.Aggregates = []policy.AggregateSpec{{Name: "d", Func: "distinct", Arg: "v", Limit: 2}}
	op := l.fresh()
	apply := func(r envelope.Record) (records int) {
		l.seq++
		op.BeginFrame(l.seq, l.frame())
		if err := op.Apply(0, &r); err != nil {
			t.Fatal(err)
		}
		for more := true; more; {
			if _, more = op.Next(nil); more {
				records++
			}
		}
		return records
	}
	for n, at := range []envelope.EventTime{0, 100, 101, 102} {
		apply(envelope.Record{Event: l.event(labEvent{n + 1, at}, envelope.Assert)})
		op.EndFrame()
	}
	m := &envelope.Mark{Source: "shop", Epoch: 1, MaxEventTime: []envelope.EventTime{200}}
	if n := apply(envelope.Record{Mark: m}); n != 1 {
		t.Errorf("%d records were made before the halt, want 1", n)
	}
	err := op.Apply(1, &envelope.Record{Mark: m})
	if err == nil {
		t.Fatal("a session with too many values was published")
	}
	for _, part := range []string{`key "k"`, "00:00:00.0001", `event "e4"`, "result d", "generation"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if err := op.Delta(func(_, _ []byte) error { return nil }); err == nil {
		t.Error("the state of a halted operator was stored")
	}
}

// TestFramesWithoutTheValueHalt: a value that a result takes was not declared yet.
func TestFramesWithoutTheValueHalt(t *testing.T) {
	l := newLab(t, 10, 20)
	f := &envelope.Frame{Extractors: []string{"at@1"}}
	l.op.BeginFrame(1, f)
	ev := l.event(labEvent{1, 5}, envelope.Assert)
	ev.Values = nil
	err := l.op.ApplyEvent(0, ev)
	if err == nil || !strings.Contains(err.Error(), `"v"`) || !strings.Contains(err.Error(), `event "e1"`) {
		t.Errorf("got %v", err)
	}
}

// TestSessionsOfSeveralSources: the result id names the source, and texts are kept.
func TestSessionsOfSeveralSources(t *testing.T) {
	l := newLab(t, 10, 20)
	l.cfg.Stream.Values = []policy.ValueSpec{{Name: "v", Path: "/v", Type: policy.String}}
	l.cfg.Policy.Sources = []policy.SourceRef{{Name: "web", Partitions: 1}, {Name: "shop", Partitions: 2}}
	l.cfg.Policy.Aggregates = []policy.AggregateSpec{{Name: "f", Func: "first", Arg: "v"}, {Name: "l", Func: "last", Arg: "v"}}
	op := l.fresh()
	events := []struct {
		source, text string
		at           envelope.EventTime
	}{{"web", "b", 7}, {"shop", "", 3}, {"shop", "a", 1}, {"replayed", "x", 1}}
	var records []envelope.Record
	for n, e := range events {
		ev := l.event(labEvent{n, e.at}, envelope.Assert)
		ev.Source, ev.SourcePartition, ev.SourceOffset, ev.Values = e.source, uint32(n), uint64(10+n), []envelope.Value{{Text: e.text}}
		records = append(records, envelope.Record{Event: ev})
	}
	for _, s := range []struct {
		source string
		n      uint32
	}{{"web", 0}, {"shop", 0}, {"shop", 1}} {
		records = append(records, envelope.Record{Mark: &envelope.Mark{Source: s.source, Partition: s.n, Epoch: 1, MaxEventTime: []envelope.EventTime{50}}})
	}
	op.BeginFrame(1, l.frame())
	var out []byte
	for i := range records {
		if err := op.Apply(i, &records[i]); err != nil {
			t.Fatal(err)
		}
		for more := true; more; {
			out, more = op.Next(out)
		}
	}
	rec, err := record.Decode(out)
	if err != nil {
		t.Fatal(err)
	}
	r := rec.Proposal
	if want := identity.SessionResult("k", "rule", []string{"shop#e1", "shop#e2", "web#e0"}); r.ResultID != want {
		t.Errorf("result id %s, want %s", r.ResultID, want)
	}
	if got := fmt.Sprint(r.Value); got != "[f=a l=b]" {
		t.Errorf("value %s", got)
	}
	// Partition 2 of shop is outside the policy, so its event has no place in the ranges.
	if got := fmt.Sprint(r.Inputs.Offsets); got != "[{shop 1 11 11} {web 0 10 10}]" {
		t.Errorf("offsets %s", got)
	}
}

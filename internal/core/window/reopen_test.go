package window

import (
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/aggregate"
	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// feeder hands records to an operator, one a frame, and decodes what comes out.
type feeder struct {
	t  *testing.T
	op *Operator
}

func newFeeder(t *testing.T, window policy.WindowSpec) *feeder {
	t.Helper()
	cfg := benchConfig()
	cfg.Stream.Partitions = 1
	cfg.Policy.Window, cfg.Policy.AllowedLateness, cfg.Policy.OutOfOrderness = window, 0, 0
	cfg.Policy.Sources[0].Partitions = 1
	op, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &feeder{t: t, op: op}
}

func (f *feeder) apply(rec *envelope.Record) (out []record.Record) {
	f.t.Helper()
	f.op.BeginFrame(f.op.Position().Seq, &envelope.Frame{Extractors: []string{"at@1"}, Values: []string{"amount"}})
	if err := f.op.Apply(0, rec); err != nil {
		f.t.Fatal(err)
	}
	for buf, more := f.op.Next(nil); more; buf, more = f.op.Next(nil) {
		r, err := record.Decode(buf)
		if err != nil {
			f.t.Fatal(err)
		}
		out = append(out, r)
	}
	f.op.EndFrame()
	return out
}

func (f *feeder) event(id string, at envelope.EventTime) []record.Record {
	f.t.Helper()
	return f.apply(&envelope.Record{Event: &envelope.Event{ID: id, Source: "shop", Key: "k", Times: []envelope.EventTime{at}, Values: []envelope.Value{{Int: 100}}}})
}

func (f *feeder) mark(w envelope.EventTime, seconds int64) []record.Record {
	f.t.Helper()
	m := &envelope.Mark{Source: "shop", Epoch: 1, Generation: 1, Pending: 1, MaxEventTime: []envelope.EventTime{w}, IngestNow: envelope.IngestTime(seconds * 1_000_000)}
	return f.apply(&envelope.Record{Mark: m})
}

func (f *feeder) reopen(r envelope.Reopen) []record.Record {
	f.t.Helper()
	r.PolicyGeneration, r.Key = orText(r.PolicyGeneration, f.op.cfg.Policy.PolicyGeneration()), orText(r.Key, "k")
	body, err := envelope.AppendReopen(nil, &r)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.apply(&envelope.Record{Reopen: body})
}

func orText(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// asOf is the position that all before has been taken in.
func (f *feeder) asOf() envelope.ReopenPlace {
	return envelope.ReopenPlace{Seq: f.op.Position().Seq}
}

func (f *feeder) count(name string) uint64 {
	_, _, counts, _ := f.op.Totals()
	at := slices.IndexFunc(counts, func(c revision.Count) bool { return c.Name == name })
	if at < 0 {
		return 0
	}
	return counts[at].N
}

func add(id string, at envelope.EventTime, seq uint64) envelope.ReopenEvent {
	return envelope.ReopenEvent{Source: "shop", ID: id, Time: at, Seq: seq, SourceOffset: 9, Values: []envelope.Value{{Int: 100}}}
}

var tumbling10 = policy.WindowSpec{Kind: policy.Tumbling, Size: 10}

func wantRefused(t *testing.T, out []record.Record, why string) {
	t.Helper()
	if len(out) != 1 || out[0].Refused == nil || out[0].Refused.Why != why || out[0].Refused.Key != "k" {
		t.Fatalf("got %+v, want one REFUSED %s", out, why)
	}
}

func TestReopenedEventsChangeAFinalWindowAtOnce(t *testing.T) {
	f := newFeeder(t, tumbling10)
	f.event("a", 1)
	f.mark(10, 1)
	if late := f.event("b", 2); len(late) != 1 || late[0].Late == nil {
		t.Fatalf("got %+v, want a late record", late)
	}
	_, _, _, before := f.op.Totals()
	out := f.reopen(envelope.Reopen{AsOf: f.asOf(), AsOfNow: 1_000_000, Add: []envelope.ReopenEvent{add("b", 2, 3)}})
	if len(out) != 1 || out[0].Proposal == nil {
		t.Fatalf("got %+v, want one revision", out)
	}
	r := out[0].Proposal
	if r.Revision != 2 || r.Firing != revision.FiringReopened || r.Cause != revision.CauseReopened || r.State != revision.Corrected ||
		r.Origin != envelope.OriginRepair || r.Inputs.Events != 2 || r.Inputs.First != 1 || r.Inputs.Last != 3 || !r.ValueChanged {
		t.Errorf("got %+v", r)
	}
	if f.count(CountReopened) != 1 || f.count(CountApplied) != 1 || f.count(CountTooLate) != 1 {
		t.Error("the event counts as too late and as reopened, not as applied")
	}
	if _, _, _, after := f.op.Totals(); after == before {
		t.Error("the event is not in the digest over ids")
	}
	if f.event("c", 3)[0].Late == nil {
		t.Error("a reopened window takes events by the live path")
	}
}

func TestReopenPutsAForgottenWindowBack(t *testing.T) {
	f := newFeeder(t, tumbling10)
	f.event("a", 1)
	first := f.mark(10, 1)[0]
	f.mark(30, 100)
	if _, held := f.op.Find("k", 1); held {
		t.Fatal("the window is still held 99 s after it was final")
	}
	cell := f.op.program // count and sum of one event of 1.00
	states := [][]byte{cell[0].AppendState(nil, oneEvent(t, f.op, 0)), cell[1].AppendState(nil, oneEvent(t, f.op, 1))}
	back := envelope.ReopenWindow{
		Start: 0, End: 10, Revision: 1, Digest: first.Digest, First: 1, Last: 1, Events: 1, IDDigest: first.Proposal.Inputs.IDDigest,
		Value: []envelope.ReopenField{{Name: "orders", Text: "1"}, {Name: "revenue", Text: "1.00", Quoted: true}}, State: states,
	}
	r := envelope.Reopen{AsOf: f.asOf(), AsOfNow: 100_000_000, Restore: []envelope.ReopenWindow{back}, Add: []envelope.ReopenEvent{add("b", 2, 3)}}
	out := f.reopen(r)
	if len(out) != 1 || out[0].Proposal.Revision != 2 || out[0].Proposal.Predecessor.Digest != first.Digest || out[0].Proposal.Delta[1].Text != "1.00" {
		t.Fatalf("got %+v", out)
	}
	if _, held := f.op.Find("k", 1); !held {
		t.Error("the window is not held for the next REOPEN")
	}
	f.mark(31, 110)
	f.mark(32, 169)
	if _, held := f.op.Find("k", 1); !held {
		t.Error("the window went before 60 s were over")
	}
	f.mark(33, 170)
	if _, held := f.op.Find("k", 1); held {
		t.Error("the window stays for ever")
	}
}

func TestWithdrawingWhatIsNotThereChangesNothing(t *testing.T) {
	f := newFeeder(t, tumbling10)
	f.event("a", 1)
	first := f.mark(10, 1)[0]
	held := envelope.ReopenWindow{Start: 0, End: 10, Revision: 1, Digest: first.Digest, First: 1, Last: 1, Events: 1}
	ghost := add("x", 1, 3)
	ghost.Withdraws = "ghost"
	if out := f.reopen(envelope.Reopen{AsOf: f.asOf(), AsOfNow: 1_000_000, Restore: []envelope.ReopenWindow{held}, Withdraw: []envelope.ReopenEvent{ghost}}); len(out) != 0 {
		t.Fatalf("got %+v", out)
	}
	if w, _ := f.op.Find("k", 1); w.Events != 1 || f.count(CountReopened) != 0 {
		t.Errorf("the window holds %d events", w.Events)
	}
	held.Members = []envelope.ReopenEvent{{Source: "shop", ID: "a", Time: 1}}
	ghost.Withdraws = "a"
	out := f.reopen(envelope.Reopen{AsOf: f.asOf(), AsOfNow: 1_000_000, Restore: []envelope.ReopenWindow{held}, Withdraw: []envelope.ReopenEvent{ghost}})
	if len(out) != 1 || out[0].Proposal.Op != revision.Retract || out[0].Proposal.Revision != 2 || out[0].Proposal.Firing != revision.FiringReopened {
		t.Fatalf("got %+v, want the RETRACT of a window that was left empty", out)
	}
}

func oneEvent(t *testing.T, o *Operator, i int) *aggregate.Cell {
	t.Helper()
	var c aggregate.Cell
	if err := o.program[i].Add(&c, &aggregate.Input{Value: envelope.Value{Int: 100}}); err != nil {
		t.Fatal(err)
	}
	return &c
}

func TestReopenIsRefused(t *testing.T) {
	f := newFeeder(t, tumbling10)
	f.event("a", 1)
	f.mark(10, 1)
	asOf := f.asOf()
	f.event("b", 2)
	one := envelope.Reopen{Epoch: 5, AsOf: f.asOf(), AsOfNow: 1_000_000, Add: []envelope.ReopenEvent{add("b", 2, 3)}}
	if out := f.reopen(one); len(out) != 1 || out[0].Proposal == nil {
		t.Fatalf("got %+v", out)
	}
	wantRefused(t, f.reopen(one), record.RefusedReopened)
	wantRefused(t, f.reopen(envelope.Reopen{Epoch: 5, AsOf: asOf, AsOfNow: 1_000_000}), record.RefusedReopened)
	wantRefused(t, f.reopen(envelope.Reopen{Epoch: 4, AsOf: f.asOf(), AsOfNow: 1_000_000}), record.RefusedEpoch)
	if out := f.reopen(envelope.Reopen{Epoch: 6, AsOf: f.asOf(), AsOfNow: 1_000_000}); len(out) != 0 {
		t.Fatalf("a REOPEN of nothing publishes %+v", out)
	}
	wantRefused(t, f.reopen(envelope.Reopen{Epoch: 5, AsOf: f.asOf(), AsOfNow: 1_000_000}), record.RefusedEpoch)
	f.mark(20, 60)
	if out := f.reopen(envelope.Reopen{Epoch: 6, AsOf: f.asOf(), AsOfNow: 1_000_000}); len(out) != 0 {
		t.Fatalf("59 s after asOf: %+v", out)
	}
	f.mark(20, 61)
	wantRefused(t, f.reopen(envelope.Reopen{Epoch: 6, AsOf: f.asOf(), AsOfNow: 1_000_000}), record.RefusedStale)
	if f.count(CountReopened) != 1 {
		t.Error("what is refused is counted")
	}
}

func TestReopenOfOthersIsIgnored(t *testing.T) {
	f := newFeeder(t, tumbling10)
	f.op.cfg.Stream.Partitions = 8
	f.op.epoch = 9
	if out := f.reopen(envelope.Reopen{PolicyGeneration: "other@1", AsOf: f.asOf()}); len(out) != 0 {
		t.Errorf("another generation: %+v", out)
	}
	if out := f.reopen(envelope.Reopen{Key: "kk", AsOf: f.asOf()}); len(out) != 0 {
		t.Errorf("a key of another partition: %+v", out)
	}
}

func TestReopenInParts(t *testing.T) {
	part := func(f *feeder, n, of uint32, adds ...envelope.ReopenEvent) envelope.Reopen {
		return envelope.Reopen{Part: n, Parts: of, AsOf: envelope.ReopenPlace{Seq: 4}, AsOfNow: 1_000_000, Add: adds}
	}
	for name, c := range map[string]struct {
		parts  []uint32
		events uint64 // in the window at last
	}{
		"in order":              {[]uint32{1, 2, 3}, 4},
		"one comes again":       {[]uint32{1, 2, 2, 3}, 4},
		"begun anew":            {[]uint32{1, 2, 1, 2, 3}, 4},
		"one is missing":        {[]uint32{1, 3}, 0},
		"the first is missing":  {[]uint32{2, 3}, 0},
		"the last comes alone":  {[]uint32{3}, 0},
		"the last comes before": {[]uint32{1, 3, 2}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFeeder(t, tumbling10)
			f.event("a", 1)
			f.mark(10, 1)
			f.event("b", 2)
			var out []record.Record
			for _, n := range c.parts {
				out = append(out, f.reopen(part(f, n, 3, add("part"+string('0'+rune(n)), 2, 3)))...)
			}
			if c.events == 0 {
				wantRefused(t, out, record.RefusedParts)
				return
			}
			if len(out) != 1 || out[0].Proposal == nil || out[0].Proposal.Inputs.Events != c.events {
				t.Fatalf("got %+v, want one revision of %d events", out, c.events)
			}
		})
	}
}

func TestPartsThatStaySingleAreForgotten(t *testing.T) {
	f := newFeeder(t, tumbling10)
	f.mark(10, 1)
	f.reopen(envelope.Reopen{Part: 1, Parts: 2, AsOf: f.asOf(), AsOfNow: 1_000_000})
	if f.mark(11, 60); len(f.op.reopens) != 1 {
		t.Fatal("the part was dropped too early")
	}
	if f.mark(12, 61); len(f.op.reopens) != 0 {
		t.Fatal("a part that nothing follows is kept for ever")
	}
	if f.reopen(envelope.Reopen{Part: 2, Parts: 3, AsOf: f.asOf(), AsOfNow: 61_000_000}); len(f.op.reopens) != 0 {
		t.Fatal("a part that follows nothing is kept")
	}
}

func TestHoppingEventIsReopenedWhereItWasRefused(t *testing.T) {
	f := newFeeder(t, policy.WindowSpec{Kind: policy.Hopping, Size: 10, Every: 5})
	f.event("a", 7)
	f.mark(10, 1) // [0,10) is final
	late := f.event("b", 7)
	if len(late) != 1 || late[0].Late.Window != (revision.Window{Start: 0, End: 10}) || late[0].Late.None {
		t.Fatalf("got %+v, want one refused pair of an event that another window took", late)
	}
	if f.count(CountApplied) != 2 || f.count(CountTooLate) != 0 || f.count(CountRefused) != 1 || f.count(CountOnTime) != 3 {
		t.Errorf("counts: %+v", f.op.totals)
	}
	r := add("b", 7, 3)
	r.Refused = 1
	out := f.reopen(envelope.Reopen{AsOf: f.asOf(), AsOfNow: 1_000_000, Add: []envelope.ReopenEvent{r}})
	if len(out) != 1 || out[0].Proposal.Window.Start != 0 || out[0].Proposal.Inputs.Events != 2 || f.count(CountReopened) != 0 {
		t.Fatalf("got %+v: the event counts as applied already", out)
	}
	if w, held := f.op.Find("k", 7); !held || w.Window.Start != 5 || w.State != revision.Open {
		t.Errorf("got %+v, want the window that starts last", w)
	}
	out = f.mark(15, 2)
	if len(out) != 1 || out[0].Proposal.Window.Start != 5 || out[0].Proposal.Inputs.Events != 2 || out[0].Proposal.Firing != revision.FiringOnTime {
		t.Fatalf("got %+v", out)
	}
	if late := f.event("c", 7); len(late) != 2 || late[0].Late.Window.Start != 0 || late[1].Late.Window.Start != 5 || !late[0].Late.None {
		t.Fatalf("got %+v, want both pairs, the earlier window first", late)
	}
}

func TestDamagedReopenHalts(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *envelope.Reopen)
		want   string
	}{
		"no window of the policy": {func(r *envelope.Reopen) { r.Retracted = []envelope.ReopenRetracted{{Start: 1, End: 11, Revision: 1}} }, "no window of the policy"},
		"other results": {func(r *envelope.Reopen) {
			r.Restore = []envelope.ReopenWindow{{Start: 0, End: 10, Revision: 1, Events: 1}}
		}, "results of the policy"},
		"no values": {func(r *envelope.Reopen) {
			r.Add = []envelope.ReopenEvent{{Source: "shop", ID: "x", Time: 1}}
		}, "0 values"},
	} {
		f := newFeeder(t, tumbling10)
		f.mark(10, 1)
		r := envelope.Reopen{PolicyGeneration: f.op.cfg.Policy.PolicyGeneration(), Key: "k", AsOf: f.asOf(), AsOfNow: 1_000_000}
		c.change(&r)
		body, err := envelope.AppendReopen(nil, &r)
		if err != nil {
			t.Fatal(err)
		}
		f.op.BeginFrame(f.op.Position().Seq, &envelope.Frame{Extractors: []string{"at@1"}, Values: []string{"amount"}})
		if err := f.op.Apply(0, &envelope.Record{Reopen: body}); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "sequence 2, record 0") {
			t.Errorf("%s: error is %v, want %q", name, err, c.want)
		}
	}
}

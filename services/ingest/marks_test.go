package ingest

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// timed is a node whose clock stands still unless it is told to move.
type timed struct {
	*node
	clock *fakeClock
}

func (w *world) runTimed(name string, options ...option) timed {
	w.t.Helper()
	c := newFakeClock()
	n := w.run(name, append(options, func(conf *Config, _ *Service) {
		if conf != nil {
			conf.Clock = c
		}
	})...).ready()
	// Stopping waits for last marks, and those for their spacing.
	w.t.Cleanup(func() {
		stopped := make(chan struct{})
		go func() { defer close(stopped); n.stop() }()
		until(w.t, "stopped", func() bool {
			c.advance(markSpacing)
			select {
			case <-stopped:
				return true
			default:
				return false
			}
		})
	})
	return timed{n, c}
}

// pass lets d go by in small steps, waiting at each until the look at the clock is over
// and the marks that were due are written. Most steps write none.
func (n timed) pass(d time.Duration) {
	n.w.t.Helper()
	for range d / lookEvery {
		n.clock.advance(lookEvery)
		n.Service.look()
		st := n.st()
		until(n.w.t, "marks are written", func() bool {
			st.mu.Lock()
			defer st.mu.Unlock()
			return st.written == st.cuts && len(st.kicked) == 0
		})
	}
}

func (n timed) cuts() uint64 {
	st := n.st()
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.cuts
}

func TestQuietPartitionsAreMarkedEveryFiveSeconds(t *testing.T) {
	w := newWorld(t, 1)
	w.policies[0].IdleAfter = 0
	n := w.runTimed("a")
	n.pass(time.Second)
	before := n.cuts()
	n.pass(30 * time.Second)
	if got := n.cuts() - before; got < 5 || got > 7 {
		t.Errorf("%d rounds of marks in 30 s of silence", got)
	}
	m := w.journal().lastMark(t, "shop", 0, 0)
	if m.QuietForMs < 25_000 || m.QuietForMs > 31_000 || m.Paused || m.Pending != 0 || m.InFlight != 0 {
		t.Errorf("mark %+v", m)
	}
}

func TestIdlenessIsMarkedWithinASpacing(t *testing.T) {
	w := newWorld(t, 1)
	w.policies[0].IdleAfter, w.policies[0].AllIdle = 3*policy.Second, policy.Hold
	n := w.runTimed("a")
	n.pass(time.Second)
	n.mustPush(&Request{Items: plain(sale("e", "north", 1))})
	n.pass(3*time.Second + markSpacing)
	marks := w.journal().marks("shop", 0, 0)
	for _, m := range marks {
		if m.QuietForMs >= 3000 {
			if m.QuietForMs > 3200 {
				t.Errorf("the first idle mark says %d ms", m.QuietForMs)
			}
			return
		}
	}
	t.Errorf("no idle mark among %d", len(marks))
}

func TestAdvancingPolicyGetsMarksWhileIdle(t *testing.T) {
	rule := idleRule{after: 2 * time.Second, advance: true}
	was, marks := time.Duration(0), 0
	for is := time.Duration(0); is <= 12*time.Second; is += lookEvery {
		if rule.grown(was, is) {
			was = is
			marks++
		}
	}
	if was < 10*time.Second || marks < 10 || marks > 30 {
		t.Errorf("%d marks, the last at %s", marks, was)
	}
	if (idleRule{after: 2 * time.Second}).grown(3*time.Second, time.Hour) {
		t.Error("a holding policy asks for marks although nothing depends on them")
	}
}

func TestAtMostFiveRoundsASecond(t *testing.T) {
	w := newWorld(t, 1)
	n := w.runTimed("a")
	n.pass(time.Second)
	before := n.cuts()
	for i := range 100 {
		n.mustPush(&Request{Items: plain(sale("e", "north", i%60))})
		n.pass(lookEvery)
	}
	if got := n.cuts() - before; got < 20 || got > 26 {
		t.Errorf("%d rounds in 5 s of load", got)
	}
}

func TestGenerationGrowsAtTheFirstEventAfterAQuietMark(t *testing.T) {
	w := newWorld(t, 1)
	n := w.runTimed("a")
	push := func() {
		t.Helper()
		n.mustPush(&Request{Items: plain(sale("e", "north", 1), sale("f", "north", 1))})
	}
	push()
	n.pass(500 * time.Millisecond)
	push() // no mark said a second
	n.pass(8 * time.Second)
	push()
	n.pass(time.Second)
	var got []uint64
	for _, ev := range w.journal().events() {
		got = append(got, ev.PartitionGeneration&0xffffffff)
	}
	if want := []uint64{1, 1, 1, 1, 2, 2}; !equal(got, want) {
		t.Errorf("generations %v, want %v", got, want)
	}
	if m := w.journal().lastMark(t, "shop", 0, 0); m.Generation != 1<<32|2 {
		t.Errorf("mark of generation %d", m.Generation&0xffffffff)
	}
}

func equal(a, b []uint64) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

func TestQuietTimeStandsStillUnderBackPressure(t *testing.T) {
	w := newWorld(t, 1)
	n := w.runTimed("a")
	n.pass(time.Second)
	p := n.st().partition("shop", 1)
	quietNow := func() time.Duration {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.quiet.total
	}
	n.budget.waiting.Add(1) // somebody waits for room

	before := quietNow()
	n.pass(10 * time.Second)
	if got := quietNow(); got > before+lookEvery { // one look may have begun before
		t.Errorf("quiet time went from %s to %s while nothing could be written", before, got)
	}
	if m := w.journal().lastMark(t, "shop", 1, 0); !m.Paused {
		t.Error("the mark does not say that the partition is paused")
	}
	n.budget.waiting.Add(-1)
	n.pass(2 * time.Second)
	if got := quietNow(); got < before+time.Second || got > before+3*time.Second {
		t.Errorf("quiet time is %s after 2 s without pressure, it was %s", got, before)
	}
}

func TestQuietTimeStandsStillWhileARequestIsOnItsWay(t *testing.T) {
	w := newWorld(t, 1)
	n := w.runTimed("a")
	p := n.st().partition("shop", 0)
	n.pass(5 * time.Second)
	arrived := p.expect()
	n.pass(10 * time.Second)
	if m := w.journal().lastMark(t, "shop", 0, 0); m.QuietForMs != 0 || m.Pending != 1 {
		t.Errorf("mark %+v", m)
	}
	arrived()
	n.pass(6 * time.Second)
	if m := w.journal().lastMark(t, "shop", 0, 0); m.QuietForMs < 2000 || m.QuietForMs > 6100 || m.Pending != 0 {
		t.Errorf("mark %+v", m)
	}
}

func TestAFrozenProcessWasNotQuiet(t *testing.T) {
	var q quiet
	q.arrival(0)
	q.advance(10*time.Minute, true)
	if q.total > quietStep {
		t.Errorf("%s of quiet time out of one look", q.total)
	}
}

func TestClockStepAlarmsAndMovesNoStamp(t *testing.T) {
	w := newWorld(t, 1)
	n := w.runTimed("a")
	n.pass(time.Second)
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		n.clock.mu.Lock()
		n.clock.step = step
		n.clock.mu.Unlock()
		n.pass(lookEvery)
		if got := strings.Join(n.Problems(), "\n"); !strings.Contains(got, "wall clock") {
			t.Errorf("problems after a step of %s: %q", step, got)
		}
		want := n.clock.start.Add(n.clock.mono).UnixMicro()
		if got := int64(n.stamp.now()); got != want {
			t.Errorf("stamp is %d µs off after a step of %s", got-want, step)
		}
	}
	n.clock.mu.Lock()
	n.clock.step = time.Second
	n.clock.mu.Unlock()
	n.pass(lookEvery)
	if got := n.Problems(); len(got) != 0 {
		t.Errorf("problems after the clock was set right: %v", got)
	}
}

func TestFlushAnswersWhereTheMarksStand(t *testing.T) {
	w := newWorld(t, 2)
	n := w.run("a").ready()
	n.mustPush(&Request{Items: plain(sale("e1", "north", 1), sale("e2", "south", 2))})
	msg, err := w.conn.NC.Request(subject.IngestFlush(w.stream.Name), nil, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var reply flushReply
	if err := json.Unmarshal(msg.Data, &reply); err != nil || len(reply.Partitions) != 2 || reply.Instance != "a" {
		t.Fatalf("reply %s: %v", msg.Data, err)
	}
	for _, f := range reply.Partitions {
		st, err := w.conn.JS.Stream(context.Background(), subject.EventsStream(w.stream.Name, f.Partition))
		if err != nil {
			t.Fatal(err)
		}
		got, err := st.GetMsg(context.Background(), f.Last)
		if err != nil {
			t.Fatal(err)
		}
		frame, err := envelope.DecodeFrame(got.Data)
		if err != nil || len(frame.Records) != 2 || frame.Records[0].Mark == nil || frame.Records[0].Mark.Offset != 1<<32|2 {
			t.Errorf("sequence %d of key partition %d is not the mark: %+v %v", f.Last, f.Partition, frame, err)
		}
	}
}

func TestANewExtractorAndANewPolicyAreFollowed(t *testing.T) {
	w := newWorld(t, 1)
	n := w.run("a").ready()
	n.mustPush(&Request{Items: plain(sale("e1", "north", 1))})
	changed := *w.stream
	changed.Extractors = append(changed.Extractors[:1:1], policy.Extractor{Name: "booked@1", Path: "/booked", Format: policy.RFC3339})
	w.stream = &changed
	w.policies = append(w.policies, &policy.StreamTimePolicy{
		Stream: w.stream.Name, Job: "other", Generation: 1, Sources: []policy.SourceRef{{Name: "till", Partitions: 1}}, Extractor: "booked@1",
	})
	n.apply(w.snapshot())
	n.ready()
	n.mustPush(&Request{Source: "till", Items: plain(strings.Replace(sale("e2", "north", 2), `"at"`, `"booked":"2026-11-30T09:00:00Z","at"`, 1))})
	n.flushNow()
	m := w.journal().lastMark(t, "till", 0, 0)
	if len(m.MaxEventTime) != 2 || m.MaxEventTime[1].String() != "2026-11-30T09:00:00Z" {
		t.Errorf("mark %+v", m)
	}
	m = w.journal().lastMark(t, "shop", 0, 0)
	if len(m.MaxEventTime) != 2 || m.MaxEventTime[1] != envelope.MinEventTime || m.MaxEventTime[0].String() != "2026-11-30T10:00:01Z" {
		t.Errorf("mark %+v", m)
	}
	w.checkComplete()
}

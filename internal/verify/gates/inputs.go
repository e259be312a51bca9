package gates

import (
	"context"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// writerFrames knows which frames of one writer stand in one events journal.
type writerFrames struct {
	seen     offsetSet
	acked    uint64 // highest Frames of a mark
	repeated uint64
}

// readInputs reads every events journal once, feeds the oracles, and gathers source
// positions from events and quarantine.
func readInputs(ctx context.Context, js jetstream.JetStream, t *tally, bs *policy.BusinessStream, units []*unit, report *Report, progress func(done, total uint64)) error {
	all := newPositions()
	var total, done uint64
	lasts := make([]uint64, bs.Partitions)
	for pp := range bs.Partitions {
		last, err := journal.LastSeq(ctx, js, subject.EventsStream(bs.Name, pp), "")
		if err != nil {
			return err
		}
		lasts[pp] = last
		total += last
	}
	for pp := range bs.Partitions {
		tick := func() {
			if done++; progress != nil && (done%256 == 0 || done == total) {
				progress(done, total)
			}
		}
		if err := readEvents(ctx, js, t, bs, pp, lasts[pp], units, all, report, tick); err != nil {
			return fmt.Errorf("events journal of key partition %s: %w", subject.PP(pp), err)
		}
	}
	if err := readQuarantine(ctx, js, t, bs.Name, all, report); err != nil {
		return err
	}
	all.check(&t.offsets)
	for _, u := range units {
		if last := lasts[u.pp]; u.until.Seq <= last {
			t.notes = append(t.notes, fmt.Sprintf("%s: results reach message %d of %d in the events journal; the rest is not compared yet (`tidemark wait`, or `tidemark doctor` if it stays)", u.name(), u.until.Seq-1, last))
		}
	}
	all.checkReplays(&t.replays)
	report.Replayed = all.replayed
	return nil
}

func readEvents(ctx context.Context, js jetstream.JetStream, t *tally, bs *policy.BusinessStream, pp int, last uint64, units []*unit, all *positions, report *Report, tick func()) error {
	writers := map[string]*writerFrames{}
	var gaps []envelope.Gap
	ahead := sync.OnceValues(func() ([]envelope.Gap, error) { return readGaps(ctx, js, bs.Name, pp, last) })
	for _, u := range units {
		if u.pp == pp {
			u.oracle.LookAhead(ahead)
		}
	}
	if last > 0 {
		r, err := journal.Read(ctx, js, subject.EventsStream(bs.Name, pp), 0, 1)
		if err != nil {
			return err
		}
		defer r.Close()
		for seq := uint64(0); seq < last; {
			m, err := r.Next(ctx)
			if err != nil {
				return err
			}
			seq = m.Seq
			f, err := envelope.DecodeFrame(m.Data)
			if err != nil {
				return fmt.Errorf("frame at sequence %d: %w", seq, err)
			}
			fresh := noteFrame(writers, f)
			for i := range f.Records {
				if g := f.Records[i].Gap; g != nil {
					gaps = append(gaps, *g)
				}
				if !fresh {
					continue
				}
				notePosition(&f.Records[i], t, all, report)
			}
			for _, u := range units {
				if u.pp == pp {
					if err := u.take(seq, f, fresh); err != nil {
						return err
					}
				}
			}
			tick()
		}
	}
	checkFrames(t, pp, writers, gaps)
	return nil
}

// readGaps answers every GAP record of an events journal: one that stands behind a mark
// releases it.
func readGaps(ctx context.Context, js jetstream.JetStream, stream string, pp int, last uint64) (gaps []envelope.Gap, err error) {
	err = journal.ReadRange(ctx, js, subject.EventsStream(stream, pp), 0, 1, last, func(m journal.Msg) error {
		f, err := envelope.DecodeFrame(m.Data)
		if err != nil {
			return fmt.Errorf("frame at sequence %d: %w", m.Seq, err)
		}
		for i := range f.Records {
			if g := f.Records[i].Gap; g != nil {
				gaps = append(gaps, *g)
			}
		}
		return nil
	})
	return gaps, err
}

// noteFrame answers whether the frame's number is new for its writer.
func noteFrame(writers map[string]*writerFrames, f *envelope.Frame) bool {
	fresh := true
	if f.Writer != "" {
		w := frameSet(writers, f.Writer)
		if w.seen.add(f.Number) {
			w.repeated++
			fresh = false
		}
	}
	for i := range f.Records {
		if m := f.Records[i].Mark; m != nil {
			w := frameSet(writers, m.Writer)
			w.acked = max(w.acked, m.Frames)
		}
	}
	return fresh
}

func frameSet(writers map[string]*writerFrames, writer string) *writerFrames {
	w := writers[writer]
	if w == nil {
		w = &writerFrames{}
		writers[string([]byte(writer))] = w
	}
	return w
}

func notePosition(r *envelope.Record, t *tally, all *positions, report *Report) {
	switch {
	case r.Event != nil:
		report.Events++
		if r.Event.SourcePartition == envelope.ReplayPartition {
			all.replay(r.Event, &t.replays)
			return
		}
		all.add(r.Event.Source, r.Event.SourcePartition, r.Event.SourceOffset, &t.twice)
	case r.Mark != nil:
		all.mark(r.Mark)
	}
}

func checkFrames(t *tally, pp int, writers map[string]*writerFrames, gaps []envelope.Gap) {
	for _, g := range gaps {
		t.notes = append(t.notes, fmt.Sprintf("key partition %s: an operator declared frames %d to %d of writer %s lost: %s", subject.PP(pp), g.First, g.Last, g.Writer, g.Reason))
	}
	for name, w := range writers {
		t.frames.look(w.acked)
		for _, g := range gaps {
			if g.Writer == name {
				for n := g.First; n <= g.Last && n <= w.acked; n++ {
					w.seen.add(n)
				}
			}
		}
		w.seen.marked = w.acked
		if count, first := w.seen.missing(); count > 0 {
			t.frames.fail("key partition %s: %d frames of writer %s are missing, the first is %d", subject.PP(pp), count, name, first)
			t.frames.Wrong += count - 1
		}
	}
}

// take feeds one frame to the unit's oracle, as far as its position reaches.
func (u *unit) take(seq uint64, f *envelope.Frame, fresh bool) error {
	until := -1
	switch {
	case seq > u.until.Seq, seq == u.until.Seq && u.until.Index == 0:
		return nil
	case seq == u.until.Seq:
		until = int(u.until.Index)
	}
	if fresh {
		u.countIn(f, until)
	}
	return u.oracle.Frame(seq, f, until)
}

// countIn counts the events that the unit's policy must account for.
func (u *unit) countIn(f *envelope.Frame, until int) {
	if until < 0 {
		until = len(f.Records)
	}
	for i := range f.Records[:until] {
		ev := f.Records[i].Event
		if ev == nil || !u.knows(ev.Source) {
			continue
		}
		u.in++
		if u.keys != nil && !u.keys[ev.Key] {
			u.keys[string([]byte(ev.Key))] = true
		}
	}
}

func (u *unit) knows(source string) bool {
	for _, s := range u.entry.Policy.Sources {
		if s.Name == source {
			return true
		}
	}
	return false
}

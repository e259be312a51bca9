package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/bench"
	"github.com/tidemark-mesh/tidemark/internal/core/admission"
	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Figures of the ingest process that the preparation stands for.
const (
	preparedFrame = 64 << 10
	preparedRate  = 300_000 // events a second: how fast its clock goes
	preparedName  = "bench-writer"
)

// preparation writes the events journals as one ingest process would: decided events in
// full frames, and marks at fixed places, so that the journal is the same every time.
type preparation struct {
	rig    *benchRig
	admit  *admission.Admitter
	out    published
	frames []*envelope.FrameBuilder
	number []uint64
	parts  [bench.Partitions]preparedPart
	now    envelope.IngestTime
	bytes  int64
}

// preparedPart is one source partition.
type preparedPart struct {
	n          uint64
	generation uint64
	max        envelope.EventTime
	last       int // number of its last event
}

const preparedEpoch = 1

func newPreparation(r *benchRig) *preparation {
	p := &preparation{rig: r, admit: admission.New(r.stream), out: published{js: r.client.JS}, number: make([]uint64, r.stream.Partitions)}
	extractors, values := p.admit.Frame()
	for range r.stream.Partitions {
		p.frames = append(p.frames, envelope.NewFrameBuilder(preparedName, extractors, values))
	}
	for i := range p.parts {
		p.parts[i] = preparedPart{generation: preparedEpoch << 32, max: envelope.MinEventTime}
	}
	return p
}

func (p *preparation) run(ctx context.Context) error {
	r := p.rig
	bar := r.progress("prepare", int64(r.options.spec.Events))
	defer bar.end()
	start := envelope.IngestTime(r.clock.Now().UnixMicro())
	g := bench.NewGenerator(r.options.spec)
	var line []byte
	for i := 0; ; i++ {
		ev, more := g.Next()
		if !more {
			break
		}
		p.now = start + envelope.IngestTime(int64(i)*1_000_000/preparedRate)
		line = ev.AppendLine(line[:0])
		p.bytes += int64(len(line))
		if err := p.event(i, &ev, line[:len(line)-1]); err != nil {
			return err
		}
		if (i+1)%r.options.markBy == 0 {
			if err := p.mark(i, false); err != nil {
				return err
			}
			bar.set(int64(i), int64(i))
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	if err := p.mark(r.options.spec.Events, true); err != nil {
		return err
	}
	return p.out.settle(len(p.out.flights))
}

// event decides about one line and puts it into its frame; refused ones are left out.
func (p *preparation) event(i int, from *bench.Event, line []byte) error {
	part := &p.parts[from.Partition]
	part.last = i
	var ev envelope.Event
	why := p.admit.Decide(admission.Item{Format: admission.Plain, Bytes: line, Source: bench.Source}, uint32(from.Partition), p.now, &ev)
	if why != nil {
		if from.Class != bench.Future && from.Class != bench.NoTime {
			return fmt.Errorf("event %d is refused: %s: %s", i, why.Reason, why.Rule)
		}
		return nil
	}
	part.n++
	ev.SourceOffset, ev.PartitionGeneration, ev.IngestTime = preparedEpoch<<32|part.n, part.generation, p.now
	part.max = max(part.max, ev.Times[0])
	pp := admission.KeyPartition(ev.Key, len(p.frames))
	if err := p.frames[pp].AddEvent(&ev); err != nil {
		return err
	}
	if p.frames[pp].Len() >= preparedFrame {
		return p.flush(pp)
	}
	return nil
}

// flush numbers and sends the open frame of a key partition, if it holds anything.
func (p *preparation) flush(pp int) error {
	if p.frames[pp].Records() == 0 {
		return nil
	}
	p.number[pp]++
	err := p.out.send(subject.Events(bench.Stream, pp), slices.Clone(p.frames[pp].Finish(p.number[pp])))
	p.frames[pp].Reset()
	return err
}

// mark appends a frame of marks to every events journal.
func (p *preparation) mark(i int, finished bool) error {
	for pp := range p.frames {
		if err := p.flush(pp); err != nil {
			return err
		}
	}
	for pp, frame := range p.frames {
		for n := range p.parts {
			part := &p.parts[n]
			quiet := int64(i-part.last) * 1000 / preparedRate
			m := envelope.Mark{
				Source: bench.Source, Partition: uint32(n), Epoch: preparedEpoch, Generation: part.generation,
				Offset: preparedEpoch<<32 | part.n, MaxEventTime: []envelope.EventTime{part.max}, QuietForMs: uint64(quiet),
				Finished: finished, IngestNow: p.now, Writer: preparedName, Frames: p.number[pp],
			}
			if err := frame.AddMark(&m); err != nil {
				return err
			}
		}
		if err := p.flush(pp); err != nil {
			return err
		}
	}
	return nil
}

// windower is the stage of that name.
func (r *benchRig) windower(ctx context.Context) error {
	p := newPreparation(r)
	if err := p.run(ctx); err != nil {
		return err
	}
	r.report.InputBytes = p.bytes
	targets, err := waitTargets(ctx, r.client, bench.Stream)
	if err != nil {
		return err
	}
	err = r.timed(func() error {
		if _, err := r.start(ctx, "windower"); err != nil {
			return err
		}
		return r.until(ctx, 50*time.Millisecond, func() (bool, error) { return r.computed(ctx, targets) })
	})
	if err != nil {
		return err
	}
	if err := r.projected(ctx); err != nil {
		return err
	}
	return r.judge(ctx)
}

// computed tells whether every windows journal covers its events journal. It asks the
// windower, for that costs next to nothing.
func (r *benchRig) computed(ctx context.Context, targets []target) (bool, error) {
	for pp, t := range targets {
		var status struct {
			Committed *struct {
				Inputs []json.RawMessage `json:"inputs"`
			} `json:"committed"`
			Halted string `json:"halted"`
		}
		ask, cancel := context.WithTimeout(ctx, time.Second)
		reply, err := r.client.NC.RequestWithContext(ask, subject.WindowerStatus(bench.Stream, bench.Job, bench.Generation, pp), nil)
		cancel()
		if err != nil {
			return false, ctx.Err() // not up yet, or busy
		}
		if err := json.Unmarshal(reply.Data, &status); err != nil {
			return false, err
		}
		if status.Halted != "" {
			return false, errors.New(status.Halted)
		}
		if status.Committed == nil || len(status.Committed.Inputs) != 1 {
			return false, nil
		}
		at, err := revision.ParsePosition(status.Committed.Inputs[0])
		if err != nil || at.Seq <= t.last {
			return false, err
		}
	}
	return true, nil
}

// lastCommit answers the newest COMMIT of a windows journal. Claims may stand behind it.
func (r *benchRig) lastCommit(ctx context.Context, pp int) (c *revision.Commit, err error) {
	const claims = 256 // messages, far more than owners change in a run
	stream := subject.WindowsStream(bench.Stream, bench.Job, bench.Generation, pp)
	last, err := journal.LastSeq(ctx, r.client.JS, stream, "")
	if err != nil {
		return nil, err
	}
	err = journal.ReadRange(ctx, r.client.JS, stream, 0, max(last, claims)-claims+1, last, func(m journal.Msg) error {
		e, err := journal.DecodeEntry(m.Seq, m.Data)
		if err == nil && e.Commit != nil {
			c = e.Commit
		}
		return err
	})
	if err == nil && c == nil {
		err = fmt.Errorf("stream %s holds no COMMIT", stream)
	}
	return c, err
}

// projected runs the projector over the windows journals and notes how fast it was.
func (r *benchRig) projected(ctx context.Context) error {
	cpu, begun := bench.CPU(), r.clock.Now()
	if _, err := r.start(ctx, "projector"); err != nil {
		return err
	}
	if err := r.readable(ctx); err != nil {
		return err
	}
	took, used := r.clock.Since(begun), bench.CPU()-cpu
	counts, err := r.counts(ctx)
	if err != nil {
		return err
	}
	n := counts[window.CountRevisions]
	r.report.Projector = &bench.Rate{
		Count: n, Seconds: took.Seconds(), PerSecond: float64(n) / took.Seconds(), CPUMicros: float64(used.Microseconds()) / float64(max(n, 1)),
	}
	return nil
}

// counts adds up what the last COMMITs of all windows journals count.
func (r *benchRig) counts(ctx context.Context) (map[string]uint64, error) {
	sum := map[string]uint64{}
	for pp := range r.stream.Partitions {
		c, err := r.lastCommit(ctx, pp)
		if err != nil {
			return nil, err
		}
		for _, n := range c.Counts {
			sum[n.Name] += n.N
		}
	}
	return sum, nil
}

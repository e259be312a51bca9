package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/internal/bench"
	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
	"github.com/tidemark-mesh/tidemark/pkg/subscribe"
	"github.com/tidemark-mesh/tidemark/services/ingest"
)

// beats is how often a second the latency stage sends.
const beats = 20

// latencyAfter is the share of the run, in percent, before which nothing is measured:
// the first watermarks must stand.
const latencyAfter = 10

// A late event is measured if its window ended well before the watermark that stands when
// it arrives, for only then it is published at once.
const (
	hour      = envelope.EventTime(time.Hour / time.Microsecond)
	closedFor = hour
)

// correction is a late event that was acknowledged and is not visible yet.
type correction struct {
	partition uint32
	offset    uint64
	at        time.Time
}

type correctedWindow struct {
	key   string
	start envelope.EventTime
}

// corrections pairs late events with the first accepted revision that holds them: the
// one whose offset range reaches the event.
type corrections struct {
	clock clock.Clock
	mu    sync.Mutex
	open  map[correctedWindow][]correction
	seen  map[correctedWindow][bench.Partitions]uint64 // highest offset in a revision
	waits []time.Duration
}

// acknowledged notes a late event; a revision may have been faster than its acknowledgement.
func (c *corrections) acknowledged(w correctedWindow, event correction) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[w][event.partition] >= event.offset {
		c.waits = append(c.waits, 0)
		return
	}
	c.open[w] = append(c.open[w], event)
}

func (c *corrections) visible(r *revision.Revision) {
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	w := correctedWindow{r.Key, r.Window.Start}
	reach := c.seen[w]
	for _, o := range r.Inputs.Offsets {
		reach[o.Partition] = max(reach[o.Partition], o.Last)
	}
	c.seen[w] = reach
	left := c.open[w][:0]
	for _, event := range c.open[w] {
		if reach[event.partition] >= event.offset {
			c.waits = append(c.waits, now.Sub(event.at))
		} else {
			left = append(left, event)
		}
	}
	c.open[w] = left
	if len(left) == 0 {
		delete(c.open, w)
	}
}

func (c *corrections) missing() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, events := range c.open {
		n += len(events)
	}
	return n
}

// follow reads revisions until ctx ends.
func (c *corrections) follow(ctx context.Context, nc *nats.Conn) error {
	sub, err := subscribe.Open(ctx, nc, subscribe.Options{Stream: bench.Stream, Job: bench.Job})
	if err != nil {
		return err
	}
	defer sub.Close()
	for {
		b, err := sub.Next(ctx)
		if err != nil {
			return err
		}
		for _, r := range b.Revisions {
			c.visible(r)
		}
	}
}

// steady is one beat's request to one source partition.
type steady struct {
	lines int
	body  []byte
	late  map[int]correctedWindow // index in the request
}

// latency is the stage of that name. The workload is the beginning of one that lasts as
// long as --events says.
func (r *benchRig) latency(ctx context.Context) error {
	if n := r.options.rate * r.options.seconds; n > r.options.spec.Events {
		r.options.spec.Events = n
		r.report.Spec.Events = n
	}
	if err := r.startAll(ctx); err != nil {
		return err
	}
	c := &corrections{clock: r.clock, open: map[correctedWindow][]correction{}, seen: map[correctedWindow][bench.Partitions]uint64{}}
	following, stop := context.WithCancel(ctx)
	defer stop()
	followed := make(chan error, 1)
	go func() { followed <- c.follow(following, r.client.NC) }()
	var sent int
	err := r.timed(func() (err error) {
		sent, err = r.sendSteadily(ctx, c)
		r.report.Spec.Events = sent
		return err
	})
	if err != nil {
		return err
	}
	check := bench.Check{Name: "every late event became visible"}
	err = r.until(ctx, 50*time.Millisecond, func() (bool, error) {
		select {
		case err := <-followed:
			return false, err
		default:
		}
		return c.missing() == 0 || r.clock.Since(r.ended) > 30*time.Second, nil
	})
	if err != nil {
		return err
	}
	for range c.missing() {
		check.Fail("a late event is in no revision")
	}
	stop()
	if err := <-followed; err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	summary := bench.Summarise(c.waits)
	check.Checked, r.report.Latency = uint64(summary.Count), &summary
	r.report.Add(check)
	if err := flush(ctx, r.client.NC, bench.Stream); err != nil {
		return err
	}
	if err := r.readable(ctx); err != nil {
		return err
	}
	if err := r.measureDisk(ctx); err != nil {
		return err
	}
	return r.oracle(ctx)
}

// sendSteadily sends beat by beat and answers how many events went out.
func (r *benchRig) sendSteadily(ctx context.Context, c *corrections) (sent int, err error) {
	defer func() { r.ended = r.clock.Now() }()
	ticker := r.clock.NewTicker(time.Second / beats)
	defer ticker.Stop()
	bar := r.progress("send", int64(r.options.rate*r.options.seconds))
	defer bar.end()
	g := bench.NewGenerator(r.options.spec)
	var requests sync.WaitGroup
	failed := make(chan error, 1)
	total, begun := r.options.rate*r.options.seconds, r.clock.Now()
	for sent < total {
		select {
		case <-ticker.C():
		case err := <-failed:
			return sent, err
		case <-ctx.Done():
			return sent, ctx.Err()
		}
		due := min(int(r.clock.Since(begun).Seconds()*float64(r.options.rate)), total) - sent
		measure := sent >= total*latencyAfter/100
		for p, s := range gather(g, due) {
			if s.lines == 0 {
				continue
			}
			requests.Go(func() {
				if err := r.sendBeat(ctx, p, s, c, measure); err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			})
		}
		sent += due
		bar.set(int64(sent), int64(sent))
	}
	requests.Wait()
	return sent, nil
}

// gather takes the next n events of the workload, by source partition.
func gather(g *bench.Generator, n int) (out [bench.Partitions]steady) {
	for range n {
		ev, more := g.Next()
		if !more {
			break
		}
		s := &out[ev.Partition]
		s.body = ev.AppendLine(s.body)
		start := ev.Time - ev.Time%hour
		if ev.Class == bench.Late && start+hour < ev.Now-closedFor {
			if s.late == nil {
				s.late = map[int]correctedWindow{}
			}
			s.late[s.lines] = correctedWindow{string(bench.AppendKey(nil, ev.Key)), start}
		}
		s.lines++
	}
	return out
}

// sendBeat sends one request and notes its late events once they are acknowledged.
func (r *benchRig) sendBeat(ctx context.Context, partition int, s steady, c *corrections, measure bool) error {
	name := subject.Ingest(bench.Stream, bench.Source, uint32(partition))
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	m := &nats.Msg{Subject: name, Data: s.body}
	answer, err := r.client.NC.RequestMsgWithContext(ctx, m)
	if err != nil {
		return err
	}
	at := r.clock.Now()
	var reply ingest.Reply
	if err := decodeReply(answer.Data, &reply); err != nil || !measure {
		return err
	}
	for index, w := range s.late {
		c.acknowledged(w, correction{partition: uint32(partition), offset: reply.FirstOffset + uint64(index), at: at})
	}
	return nil
}

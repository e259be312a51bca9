package ingest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// Periods of marks.
const (
	markSpacing = 200 * time.Millisecond // at most 5 a second
	// Above markRate items a second marks are further apart, up to markSparse: a window
	// that many late events change between two marks is revised once, and revisions are
	// what costs most.
	markRate   = 25_000
	markSparse = 800 * time.Millisecond
	markEvery  = 5 * time.Second // when nothing happens
	// quietMark is how quiet a marked partition must have been for its next event to
	// begin a new generation.
	quietMark = time.Second
)

// marked is what the last mark of a partition said.
type marked struct {
	own        *ownership
	door       *door
	offset     uint64
	generation uint64
	finished   bool
	busy       bool // pending or in flight
	quiet      time.Duration
}

// idleRule is a policy's rule about a source: quiet for after is idle, and with advance
// the watermark goes on with quiet time.
type idleRule struct {
	after   time.Duration
	advance bool
}

func idleRules(policies []*policy.StreamTimePolicy, source string) (rules []idleRule) {
	for _, p := range policies {
		for _, ref := range p.Sources {
			if ref.Name == source && p.IdleAfter > 0 {
				rules = append(rules, idleRule{time.Duration(p.IdleAfter) * time.Microsecond, p.AllIdle == policy.Advance})
			}
		}
	}
	return rules
}

// grown tells whether quiet time that went from was to is matters to a rule: it became
// idle, or the watermark may have moved by enough. The longer the silence, the rarer.
func (r idleRule) grown(was, is time.Duration) bool {
	if is < r.after {
		return false
	}
	if was < r.after {
		return true
	}
	step := min(max((was-r.after)/8, markSpacing), markEvery)
	return r.advance && is-was >= step
}

// changed tells whether a mark would say something new.
func (p *partition) changed(d *door, rules []idleRule) (owned, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	own, m := p.own, &p.marked
	if own == nil {
		return false, false
	}
	if m.own != own || m.door != d || m.offset != own.offset() || m.generation != own.generation ||
		m.finished != own.finished || m.busy != (p.pending+p.inFlight > 0) {
		return true, true
	}
	for _, r := range rules {
		if r.grown(m.quiet, p.quiet.total.Truncate(time.Millisecond)) {
			return true, true
		}
	}
	return true, false
}

// due tells whether it is time for a cut.
func (st *stream) due() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	now := st.svc.stamp.elapsed()
	since := now - st.lastCut
	if now < st.heldUntil || st.cuts > 0 && since < markSpacing {
		return false
	}
	if len(st.wanted) > 0 || st.wantNext {
		return true
	}
	if st.cuts > 0 && since < spacing(st.taken.Load()-st.lastTaken, since) {
		return false
	}
	anyOwned := false
	d := st.door.Load()
	for _, p := range st.sorted {
		owned, changed := p.changed(d, st.rules[p.source])
		if changed {
			return true
		}
		anyOwned = anyOwned || owned
	}
	return anyOwned && since >= markEvery
}

// spacing answers how far apart marks are when n items were taken in since the last one.
func spacing(n uint64, since time.Duration) time.Duration {
	return min(time.Duration(float64(n)/since.Seconds()/markRate*float64(markSpacing)), markSparse)
}

// want asks for a cut that begins after this call; done, if any, gets its outcome.
func (st *stream) want(done chan<- cutResult) {
	st.mu.Lock()
	if done == nil {
		st.wantNext = true
	} else {
		st.wanted = append(st.wanted, done)
	}
	st.mu.Unlock()
	st.kick()
}

func (st *stream) kick() {
	select {
	case st.kicked <- struct{}{}:
	default:
	}
}

// Flushed is how far one events journal reaches: the sequence of the last mark in it.
type Flushed struct {
	Partition int    `json:"partition"`
	Last      uint64 `json:"last"`
}

type cutResult struct {
	flushed []Flushed
	err     error
}

// mark makes cuts until ctx ends: one at a time, when one is due.
func (st *stream) mark(ctx context.Context) {
	beat := st.svc.monitor.Start("ingest " + st.name)
	defer beat.Stop()
	for {
		beat.Rest() // waits for something to mark, or for acknowledgements of a cut
		select {
		case <-ctx.Done():
			return
		case <-st.kicked:
		}
		beat.Beat()
		if !st.due() {
			continue
		}
		st.mu.Lock()
		if st.svc.stamp.elapsed() < st.heldUntil {
			st.mu.Unlock()
			continue // a hold came between
		}
		wanted := st.wanted
		st.wanted, st.wantNext = nil, false
		st.lastCut, st.lastTaken = st.svc.stamp.elapsed(), st.taken.Load()
		st.cuts++
		st.mu.Unlock()
		beat.Rest()
		flushed, err := st.cut(ctx)
		st.mu.Lock()
		st.written++
		st.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			st.svc.log.Error().Err(err).Str("stream", st.name).Msg("no marks were written; trying again")
		}
		for _, done := range wanted {
			done <- cutResult{flushed, err}
		}
	}
}

// cutPart is one source partition at a cut.
type cutPart struct {
	partition *partition
	own       *ownership
	state     checkpoint
	quiet     time.Duration
}

// sealed is one lane at a cut: once newest is done, frames 1..number are durable.
type sealed struct {
	newest *parcel
	number uint64
}

// cut notes how far every source partition is, waits until all of that is durable, and
// then writes one frame of marks into every events journal. The answer says where they
// stand; it is empty when this process owns nothing.
func (st *stream) cut(ctx context.Context) ([]Flushed, error) {
	d := st.door.Load()
	parts := st.snapshot()
	lanes := make([]sealed, len(st.lanes))
	for pp, l := range st.lanes {
		lanes[pp].newest, lanes[pp].number = l.seal()
	}
	quarantined := st.quarantine.seal()
	if failpoint.Hit("ingest/after-cut") != nil {
		return nil, errUnsettled()
	}
	for _, l := range lanes {
		if err := settledParcel(ctx, l.newest); err != nil {
			return nil, err
		}
	}
	if err := settledParcel(ctx, quarantined); err != nil {
		return nil, err
	}
	parts = st.durable(ctx, parts)
	if len(parts) == 0 {
		return nil, nil
	}
	if failpoint.Hit("ingest/before-mark") != nil {
		return nil, errUnsettled()
	}
	marks := st.marks(d, parts)
	flushed, err := st.writeMarks(ctx, d, marks, lanes)
	if err != nil {
		return nil, err
	}
	if failpoint.Hit("ingest/after-mark") != nil {
		return nil, errUnsettled()
	}
	for _, c := range parts {
		if c.state.Finished {
			c.own.final1.Do(func() { close(c.own.final) })
		}
	}
	st.svc.metrics.marks.WithLabelValues(st.name).Inc()
	return flushed, nil
}

func settledParcel(ctx context.Context, p *parcel) error {
	if p == nil {
		return nil
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// snapshot notes the partitions that are ours, in order of source and number.
func (st *stream) snapshot() (parts []cutPart) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, p := range st.sorted {
		if c, ok := p.snapshot(); ok {
			parts = append(parts, c)
		}
	}
	return parts
}

// durable notes for checkpoints what the cut has proven. A partition is finished in the
// sources journal before any mark says so: an owner that died between the two must not
// come back unfinished.
func (st *stream) durable(ctx context.Context, parts []cutPart) []cutPart {
	kept := parts[:0]
	for _, c := range parts {
		p := c.partition
		p.mu.Lock()
		finishing := c.state.Finished && !c.own.durable.Finished
		c.own.durable = c.state
		p.mu.Unlock()
		if finishing {
			err := failpoint.Hit("ingest/before-finish")
			if err == nil {
				err = p.checkpoint(ctx, c.own)
			}
			if errors.Is(err, errFenced) {
				continue
			} else if err != nil {
				st.svc.log.Warn().Err(err).Str("sourcePartition", p.String()).Msg("finishing waits for its checkpoint")
				c.state.Finished = false
				p.mu.Lock()
				c.own.durable.Finished = false
				p.mu.Unlock()
			}
		}
		kept = append(kept, c)
	}
	return kept
}

// marks builds the marks of a cut. Quiet time, pending and in flight are the less idle of
// then and now, for waiting may have taken long.
func (st *stream) marks(d *door, parts []cutPart) []envelope.Mark {
	s := st.svc
	blocked := s.blocked(st)
	marks := make([]envelope.Mark, 0, len(parts))
	for _, c := range parts {
		p := c.partition
		p.mu.Lock()
		if p.own != c.own || c.own.isLost() {
			p.mu.Unlock()
			continue
		}
		quiet := min(c.quiet, p.quiet.total).Truncate(time.Millisecond)
		m := envelope.Mark{
			Source: p.source, Partition: p.number, Epoch: c.state.Epoch, Generation: c.state.Generation, Offset: c.state.Offset,
			MaxEventTime: make([]envelope.EventTime, len(d.extractors)),
			Pending:      p.pending + p.queuedLocked(), InFlight: p.inFlight, Paused: blocked,
			QuietForMs: uint64(quiet.Milliseconds()), Finished: c.state.Finished, IngestNow: s.stamp.now(), Writer: s.writer,
		}
		for x, name := range d.extractors {
			top, seen := c.state.MaxEventTime[name]
			if !seen {
				top = envelope.MinEventTime
			}
			m.MaxEventTime[x] = top
		}
		if quiet >= quietMark {
			c.own.quietSeen = true
		}
		p.marked = marked{
			own: c.own, door: d, offset: m.Offset, generation: m.Generation, finished: m.Finished,
			busy: p.pending+p.inFlight > 0, quiet: quiet,
		}
		p.mu.Unlock()
		marks = append(marks, m)
	}
	return marks
}

// writeMarks appends the marks to every events journal and waits.
func (st *stream) writeMarks(ctx context.Context, d *door, marks []envelope.Mark, lanes []sealed) ([]Flushed, error) {
	if len(marks) == 0 {
		return nil, nil
	}
	parcels := make([]*parcel, len(st.lanes))
	for pp, l := range st.lanes {
		for i := range marks {
			marks[i].Frames = lanes[pp].number
		}
		var err error
		if parcels[pp], err = l.mark(d, marks); err != nil {
			return nil, fmt.Errorf("key partition %d: %w", pp, err)
		}
	}
	flushed := make([]Flushed, len(parcels))
	for pp, p := range parcels {
		if err := settledParcel(ctx, p); err != nil {
			return nil, err
		}
		flushed[pp] = Flushed{Partition: pp, Last: p.seq}
	}
	return flushed, nil
}

// queuedLocked answers how many requests wait in the subscription.
func (p *partition) queuedLocked() uint64 {
	if p.sub == nil {
		return 0
	}
	n, _, err := p.sub.Pending()
	if err != nil {
		return 0
	}
	return uint64(n)
}

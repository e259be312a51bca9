package ingest

import (
	"context"
	"net/http"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/core/admission"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// Item is one event of a request as it came in.
type Item struct {
	Format  admission.Format
	Bytes   []byte             // what admission reads
	raw     []byte             // csv: the row as it came in, which Bytes was made from
	refused *admission.Refusal // why the transport could not make an event of it; nil when it could
}

// original answers the exact bytes that came in.
func (it *Item) original() []byte {
	if it.raw != nil {
		return it.raw
	}
	return it.Bytes
}

// form names how the original bytes are to be read.
func (it *Item) form() string {
	switch {
	case it.raw != nil:
		return "csv"
	case it.Format == admission.CloudEvent:
		return "cloudevent"
	case it.Format == admission.Binary:
		return "binary"
	}
	return "plain"
}

// Request pushes events of one source partition.
type Request struct {
	Stream    string
	Source    string
	Partition uint32
	IDPath    string            // JSON Pointer to the id in plain records; "" = /id
	Header    map[string]string // CloudEvents attributes of binary mode, names without ce-
	Items     []Item
	Verbose   bool   // the reply lists accepted items too
	Finish    bool   // no event follows in this source partition
	Resume    string // names the file that the items are lines of; "" = none
	From, To  uint64 // lines: the last one before this request, and its last one

	columns []string // csv: the header row
}

// Verdicts of items.
const (
	Accepted    = "accepted"
	Quarantined = "quarantined"
)

// ItemReply is the verdict on one item.
type ItemReply struct {
	Index   int    `json:"index"` // from 0, in the order of the request
	ID      string `json:"id,omitempty"`
	Verdict string `json:"verdict"`
	Reason  string `json:"reason,omitempty"`
	Rule    string `json:"rule,omitempty"`
	Offset  uint64 `json:"offset,omitempty"`
}

// Reply says that every item is durable: accepted ones in the events journal, the others
// in the quarantine journal.
type Reply struct {
	Accepted    int         `json:"accepted"`
	Quarantined int         `json:"quarantined"`
	Epoch       uint64      `json:"epoch,omitempty"`
	FirstOffset uint64      `json:"firstOffset,omitempty"`
	LastOffset  uint64      `json:"lastOffset,omitempty"`
	Finished    bool        `json:"finished,omitempty"`
	Items       []ItemReply `json:"items,omitempty"` // the quarantined ones; all when asked for
	Cut         bool        `json:"itemsCut,omitempty"`
}

// size answers what the request counts in the budget.
func (r *Request) size() (n int64) {
	for i := range r.Items {
		n += int64(len(r.Items[i].Bytes) + len(r.Items[i].raw))
	}
	return n
}

// Push takes a request in and answers once every item is durable. Errors are *Error, or
// ctx's: then the outcome is unknown, and sending again is safe.
func (s *Service) Push(ctx context.Context, req *Request) (Reply, error) {
	held, err := s.budget.reserve(ctx, req.size(), s.waitFor)
	if err != nil {
		return Reply{}, err
	}
	p, t, err := s.arrive(req)
	if err != nil {
		held.give()
		return Reply{}, s.explain(ctx, p, err)
	}
	return s.finishPush(ctx, req, held, p, t)
}

// arrive gives a request its place among those of its source partition: offsets follow
// the order of arrival. The partition is nil when no policy knows it.
func (s *Service) arrive(req *Request) (*partition, turn, error) {
	st, err := s.streamNamed(req.Stream)
	if err != nil {
		return nil, turn{}, err
	}
	if err := s.checkSizes(req); err != nil {
		return nil, turn{}, err
	}
	p := st.partition(req.Source, req.Partition)
	if p == nil {
		return nil, turn{}, nil
	}
	t, err := p.arrive(req)
	return p, t, err
}

// checkSizes refuses an item that not even a quarantine record could keep.
func (s *Service) checkSizes(req *Request) error {
	const around = 8 << 10
	room := s.maxPayload() - around
	for name, value := range req.Header {
		room -= 6 * (len(name) + len(value))
	}
	for _, name := range req.columns {
		room -= 6 * len(name)
	}
	for i := range req.Items {
		if n := len(req.Items[i].original()); (n+2)/3*4 > room {
			return refuse(http.StatusRequestEntityTooLarge, "too-large", "make the event smaller, or keep the payload elsewhere and send a reference",
				"item %d has %d bytes, more than one message of the quarantine journal can keep; nothing of the request was taken in", i, n)
		}
	}
	return nil
}

// finishPush decides, takes in and waits. The share of the budget is given back when all
// is durable, or nothing was taken in.
func (s *Service) finishPush(ctx context.Context, req *Request, held *hold, p *partition, t turn) (Reply, error) {
	started := s.stamp.elapsed()
	st, err := s.streamNamed(req.Stream)
	if err != nil {
		held.give()
		return Reply{}, err
	}
	s.deciding <- struct{}{}
	b := st.decide(req, s.stamp.now())
	<-s.deciding
	var taken *taken
	if p == nil {
		taken, err = st.takeUnknown(req, b, held)
	} else {
		t.wait()
		taken, err = p.take(req, b, held)
		t.pass()
	}
	b.free()
	if taken != nil {
		taken.flight.settle()
	}
	if err != nil {
		held.give()
		return Reply{}, s.explain(ctx, p, err)
	}
	if err := s.await(ctx, taken.flight.done); err != nil {
		return Reply{}, err
	}
	if failpoint.Hit("ingest/before-reply") != nil {
		return Reply{}, errUnsettled()
	}
	if req.Finish && p != nil {
		if err := p.awaitFinished(ctx); err != nil {
			return Reply{}, s.explain(ctx, p, err)
		}
		taken.reply.Finished = true
	}
	s.metrics.events.WithLabelValues(st.name, Accepted).Add(float64(taken.reply.Accepted))
	s.metrics.events.WithLabelValues(st.name, Quarantined).Add(float64(taken.reply.Quarantined))
	s.metrics.pushSeconds.Observe((s.stamp.elapsed() - started).Seconds())
	return taken.reply, nil
}

// await waits for done; the outcome is unknown when ctx or the process ends first.
func (s *Service) await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.dead:
		return errUnsettled()
	}
}

// batch is the decided items of one request. Batches are reused.
type batch struct {
	pool     *door
	at       envelope.IngestTime
	events   []envelope.Event
	refusals []*admission.Refusal
	lanes    [][]int32 // per key partition, the indexes of accepted events
}

// decide runs admission over every item. Requests decide in parallel.
func (st *stream) decide(req *Request, now envelope.IngestTime) *batch {
	d := st.door.Load()
	b := d.batch(len(req.Items), now)
	admit := d.admitters.Get().(*admission.Admitter)
	defer d.admitters.Put(admit)
	for i := range req.Items {
		it := &req.Items[i]
		ev := &b.events[i]
		if it.refused != nil {
			b.refusals[i] = it.refused
			continue
		}
		why := admit.Decide(admission.Item{
			Format: it.Format, Bytes: it.Bytes, Header: req.Header, Source: req.Source, IDPath: req.IDPath,
		}, req.Partition, now, ev)
		if why != nil {
			b.refusals[i] = why
			continue
		}
		ev.SourcePartition, ev.IngestTime = req.Partition, now
		pp := admission.KeyPartition(ev.Key, len(st.lanes))
		b.lanes[pp] = append(b.lanes[pp], int32(i))
	}
	return b
}

// batch answers an empty one for n items.
func (d *door) batch(n int, now envelope.IngestTime) *batch {
	b, _ := d.batches.Get().(*batch)
	if b == nil {
		b = &batch{lanes: make([][]int32, d.stream.Partitions)}
	}
	b.pool, b.at = d, now
	if cap(b.events) < n {
		b.events = make([]envelope.Event, n)
		b.refusals = make([]*admission.Refusal, n)
	}
	b.events, b.refusals = b.events[:n], b.refusals[:n]
	return b
}

// free lets the batch be used again. Texts of its events alias the body of the request,
// so they are dropped; slices stay.
func (b *batch) free() {
	for i := range b.events {
		ev := &b.events[i]
		clear(ev.Values)
		*ev = envelope.Event{Times: ev.Times[:0], Values: ev.Values[:0]}
	}
	clear(b.refusals)
	for pp := range b.lanes {
		b.lanes[pp] = b.lanes[pp][:0]
	}
	b.pool.batches.Put(b)
}

// taken is a request that was handed over to the journals.
type taken struct {
	flight *flight
	reply  Reply
}

// waitDefault is how long a request waits for room before it is told to come back.
const waitDefault = 5 * time.Second

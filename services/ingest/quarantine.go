package ingest

import (
	"sync"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/core/admission"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Shape of the quarantine pipeline. A batch is stored with one sync of the disk, so a
// file full of refused events is not slower than the disk.
const (
	batchesInFlight = 4
	batchRecords    = 400
	batchBytes      = 512 << 10
)

// quarantine writes refused events of one business stream, one message each, so that
// they can be found by reason and taken in later.
type quarantine struct {
	out    *outbox
	stream string
	writer string
	stamp  *stamper

	mu     sync.Mutex
	number uint64
	open   *parcel // the batch being filled; nil when there is none
	size   int
	opened time.Duration
}

func newQuarantine(s *Service, bs string) *quarantine {
	q := &quarantine{
		out:    newOutbox(s, subject.QuarantineStream(bs), batchesInFlight),
		stream: bs, writer: s.writer, stamp: s.stamp,
	}
	q.out.top, q.out.quarantine = q.top, true
	return q
}

// position is where in its source an event stands; the zero offset means that the source
// partition belongs to no policy, so nobody counts it.
type position struct {
	source     string
	partition  uint32
	offset     uint64
	generation uint64
}

// add queues a record with the exact bytes of the item; f waits for it.
func (q *quarantine) add(req *Request, it *Item, at position, id string, why *admission.Refusal, now envelope.IngestTime, f *flight) error {
	r := envelope.QuarantineRecord{
		Writer: q.writer, ID: id, Reason: string(why.Reason), Rule: why.Rule,
		Stream: q.stream, Source: at.source, Partition: at.partition, Offset: at.offset, Generation: at.generation,
		Format: it.form(), Header: req.Header, IngestTime: envelope.EventTime(now).Time(), Bytes: it.original(),
	}
	if it.Format == admission.Plain {
		r.IDPath = req.IDPath
	}
	if it.raw != nil {
		r.Columns = req.columns
	}
	if failpoint.Hit("ingest/quarantine-write") != nil {
		return errUnsettled()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	r.Number = q.number + 1
	data, err := r.Encode()
	if err != nil {
		return err
	}
	q.number++
	q.queueLocked(message{subject.Quarantine(q.stream, r.Reason), data}, f)
	return nil
}

// dispose queues a decision about a record; f waits for it.
func (q *quarantine) dispose(d *envelope.QuarantineDisposition, f *flight) error {
	data, err := d.Encode()
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queueLocked(message{subject.QuarantineDisposition(q.stream), data}, f)
	return nil
}

// queueLocked adds a message to the open batch.
func (q *quarantine) queueLocked(m message, f *flight) {
	if q.size+len(m.data) > batchBytes {
		q.close()
	}
	if q.open == nil {
		q.open, q.opened = newParcel(), q.stamp.elapsed()
	}
	q.open.messages = append(q.open.messages, m)
	q.open.join(f)
	q.size += len(m.data)
	if len(q.open.messages) == batchRecords {
		q.close()
	}
	q.out.nudge()
}

// close queues the open batch, if any.
func (q *quarantine) close() {
	if q.open != nil {
		q.out.put(q.open)
	}
	q.open, q.size = nil, 0
}

// top is asked by the outbox when it has room, as that of a lane.
func (q *quarantine) top(idle bool) (waiting bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open == nil {
		return false
	}
	if idle || q.stamp.elapsed()-q.opened >= lingerFor {
		q.close()
		return false
	}
	return true
}

// seal queues what is open and answers the newest parcel, nil if there never was one.
func (q *quarantine) seal() *parcel {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.close()
	return q.out.newest()
}

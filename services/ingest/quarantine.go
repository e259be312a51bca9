package ingest

import (
	"sync"

	"github.com/tidemark-mesh/tidemark/internal/core/admission"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// quarantineInFlight is how many quarantine records are on their way at once.
const quarantineInFlight = 256

// quarantine writes refused events of one business stream, one message each, so that
// they can be found by reason and taken in later.
type quarantine struct {
	out    *outbox
	stream string
	writer string

	mu     sync.Mutex
	number uint64
}

func newQuarantine(s *Service, bs string) *quarantine {
	return &quarantine{out: newOutbox(s, subject.QuarantineStream(bs), quarantineInFlight), stream: bs, writer: s.writer}
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
	q.mu.Lock()
	defer q.mu.Unlock()
	r.Number = q.number + 1
	data, err := r.Encode()
	if err != nil {
		return err
	}
	q.number++
	p := newParcel(subject.Quarantine(q.stream, r.Reason))
	p.data = data
	p.join(f)
	q.out.put(p)
	return nil
}

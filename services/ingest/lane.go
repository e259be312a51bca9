package ingest

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Shape of frames and of the pipeline of a lane.
const (
	frameBytes     = 256 << 10
	framesInFlight = 16
	lingerFor      = 2 * time.Millisecond
	// lingerMost is the longest that a frame waits while more requests are being decided:
	// what a frame costs the server hardly depends on its size.
	lingerMost = 10 * time.Millisecond
)

// lane writes the events journal of one key partition: events and marks into numbered
// frames. A frame leaves when it is full, when nothing is in flight, or after a short
// linger, longer while more requests are on their way in: alone a request is fast, and
// under load frames are full.
type lane struct {
	out     *outbox
	subject string
	writer  string
	stamp   *stamper
	coming  *atomic.Int64 // requests of the stream that arrived and are not taken in yet

	mu     sync.Mutex
	door   *door // whose names the builder has
	frame  *envelope.FrameBuilder
	open   *parcel // of the frame being built; nil when there is none
	opened time.Duration
	number uint64 // of the frame closed last

	spare sync.Pool // buffers of acknowledged frames
}

func newLane(s *Service, bs string, pp int, coming *atomic.Int64) *lane {
	l := &lane{
		out:     newOutbox(s, subject.EventsStream(bs, pp), framesInFlight),
		subject: subject.Events(bs, pp), writer: s.writer, stamp: s.stamp, coming: coming,
	}
	l.out.top = l.top
	return l
}

// unfit is an event that no frame takes, although admission took it.
type unfit struct {
	index int32
	err   error
}

// add appends the events at index, in order; f waits for their frames. It answers events
// that cannot be written.
func (l *lane) add(d *door, events []envelope.Event, index []int32, f *flight) (bad []unfit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, i := range index {
		l.ready(d)
		if err := l.frame.AddEvent(&events[i]); err != nil {
			bad = append(bad, unfit{i, err})
			continue
		}
		l.open.join(f)
		if l.frame.Len() >= frameBytes {
			l.close()
		}
	}
	l.out.nudge()
	return bad
}

// ready opens a frame with the names of d if none is.
func (l *lane) ready(d *door) {
	if l.door != d {
		l.close()
		l.door = d
		l.frame = envelope.NewFrameBuilder(l.writer, d.extractors, d.values)
	}
	if l.open == nil {
		l.open = newParcel()
		l.opened = l.stamp.elapsed()
	}
}

// close numbers the open frame, if any, and queues it. The lock is held, so that frames
// are queued by number.
func (l *lane) close() {
	if l.open == nil {
		return
	}
	if l.frame.Records() > 0 {
		l.number++
		buf, _ := l.spare.Get().(*[]byte)
		if buf == nil {
			buf = new([]byte)
		}
		*buf = append((*buf)[:0], l.frame.Finish(l.number)...)
		l.open.messages = []message{{l.subject, *buf}}
		l.open.recycle = func() { l.spare.Put(buf) }
		l.out.put(l.open)
	}
	l.frame.Reset()
	l.open = nil
}

// top is asked by the outbox when it has room: an idle pipeline or an old frame does not
// wait to become full.
func (l *lane) top(idle bool) (waiting bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		return false
	}
	linger := lingerFor
	switch {
	case l.coming.Load() > 0:
		linger = lingerMost
	case idle:
		linger = 0
	}
	if l.stamp.elapsed()-l.opened >= linger {
		l.close()
		return false
	}
	return true
}

// seal queues what is open and answers the newest parcel (nil if there never was one)
// and its frame number: once the parcel is done, all frames up to the number are durable.
func (l *lane) seal() (newest *parcel, number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.close()
	return l.out.newest(), l.number
}

// mark queues one frame that holds the marks.
func (l *lane) mark(d *door, marks []envelope.Mark) (*parcel, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.close()
	l.ready(d)
	for i := range marks {
		if err := l.frame.AddMark(&marks[i]); err != nil {
			return nil, err
		}
	}
	p := l.open
	l.close()
	return p, nil
}

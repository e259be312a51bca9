package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/internal/bench"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
	"github.com/tidemark-mesh/tidemark/services/ingest"
)

// Shape of what senders do: requests of about 200 KiB, a few under way in each source
// partition, as `tidemark send` has them.
const (
	slabEvents   = bench.Partitions * 1024
	sendInFlight = 4
)

// slab is one request of one source partition.
type slab struct {
	partition int
	lines     int
	body      []byte
}

// inputFile writes the workload as requests, in order, so that generating it is not part
// of what is measured.
func (r *benchRig) inputFile() (string, error) {
	path := filepath.Join(r.options.data, "input.slabs")
	f, err := os.Create(path)
	if err != nil {
		return "", refused(err)
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	bar := r.progress("generate", int64(r.options.spec.Events))
	defer bar.end()
	var slabs [bench.Partitions]slab
	g := bench.NewGenerator(r.options.spec)
	for i := 1; ; i++ {
		ev, more := g.Next()
		if more {
			s := &slabs[ev.Partition]
			s.body = ev.AppendLine(s.body)
			s.lines++
		}
		if i%slabEvents == 0 || !more {
			if err := r.writeSlabs(w, slabs[:]); err != nil {
				return "", refused(err)
			}
			bar.set(int64(i), int64(i))
		}
		if !more {
			return path, errors.Join(w.Flush(), f.Sync())
		}
	}
}

func (r *benchRig) writeSlabs(w io.Writer, slabs []slab) error {
	for p := range slabs {
		s := &slabs[p]
		if s.lines == 0 {
			continue
		}
		var head [12]byte
		binary.LittleEndian.PutUint32(head[0:], uint32(p))
		binary.LittleEndian.PutUint32(head[4:], uint32(s.lines))
		binary.LittleEndian.PutUint32(head[8:], uint32(len(s.body)))
		if _, err := w.Write(head[:]); err != nil {
			return err
		}
		if _, err := w.Write(s.body); err != nil {
			return err
		}
		r.report.InputBytes += int64(len(s.body))
		s.lines, s.body = 0, s.body[:0]
	}
	return nil
}

// readSlab reads the next request into s, whose memory it uses again.
func readSlab(r io.Reader, s *slab) error {
	var head [12]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	s.partition, s.lines = int(binary.LittleEndian.Uint32(head[0:])), int(binary.LittleEndian.Uint32(head[4:]))
	n := int(binary.LittleEndian.Uint32(head[8:]))
	if cap(s.body) < n {
		s.body = make([]byte, n)
	}
	s.body = s.body[:n]
	_, err := io.ReadFull(r, s.body)
	return err
}

// benchLane sends to one source partition: requests in order, a few under way. A request
// that is refused for a passing reason, such as a lease that moves, goes out again.
type benchLane struct {
	rig     *benchRig
	subject string
	inbox   string
	replies chan *nats.Msg
	sub     *nats.Subscription
	slots   [sendInFlight]nats.Msg // requests under way; a free one has no subject
	flying  int

	accepted, quarantined, again int
}

func (r *benchRig) lane(partition int) (*benchLane, error) {
	l := &benchLane{rig: r, subject: subject.Ingest(bench.Stream, bench.Source, uint32(partition)), inbox: r.client.NC.NewInbox()}
	l.replies = make(chan *nats.Msg, 2*sendInFlight)
	sub, err := r.client.NC.ChanSubscribe(l.inbox+".*", l.replies)
	l.sub = sub
	return l, err
}

// send publishes a request once there is room.
func (l *benchLane) send(ctx context.Context, body []byte, header nats.Header) error {
	for l.flying >= sendInFlight {
		if err := l.settle(ctx); err != nil {
			return err
		}
	}
	for i := range l.slots {
		if m := &l.slots[i]; m.Subject == "" {
			m.Subject, m.Reply, m.Header, m.Data = l.subject, l.inbox+"."+strconv.Itoa(i), header, append(m.Data[:0], body...)
			l.flying++
			return l.rig.client.NC.PublishMsg(m)
		}
	}
	return errors.New("no slot is free")
}

// settle waits for one answer.
func (l *benchLane) settle(ctx context.Context) error {
	select {
	case m := <-l.replies:
		return l.take(ctx, m)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *benchLane) take(ctx context.Context, m *nats.Msg) error {
	i, err := strconv.Atoi(strings.TrimPrefix(m.Subject, l.inbox+"."))
	if err != nil || i >= len(l.slots) || l.slots[i].Subject == "" {
		return fmt.Errorf("an answer came to %s, where nothing was asked", m.Subject)
	}
	var reply ingest.Reply
	if len(m.Data) == 0 {
		err = nats.ErrNoResponders
	} else {
		err = decodeReply(m.Data, &reply)
	}
	if err != nil {
		return l.repeat(ctx, &l.slots[i], err)
	}
	l.slots[i].Subject = ""
	l.flying--
	l.accepted += reply.Accepted
	l.quarantined += reply.Quarantined
	return nil
}

// repeat sends a refused request again, if that may help.
func (l *benchLane) repeat(ctx context.Context, m *nats.Msg, why error) error {
	p := pusher{cli: l.rig.cli}
	if l.again++; l.again > 1000 || !p.again(ctx, why) {
		return why
	}
	return l.rig.client.NC.PublishMsg(m)
}

func (l *benchLane) drain(ctx context.Context) error {
	for l.flying > 0 {
		if err := l.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// endToEnd is the stage of that name.
func (r *benchRig) endToEnd(ctx context.Context) error {
	path, err := r.inputFile()
	if err != nil {
		return err
	}
	if err := r.startAll(ctx); err != nil {
		return err
	}
	accepted, quarantined := 0, 0
	err = r.timed(func() (err error) {
		begun := r.clock.Now()
		if accepted, quarantined, err = r.sendFile(ctx, path); err != nil {
			return err
		}
		r.note("everything acknowledged after %s", r.clock.Since(begun).Round(time.Millisecond))
		targets, err := waitTargets(ctx, r.client, bench.Stream)
		if err != nil {
			return err
		}
		if err := r.until(ctx, 50*time.Millisecond, func() (bool, error) { return r.computed(ctx, targets) }); err != nil {
			return err
		}
		r.note("everything computed after %s", r.clock.Since(begun).Round(time.Millisecond))
		return r.readable(ctx)
	})
	if err != nil {
		return err
	}
	arrivals := bench.Check{Name: "every line acknowledged", Checked: uint64(r.options.spec.Events)}
	if n := accepted + quarantined; n != r.options.spec.Events {
		arrivals.Fail(fmt.Sprintf("%d accepted and %d quarantined", accepted, quarantined))
	}
	r.report.Add(arrivals)
	return r.judge(ctx)
}

func (r *benchRig) startAll(ctx context.Context) error {
	for _, name := range []string{"ingest", "windower", "projector"} {
		if _, err := r.start(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// sendFile pushes the prepared requests and finishes every source partition. Partitions
// go forward together, as live sources do.
func (r *benchRig) sendFile(ctx context.Context, path string) (accepted, quarantined int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, refused(err)
	}
	defer f.Close()
	var lanes [bench.Partitions]*benchLane
	for p := range lanes {
		if lanes[p], err = r.lane(p); err != nil {
			return 0, 0, err
		}
		defer lanes[p].sub.Unsubscribe()
	}
	bar := r.progress("send", int64(r.options.spec.Events))
	defer bar.end()
	in, sent := bufio.NewReaderSize(f, 1<<20), 0
	for s := (slab{}); ; {
		if err := readSlab(in, &s); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return 0, 0, err
		}
		if err := lanes[s.partition].send(ctx, s.body, nil); err != nil {
			return 0, 0, err
		}
		sent += s.lines
		bar.set(int64(sent), int64(sent))
	}
	for _, l := range lanes {
		if err := l.drain(ctx); err != nil {
			return 0, 0, err
		}
		if err := l.send(ctx, nil, nats.Header{subject.HeaderFinish: {"true"}}); err != nil {
			return 0, 0, err
		}
	}
	for _, l := range lanes {
		if err := l.drain(ctx); err != nil {
			return 0, 0, err
		}
		accepted += l.accepted
		quarantined += l.quarantined
	}
	return accepted, quarantined, nil
}

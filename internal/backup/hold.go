package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"os"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// How long ingest is asked to hold its marks, how often that is renewed, and how long
// answers of its processes are collected.
const (
	holdFor   = 20 * time.Second
	holdRenew = 5 * time.Second
	holdFirst = 5 * time.Second
	holdMore  = 200 * time.Millisecond
)

// holding keeps ingest processes from writing marks until it is released. If the backup
// dies they go on by themselves.
type holding struct {
	nc     *nats.Conn
	stream string
	stop   context.CancelFunc
	ended  chan struct{}
	err    atomic.Pointer[error]
}

// hold asks every ingest process and returns when all have answered.
func hold(ctx context.Context, nc *nats.Conn, stream string) (*holding, error) {
	if err := askHold(ctx, nc, stream, holdFor); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	h := &holding{nc: nc, stream: stream, stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(h.ended)
		ticker := clock.System().NewTicker(holdRenew)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C():
				if err := askHold(ctx, nc, stream, holdFor); err != nil && ctx.Err() == nil {
					h.err.Store(&err)
				}
			}
		}
	}()
	return h, nil
}

func (h *holding) failed() error {
	if err := h.err.Load(); err != nil {
		return *err
	}
	return nil
}

// release lets marks go on.
func (h *holding) release() {
	h.stop()
	<-h.ended
	ctx, cancel := context.WithTimeout(context.Background(), holdFirst)
	defer cancel()
	// A process that does not hear it goes on when its hold ends.
	_ = askHold(ctx, h.nc, h.stream, 0)
}

func askHold(ctx context.Context, nc *nats.Conn, stream string, length time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, holdFirst)
	defer cancel()
	inbox := nc.NewRespInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }() // nothing is read from it any more
	body, err := json.Marshal(map[string]int64{"holdMs": length.Milliseconds()})
	if err != nil {
		return err
	}
	if err := nc.PublishRequest(subject.IngestHold(stream), inbox, body); err != nil {
		return err
	}
	m, err := sub.NextMsgWithContext(ctx)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil // no ingest runs, so nobody marks
	}
	for ; err == nil; m, err = sub.NextMsg(holdMore) {
		var reply struct {
			Error *struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		if err := json.Unmarshal(m.Data, &reply); err != nil {
			return fmt.Errorf("ingest does not hold its marks: %w", err)
		}
		if reply.Error != nil {
			return fmt.Errorf("ingest does not hold its marks: %s", reply.Error.Message)
		}
	}
	if errors.Is(err, nats.ErrTimeout) && ctx.Err() == nil {
		return nil // no further process answers
	}
	return fmt.Errorf("ingest does not hold its marks: %w", err)
}

// moved answers what was written to an input from sequence from on that the copies of the
// other journals may not know of, "" if nothing was.
func (t *take) moved(ctx context.Context, j named, from uint64) (string, error) {
	last, err := journal.LastSeq(ctx, t.conn.JS, j.name, "")
	if err != nil || last < from || j.role == "quarantine" {
		return "", err
	}
	what := ""
	err = journal.ReadRange(ctx, t.conn.JS, j.name, 0, from, last, func(m journal.Msg) error {
		var err error
		if what == "" {
			what, err = unsettling(j, m)
		}
		return err
	})
	return what, err
}

// unsettling answers what one message of an input says that must not be said meanwhile.
func unsettling(j named, m journal.Msg) (string, error) {
	if j.role == "sources" {
		var record struct {
			Kind string `json:"kind"`
		}
		if err := json.Unmarshal(m.Data, &record); err != nil {
			return "", fmt.Errorf("stream %s sequence %d: %w", j.name, m.Seq, err)
		}
		if record.Kind == "claim" {
			return "a source partition changed its owner", nil
		}
		return "", nil
	}
	f, err := envelope.DecodeFrame(m.Data)
	if err != nil {
		return "", fmt.Errorf("stream %s sequence %d: %w", j.name, m.Seq, err)
	}
	for i := range f.Records {
		if f.Records[i].Mark != nil {
			return fmt.Sprintf("the ingest process %s wrote a mark", f.Writer), nil
		}
	}
	return "", nil
}

// hashingWriter writes a file and knows its digest.
type hashingWriter struct {
	file *os.File
	hash hash.Hash
	size int64
}

func (w *hashingWriter) Write(p []byte) (int, error) {
	n, err := w.file.Write(p)
	w.hash.Write(p[:n])
	w.size += int64(n)
	return n, err
}

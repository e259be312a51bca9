package journal

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Message is one message of a batch for a shared stream.
type Message struct {
	Subject string
	Header  nats.Header // not kept, not changed
	Data    []byte      // not kept, not changed
}

// MessageBytes answers what m takes of MaxBatchBytes in a batch for stream: payload,
// subject, its headers and those that a batch adds.
func MessageBytes(stream string, m Message) int {
	const added = len("NATS/1.0\r\n\r\n") +
		len(subject.HeaderExpectStream+": \r\n") +
		len(subject.HeaderBatchID+": \r\n") + 22 + // length of a batch id
		len(subject.HeaderBatchSeq+": 999\r\n")
	size := len(m.Data) + len(m.Subject) + added + len(stream)
	for name, values := range m.Header {
		for _, value := range values {
			size += len(name) + len(value) + len(": \r\n")
		}
	}
	return size
}

// stamp makes the messages of one attempt: a fresh batch id (a leader may still hold the
// staged rest of an earlier attempt under its id), the expected stream on the first and
// the last, and the commit mark on the last.
func stamp(stream string, messages []Message) []*nats.Msg {
	ids, streams := []string{nuid.Next()}, []string{stream}
	numbers := make([]string, len(messages))
	stamped, out := make([]nats.Msg, len(messages)), make([]*nats.Msg, len(messages))
	for i, m := range messages {
		header := make(nats.Header, len(m.Header)+4)
		for name, values := range m.Header {
			header[name] = values
		}
		if i == 0 || i == len(messages)-1 {
			header[subject.HeaderExpectStream] = streams
		}
		numbers[i] = strconv.Itoa(i + 1)
		header[subject.HeaderBatchID], header[subject.HeaderBatchSeq] = ids, numbers[i:i+1:i+1]
		stamped[i] = nats.Msg{Subject: m.Subject, Header: header, Data: m.Data}
		out[i] = &stamped[i]
	}
	out[len(out)-1].Header[subject.HeaderBatchCommit] = []string{"1"}
	return out
}

// ackTimeout is how long an answer is waited for before the tail is read. Disks that need
// longer only cost a look at the tail.
const ackTimeout = 5 * time.Second

var (
	errNoAnswer  = errors.New("no answer in time")
	errConnCut   = errors.New("the connection to the server was cut")
	errIncorrect = errors.New("the server acknowledged another batch than was sent")
)

// exchange sends one batch and waits for its answer. A server that refuses a batch early
// says why on the first message and only "incomplete" on the last, so both are asked.
func (p *publisher) exchange(ctx context.Context, clk clock.Clock, batch []*nats.Msg) answer {
	var first, last uint64
	for i, msg := range batch {
		var token uint64
		var err error
		if i > 0 && i == len(batch)-1 {
			err = midway(batch)
		}
		if err != nil {
			return answer{verdict: unsure, cause: err}
		}
		if i == 0 || i == len(batch)-1 {
			token, err = p.publish(msg)
		} else {
			err = p.send(msg)
		}
		if err != nil {
			return answer{verdict: unsure, cause: fmt.Errorf("send: %w", err)}
		}
		if i == 0 {
			first = token
		}
		last = token
	}
	return p.await(ctx, clk, first, last, len(batch))
}

// midway is where everything was sent but the last message. A barrier has one subject.
func midway(batch []*nats.Msg) error {
	if batch[0].Subject == batch[len(batch)-1].Subject {
		return failpoint.Hit("journal/mid-barrier")
	}
	return failpoint.Hit("journal/mid-batch")
}

func (p *publisher) await(ctx context.Context, clk clock.Clock, first, last uint64, count int) answer {
	timer := clk.NewTimer(ackTimeout)
	defer timer.Stop()
	var early answer
	for {
		select {
		case msg := <-p.replies:
			token, a, ok := p.read(msg)
			switch {
			case !ok:
			case token == last && early.cause != nil && a.cause != nil:
				return early
			case token == last && a.cause == nil && count > 1 && a.count != count:
				return answer{verdict: unsure, cause: errIncorrect}
			case token == last:
				return a
			case token == first:
				early = a
			}
		case <-p.status:
			return answer{verdict: unsure, cause: errConnCut}
		case <-timer.C():
			return answer{verdict: unsure, cause: errNoAnswer}
		case <-ctx.Done():
			return answer{verdict: unsure, cause: ctx.Err()}
		}
	}
}

// barrier makes the messages of a record that others may write into a single-writer
// journal (see the package comment): padding, then the record.
func barrier(subj string, record []byte) []Message {
	messages := make([]Message, MaxPipeline)
	for i := range messages {
		messages[i].Subject = subj
	}
	messages[MaxPipeline-1].Data = record
	return messages
}

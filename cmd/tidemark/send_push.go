package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
	"github.com/tidemark-mesh/tidemark/services/ingest"
)

// pushWindow is how many requests are under way at once; order is kept by resending from
// the first one that failed.
const pushWindow = 8

// retryPause is how long a refused or unanswered request waits before it goes out again.
const retryPause = 100 * time.Millisecond

// replyWait is how long an answer is waited for before the request goes out again: the
// process that had it may be gone, or stand still, and another one owns the partition.
const replyWait = 3 * time.Second

// errNoAnswer: nothing came back for a request.
var errNoAnswer = errors.New("the request was not answered")

// pusher sends chunks to the owner of one source partition.
type pusher struct {
	cli         *cli
	nc          *nats.Conn
	options     sendOptions
	subject     string
	token       string
	contentType string

	skipped     uint64 // lines that an earlier send had acknowledged
	accepted    uint64
	quarantined uint64
	firstWhy    string // of the first quarantined event
	done        atomic.Int64
}

// newPusher answers a pusher; token names the input for resuming, "" = it cannot be resumed.
func newPusher(c *cli, nc *nats.Conn, o sendOptions, token, contentType string) *pusher {
	return &pusher{
		cli: c, nc: nc, options: o, token: token, contentType: contentType,
		subject: subject.Ingest(o.stream, o.source, o.partition),
	}
}

func (p *pusher) sent() int64 { return p.done.Load() }

// begin asks where an interrupted send of the same file stood.
func (p *pusher) begin(ctx context.Context, js jetstream.JetStream) error {
	if err := p.known(ctx, js); err != nil {
		return err
	}
	if p.token == "" {
		return nil
	}
	var answer struct {
		Line uint64 `json:"line"`
	}
	if err := p.control(ctx, map[string]any{"resume": p.token}, &answer); err != nil {
		return err
	}
	p.skipped = answer.Line
	return nil
}

// known refuses a stream, source or partition that no policy names, before anything is sent.
func (p *pusher) known(ctx context.Context, js jetstream.JetStream) error {
	ctx, cancel := p.cli.deadline(ctx)
	defer cancel()
	snapshot, err := config.Load(ctx, js)
	if err != nil {
		return err
	}
	var sources []string
	found := false
	for _, e := range snapshot.Policies {
		if e.Policy.Stream != p.options.stream {
			continue
		}
		for _, s := range e.Policy.Sources {
			sources = append(sources, fmt.Sprintf("%s (partitions 0 to %d)", s.Name, s.Partitions-1))
			found = found || s.Name == p.options.source && int(p.options.partition) < s.Partitions
		}
	}
	switch {
	case len(sources) == 0:
		return usage(fmt.Errorf("no policy is applied for stream %q; `tidemark get` lists what is, `tidemark apply` applies documents", p.options.stream))
	case !found:
		return usage(fmt.Errorf("no policy of stream %s names source %q with partition %d; it has %s", p.options.stream, p.options.source, p.options.partition, strings.Join(sources, ", ")))
	}
	return nil
}

// finish marks the partition finished where asked, and forgets the resume line: last, so
// that a send that was interrupted here sends no event to a finished partition when it
// goes on.
func (p *pusher) finish(ctx context.Context) error {
	if p.options.finish {
		if err := p.request(ctx, p.message(nil, map[string]string{subject.HeaderFinish: "true"}), nil); err != nil {
			return err
		}
	}
	if p.token != "" {
		if err := p.control(ctx, map[string]any{"resume": p.token, "done": true}, nil); err != nil {
			return err
		}
	}
	if p.accepted == 0 && p.quarantined > 0 {
		return findings(fmt.Errorf("none of %d events was accepted, all are kept in quarantine; the first: %s; see: tidemark quarantine ls %s", p.quarantined, p.firstWhy, p.options.stream))
	}
	return nil
}

func (p *pusher) control(ctx context.Context, body, answer any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	m := p.message(data, nil)
	m.Header.Set(subject.HeaderContentType, ingest.ContentTypeResume)
	return p.request(ctx, m, answer)
}

func (p *pusher) message(body []byte, header map[string]string) *nats.Msg {
	m := nats.NewMsg(p.subject)
	m.Data = body
	m.Header.Set(subject.HeaderContentType, p.contentType)
	if p.options.idPath != "" {
		m.Header.Set(subject.HeaderIDPath, p.options.idPath)
	}
	for name, value := range header {
		m.Header.Set(name, value)
	}
	return m
}

// request sends one message and waits for its answer, again while the owner is not there
// or asks to wait, until nothing went on for the timeout.
func (p *pusher) request(ctx context.Context, m *nats.Msg, answer any) error {
	ctx, cancel := p.cli.deadline(ctx)
	defer cancel()
	for {
		try, cancel := context.WithTimeout(ctx, replyWait)
		reply, err := p.nc.RequestMsgWithContext(try, m)
		cancel()
		if err == nil {
			err = decodeReply(reply.Data, answer)
		}
		if err == nil || !p.again(ctx, err) {
			return p.explain(err)
		}
	}
}

// again pauses and answers whether another try makes sense.
func (p *pusher) again(ctx context.Context, err error) bool {
	var refusal *refusal
	if errors.As(err, &refusal) && refusal.Status != 421 && refusal.Status != 429 && refusal.Status != 503 {
		return false
	}
	timer := clock.System().NewTimer(retryPause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// explain says what an error of the transport means here.
func (p *pusher) explain(err error) error {
	var refusal *refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refusal):
		if refusal.Status == 409 {
			return coded{exitConflict, err}
		}
		return refused(err)
	case errors.Is(err, context.Canceled):
		return err
	}
	why := err.Error()
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		why = "nobody owns it"
	case errors.Is(err, context.DeadlineExceeded):
		why = "no answer in " + p.cli.timeout.String()
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrDisconnected):
		why = "the connection is down"
	}
	return coded{exitUnreachable, fmt.Errorf("no ingest answers for source %s partition %d of stream %s (%s); is `tidemark up` or `tidemark ingest` running on this server?", p.options.source, p.options.partition, p.options.stream, why)}
}

// refusal is an error answered by ingest.
type refusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
	Status  int    `json:"status"`
}

func (r *refusal) Error() string {
	if r.Hint == "" {
		return r.Message
	}
	return r.Message + "; " + r.Hint
}

func decodeReply(data []byte, answer any) error {
	var failure struct {
		Error *refusal `json:"error"`
	}
	if err := json.Unmarshal(data, &failure); err != nil {
		return fmt.Errorf("ingest answered something that is no JSON: %w", err)
	}
	if failure.Error != nil {
		return failure.Error
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(data, answer)
}

// flight is one chunk under way.
type flight struct {
	chunk chunk
	reply chan *nats.Msg
	sub   *nats.Subscription
}

// all pushes every chunk of cut. tick is called after each acknowledged one.
func (p *pusher) all(ctx context.Context, cut *cutter, tick func()) error {
	var window []*flight
	previous, ended := uint64(0), false
	pace := newPace(p.options.rate)
	for {
		for !ended && len(window) < pushWindow {
			c, err := cut.next()
			if errors.Is(err, io.EOF) {
				ended = true
				break
			}
			if err != nil {
				return err
			}
			if c = p.skip(c); c.lines == 0 {
				previous = c.last
				continue
			}
			if err := pace.wait(ctx, c.lines); err != nil {
				return err
			}
			c.first, previous = previous, c.last
			f := &flight{chunk: c}
			if err := p.launchPatiently(ctx, f); err != nil {
				return err
			}
			window = append(window, f)
		}
		if len(window) == 0 {
			return nil
		}
		if err := p.settle(ctx, window); err != nil {
			return err
		}
		window = window[1:]
		tick()
	}
}

// skip drops lines that an earlier send had acknowledged.
func (p *pusher) skip(c chunk) chunk {
	if c.last <= p.skipped {
		c.lines = 0
	}
	return c
}

// launch sends a chunk without waiting.
func (p *pusher) launch(f *flight) error {
	if f.sub != nil {
		f.sub.Unsubscribe() // an answer to the try before is of no use any more
	}
	f.reply = make(chan *nats.Msg, 4)
	inbox := p.nc.NewRespInbox()
	sub, err := p.nc.ChanSubscribe(inbox, f.reply)
	if err != nil {
		return err
	}
	f.sub = sub
	header := map[string]string{}
	if p.token != "" {
		header[subject.HeaderResumeToken] = p.token
		header[subject.HeaderResumeFrom] = strconv.FormatUint(f.chunk.first, 10)
		header[subject.HeaderResumeLine] = strconv.FormatUint(f.chunk.last, 10)
	}
	m := p.message(f.chunk.body, header)
	m.Reply = inbox
	return p.nc.PublishMsg(m)
}

// launchPatiently sends a chunk, again while the connection is down, for the timeout.
func (p *pusher) launchPatiently(ctx context.Context, f *flight) error {
	ctx, cancel := p.cli.deadline(ctx)
	defer cancel()
	for {
		err := p.launch(f)
		if err == nil || !p.again(ctx, err) {
			return p.explain(err)
		}
	}
}

// settle waits for the answer to the oldest chunk; when it failed for a passing reason
// the whole window goes out again, in order.
func (p *pusher) settle(ctx context.Context, window []*flight) error {
	ctx, cancel := p.cli.deadline(ctx)
	defer cancel()
	for {
		var reply ingest.Reply
		err := p.answer(ctx, window[0], &reply)
		if err == nil {
			window[0].sub.Unsubscribe() // answered
			p.count(&reply, window[0].chunk.lines)
			return nil
		}
		if !p.again(ctx, err) {
			return p.explain(err)
		}
		for _, f := range window {
			if err := p.launchPatiently(ctx, f); err != nil {
				return err
			}
		}
	}
}

func (p *pusher) answer(ctx context.Context, f *flight, reply *ingest.Reply) error {
	lost := p.nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING)
	defer p.nc.RemoveStatusListener(lost)
	timer := clock.System().NewTimer(replyWait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return errNoAnswer
	case <-lost:
		return nats.ErrDisconnected
	case m := <-f.reply:
		if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
			return nats.ErrNoResponders
		}
		return decodeReply(m.Data, reply)
	}
}

func (p *pusher) count(r *ingest.Reply, lines int) {
	p.accepted += uint64(r.Accepted)
	p.quarantined += uint64(r.Quarantined)
	if p.firstWhy == "" && len(r.Items) > 0 && r.Items[0].Reason != "" {
		p.firstWhy = string(r.Items[0].Reason) + ": " + r.Items[0].Rule
	}
	p.done.Add(int64(lines))
}

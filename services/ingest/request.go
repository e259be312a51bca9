package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Bounds of what a NATS client may leave waiting in one subscription.
const (
	waitingRequests     = 4096
	waitingRequestBytes = 16 << 20
)

// subscribe answers requests to one source partition that is ours.
func (s *Service) subscribe(p *partition) (*nats.Subscription, error) {
	name := subject.Ingest(p.stream.name, p.source, p.number)
	sub, err := s.nc.Subscribe(name, func(m *nats.Msg) { s.serve(p, m) })
	if err != nil {
		return nil, fmt.Errorf("subscribe %s: %w", name, err)
	}
	if err := sub.SetPendingLimits(waitingRequests, waitingRequestBytes); err != nil {
		return nil, fmt.Errorf("subscribe %s: %w", name, err)
	}
	// Ready means that the server knows the subscription.
	if err := s.nc.FlushTimeout(recordTimeout); err != nil {
		return nil, errors.Join(fmt.Errorf("subscribe %s: %w", name, err), sub.Unsubscribe())
	}
	return sub, nil
}

// serve takes one request from the wire. It runs once a partition at a time up to the
// request's turn, so offsets follow the order on the wire; the rest runs beside.
func (s *Service) serve(p *partition, m *nats.Msg) {
	if m.Header.Get(subject.HeaderContentType) == ContentTypeResume {
		go s.serveResume(p, m)
		return
	}
	req, err := natsRequest(p, m)
	if err != nil {
		s.answer(m, nil, err)
		return
	}
	held, err := s.budget.reserve(s.work, int64(len(m.Data)), s.waitFor)
	if err != nil {
		s.answer(m, nil, err)
		return
	}
	arrived, t, err := s.arrive(req)
	if err != nil {
		held.give()
		go func() { s.answer(m, nil, s.explain(s.work, p, err)) }()
		return
	}
	go func() {
		reply, err := s.finishPush(s.work, req, held, arrived, t)
		s.answer(m, &reply, err)
	}()
}

// natsRequest reads headers and body.
func natsRequest(p *partition, m *nats.Msg) (*Request, error) {
	req := &Request{
		Stream: p.stream.name, Source: p.source, Partition: p.number, IDPath: m.Header.Get(subject.HeaderIDPath),
		Resume: m.Header.Get(subject.HeaderResumeToken), Finish: truth(m.Header.Get(subject.HeaderFinish)),
		Verbose: truth(m.Header.Get(subject.HeaderVerbose)),
	}
	if source := m.Header.Get(subject.HeaderSource); source != "" && source != p.source {
		return nil, badRequest("the subject names the source", "header %s is %q, the subject belongs to source %q", subject.HeaderSource, source, p.source)
	}
	for name, into := range map[string]*uint64{subject.HeaderResumeFrom: &req.From, subject.HeaderResumeLine: &req.To} {
		text := m.Header.Get(name)
		if text == "" {
			continue
		}
		line, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, badRequest("give a line number", "header %s is %q", name, text)
		}
		*into = line
	}
	if len(m.Data) == 0 && req.Finish {
		return req, nil
	}
	return req, req.split(m.Header, typeNDJSON, m.Data)
}

// truth reads a flag.
func truth(text string) bool {
	on, err := strconv.ParseBool(text)
	return err == nil && on
}

// answer replies with reply or with the error.
func (s *Service) answer(m *nats.Msg, reply *Reply, err error) {
	if err != nil {
		e := asError(err)
		s.metrics.requests.WithLabelValues("nats", e.Code).Inc()
		s.respond(m, map[string]*Error{"error": e})
		return
	}
	s.metrics.requests.WithLabelValues("nats", "ok").Inc()
	s.respond(m, reply)
}

// asError makes every error one that transports can tell.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return errUnsettled()
	}
	return refuse(500, "internal", "see the log of ingest", "%v", err)
}

// respond sends v; a list of items that does not fit one message is cut and says so.
func (s *Service) respond(m *nats.Msg, v any) {
	data, err := json.Marshal(v)
	if reply, ok := v.(*Reply); ok {
		for err == nil && len(data) > s.maxPayload() {
			short := *reply
			short.Items, short.Cut = reply.Items[:len(reply.Items)/2], true
			reply = &short
			data, err = json.Marshal(reply)
		}
	}
	if err == nil {
		err = m.Respond(data)
	}
	if err != nil {
		s.log.Warn().Err(err).Str("subject", m.Subject).Msg("a request was not answered")
	}
}

// resumeRequest asks how far a file is, or forgets it.
type resumeRequest struct {
	Resume string `json:"resume"`
	Done   bool   `json:"done,omitempty"`
}

// resumeReply says that every line up to Line is durable.
type resumeReply struct {
	Token    string `json:"token"`
	Line     uint64 `json:"line"`
	Finished bool   `json:"finished"`
}

func (s *Service) serveResume(p *partition, m *nats.Msg) {
	var ask resumeRequest
	if err := json.Unmarshal(m.Data, &ask); err != nil || ask.Resume == "" {
		s.answer(m, nil, badRequest(`send {"resume":"TOKEN"}`, "the resume request cannot be read"))
		return
	}
	reply, err := s.resumeLine(p, ask)
	if err != nil {
		s.answer(m, nil, s.explain(s.work, p, err))
		return
	}
	s.respond(m, reply)
}

// resumeLine answers after a cut, so that the line it tells is durable.
func (s *Service) resumeLine(p *partition, ask resumeRequest) (resumeReply, error) {
	reply := resumeReply{Token: ask.Resume}
	if _, err := p.stream.flush(s.work); err != nil {
		return reply, err
	}
	if failpoint.Hit("ingest/resume-asked") != nil {
		return reply, errUnsettled()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own == nil {
		return reply, errNotOurs
	}
	reply.Finished = p.own.durable.Finished
	if point := p.own.durable.Resume; point != nil && point.Token == ask.Resume {
		reply.Line = point.Line
	}
	if ask.Done && p.own.resume.token == ask.Resume {
		p.own.resume = resume{}
		p.own.durable.Resume = nil
	}
	return reply, nil
}

// flushReply says where the marks stand that were written for a flush.
type flushReply struct {
	Instance   string    `json:"instance"`
	Writer     string    `json:"writer"`
	Partitions []Flushed `json:"partitions"`
}

// subscribeStream answers requests about the whole stream: flush and hold by every
// process, decisions about quarantined events by one of them.
func (s *Service) subscribeStream(st *stream) error {
	for name, serve := range map[string]func(*nats.Msg){
		subject.IngestFlush(st.name): func(m *nats.Msg) { s.serveFlush(st, m) },
		subject.IngestHold(st.name):  func(m *nats.Msg) { s.serveHold(st, m) },
	} {
		sub, err := s.nc.Subscribe(name, func(m *nats.Msg) { go serve(m) })
		if err != nil {
			return fmt.Errorf("subscribe %s: %w", name, err)
		}
		st.subs = append(st.subs, sub)
	}
	name := subject.IngestQuarantine(st.name)
	sub, err := s.nc.QueueSubscribe(name, subject.IngestQueue, func(m *nats.Msg) { go s.serveDispose(st, m) })
	if err != nil {
		return fmt.Errorf("subscribe %s: %w", name, err)
	}
	st.subs = append(st.subs, sub)
	return nil
}

func (s *Service) serveFlush(st *stream, m *nats.Msg) {
	flushed, err := st.flush(s.work)
	if err != nil {
		s.answer(m, nil, err)
		return
	}
	if flushed == nil {
		flushed = []Flushed{}
	}
	s.respond(m, flushReply{Instance: s.instance, Writer: s.writer, Partitions: flushed})
}

package projector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go/micro"

	"github.com/tidemark-mesh/tidemark/internal/httpx"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Queries under way at once, over NATS; more wait.
const queriesAtOnce = 8

// queryTimeout bounds one query, so that a caller that has left costs no more than this.
const queryTimeout = 20 * second

// api answers queries over NATS. A stream's endpoints appear once its views have caught
// up, so that a process that just started answers nothing old.
type api struct {
	service micro.Service
	svc     *Service
	slots   chan struct{}
	tasks   sync.WaitGroup
}

func (s *Service) startAPI() (*api, error) {
	m, err := micro.AddService(s.cfg.Conn.NC, micro.Config{
		Name: "tidemark-projector", Version: "1.0.0",
		Description: "Window results: current rows, ledgers, positions.",
		Metadata:    map[string]string{"instance": s.cfg.Instance},
	})
	if err != nil {
		return nil, fmt.Errorf("projector: register the query service: %w", err)
	}
	return &api{service: m, svc: s, slots: make(chan struct{}, queriesAtOnce)}, nil
}

// stop takes the endpoints away and waits for queries under way.
func (a *api) stop() {
	// Both fail only when the connection is gone already.
	_ = a.service.Stop()
	_ = a.svc.cfg.Conn.NC.FlushTimeout(second) // what the server handed to us before is here now
	a.tasks.Wait()
}

// serve adds the endpoints of a stream.
func (a *api) serve(ctx context.Context, st *stream) {
	verbs := map[string]func(context.Context, []byte) (any, error){
		"windows": func(ctx context.Context, body []byte) (any, error) { return a.svc.rows(ctx, st, body, false) },
		"history": func(ctx context.Context, body []byte) (any, error) { return a.svc.rows(ctx, st, body, true) },
	}
	for verb, answer := range verbs {
		a.add(ctx, st, verb, answer)
	}
}

// serveStatus adds the one endpoint that every process answers, each for its own views:
// who waits for a position asks all of them. It is there before the views are ready.
func (a *api) serveStatus(ctx context.Context, st *stream) {
	a.add(ctx, st, "status", func(context.Context, []byte) (any, error) { return st.status(), nil }, micro.WithEndpointQueueGroupDisabled())
}

func (a *api) add(ctx context.Context, st *stream, verb string, answer func(context.Context, []byte) (any, error), opts ...micro.EndpointOpt) {
	opts = append(opts, micro.WithEndpointSubject(subject.Query(st.doc.Name, verb)))
	if err := a.service.AddEndpoint(verb+"-"+st.doc.Name, a.handler(ctx, answer), opts...); err != nil {
		a.svc.cfg.Log.Error().Err(err).Str("stream", st.doc.Name).Str("verb", verb).Msg("projector: adding a query endpoint")
	}
}

// handler answers requests beside one another, a bounded number at once.
func (a *api) handler(ctx context.Context, answer func(context.Context, []byte) (any, error)) micro.Handler {
	return micro.HandlerFunc(func(req micro.Request) {
		a.slots <- struct{}{}
		a.tasks.Go(func() {
			defer func() { <-a.slots }()
			bounded, cancel := context.WithTimeout(ctx, queryTimeout)
			defer cancel()
			result, err := answer(bounded, req.Data())
			if err == nil {
				err = req.RespondJSON(result)
			} else {
				e := asError(err)
				body, _ := json.Marshal(map[string]httpx.Error{"error": e}) // strings only
				err = req.Error(e.Code, e.Message, body)
			}
			if err != nil {
				a.svc.cfg.Log.Warn().Err(err).Str("subject", req.Subject()).Msg("projector: answering a query")
			}
		})
	})
}

// rows answers a query given as JSON.
func (s *Service) rows(ctx context.Context, st *stream, body []byte, history bool) (any, error) {
	var r request
	if len(body) > 0 {
		if err := json.Unmarshal(body, &r); err != nil {
			return nil, badRequest("the request is no JSON object of a query: %v", err)
		}
	}
	r.History = r.History || history
	return s.answer(ctx, st, r)
}

func (s *Service) answer(ctx context.Context, st *stream, r request) (*reply, error) {
	q, err := st.plan(r)
	if err != nil {
		return nil, err
	}
	if q.history {
		return st.history(ctx, s.cfg.Conn.JS, q)
	}
	return st.windows(q)
}

// asError gives an error of ours its shape; others are internal.
func asError(err error) httpx.Error {
	var e httpx.Error
	if errors.As(err, &e) {
		return e
	}
	return httpx.Error{Code: codeInternal, Message: err.Error()}
}

func fail(w http.ResponseWriter, err error) {
	e := asError(err)
	status := http.StatusInternalServerError
	switch e.Code {
	case codeBadRequest:
		status = http.StatusBadRequest
	case codeNotFound:
		status = http.StatusNotFound
	case codeStarting:
		status = http.StatusServiceUnavailable
	}
	httpx.Fail(w, status, e)
}

// httpStream finds the stream of a request.
func (s *Service) httpStream(r *http.Request) (*stream, error) {
	name := r.PathValue("stream")
	st := s.stream(name)
	if st == nil {
		return nil, httpx.Error{Code: codeNotFound, Message: fmt.Sprintf("there is no stream %q", name), Hint: "apply its document first"}
	}
	if !st.isReady() {
		return nil, httpx.Error{Code: codeStarting, Message: "the views of " + name + " are being read", Hint: "ask again in a moment"}
	}
	return st, nil
}

func (s *Service) httpWindows(w http.ResponseWriter, r *http.Request) {
	st, err := s.httpStream(r)
	if err != nil {
		fail(w, err)
		return
	}
	req, err := parseParams(r)
	if err != nil {
		fail(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), queryTimeout)
	defer cancel()
	result, err := s.answer(ctx, st, req)
	if err != nil {
		fail(w, err)
		return
	}
	httpx.JSON(w, http.StatusOK, result)
}

func (s *Service) httpStatus(w http.ResponseWriter, r *http.Request) {
	st, err := s.httpStream(r)
	if err != nil {
		fail(w, err)
		return
	}
	httpx.JSON(w, http.StatusOK, st.status())
}

// parseParams reads a query's parameters; an unknown one is refused, so that a misspelt
// filter does not answer everything.
func parseParams(r *http.Request) (req request, err error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return req, badRequest("the query cannot be read: %v; write special characters as %%XX", err)
	}
	for name, values := range query {
		if len(values) > 1 {
			return req, badRequest("parameter %s stands there %d times", name, len(values))
		}
		value := values[0]
		switch name {
		case "key":
			req.Key = value
		case "from":
			req.From = value
		case "to":
			req.To = value
		case "generation":
			req.Generation = value
		case "job":
			req.Job = value
		case "history":
			if req.History, err = strconv.ParseBool(value); err != nil {
				return req, badRequest("history: %q is neither 1 nor 0", value)
			}
		case "limit":
			if req.Limit, err = strconv.Atoi(value); err != nil {
				return req, badRequest("limit: %q is no number", value)
			}
		case "cursor":
			req.Cursor = value
		default:
			return req, badRequest("there is no parameter %q", name)
		}
	}
	return req, nil
}

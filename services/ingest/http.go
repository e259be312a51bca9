package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemark-mesh/tidemark/internal/core/admission"
	"github.com/tidemark-mesh/tidemark/internal/httpx"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// maxBody bounds the body of one HTTP request.
const maxBody = 8 << 20

// Routes adds POST /v1/streams/{stream}/events.
func (s *Service) Routes(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/streams/{stream}/events", s.postEvents)
}

// postEvents answers 202 with the verdicts once every item is durable.
func (s *Service) postEvents(w http.ResponseWriter, r *http.Request) {
	reply, err := s.acceptHTTP(w, r)
	if err != nil {
		e := asError(err)
		s.metrics.requests.WithLabelValues("http", e.Code).Inc()
		if e.RetryAfter > 0 {
			w.Header().Set(subject.HeaderRetryAfter, strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
		}
		httpx.JSON(w, e.Status, map[string]*Error{"error": e})
		return
	}
	s.metrics.requests.WithLabelValues("http", "ok").Inc()
	httpx.JSON(w, http.StatusAccepted, reply)
}

func (s *Service) acceptHTTP(w http.ResponseWriter, r *http.Request) (Reply, error) {
	if s.draining.Load() {
		return Reply{}, errStopping()
	}
	st, err := s.streamNamed(r.PathValue("stream"))
	if err != nil {
		return Reply{}, err
	}
	req, err := httpRequest(r, st.name)
	if err != nil {
		return Reply{}, err
	}
	if r.ContentLength > maxBody {
		return Reply{}, tooLarge()
	}
	arrived := func() {}
	if p := st.partition(req.Source, req.Partition); p != nil {
		arrived = p.expect()
	}
	defer arrived()
	size := r.ContentLength
	if size < 0 {
		size = maxBody
	}
	held, err := s.budget.reserve(r.Context(), size, s.waitFor)
	if err != nil {
		return Reply{}, err
	}
	if err := readItems(w, r, req); err != nil {
		held.give()
		return Reply{}, err
	}
	p, t, err := s.arrive(req)
	arrived()
	if err != nil {
		held.give()
		return Reply{}, s.explain(r.Context(), p, err)
	}
	return s.finishPush(r.Context(), req, held, p, t)
}

func tooLarge() *Error {
	return refuse(http.StatusRequestEntityTooLarge, "too-large", "send fewer events in one request", "the body is larger than %d bytes", maxBody)
}

// httpRequest reads the query. A parameter that is not known is refused: a misspelt one
// would send events elsewhere.
func httpRequest(r *http.Request, stream string) (*Request, error) {
	known := []string{"source", "partition", "idPath", "verbose", "finish"}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("write special characters as %XX", "the query cannot be read: %v", err)
	}
	for name, values := range q {
		switch {
		case !slices.Contains(known, name):
			return nil, badRequest("there are "+strings.Join(known, ", "), "there is no query parameter %q", name)
		case len(values) > 1:
			return nil, badRequest("say it once", "query parameter %s stands there %d times", name, len(values))
		}
	}
	req := &Request{
		Stream: stream, Source: q.Get("source"), IDPath: q.Get("idPath"),
		Verbose: q.Has("verbose") && q.Get("verbose") != "0", Finish: q.Has("finish") && q.Get("finish") != "0",
	}
	if q.Has("partition") {
		text := q.Get("partition")
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, badRequest("give a number from 0", "query parameter partition is %q", text)
		}
		req.Partition = uint32(n)
	}
	return req, nil
}

// readItems reads the body and takes it apart.
func readItems(w http.ResponseWriter, r *http.Request, req *Request) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return tooLarge()
	case errors.Is(err, context.Canceled):
		return err
	case err != nil:
		return badRequest("send the whole body", "the body cannot be read: %v", err)
	}
	if len(body) == 0 && req.Finish && req.Source != "" {
		return nil
	}
	if err := req.split(r.Header, "", body); err != nil {
		return err
	}
	return req.sourceFromEvents(r.URL.Query().Has("partition"))
}

// sourceFromEvents takes the source partition from CloudEvents where the query does not
// name it. One request belongs to one source partition.
func (r *Request) sourceFromEvents(partitionGiven bool) error {
	if r.Source != "" {
		if !partitionGiven {
			return r.partitionFromEvents()
		}
		return nil
	}
	hint := "name it with ?source=NAME&partition=N"
	for i := range r.Items {
		it := &r.Items[i]
		if it.Format == admission.Plain {
			return badRequest(hint, "the request names no source")
		}
		source, number, err := r.placeOf(it)
		if err != nil || source == "" {
			return badRequest(hint, "the source of item %d cannot be read", i)
		}
		if partitionGiven {
			number = r.Partition
		}
		if i == 0 {
			r.Source, r.Partition = source, number
		}
		if source != r.Source || number != r.Partition {
			return badRequest("send one request for each source partition", "item 0 is of source partition %s/%d, item %d of %s/%d", r.Source, r.Partition, i, source, number)
		}
	}
	return nil
}

// partitionFromEvents takes the number of the source partition from CloudEvents that can
// be read; what is wrong with the others is found out later.
func (r *Request) partitionFromEvents() error {
	first := -1
	for i := range r.Items {
		if r.Items[i].Format == admission.Plain {
			continue
		}
		_, number, err := r.placeOf(&r.Items[i])
		switch {
		case err != nil:
		case first < 0:
			first, r.Partition = i, number
		case number != r.Partition:
			return badRequest("send one request for each source partition", "item %d is of source partition %s/%d, item %d of %s/%d", first, r.Source, r.Partition, i, r.Source, number)
		}
	}
	return nil
}

// placeOf reads the source partition that a CloudEvent names.
func (r *Request) placeOf(it *Item) (source string, number uint32, err error) {
	var place struct {
		Source string          `json:"source"`
		Number json.RawMessage `json:"sourcepartition"`
	}
	if it.Format == admission.Binary {
		place.Source, place.Number = r.Header["source"], json.RawMessage(r.Header["sourcepartition"])
	} else if err := json.Unmarshal(it.Bytes, &place); err != nil {
		return "", 0, err
	}
	text := string(place.Number)
	if unquoted, err := strconv.Unquote(text); err == nil {
		text = unquoted
	}
	if text == "" || text == "null" {
		return place.Source, 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	return place.Source, uint32(n), err
}

package providersim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/tidemark-mesh/tidemark/internal/httpx"
)

// pageSize is how many executions a page of the list has where nothing else is asked for.
const pageSize = 1000

func (s *Sim) routes() {
	m := s.server.Mux
	m.HandleFunc("POST /v1/issue", s.issue)
	m.HandleFunc("GET /v1/by-ref/{effectKey}", s.byRef)
	m.HandleFunc("GET /v1/executions", s.list)
	m.HandleFunc("GET /v1/keys", s.counts)
	m.HandleFunc("GET /v1/control", s.state)
	m.HandleFunc("PUT /v1/control/mode", s.setMode)
	m.HandleFunc("POST /v1/control/rules", s.addRule)
	m.HandleFunc("DELETE /v1/control/rules", s.dropRules)
	m.HandleFunc("PUT /v1/control/idempotency", s.setIdempotency)
}

// visible answers the executions of a key that queries find by now.
func (s *Sim) visible(of []*Record) []*Record {
	now := s.now()
	var seen []*Record
	for _, r := range of {
		if !r.VisibleFrom.After(now) {
			seen = append(seen, r)
		}
	}
	return seen
}

// byRef answers what was executed under an effectKey: 404 for nothing, one object, or a
// list where there is more than one.
func (s *Sim) byRef(w http.ResponseWriter, r *http.Request) {
	key := r.PathValue("effectKey")
	var mode Mode
	s.change(func() { mode = s.queries.next(key) })
	switch mode.Name {
	case garbage:
		fmt.Fprintln(w, "thank you")
		return
	case delay:
		patient(w)
		if !s.pause(r.Context(), mode.For) {
			cut()
		}
	case accept:
	default:
		s.refuse(w, r, nil, mode)
		return
	}
	s.mu.Lock()
	found := s.visible(s.done[key])
	s.mu.Unlock()
	switch len(found) {
	case 0:
		fail(w, http.StatusNotFound, "not_found", "nothing was executed under this effectKey")
	case 1:
		s.answer(w, http.StatusOK, found[0], "executed")
	default:
		s.answerList(w, found)
	}
}

func (s *Sim) answerList(w http.ResponseWriter, found []*Record) {
	items := make([]json.RawMessage, len(found))
	for i, r := range found {
		items[i] = s.body(r, "executed")
	}
	httpx.JSON(w, http.StatusOK, items)
}

// Page is an answer of the list. Its items are what a query answers. Next is what after
// must be for the next page; 0 = there is none.
type Page struct {
	Executions []map[string]any `json:"executions"`
	Next       int              `json:"next,omitempty"`
}

// list is GET /v1/executions?effectKey=KEY&after=N&limit=N: the executions that queries
// find, in order; all of them, or those of one key.
func (s *Sim) list(w http.ResponseWriter, r *http.Request) {
	after, limit := 0, pageSize
	for name, into := range map[string]*int{"after": &after, "limit": &limit} {
		given := r.URL.Query().Get(name)
		if given == "" {
			continue
		}
		n, err := strconv.Atoi(given)
		if err != nil || n < 0 || name == "limit" && (n < 1 || n > 10*pageSize) {
			fail(w, http.StatusBadRequest, "bad_request", name+" must be a number, and limit from 1 to 10000")
			return
		}
		*into = n
	}
	httpx.JSON(w, http.StatusOK, s.page(r.URL.Query().Get("effectKey"), after, limit))
}

func (s *Sim) page(key string, after, limit int) Page {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.order
	if key != "" {
		of = s.done[key]
	}
	now := s.now()
	page := Page{Executions: []map[string]any{}}
	for i := after; i < len(of); i++ {
		if of[i].VisibleFrom.After(now) {
			continue
		}
		if len(page.Executions) == limit {
			page.Next = i
			break
		}
		page.Executions = append(page.Executions, s.settings.Fields.compose(of[i], "executed"))
	}
	return page
}

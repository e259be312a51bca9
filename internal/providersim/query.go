package providersim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

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

// queryMode refuses modes that mean nothing for a query.
func queryMode(m Mode) error {
	switch m.Name {
	case accept, garbage, delay, drop, answer, throttle:
		return nil
	}
	return fmt.Errorf("mode %s is not for queries; those are accept, garbage, delay:D, drop, answer-NNN and throttle[:D]", m)
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

// Listed is one execution of the list.
type Listed struct {
	N         int       `json:"n"` // its place among all executions, from 1
	ID        string    `json:"id"`
	EffectKey string    `json:"effectKey"`
	Amount    string    `json:"amount,omitempty"`
	Subject   string    `json:"subject,omitempty"`
	Time      time.Time `json:"time"`
}

// Page is an answer of the list. Next is what after must be for the next page; 0 = there
// is none.
type Page struct {
	Executions []Listed `json:"executions"`
	Next       int      `json:"next,omitempty"`
}

// list is GET /v1/executions?after=N&limit=N: every execution that queries find, in order.
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
	httpx.JSON(w, http.StatusOK, s.page(after, limit))
}

func (s *Sim) page(after, limit int) Page {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	page := Page{Executions: []Listed{}}
	for i := after; i < len(s.order); i++ {
		r := s.order[i]
		if r.VisibleFrom.After(now) {
			continue
		}
		if len(page.Executions) == limit {
			page.Next = i
			return page
		}
		page.Executions = append(page.Executions, Listed{N: i + 1, ID: r.ID, EffectKey: r.EffectKey, Amount: text(r.Amount), Subject: text(r.Subject), Time: r.Time})
	}
	return page
}

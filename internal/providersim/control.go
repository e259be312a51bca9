package providersim

import (
	"encoding/json"
	"net/http"

	"github.com/tidemark-mesh/tidemark/internal/httpx"
)

// modeChange is the body of PUT /v1/control/mode. It replaces the mix of requests, or of
// queries, and drops every rule of that side.
type modeChange struct {
	Mode Mix    `json:"mode"`
	Seed uint64 `json:"seed"`
	On   string `json:"on"` // issue or query
}

// ruleChange is the body of POST /v1/control/rules.
type ruleChange struct {
	Rule
	On string `json:"on"` // issue or query
}

func taken(w http.ResponseWriter, r *http.Request, into any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		fail(w, http.StatusBadRequest, "bad_request", "the body is not what this endpoint takes: "+err.Error())
		return false
	}
	return true
}

func (s *Sim) setMode(w http.ResponseWriter, r *http.Request) {
	var c modeChange
	if !taken(w, r, &c) {
		return
	}
	side, ok := s.side(w, c.On)
	if !ok {
		return
	}
	if err := c.Mode.forQueries(); side == &s.queries && err != nil {
		fail(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	s.change(func() { side.list, side.mix, side.seed = nil, c.Mode, c.Seed })
	s.state(w, r)
}

func (s *Sim) addRule(w http.ResponseWriter, r *http.Request) {
	var c ruleChange
	if !taken(w, r, &c) {
		return
	}
	if _, ok := s.side(w, c.On); !ok {
		return
	}
	set := s.Set
	if c.On == "query" {
		set = s.SetQuery
	}
	if err := set(c.Rule); err != nil {
		fail(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	s.state(w, r)
}

func (s *Sim) dropRules(w http.ResponseWriter, r *http.Request) {
	s.change(func() { s.issues.list, s.queries.list = nil, nil })
	s.state(w, r)
}

// side answers the rules that a change is for.
func (s *Sim) side(w http.ResponseWriter, on string) (*rules, bool) {
	switch on {
	case "", "issue":
		return &s.issues, true
	case "query":
		return &s.queries, true
	}
	fail(w, http.StatusBadRequest, "bad_request", "on must be issue or query")
	return nil, false
}

func (s *Sim) setIdempotency(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	settings := s.settings
	s.mu.Unlock()
	settings.Idempotency = Idempotency{}
	if !taken(w, r, &settings.Idempotency) {
		return
	}
	if err := s.Configure(settings); err != nil {
		fail(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	s.state(w, r)
}

// State is what GET /v1/control answers.
type State struct {
	Settings   Settings `json:"settings"`
	Mode       Mix      `json:"mode"`
	Seed       uint64   `json:"seed"`
	Rules      []Rule   `json:"rules,omitempty"`
	QueryMode  Mix      `json:"queryMode"`
	QueryRules []Rule   `json:"queryRules,omitempty"`
	Requests   int      `json:"requests"` // since the start
	Queries    int      `json:"queries"`  // since the start
	Executions int      `json:"executions"`
	Held       int      `json:"held"`
	Receipts   int      `json:"receiptsOwed"`
}

func (s *Sim) state(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	httpx.JSON(w, http.StatusOK, State{
		Settings: s.settings, Mode: s.issues.shown(), Seed: s.issues.seed, Rules: s.issues.list,
		QueryMode: s.queries.shown(), QueryRules: s.queries.list,
		Requests: s.issues.all, Queries: s.queries.all, Executions: len(s.order), Held: len(s.held), Receipts: len(s.outbox.owed),
	})
}

// shown answers the mix as it acts.
func (s *rules) shown() Mix {
	if len(s.mix) == 0 {
		return Mix{{Accept, 1}}
	}
	return s.mix
}

// counts is GET /v1/keys: what `tidemark provider-sim log` prints.
func (s *Sim) counts(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	records := values(s.order)
	for _, r := range s.held {
		records = append(records, *r)
	}
	s.mu.Unlock()
	httpx.JSON(w, http.StatusOK, map[string]any{"keys": Judge(records)})
}

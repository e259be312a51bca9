package effector

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
	"github.com/tidemark-mesh/tidemark/internal/httpx"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// Codes of errors.
const (
	codeBadRequest = "bad-request"
	codeNotFound   = "not-found"
	codeElsewhere  = "not-owned-here"
	codeInternal   = "internal"
	codeRefused    = "refused"
)

// Bounds of a list.
const (
	listUsual = 100
	listMost  = 1000
	listLook  = 20_000 // effects looked at for one page
)

// Routes adds the HTTP API to the process's mux. Receipts come from providers, which have
// no token of ours: their signature is what lets them in, so they stand outside /v1/.
func (s *Service) Routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/streams/{stream}/effects", s.httpList)
	mux.HandleFunc("GET /v1/streams/{stream}/effects/{effectKey}", s.httpShow)
	mux.HandleFunc("GET /v1/streams/{stream}/effector", s.httpStatus)
	mux.HandleFunc("POST /receipts/{stream}/{adapter}", s.httpReceipt)
	s.orderRoutes(mux)
}

func (s *Service) httpStream(w http.ResponseWriter, r *http.Request) (string, *stream) {
	name := r.PathValue("stream")
	st := s.stream(name)
	if st == nil {
		httpx.Fail(w, http.StatusNotFound, httpx.Error{
			Code: codeNotFound, Message: fmt.Sprintf("stream %q has no effect policies", name), Hint: "apply an EffectPolicy first",
		})
	}
	return name, st
}

func (s *Service) httpStatus(w http.ResponseWriter, r *http.Request) {
	if name, st := s.httpStream(w, r); st != nil {
		httpx.JSON(w, http.StatusOK, s.status(name, st))
	}
}

// page is an answer of the list: effects of the partitions owned here, by partition and
// key. What other processes own is named, not answered.
type page struct {
	Effects   []json.RawMessage `json:"effects"`
	Next      string            `json:"next,omitempty"` // the cursor of the next page
	Elsewhere []int             `json:"elsewhere"`      // key partitions that this process does not own
}

// filter is what a list is asked for.
type filter struct {
	state           effect.State
	effectType, key string
	limit           int
	partition       int // where the page begins
	after           effect.EffectKey
}

func (s *Service) httpList(w http.ResponseWriter, r *http.Request) {
	_, st := s.httpStream(w, r)
	if st == nil {
		return
	}
	f, err := parseFilter(r.URL.RawQuery)
	if err != nil {
		httpx.Fail(w, http.StatusBadRequest, httpx.Error{Code: codeBadRequest, Message: err.Error()})
		return
	}
	p, err := st.list(f)
	if err != nil {
		httpx.Fail(w, http.StatusInternalServerError, httpx.Error{Code: codeInternal, Message: err.Error()})
		return
	}
	httpx.JSON(w, http.StatusOK, p)
}

// list answers one page.
func (st *stream) list(f filter) (page, error) {
	p, looked := page{Effects: []json.RawMessage{}, Elsewhere: []int{}}, 0
	for n, u := range st.units {
		v := u.opened()
		if v == nil {
			p.Elsewhere = append(p.Elsewhere, n)
		}
		if v == nil || n < f.partition || p.Next != "" {
			continue
		}
		after := effect.EffectKey{}
		if n == f.partition {
			after = f.after
		}
		err := v.each(after, func(key effect.EffectKey, value []byte) (bool, error) {
			if len(p.Effects) == f.limit || looked == listLook {
				p.Next = fmt.Sprintf("%d-%s", n, after)
				return false, nil
			}
			looked++
			after = key
			r, err := effect.Decode(value)
			if err != nil {
				return false, fmt.Errorf("%w: effect %s: %w", checkpoint.ErrDamaged, key, err)
			}
			if f.fits(r) {
				p.Effects = append(p.Effects, slices.Clone(value))
			}
			return true, nil
		})
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

func (f *filter) fits(r *effect.Record) bool {
	return (f.state == effect.None || r.State == f.state) && (f.effectType == "" || r.Identity.EffectType == f.effectType) &&
		(f.key == "" || r.Identity.Key == f.key)
}

// parseFilter reads a query; an unknown parameter is refused, so that a misspelt filter
// does not answer everything.
func parseFilter(raw string) (f filter, err error) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return f, fmt.Errorf("the query cannot be read: %w", err)
	}
	f.limit = listUsual
	for name, values := range query {
		value := values[0]
		if len(values) > 1 {
			return f, fmt.Errorf("parameter %s stands there %d times", name, len(values))
		}
		switch name {
		case "state":
			if f.state = effect.State(value); !f.state.Known() {
				return f, fmt.Errorf("state: %q is none of %v", value, effect.States())
			}
		case "type":
			f.effectType = value
		case "key":
			f.key = value
		case "limit":
			if f.limit, err = strconv.Atoi(value); err != nil || f.limit < 1 || f.limit > listMost {
				return f, fmt.Errorf("limit: want a number from 1 to %d", listMost)
			}
		case "cursor":
			var key string
			if _, err := fmt.Sscanf(value, "%d-%s", &f.partition, &key); err != nil {
				return f, fmt.Errorf("cursor: want what next was in the page before")
			}
			if f.after, err = effect.ParseEffectKey(key); err != nil {
				return f, fmt.Errorf("cursor: %w", err)
			}
		default:
			return f, fmt.Errorf("there is no parameter %q; there are state, type, key, limit and cursor", name)
		}
	}
	return f, nil
}

func (s *Service) httpShow(w http.ResponseWriter, r *http.Request) {
	name, st := s.httpStream(w, r)
	if st == nil {
		return
	}
	key, err := effect.ParseEffectKey(r.PathValue("effectKey"))
	if err != nil {
		httpx.Fail(w, http.StatusBadRequest, httpx.Error{Code: codeBadRequest, Message: err.Error()})
		return
	}
	whole := true
	for _, u := range st.units {
		v := u.opened()
		if v == nil {
			whole = false
			continue
		}
		record, err := v.effect(key)
		if err != nil {
			httpx.Fail(w, http.StatusInternalServerError, httpx.Error{Code: codeInternal, Message: err.Error()})
			return
		}
		if record != nil {
			httpx.JSON(w, http.StatusOK, record)
			return
		}
	}
	if !whole {
		httpx.Fail(w, http.StatusMisdirectedRequest, httpx.Error{
			Code: codeElsewhere, Message: fmt.Sprintf("no effect %s in the key partitions of %s that this process owns", key, name), Hint: "ask the other effectors",
		})
		return
	}
	httpx.Fail(w, http.StatusNotFound, httpx.Error{Code: codeNotFound, Message: fmt.Sprintf("stream %s has no effect %s", name, key)})
}

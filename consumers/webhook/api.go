package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/httpx"
)

const (
	requestBytes = 1 << 20
	listLimit    = 10_000
)

// Status says where an endpoint stands (schema webhookStatus.v1).
type Status struct {
	Endpoint      string           `json:"endpoint"`
	URL           string           `json:"url"` // without its query
	Stream        string           `json:"stream"`
	Job           string           `json:"job"`
	Mode          string           `json:"mode"`
	Generation    int              `json:"generation"` // 0 = nothing taken in yet
	Enabled       bool             `json:"enabled"`
	DisabledSince time.Time        `json:"disabledSince,omitzero"`
	DisabledWhy   string           `json:"disabledWhy,omitempty"`
	PausedUntil   time.Time        `json:"pausedUntil,omitzero"` // the receiver asked for quiet
	Deliveries    map[State]uint64 `json:"deliveries"`
	Overdue       uint64           `json:"overdue"`
	OldestWaiting time.Time        `json:"oldestWaiting,omitzero"`   // queued at
	Unapplied     time.Time        `json:"oldestUnapplied,omitzero"` // delivered at
	Alerts        []string         `json:"alerts"`
}

// Choice says which deliveries an operator means.
type Choice struct {
	IDs     []string `json:"ids,omitempty"`
	Failed  bool     `json:"failed,omitempty"`
	Refused bool     `json:"refused,omitempty"`
	Overdue bool     `json:"overdue,omitempty"`
}

// Order is what an operator wants done, by whom and why.
type Order struct {
	Choice
	DryRun bool   `json:"dryRun,omitempty"`
	By     string `json:"by"`
	Reason string `json:"reason"`
}

// Item is what became of one delivery of an order (schema webhookResult.v1).
type Item struct {
	WebhookID string `json:"webhookId"`
	Result    string `json:"result"` // queued, skipped, refused, missing; with dryRun: would-queue, would-skip
	State     State  `json:"state,omitempty"`
	Problem   string `json:"problem,omitempty"`
}

// Routes adds the API, and the door for receipts where the endpoint has one.
func (s *Sender) Routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/webhook", s.showStatus)
	mux.HandleFunc("GET /v1/webhook/deliveries", s.showDeliveries)
	mux.HandleFunc("POST /v1/webhook/redeliver", s.order("webhook-redeliver", "queue", "queued", s.redeliver))
	mux.HandleFunc("POST /v1/webhook/skip", s.order("webhook-skip", "skip", "skipped", s.skip))
	mux.HandleFunc("POST /v1/webhook/enable", s.enable)
	if s.endpoint.Applied != nil && s.endpoint.Applied.Receipts {
		mux.HandleFunc("POST /receipts", s.receive)
	}
}

// Status answers where the endpoint stands.
func (s *Sender) Status(ctx context.Context) (*Status, error) {
	e := s.endpoint
	st := &Status{Endpoint: e.Name, Stream: e.Stream, Job: e.Job, Mode: e.Mode, Deliveries: map[State]uint64{}, Alerts: []string{}}
	if u, err := url.Parse(e.URL); err == nil {
		u.RawQuery = ""
		st.URL = u.String()
	}
	err := s.do(ctx, func(t *turn) error {
		p := &s.position
		st.Generation, st.Enabled, st.Overdue = p.Generation, p.Disabled == nil, uint64(s.queue.overdue)
		if p.Disabled != nil {
			st.DisabledSince, st.DisabledWhy = p.Disabled.Since, p.Disabled.Why
		}
		if t.now.Before(p.PausedTo) {
			st.PausedUntil = p.PausedTo
		}
		if d := s.queue.oldestUnapplied(); d != nil {
			st.Unapplied = d.DeliveredAt
		}
		for _, state := range states {
			st.Deliveries[state] = 0
		}
		return t.each(func(d *Delivery) (bool, error) {
			st.Deliveries[d.State]++
			if d.waiting() && st.OldestWaiting.IsZero() {
				st.OldestWaiting = d.QueuedAt
			}
			return true, nil
		})
	})
	st.Alerts = append(st.Alerts, s.Problems()...)
	if !st.Enabled {
		st.Alerts = append(st.Alerts, "disabled: "+st.DisabledWhy+"; mend the receiver, then: tidemark webhook enable")
	}
	if n := st.Deliveries[StateFailed]; n > 0 {
		st.Alerts = append(st.Alerts, count(n)+" FAILED; mend the receiver, then: tidemark webhook redeliver --failed")
	}
	if n := st.Deliveries[StateRefused]; n > 0 {
		st.Alerts = append(st.Alerts, count(n)+" REFUSED by the receiver; tidemark webhook ls --state REFUSED tells why")
	}
	if st.Overdue > 0 {
		st.Alerts = append(st.Alerts, fmt.Sprintf("%s without a receipt for longer than %s; ask the receiver, then: tidemark webhook redeliver --overdue", count(st.Overdue), time.Duration(e.Applied.Within)))
	}
	return st, err
}

// count says how many deliveries.
func count(n uint64) string {
	if n == 1 {
		return "1 delivery"
	}
	return strconv.FormatUint(n, 10) + " deliveries"
}

func (s *Sender) showStatus(w http.ResponseWriter, r *http.Request) {
	st, err := s.Status(r.Context())
	if err != nil {
		unavailable(w, err)
		return
	}
	httpx.JSON(w, http.StatusOK, st)
}

func unavailable(w http.ResponseWriter, err error) {
	httpx.Fail(w, http.StatusServiceUnavailable, httpx.Error{Code: "unavailable", Message: err.Error()})
}

func badRequest(w http.ResponseWriter, message, hint string) {
	httpx.Fail(w, http.StatusBadRequest, httpx.Error{Code: "bad-request", Message: message, Hint: hint})
}

// showDeliveries lists deliveries in the order of the feed: ?state=, ?projection=, ?limit=.
func (s *Sender) showDeliveries(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit, state := listLimit, State(strings.ToUpper(q.Get("state")))
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > listLimit {
			badRequest(w, "limit is a number from 1 to "+strconv.Itoa(listLimit), "")
			return
		}
		limit = n
	}
	if state != "" && !slices.Contains(states, state) {
		badRequest(w, fmt.Sprintf("there is no state %s", state), fmt.Sprintf("choose one of %v", states))
		return
	}
	list := []Delivery{}
	err := s.do(r.Context(), func(t *turn) error {
		return t.each(func(d *Delivery) (bool, error) {
			if (state == "" || d.State == state) && (q.Get("projection") == "" || d.ProjectionID == q.Get("projection")) {
				list = append(list, *d)
			}
			return len(list) < limit, nil
		})
	})
	if err != nil {
		unavailable(w, err)
		return
	}
	httpx.JSON(w, http.StatusOK, map[string]any{"deliveries": list})
}

// readOrder reads an order and refuses one that does not say who and why.
func readOrder(w http.ResponseWriter, r *http.Request) (*Order, bool) {
	o := &Order{}
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, requestBytes))
	dec.DisallowUnknownFields()
	if err := dec.Decode(o); err != nil {
		badRequest(w, "the request is no JSON object of the known members", "ids, failed, refused, overdue, dryRun, by, reason")
		return nil, false
	}
	if !o.DryRun && (o.By == "" || o.Reason == "") {
		badRequest(w, "by and reason are missing", "say who decides and why; it is kept with the decision")
		return nil, false
	}
	return o, true
}

// audit keeps a decision before it is done.
func (s *Sender) audit(ctx context.Context, verb string, o *Order, details map[string]any) error {
	s.log.Info().Str("verb", verb).Str("by", o.By).Str("reason", o.Reason).Fields(details).Msg("an operator decided")
	details["endpoint"], details["by"] = s.endpoint.Name, o.By
	if s.cfg.Audit == nil {
		return nil
	}
	return s.cfg.Audit(ctx, verb, o.Reason, details)
}

// order answers the handler of a verb about many deliveries: it chooses, and does fn to
// each unless that is only tried out.
func (s *Sender) order(verb, would, done string, fn func(t *turn, d *Delivery) (refusal string, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		o, ok := readOrder(w, r)
		if !ok {
			return
		}
		items, err := s.choose(r.Context(), o.Choice, "would-"+would)
		if err == nil && !o.DryRun {
			err = s.audit(r.Context(), verb, o, map[string]any{"deliveries": len(items)})
		}
		if err == nil && !o.DryRun {
			err = s.do(r.Context(), func(t *turn) error {
				for i := range items {
					if err := s.carryOut(t, &items[i], done, fn); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err != nil {
			unavailable(w, err)
			return
		}
		httpx.JSON(w, http.StatusOK, map[string]any{"items": items})
	}
}

func (s *Sender) carryOut(t *turn, item *Item, done string, fn func(*turn, *Delivery) (string, error)) error {
	d, err := s.find(t, item.WebhookID)
	if err != nil {
		return err
	}
	if d == nil {
		item.Result = "missing"
		return nil
	}
	refusal, err := fn(t, d)
	item.Result, item.State, item.Problem = done, d.State, refusal
	if refusal != "" {
		item.Result = "refused"
	}
	return err
}

// choose answers an item for every delivery that is meant.
func (s *Sender) choose(ctx context.Context, c Choice, would string) ([]Item, error) {
	items := []Item{}
	err := s.do(ctx, func(t *turn) error {
		for _, id := range c.IDs {
			d, err := s.find(t, id)
			if err != nil {
				return err
			}
			item := Item{WebhookID: id, Result: "missing"}
			if d != nil {
				item.Result, item.State = would, d.State
			}
			items = append(items, item)
		}
		if !c.Failed && !c.Refused && !c.Overdue {
			return nil
		}
		return t.each(func(d *Delivery) (bool, error) {
			if c.Failed && d.State == StateFailed || c.Refused && d.State == StateRefused || c.Overdue && d.Overdue {
				items = append(items, Item{WebhookID: d.ID, Result: would, State: d.State})
			}
			return true, nil
		})
	})
	return items, err
}

// redeliver queues a delivery once more: same id, same bytes, the whole schedule again.
func (s *Sender) redeliver(t *turn, d *Delivery) (refusal string, err error) {
	switch {
	case s.queue.flying[d.Sequence] != nil:
		return "an attempt is under way", nil
	case d.State == StateCoalesced:
		return "a newer revision took its place", nil
	case d.State == StateDropped:
		return "readers see another generation now", nil
	}
	if !d.waiting() {
		d.Resent++
	}
	s.queue.reopen(d, t.now)
	return "", t.put(d)
}

// skip gives a delivery up, so that what waits behind it can go.
func (s *Sender) skip(t *turn, d *Delivery) (refusal string, err error) {
	switch {
	case s.queue.flying[d.Sequence] != nil:
		return "an attempt is under way", nil
	case d.through():
		return "it stands in nobody's way", nil
	}
	s.queue.move(d, StateSkipped)
	s.queue.close(d, t.now)
	return "", t.put(d)
}

func (s *Sender) enable(w http.ResponseWriter, r *http.Request) {
	o, ok := readOrder(w, r)
	if !ok {
		return
	}
	err := s.audit(r.Context(), "webhook-enable", o, map[string]any{})
	if err == nil {
		err = s.do(r.Context(), func(*turn) error {
			s.position.Disabled, s.position.PausedTo = nil, time.Time{}
			return nil
		})
	}
	if err != nil {
		unavailable(w, err)
		return
	}
	s.showStatus(w, r)
}

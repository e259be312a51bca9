package effector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/effectops"
	"github.com/tidemark-mesh/tidemark/internal/httpx"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// Codes of errors about orders.
const (
	codeTooLarge    = "too-large"
	codeTooMany     = "too-many"
	codeOtherDigest = "other-digest"
	codeOtherCount  = "other-count"
	codeVoid        = "void"
	codeUnavailable = "unavailable"
)

// orderTime bounds an order over HTTP. It is less than the server's time for an answer.
const orderTime = 100 * time.Second

// readsAtOnce bounds requests that fold every effects journal, which costs memory.
const readsAtOnce = 2

// desk answers the orders of operators. They go through the effects journals: any process
// takes them, whoever owns the key partition.
type desk struct {
	reads chan struct{}
}

func newDesk() desk { return desk{reads: make(chan struct{}, readsAtOnce)} }

func (s *Service) orderRoutes(mux *http.ServeMux) {
	const effects = "POST /v1/streams/{stream}/effects/"
	for _, act := range []effectlog.Act{effectlog.ActApprove, effectlog.ActHold, effectlog.ActVoid, effectlog.ActReconcile, verbResolve, effectlog.ActWaive} {
		verb := string(act)
		mux.HandleFunc(effects+"{effectKey}/"+verb, s.ordered(verb, true, s.orderOne))
		mux.HandleFunc(effects+verb, s.ordered(verb, false, s.orderMany))
	}
	mux.HandleFunc("POST /v1/streams/{stream}/effector/recover", s.ordered(verbRecover, false, s.orderRecover))
	mux.HandleFunc("GET /v1/streams/{stream}/gates", s.httpGates)
	mux.HandleFunc("POST /v1/streams/{stream}/gates/pause", s.ordered(verbPause, false, s.orderPause))
	mux.HandleFunc("POST /v1/streams/{stream}/gates/resume", s.ordered(verbResume, false, s.orderResume))
}

// asked is an order with all that is needed to carry it out.
type asked struct {
	*order
	verb   string
	name   string // of the business stream
	stream *stream
	ops    *effectops.Ops
	person effectops.Person
}

// answer is what an order is answered with.
type answer struct {
	status int
	body   any
}

// problem is an error with its HTTP status, and what had happened by then.
type problem struct {
	status int
	said   httpx.Error
	result *effectops.Result
	job    *jobDone
	paused *effectops.Paused
}

func (p *problem) Error() string { return p.said.Error() }

func problemf(status int, code, hint, format string, args ...any) *problem {
	return &problem{status: status, said: httpx.Error{Code: code, Message: fmt.Sprintf(format, args...), Hint: hint}}
}

// ordered reads an order and has it carried out.
func (s *Service) ordered(verb string, one bool, do func(context.Context, *http.Request, *asked) (answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name, st := s.httpStream(w, r)
		if st == nil {
			return
		}
		o, err := readOrder(w, r, verb, one)
		if err != nil {
			s.refuse(w, name, err)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), orderTime)
		defer cancel()
		a := &asked{order: o, verb: verb, name: name, stream: st, ops: s.ops(name, st), person: effectops.Person{Who: o.Who, Reason: o.Reason}}
		if !o.DryRun {
			s.cfg.Log.Info().Str("stream", name).Str("verb", verb).Str("by", o.Who).Str("reason", o.Reason).Msg("effector: an operator's order")
		}
		done, err := do(ctx, r, a)
		if err != nil {
			s.refuse(w, name, err)
			return
		}
		httpx.JSON(w, done.status, done.body)
	}
}

func (s *Service) ops(name string, st *stream) *effectops.Ops {
	return effectops.New(s.cfg.Conn.JS, name, len(st.units))
}

func readOrder(w http.ResponseWriter, r *http.Request, verb string, one bool) (*order, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, orderBytes))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return nil, problemf(http.StatusRequestEntityTooLarge, codeTooLarge, "name fewer effects in one order", "an order has at most %d bytes", orderBytes)
	case err != nil:
		return nil, problemf(http.StatusBadRequest, codeBadRequest, "send the whole body", "the body cannot be read: %v", err)
	}
	o, err := decodeOrder(body, verb, one)
	if err != nil {
		return nil, problemf(http.StatusBadRequest, codeBadRequest, "`tidemark schema effectOrder.v1` prints what an order is", "%v", err)
	}
	return o, nil
}

// refuse answers an error with its status, and with what had happened before it.
func (s *Service) refuse(w http.ResponseWriter, name string, err error) {
	p := problemOf(name, err)
	if p.status >= http.StatusInternalServerError {
		s.cfg.Log.Error().Err(err).Str("stream", name).Msg("effector: an operator's order failed")
	}
	body := struct {
		Error  httpx.Error       `json:"error"`
		Result *effectops.Result `json:"result,omitempty"`
		Job    *jobDone          `json:"job,omitempty"`
		Paused *effectops.Paused `json:"paused,omitempty"`
	}{p.said, p.result, p.job, p.paused}
	httpx.JSON(w, p.status, body)
}

// problemOf gives every error its status and code.
func problemOf(name string, err error) *problem {
	var p *problem
	text := err.Error()
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, effectops.ErrNotFound):
		return problemf(http.StatusNotFound, codeNotFound, fmt.Sprintf("GET /v1/streams/%s/effects lists them", name), "%s", text)
	case errors.Is(err, effectops.ErrNoEffects):
		return problemf(http.StatusNotFound, codeNotFound, "apply an EffectPolicy first", "%s", text)
	case errors.Is(err, effectops.ErrOtherDigest):
		return problemf(http.StatusConflict, codeOtherDigest, "look at it again, then approve what you see", "%s", text)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrNoResponders),
		errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrDisconnected):
		return problemf(http.StatusServiceUnavailable, codeUnavailable, "the journals did not answer in time; look what was done, then give the order again", "%s", text)
	}
	return problemf(http.StatusInternalServerError, codeInternal, "look at the effector's log and at `tidemark verify`", "%s", text)
}

// orderOne is about the effect that the path names.
func (s *Service) orderOne(ctx context.Context, r *http.Request, a *asked) (answer, error) {
	key, err := effect.ParseEffectKey(r.PathValue("effectKey"))
	if err != nil {
		return answer{}, problemf(http.StatusBadRequest, codeBadRequest, fmt.Sprintf("GET /v1/streams/%s/effects lists them", a.name), "%v", err)
	}
	item, err := s.find(ctx, a, key)
	if err != nil {
		return answer{}, err
	}
	if a.act.Act == effectlog.ActApprove {
		if err := effectops.ShownAs(item, a.digest); err != nil {
			return answer{}, err
		}
	}
	targets := effectops.Targets([]effectops.Item{item})
	if a.DryRun {
		return answer{http.StatusOK, would(a.verb, targets)[0]}, nil
	}
	var result effectops.Result
	if err := a.ops.Run(ctx, a.person, a.act, targets, func(r effectops.Result) error {
		result = r
		return nil
	}); err != nil {
		return answer{}, err
	}
	return single(&result)
}

// single answers the result of one command.
func single(r *effectops.Result) (answer, error) {
	switch r.Result {
	case effectops.ResultDone:
		return answer{http.StatusOK, r}, nil
	case effectops.ResultWaiting:
		return answer{http.StatusAccepted, r}, nil
	case effectops.ResultVoid:
		p := problemf(http.StatusConflict, codeVoid, "give the order again", "%s", r.Why)
		p.result = r
		return answer{}, p
	}
	p := problemf(http.StatusUnprocessableEntity, codeRefused, "", "refused, %s: %s", r.Refusal, r.Why)
	switch r.Refusal {
	case ledger.OtherDigest:
		p.status, p.said.Code, p.said.Hint = http.StatusConflict, codeOtherDigest, "look at it again, then approve what you see"
	case ledger.OnItsWay:
		p.status, p.said.Hint = http.StatusConflict, "give the order again when the attempt has ended"
	case ledger.NoEffect:
		p.status, p.said.Code = http.StatusNotFound, codeNotFound
	}
	p.result = r
	return answer{}, p
}

// find answers an effect from the views that this process owns, else from the journals.
// The owner judges the command by the effect as it is then.
func (s *Service) find(ctx context.Context, a *asked, key effect.EffectKey) (effectops.Item, error) {
	for pp, u := range a.stream.units {
		v := u.opened()
		if v == nil {
			continue
		}
		// A view that was closed meanwhile is another's now: the journals tell.
		if r, err := v.effect(key); err == nil && r != nil {
			return effectops.Item{Partition: pp, Record: r}, nil
		}
	}
	items, err := s.list(ctx, a.ops, effectops.Filter{Keys: []effect.EffectKey{key}})
	if err == nil && len(items) == 0 {
		err = fmt.Errorf("effect %s: %w in %s", key, effectops.ErrNotFound, a.name)
	}
	if err != nil {
		return effectops.Item{}, err
	}
	return items[0], nil
}

// list folds the journals once it is this request's turn.
func (s *Service) list(ctx context.Context, ops *effectops.Ops, f effectops.Filter) (items []effectops.Item, err error) {
	err = s.desk.turn(ctx, func() error {
		items, err = ops.List(ctx, f)
		return err
	})
	return items, err
}

func (d *desk) turn(ctx context.Context, do func() error) error {
	select {
	case d.reads <- struct{}{}:
		defer func() { <-d.reads }()
		return do()
	case <-ctx.Done():
		return fmt.Errorf("%d other requests read the effects journals: %w", readsAtOnce, ctx.Err())
	}
}

// jobDone is what became of an order about many effects or key partitions (schema
// effectJob.v1).
type jobDone struct {
	Job     string             `json:"job,omitempty"` // none with a dry run
	DryRun  bool               `json:"dryRun"`
	Count   int                `json:"count"`  // how many it is about
	Counts  map[string]int     `json:"counts"` // results by their names
	Results []effectops.Result `json:"results"`
}

// orderMany is about effects by key or by filter.
func (s *Service) orderMany(ctx context.Context, _ *http.Request, a *asked) (answer, error) {
	filter := effectops.Filter{Keys: a.Keys}
	if a.Filter != nil {
		filter = a.Filter.filter()
		if len(filter.States) == 0 {
			filter.States = effectops.Meant(a.act.Act)
		}
	}
	items, err := s.list(ctx, a.ops, filter)
	if err != nil {
		return answer{}, err
	}
	for _, key := range a.Keys {
		if !slices.ContainsFunc(items, func(i effectops.Item) bool { return i.Record.Key == key }) {
			return answer{}, fmt.Errorf("effect %s: %w in %s; nothing was done", key, effectops.ErrNotFound, a.name)
		}
	}
	if a.Count != nil && *a.Count != len(items) {
		return answer{}, problemf(http.StatusConflict, codeOtherCount, "send the order with dryRun again, look, and give the count that it answers",
			"the filter takes %d effects now, not %d; nothing was done", len(items), *a.Count)
	}
	if len(items) > effectsMost && !a.DryRun {
		return answer{}, problemf(http.StatusUnprocessableEntity, codeTooMany, "narrow the filter, or use the command line, which has no such bound",
			"the filter takes %d effects; one order over HTTP is about %d at most", len(items), effectsMost)
	}
	targets := effectops.Targets(items)
	for _, t := range targets {
		if a.act.Act == effectlog.ActApprove && t.Digest.IsZero() {
			return answer{}, problemf(http.StatusUnprocessableEntity, codeRefused, "leave it out", "effect %s has no payload to approve; nothing was done", t.Key)
		}
	}
	return s.job(ctx, a, targets)
}

// orderRecover is about key partitions.
func (s *Service) orderRecover(ctx context.Context, _ *http.Request, a *asked) (answer, error) {
	if len(a.Partitions) == 0 {
		for pp := range a.stream.units {
			a.Partitions = append(a.Partitions, pp)
		}
	}
	targets := make([]effectops.Target, len(a.Partitions))
	for i, pp := range a.Partitions {
		if pp >= len(a.stream.units) {
			return answer{}, problemf(http.StatusBadRequest, codeBadRequest, fmt.Sprintf("give numbers from 0 to %d", len(a.stream.units)-1), "stream %s has no key partition %d", a.name, pp)
		}
		targets[i] = effectops.Target{Partition: pp}
	}
	return s.job(ctx, a, targets)
}

// job runs the order as one job with a result for each target.
func (s *Service) job(ctx context.Context, a *asked, targets []effectops.Target) (answer, error) {
	done := &jobDone{DryRun: a.DryRun, Count: len(targets), Counts: map[string]int{}, Results: []effectops.Result{}}
	note := func(r effectops.Result) error {
		done.Job = r.Job
		done.Counts[r.Result]++
		done.Results = append(done.Results, r)
		return nil
	}
	if a.DryRun {
		for _, r := range would(a.verb, targets[:min(len(targets), effectsMost)]) {
			if err := note(r); err != nil {
				return answer{}, err
			}
		}
		return answer{http.StatusOK, done}, nil
	}
	if len(targets) == 0 {
		return answer{http.StatusOK, done}, nil
	}
	if err := a.ops.Run(ctx, a.person, a.act, targets, note); err != nil {
		p := *problemOf(a.name, err)
		p.job = done
		return answer{}, &p
	}
	return answer{http.StatusOK, done}, nil
}

// would answers the results of a dry run.
func would(verb string, targets []effectops.Target) []effectops.Result {
	list := make([]effectops.Result, len(targets))
	for i, t := range targets {
		list[i] = effectops.Result{Partition: t.Partition, Result: "would-" + verb}
		if !t.Key.IsZero() {
			list[i].Key = t.Key.String()
		}
	}
	return list
}

// gateMoved is where a gate was moved, or would be (schema gateMoved.v1).
type gateMoved struct {
	Scope      effectlog.Scope    `json:"scope"`
	DryRun     bool               `json:"dryRun,omitempty"`
	Partitions int                `json:"partitions"`
	Placed     []effectops.Placed `json:"placed,omitempty"`
}

// orderPause answers when nothing of the scope can reach a provider any more.
func (s *Service) orderPause(ctx context.Context, _ *http.Request, a *asked) (answer, error) {
	if a.DryRun {
		return answer{http.StatusOK, &gateMoved{Scope: a.gate, DryRun: true, Partitions: a.ops.Partitions()}}, nil
	}
	paused, err := a.ops.Pause(ctx, a.gate, a.person)
	if err != nil {
		p := *problemOf(a.name, err)
		p.paused = paused
		return answer{}, &p
	}
	return answer{http.StatusOK, paused}, nil
}

func (s *Service) orderResume(ctx context.Context, _ *http.Request, a *asked) (answer, error) {
	moved := &gateMoved{Scope: a.gate, DryRun: a.DryRun, Partitions: a.ops.Partitions()}
	if a.DryRun {
		return answer{http.StatusOK, moved}, nil
	}
	var err error
	moved.Placed, err = a.ops.Resume(ctx, a.gate, a.person)
	return answer{http.StatusOK, moved}, err
}

// httpGates answers every scope that was ever moved or is closed.
func (s *Service) httpGates(w http.ResponseWriter, r *http.Request) {
	name, st := s.httpStream(w, r)
	if st == nil {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), orderTime)
	defer cancel()
	var all []effectops.Status
	err := s.desk.turn(ctx, func() (err error) {
		all, err = s.ops(name, st).Status(ctx)
		return err
	})
	if err != nil {
		s.refuse(w, name, err)
		return
	}
	httpx.JSON(w, http.StatusOK, map[string]any{"gates": effectops.Scopes(all)})
}

package ingest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Error is why a request was not taken in. Both transports carry it: HTTP as a status
// with a body, NATS as {"error": …}. Nothing of the request is promised then; items that
// were already written are duplicates when the request is sent again.
type Error struct {
	Status     int           `json:"status"` // the HTTP status
	Code       string        `json:"code"`
	Message    string        `json:"message"`
	Hint       string        `json:"hint,omitempty"`
	Address    string        `json:"address,omitempty"` // not-owner: where the owner answers
	RetryAfter time.Duration `json:"-"`
	RetryMs    int64         `json:"retryAfterMs,omitempty"`
}

// Error answers what, and what to do.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + "; " + e.Hint
}

func refuse(status int, code, hint, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// later is a refusal that heals by itself.
func later(status int, code string, after time.Duration, format string, args ...any) *Error {
	e := refuse(status, code, fmt.Sprintf("send the request again after %s", after), format, args...)
	e.RetryAfter, e.RetryMs = after, after.Milliseconds()
	return e
}

func badRequest(hint, format string, args ...any) *Error {
	return refuse(http.StatusBadRequest, "bad-request", hint, format, args...)
}

func errStopping() *Error {
	return later(http.StatusServiceUnavailable, "not-ready", time.Second, "this ingest process is stopping or not ready yet")
}

func errUnsettled() *Error {
	return later(http.StatusServiceUnavailable, "unsettled", time.Second,
		"this ingest process stopped before the events were acknowledged; they may or may not be stored, and events sent again count once")
}

func errBusy(waited time.Duration) *Error {
	return later(http.StatusTooManyRequests, "busy", time.Second,
		"ingest holds as many unacknowledged bytes as it may, and none became free within %s", waited)
}

// errNotOurs is turned into 421 or 503 by Service.explain, outside all locks.
var errNotOurs = errors.New("source partition is not owned by this process")

// explain says who owns p when err is errNotOurs.
func (s *Service) explain(ctx context.Context, p *partition, err error) error {
	if p == nil || !errors.Is(err, errNotOurs) {
		return err
	}
	address, lookup := s.leases.Who(ctx, p.leaseKey())
	if lookup != nil || address == "" || address == s.address {
		return later(http.StatusServiceUnavailable, "not-ready", time.Second, "source partition %s of stream %s has no owner at the moment", p, p.stream.name)
	}
	e := refuse(http.StatusMisdirectedRequest, "not-owner", "send it to "+address, "source partition %s of stream %s is owned by the ingest process at %s", p, p.stream.name, address)
	e.Address = address
	return e
}

func errFinished(p *partition) *Error {
	return refuse(http.StatusConflict, "finished", "a finished source partition stays finished; send to another partition",
		"source partition %s of stream %s is finished", p, p.stream.name)
}

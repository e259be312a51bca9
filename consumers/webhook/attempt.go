package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/netguard"
)

// Bounds of what an answer may ask for.
const (
	minRetryAfter = time.Second
	maxRetryAfter = 24 * time.Hour
	quiet         = 5 * time.Second // after a throttling answer that names no time
	answerBytes   = 64 << 10        // of an answer that are read
)

// result is what one attempt came to.
type result string

const (
	resultDelivered result = "delivered"
	resultFailed    result = "failed"
	resultThrottled result = "throttled" // 429: the receiver asks for time, nothing is wrong
	resultStruggles result = "struggles" // 502, 504: a failure, and the receiver needs quiet
	resultGone      result = "gone"      // 410: the receiver wants no more
	resultBarred    result = "barred"    // the address may not be dialled
	resultCut       result = "cut"       // this process stopped; nothing is known
)

// outcome is one attempt's result with what is kept of it.
type outcome struct {
	result  result
	status  int
	problem string
	wait    time.Duration // that the receiver asked for; 0 = it named none
}

// attempt makes one request. The body of the answer is read and thrown away: what a
// receiver says there is shown nowhere.
func (s *Sender) attempt(ctx context.Context, d *Delivery, body []byte) outcome {
	secrets, err := s.keys.secrets()
	if err != nil {
		s.log.Warn().Err(err).Msg("secret files cannot be read; the last secrets stay in use")
	}
	limited, cancel := context.WithTimeout(ctx, time.Duration(s.endpoint.Timeout))
	defer cancel()
	request, err := http.NewRequestWithContext(limited, http.MethodPost, s.endpoint.URL, bytes.NewReader(body))
	if err != nil {
		return outcome{result: resultFailed, problem: "the request could not be made"}
	}
	request.GetBody = nil // a request is never sent again behind our back
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "tidemark-webhook/1")
	if d.TraceParent != "" {
		request.Header.Set("traceparent", d.TraceParent)
	}
	Sign(request.Header, d.ID, s.clock.Now(), body, secrets...)
	answer, err := s.client.Do(request)
	if err != nil {
		return failedRequest(ctx, err)
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, answerBytes) // so that the connection can be used again
	return classify(answer, s.clock.Now())
}

func failedRequest(ctx context.Context, err error) outcome {
	var refused *netguard.RefusedError
	var wrapped *url.Error
	switch {
	case ctx.Err() != nil:
		return outcome{result: resultCut}
	case errors.As(err, &refused):
		return outcome{result: resultBarred, problem: refused.Error()}
	case errors.Is(err, context.DeadlineExceeded):
		return outcome{result: resultFailed, problem: "no answer in time"}
	case errors.As(err, &wrapped): // its text holds the URL, which may hold a token
		err = wrapped.Err
	}
	return outcome{result: resultFailed, problem: err.Error()}
}

// classify answers what the status of an answer means.
func classify(answer *http.Response, now time.Time) outcome {
	o := outcome{result: resultFailed, status: answer.StatusCode, problem: fmt.Sprintf("answered %d", answer.StatusCode)}
	switch code := answer.StatusCode; {
	case code >= 200 && code < 300:
		o.result, o.problem = resultDelivered, ""
	case code >= 300 && code < 400:
		o.problem += ", a redirect, which is not followed"
	case code == http.StatusGone:
		o.result = resultGone
	case code == http.StatusTooManyRequests:
		o.result, o.wait = resultThrottled, retryAfter(answer.Header.Get("Retry-After"), now)
	case code == http.StatusBadGateway, code == http.StatusGatewayTimeout:
		o.result, o.wait = resultStruggles, retryAfter(answer.Header.Get("Retry-After"), now)
	}
	return o
}

// retryAfter reads seconds or a date and keeps the wait between 1 s and 24 h; 0 = nothing
// that can be read.
func retryAfter(text string, now time.Time) time.Duration {
	if text == "" {
		return 0
	}
	var wait time.Duration
	if seconds, err := strconv.ParseUint(text, 10, 64); err == nil {
		wait = time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		wait = at.Sub(now)
	} else {
		return 0
	}
	return min(max(wait, minRetryAfter), maxRetryAfter)
}

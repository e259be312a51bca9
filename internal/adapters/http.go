package adapters

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/netguard"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adapter"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// httpAdapter posts to a provider. It speaks HTTP/1.1 alone: there a connection carries
// one request at a time, so it can be asked before the first byte, and knows whether one
// went out.
type httpAdapter struct {
	doc     *policy.Adapter
	deps    Deps
	clock   clock.Clock
	sends   *http.Client // connections that write for attempts only
	queries *http.Client
}

func newHTTP(doc *policy.Adapter, deps Deps) (*httpAdapter, error) {
	if _, err := fixedHeaders(doc, deps); err != nil {
		return nil, err
	}
	allow, err := netguard.ParseAllow(doc.Allow)
	if err != nil {
		return nil, err
	}
	guard := netguard.New(append(allow, deps.Allow...)...)
	sends, queries := guard.Transport(duration(doc.SendWithin)), guard.Transport(duration(doc.Timeout))
	for _, t := range []*http.Transport{sends, queries} {
		t.TLSClientConfig.RootCAs = deps.Roots
		t.MaxIdleConnsPerHost = max(1, doc.Rate.Concurrency)
	}
	// A provider that closes a kept connection while we write on it leaves an attempt of
	// which nothing is known. Where a second send cannot settle that, every attempt gets a
	// connection of its own.
	sends.DisableKeepAlives = !doc.Idempotent()
	gate(sends)
	return &httpAdapter{doc: doc, deps: deps, clock: deps.clock(), sends: client(sends), queries: client(queries)}, nil
}

// client answers a client that follows no redirect: whoever the request is sent on to may
// execute it a second time.
func client(t *http.Transport) *http.Client {
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// gate makes every connection of t a gatedConn. TLS is made here, below the gate, so that
// the first byte that it sees is the first of a request.
func gate(t *http.Transport) {
	dial, tlsConfig, within := t.DialContext, t.TLSClientConfig, t.TLSHandshakeTimeout
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &gatedConn{Conn: conn}, nil
	}
	t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		config := tlsConfig.Clone()
		config.ServerName, _, err = net.SplitHostPort(address)
		if err != nil {
			_ = conn.Close()
			return nil, err
		}
		secure := tls.Client(conn, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, &handshakeError{err}
		}
		return &gatedConn{Conn: secure}, nil
	}
}

// handshakeError says that TLS was not established.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return "TLS: " + e.err.Error() }

func (e *handshakeError) Unwrap() error { return e.err }

// Close implements adapter.Adapter.
func (h *httpAdapter) Close() error {
	h.sends.CloseIdleConnections()
	h.queries.CloseIdleConnections()
	return nil
}

// Send implements adapter.Adapter.
func (h *httpAdapter) Send(ctx context.Context, call adapter.Call) adapter.Answer {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pass := newPassage(call.MaySend)
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if conn, ok := info.Conn.(*gatedConn); ok {
			conn.pass.Store(pass)
		}
	}}
	req, err := h.request(httptrace.WithClientTrace(ctx, trace), &call)
	if err != nil {
		return unsent(&call, err.Error())
	}
	go pass.watch(ctx, cancel, duration(h.doc.SendWithin), duration(h.doc.Timeout))
	resp, err := h.sends.Do(req)
	if err == nil {
		defer resp.Body.Close()
	}
	switch {
	case pass.seal():
		return unsent(&call, whyUnsent(ctx, pass, err))
	case err != nil:
		return ambiguous(&call, whyLost(ctx))
	}
	r, err := h.read(resp)
	if err != nil {
		a := ambiguous(&call, fmt.Sprintf("status %d, but %v", resp.StatusCode, err))
		a.RetryAfter = r.retryAfter
		return a
	}
	return classify(h.doc, &call, r)
}

// request builds the request around the stored bytes.
func (h *httpAdapter) request(ctx context.Context, call *adapter.Call) (*http.Request, error) {
	if len(call.Payload) == 0 {
		return nil, errors.New("the payload is empty")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, call.Scope.URL, bytes.NewReader(call.Payload))
	if err != nil || req.URL.Host == "" {
		return nil, errors.New("the url of the scope cannot be read")
	}
	// Without GetBody, and with a body, the transport has nothing to send a second time,
	// whichever headers it takes for a promise of idempotency.
	req.GetBody = nil
	if err := h.dress(req, call.TraceParent); err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if h.doc.Idempotency.Header != "" {
		req.Header.Set(h.doc.Idempotency.Header, call.Key.String())
	}
	return req, nil
}

// dress sets the headers of every request.
func (h *httpAdapter) dress(req *http.Request, traceParent string) error {
	headers, err := fixedHeaders(h.doc, h.deps)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "tidemark")
	for _, f := range headers {
		req.Header.Set(f.name, f.value)
	}
	if isTraceParent(traceParent) {
		req.Header.Set("Traceparent", traceParent)
	}
	return nil
}

// read reads an answer to its end; its error says what is wrong without a byte of it.
func (h *httpAdapter) read(resp *http.Response) (*reply, error) {
	r := &reply{
		status:    resp.StatusCode,
		mediaType: resp.Header.Get("Content-Type"),
	}
	// With other answers the header speaks of the one effect, such as when to look at it
	// again, and is no reason to leave the provider alone.
	if r.status == http.StatusTooManyRequests || r.status == http.StatusServiceUnavailable {
		r.retryAfter = retryAfter(resp.Header.Get("Retry-After"), h.clock.Now())
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return r, errors.New("its body broke off")
	case len(body) > maxAnswer:
		return r, fmt.Errorf("its body has more than %d bytes", maxAnswer)
	case len(resp.Header.Values("Content-Type")) > 1:
		return r, errors.New("it names several content types")
	}
	r.body = body
	return r, nil
}

// Bounds of what a provider may ask for with Retry-After.
const (
	minRetryAfter = time.Second
	maxRetryAfter = 24 * time.Hour
)

// retryAfter reads seconds or an HTTP date; 0 is that nothing is asked for.
func retryAfter(text string, now time.Time) time.Duration {
	if allDigits(text) {
		if len(text) > 6 {
			return maxRetryAfter
		}
		seconds := 0
		for _, c := range []byte(text) {
			seconds = seconds*10 + int(c-'0')
		}
		return clampRetry(time.Duration(seconds) * time.Second)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return clampRetry(at.Sub(now))
}

func clampRetry(d time.Duration) time.Duration { return min(max(d, minRetryAfter), maxRetryAfter) }

// Query implements adapter.Adapter. A query may be sent twice without harm, so it goes by
// an ordinary client.
func (h *httpAdapter) Query(ctx context.Context, q adapter.Question) (adapter.Finding, error) {
	if h.doc.Query.URL == "" {
		return adapter.Finding{}, adapter.ErrNoQuery
	}
	ctx, cancel := context.WithTimeout(ctx, duration(h.doc.Timeout))
	defer cancel()
	address := strings.ReplaceAll(h.doc.Query.URL, policy.KeyPlaceholder, q.Key.String())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return adapter.Finding{}, errors.New("query.url cannot be read")
	}
	if err := h.dress(req, ""); err != nil {
		return adapter.Finding{}, err
	}
	resp, err := h.queries.Do(req)
	if err != nil {
		return adapter.Finding{}, fmt.Errorf("the query got no answer: %s", connectionTrouble(err))
	}
	defer resp.Body.Close()
	r, err := h.read(resp)
	if err != nil {
		return adapter.Finding{}, fmt.Errorf("%w: status %d, but %w", adapter.ErrUnclear, resp.StatusCode, err)
	}
	return find(h.doc, q.Key, r)
}

func unsent(call *adapter.Call, why string) adapter.Answer {
	return ended(call, effect.NotSent, why)
}

func ambiguous(call *adapter.Call, why string) adapter.Answer {
	return ended(call, effect.Ambiguous, why)
}

// ended answers an attempt that ended without a whole answer.
func ended(call *adapter.Call, class effect.Class, why string) adapter.Answer {
	return adapter.Answer{
		Class: class, Detail: why,
		Evidence: effect.Evidence{Source: effect.FromAnswer, Attempt: call.Attempt, Class: class},
	}
}

// whyUnsent says why no byte went out.
func whyUnsent(ctx context.Context, pass *passage, err error) string {
	switch {
	case pass.refused():
		return errNotAllowed.Error()
	case errors.Is(context.Cause(ctx), errUnconnected):
		return errUnconnected.Error()
	case err == nil:
		return "the connection answered before it was asked"
	}
	return connectionTrouble(err)
}

// whyLost says why an attempt that sent bytes has no answer.
func whyLost(ctx context.Context) string {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errUnanswered):
		return errUnanswered.Error()
	case cause != nil:
		return "given up before an answer came"
	}
	return "the connection broke, or answered what is no HTTP, after bytes went out"
}

// connectionTrouble says what kept a connection from being made. Errors of other kinds
// may repeat bytes that were received, and are not shown.
func connectionTrouble(err error) string {
	if broken := new(url.Error); errors.As(err, &broken) {
		err = broken.Err
	}
	var refused *netguard.RefusedError
	var name *net.DNSError
	var shaken *handshakeError
	var op *net.OpError
	switch {
	case errors.As(err, &refused):
		return refused.Error()
	case errors.As(err, &name):
		return name.Error()
	case errors.As(err, &shaken):
		return shaken.Error()
	case errors.As(err, &op):
		return op.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "the time was over"
	case errors.Is(err, context.Canceled):
		return "given up before a connection was made"
	}
	return "the connection failed"
}

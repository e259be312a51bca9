// Package httpx is the HTTP door of a process: one mux with limits, health, metrics and
// errors of one shape.
package httpx

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Limits of every server. A body may be slow, a header may not.
const (
	headerTimeout = 10 * time.Second
	bodyTimeout   = 2 * time.Minute
	writeTimeout  = 2 * time.Minute
	idleTimeout   = 2 * time.Minute
	headerBytes   = 64 << 10
)

// Options of a Server.
type Options struct {
	Addr      string // host:port; port 0 = any free one
	Token     string // bearer token that /v1/ asks for; "" = none
	Anonymous bool   // allow an address beyond loopback without a token
	Registry  *prometheus.Registry
	// Problems answers why the process is not ready; empty = ready.
	Problems func() []string
	// Alive answers loops whose heartbeat is overdue; empty = alive.
	Alive func() []string
}

// Server serves one mux.
type Server struct {
	Mux      *http.ServeMux
	http     *http.Server
	listener net.Listener
	opts     Options
}

// ErrPortInUse tells that another process listens on the address.
var ErrPortInUse = errors.New("port in use")

// ErrOpenBind tells that an address beyond loopback was asked for without a token.
var ErrOpenBind = errors.New("refused to listen beyond loopback without a token")

// Listen binds the address at once, so that a port in use is known before anything else
// starts; Serve answers requests.
func Listen(o Options) (*Server, error) {
	host, _, err := net.SplitHostPort(o.Addr)
	if err != nil {
		return nil, fmt.Errorf("HTTP address %q: %w; write host:port, such as 127.0.0.1:8080", o.Addr, err)
	}
	if o.Token == "" && !o.Anonymous && !loopback(host) {
		return nil, fmt.Errorf("%w: %s; give --http-token-file, or --http-anonymous inside a closed network", ErrOpenBind, o.Addr)
	}
	l, err := net.Listen("tcp", o.Addr)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("%w: HTTP address %s; stop the other process or choose another port (0 = any free one)", ErrPortInUse, o.Addr)
		}
		return nil, fmt.Errorf("listen on HTTP address %s: %w", o.Addr, err)
	}
	s := &Server{Mux: http.NewServeMux(), listener: l, opts: o}
	s.http = &http.Server{
		Handler:           s.guard(http.HandlerFunc(s.route)),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytes,
	}
	s.routes()
	return s, nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// URL answers http://host:port as bound.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// Advertised answers the URL under which other machines reach this process: as bound, or
// with the machine's name where every address is bound.
func (s *Server) Advertised() string {
	host, port, err := net.SplitHostPort(s.listener.Addr().String())
	if err != nil {
		return s.URL()
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsUnspecified() {
		return s.URL()
	}
	name, err := os.Hostname()
	if err != nil {
		return s.URL()
	}
	return "http://" + net.JoinHostPort(name, port)
}

// Serve answers requests until Shutdown.
func (s *Server) Serve() error {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown stops taking requests and waits for those under way until ctx ends.
func (s *Server) Shutdown(ctx context.Context) error { return s.http.Shutdown(ctx) }

func (s *Server) routes() {
	s.Mux.HandleFunc("GET /livez", s.health("live", s.opts.Alive))
	s.Mux.HandleFunc("GET /readyz", s.health("ready", s.opts.Problems))
	if s.opts.Registry != nil {
		s.Mux.Handle("GET /metrics", promhttp.HandlerFor(s.opts.Registry, promhttp.HandlerOpts{}))
	}
}

// health answers 200 or 503; with ?verbose the reasons, one a line.
func (s *Server) health(word string, reasons func() []string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var found []string
		if reasons != nil {
			found = reasons()
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if len(found) == 0 {
			fmt.Fprintln(w, word)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, "not "+word)
		if r.URL.Query().Has("verbose") {
			for _, reason := range found {
				fmt.Fprintln(w, "- "+reason)
			}
		}
	}
}

// guard checks the token on /v1/ and refuses what a foreign web page sends.
func (s *Server) guard(next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(s.opts.Token))
	protect := http.NewCrossOriginProtection()
	protect.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		Fail(w, http.StatusForbidden, Error{Code: "cross-origin", Message: "a web page of another origin may not do this", Hint: "send the request from a program, without an Origin header"})
	}))
	checked := protect.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.opts.Token != "" && strings.HasPrefix(r.URL.Path, "/v1/") {
			given, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			got := sha256.Sum256([]byte(given))
			if !bearer || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
				w.Header().Set("WWW-Authenticate", "Bearer")
				Fail(w, http.StatusUnauthorized, Error{Code: "unauthorized", Message: "no valid bearer token", Hint: "send Authorization: Bearer <token>"})
				return
			}
		}
		checked.ServeHTTP(w, r)
	})
}

// route serves the mux; what it does not serve is answered in the shape of all errors.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	refusal, pattern := s.Mux.Handler(r)
	if pattern != "" {
		s.Mux.ServeHTTP(w, r)
		return
	}
	p := probe{header: http.Header{}}
	refusal.ServeHTTP(&p, r)
	if p.status == http.StatusMethodNotAllowed {
		allowed := p.header.Get("Allow")
		w.Header().Set("Allow", allowed)
		Fail(w, p.status, Error{Code: "method-not-allowed", Message: r.URL.Path + " is not for " + r.Method, Hint: "use " + allowed})
		return
	}
	Fail(w, http.StatusNotFound, Error{Code: "not-found", Message: "nothing is served at " + r.URL.Path, Hint: "this process has /livez, /readyz, /metrics and, by service, /v1/streams/STREAM/events, /windows and /status"})
}

// probe notes what a handler would answer.
type probe struct {
	header http.Header
	status int
}

func (p *probe) Header() http.Header            { return p.header }
func (p *probe) WriteHeader(status int)         { p.status = status }
func (p *probe) Write(text []byte) (int, error) { return len(text), nil }

// Error is the one shape of an error over HTTP and NATS.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// Error makes it an error.
func (e Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + "; " + e.Hint
}

// Fail answers status with {"error": e}.
func Fail(w http.ResponseWriter, status int, e Error) {
	JSON(w, status, map[string]Error{"error": e})
}

// JSON answers status with v.
func JSON(w http.ResponseWriter, status int, v any) {
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false) // hints and keys stay readable; nosniff keeps browsers from reading HTML into them
	if err := e.Encode(v); err != nil {
		status = http.StatusInternalServerError
		body.Reset()
		body.WriteString(`{"error":{"code":"internal","message":"the answer could not be written as JSON"}}` + "\n")
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	w.Write(body.Bytes())
}

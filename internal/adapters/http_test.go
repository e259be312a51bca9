package adapters

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adapter"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adaptertest"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

var setup = adaptertest.Setup{Capabilities: adaptertest.Capabilities{Idempotent: true, Query: true}, Timeout: 30 * time.Second}

var someKey = effect.EffectKey{1, 2, 3}

func callTo(url string) adapter.Call {
	return adapter.Call{
		Key: someKey, Attempt: 1, Scope: effect.Scope{URL: url}, Payload: adaptertest.Payload(someKey, "12.50", "account-1"),
		Expect:  effect.Expectation{Amount: "12.50", Subject: "account-1"},
		MaySend: func() bool { return true }, TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
}

// rawServer is a server that speaks bytes: serve gets every connection.
func rawServer(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return l.Addr().String()
}

// plain answers an adapter to a provider at url.
func plain(t *testing.T, url, more string) adapter.Adapter {
	t.Helper()
	return mustNew(t, document(t, "kind: Adapter\nname: rewards-api\nversion: 1\ntype: http\nurl: "+url+
		"\nallow: [127.0.0.0/8]\nevidence: {key: /ref, amount: /points, subject: /account, ref: /id}\n"+more), Deps{})
}

func mustNew(t *testing.T, doc *policy.Adapter, deps Deps) adapter.Adapter {
	t.Helper()
	a, err := New(doc, deps)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// A server that executes what it reads and hangs up once it has answered for the first
// time: what a transport repeats shows in the second number.
func hangingUp(t *testing.T) (url string, executed *atomic.Int32) {
	executed = new(atomic.Int32)
	return "http://" + rawServer(t, func(conn net.Conn) {
		buf := make([]byte, 64<<10)
		for answered := false; ; answered = true {
			n, err := conn.Read(buf)
			if err != nil || !bytes.Contains(buf[:n], []byte("POST")) {
				return
			}
			executed.Add(1)
			if answered {
				return
			}
			body := execution{someKey, "12.50", "account-1"}.shown()
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}
	}) + "/issue", executed
}

// tries bounds how often a test sends until a connection is used again; whether it is
// depends on how quickly the transport takes it back.
const tries = 1000

func TestAKeptConnectionThatIsDroppedAfterExecutionIsNotTriedAgain(t *testing.T) {
	url, executed := hangingUp(t)
	a := plain(t, url, "idempotency: {header: Idempotency-Key, retention: 24h, basis: firstSeen, onBodyMismatch: error}\n")
	attempts, dropped := 0, false
	for attempts < tries && !dropped {
		got := a.Send(t.Context(), callTo(url))
		attempts++
		if dropped = got.Class == effect.Ambiguous; !dropped && got.Class != effect.Executed {
			t.Fatalf("attempt %d ended as %s (%s)", attempts, got.Class, got.Detail)
		}
	}
	if n := executed.Load(); !dropped || n != int32(attempts) {
		t.Errorf("%d executions of %d attempts, a connection dropped: %t", n, attempts, dropped)
	}
}

func TestAnAdapterWithoutIdempotencyKeepsNoConnection(t *testing.T) {
	url, executed := hangingUp(t)
	a := plain(t, url, "")
	for i := range 20 {
		if got := a.Send(t.Context(), callTo(url)); got.Class != effect.Executed {
			t.Errorf("attempt %d ended as %s (%s); want EXECUTED", i+1, got.Class, got.Detail)
		}
	}
	if n := executed.Load(); n != 20 {
		t.Errorf("%d executions of 20 attempts", n)
	}
}

// The tests above would show nothing if no client did otherwise.
func TestAnOrdinaryClientTriesAgain(t *testing.T) {
	url, executed := hangingUp(t)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for i := range tries {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(callTo(url).Payload))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", someKey.String())
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if executed.Load() > int32(i+1) {
			return
		}
	}
	t.Error("this Go repeats no request any more")
}

func TestARequestHasABodyThatCannotBeRewound(t *testing.T) {
	for _, capabilities := range adaptertest.Matrix() {
		b := openHTTP(t, adaptertest.Setup{Capabilities: capabilities, Timeout: setup.Timeout}, false)
		call := callTo(b.Scope().URL)
		req, err := b.adapter.(*httpAdapter).request(t.Context(), &call)
		if err != nil {
			t.Fatal(err)
		}
		if req.GetBody != nil || req.Body == nil || req.ContentLength != int64(len(call.Payload)) {
			t.Errorf("%s: the transport could send the request again", capabilities)
		}
	}
}

func TestNoRedirectIsFollowed(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		var followed atomic.Int32
		mux := http.NewServeMux()
		mux.HandleFunc("POST /issue", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/there", status) })
		mux.HandleFunc("/there", func(w http.ResponseWriter, _ *http.Request) {
			followed.Add(1)
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, execution{someKey, "12.50", "account-1"}.shown())
		})
		mux.HandleFunc("GET /query/{key}", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/there", status) })
		s := httptest.NewServer(mux)
		t.Cleanup(s.Close)
		a := plain(t, s.URL, "query: {url: '"+s.URL+"/query/{effectKey}'}\n")
		got := a.Send(t.Context(), callTo(s.URL+"/issue"))
		_, err := a.Query(t.Context(), adapter.Question{Key: someKey})
		if got.Class != effect.Ambiguous || !errors.Is(err, adapter.ErrUnclear) || followed.Load() != 0 {
			t.Errorf("status %d: the attempt ended as %s, the query with %v; followed %d times", status, got.Class, err, followed.Load())
		}
	}
}

func TestAnAttemptWritesOnOneConnectionOnly(t *testing.T) {
	asked := 0
	pass := newPassage(func() bool { asked++; return true })
	wire := new(recordingConn)
	first, second, stranger := &gatedConn{Conn: wire}, &gatedConn{Conn: wire}, &gatedConn{Conn: wire}
	first.pass.Store(pass)
	second.pass.Store(pass)
	for _, step := range []struct {
		conn *gatedConn
		want error
	}{{first, nil}, {first, nil}, {second, errSecondSend}, {stranger, errNoPassage}} {
		if _, err := step.conn.Write([]byte("x")); !errors.Is(err, step.want) {
			t.Errorf("write answers %v; want %v", err, step.want)
		}
	}
	if pass.seal() {
		t.Error("the passage says that nothing was written")
	}
	if asked != 1 || wire.Len() != 2 {
		t.Errorf("asked %d times, %d bytes written; want 1 and 2", asked, wire.Len())
	}
}

func TestNothingIsWrittenAfterAPassageIsSealed(t *testing.T) {
	pass := newPassage(func() bool { t.Error("asked"); return true })
	wire := new(recordingConn)
	conn := &gatedConn{Conn: wire}
	conn.pass.Store(pass)
	if !pass.seal() {
		t.Error("something was written before")
	}
	if _, err := conn.Write([]byte("x")); !errors.Is(err, errSealed) || wire.Len() != 0 {
		t.Errorf("write answers %v with %d bytes written", err, wire.Len())
	}
}

// recordingConn keeps what is written.
type recordingConn struct {
	net.Conn
	bytes.Buffer
}

func (c *recordingConn) Write(b []byte) (int, error) { return c.Buffer.Write(b) }

func (c *recordingConn) Read(b []byte) (int, error) { return c.Buffer.Read(b) }

func TestConnectionsThatAreNotMadeAreNotSent(t *testing.T) {
	silent := rawServer(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	tlsServer := httptest.NewTLSServer(http.NotFoundHandler())
	tlsServer.Config.ErrorLog = quiet()
	t.Cleanup(tlsServer.Close)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for name, c := range map[string]struct{ url, more, detail string }{
		"nobody listens":              {closed.URL, "", "refused"},
		"the name does not exist":     {"https://rewards.invalid/issue", "", "rewards.invalid"},
		"the certificate is unknown":  {tlsServer.URL, "", "certificate"},
		"TLS is not finished in time": {"https://" + silent, "sendWithin: 100ms\n", ""},
	} {
		call := callTo(c.url)
		call.MaySend = func() bool { t.Errorf("%s: MaySend was asked", name); return true }
		got := plain(t, c.url, c.more).Send(t.Context(), call)
		if got.Class != effect.NotSent || !strings.Contains(got.Detail, c.detail) {
			t.Errorf("%s: the attempt ended as %s (%s)", name, got.Class, got.Detail)
		}
	}
}

func TestAddressesOfPrivateNetworksAreNotDialled(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("reached") }))
	t.Cleanup(s.Close)
	doc := document(t, "kind: Adapter\nname: rewards-api\nversion: 1\ntype: http\nurl: https://rewards.example/issue\nevidence: {key: /ref}\n"+
		"query: {url: 'https://rewards.example/{effectKey}'}\n")
	doc.Query.URL = s.URL + "/{effectKey}"
	a := mustNew(t, doc, Deps{})
	got := a.Send(t.Context(), callTo(s.URL))
	if got.Class != effect.NotSent || !strings.Contains(got.Detail, "refused to dial 127.0.0.1") {
		t.Errorf("the attempt ended as %s (%s)", got.Class, got.Detail)
	}
	if _, err := a.Query(t.Context(), adapter.Question{Key: someKey}); err == nil || !strings.Contains(err.Error(), "refused to dial") {
		t.Errorf("the query answers %v", err)
	}
	// A range that is allowed for all adapters opens it.
	if got := mustNew(t, doc, Deps{Allow: loopback}).Send(t.Context(), callTo("http://127.0.0.1:1/")); strings.Contains(got.Detail, "refused to dial") {
		t.Errorf("with an allowed range: %s", got.Detail)
	}
}

func TestNoProxyOfTheEnvironmentIsAsked(t *testing.T) {
	a, err := newHTTP(document(t, "kind: Adapter\nname: a\nversion: 1\ntype: http\nurl: https://rewards.example/\nevidence: {key: /ref}\n"), Deps{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*http.Client{a.sends, a.queries} {
		if c.Transport.(*http.Transport).Proxy != nil {
			t.Error("a proxy would dial what the guard does not see")
		}
	}
}

func TestAnswersThatAreNoHTTPShowNothing(t *testing.T) {
	for name, text := range map[string]string{
		"another protocol":   "220 mail " + token + "\r\n",
		"half a status line": "HTTP/1.1 2",
		"a bad header":       "HTTP/1.1 200 OK\r\n" + token + "\r\n\r\n",
		"a bad redirect":     "HTTP/1.1 302 Found\r\nLocation: http://[" + token + "\r\nContent-Length: 0\r\n\r\n",
		"a bad length":       "HTTP/1.1 200 OK\r\nContent-Length: " + token + "\r\n\r\n",
	} {
		url := "http://" + rawServer(t, func(conn net.Conn) {
			if _, err := conn.Read(make([]byte, 64<<10)); err == nil {
				_, _ = io.WriteString(conn, text)
			}
		})
		a := plain(t, url, "query: {url: '"+url+"/{effectKey}'}\n")
		got := a.Send(t.Context(), callTo(url))
		if got.Class != effect.Ambiguous || strings.Contains(got.Detail, token) {
			t.Errorf("%s: the attempt ended as %s (%s)", name, got.Class, got.Detail)
		}
		if f, err := a.Query(t.Context(), adapter.Question{Key: someKey}); err == nil || strings.Contains(err.Error(), token) {
			t.Errorf("%s: the query found %d, error %v", name, f.Found, err)
		}
	}
}

func TestAnAnswerThatDripsEndsWithTheTimeout(t *testing.T) {
	ended := make(chan struct{})
	url := "http://" + rawServer(t, func(conn net.Conn) {
		if _, err := conn.Read(make([]byte, 64<<10)); err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n")
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if _, err := conn.Write([]byte(" ")); err != nil {
				close(ended)
				return
			}
		}
	})
	got := plain(t, url, "timeout: 200ms\n").Send(t.Context(), callTo(url))
	if got.Class != effect.Ambiguous {
		t.Errorf("the attempt ended as %s (%s)", got.Class, got.Detail)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the connection was not given up")
	}
}

func TestRetryAfterIsClamped(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "soon": 0, "-5": 0, "1.5": 0, "0": time.Second, "7": 7 * time.Second, "86400": 24 * time.Hour, "86401": 24 * time.Hour,
		"99999999999999999999":          24 * time.Hour,
		"Mon, 30 Nov 2026 12:01:00 GMT": time.Minute,
		"Mon, 30 Nov 2026 11:00:00 GMT": time.Second,
		"Thu, 30 Nov 2028 12:00:00 GMT": 24 * time.Hour,
	} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("Retry-After %q is %s; want %s", text, got, want)
		}
	}
}

func TestOnlyAnOverloadedProviderIsLeftAlone(t *testing.T) {
	for status, want := range map[int]time.Duration{200: 0, 202: 0, 409: 0, 500: 0, 429: 7 * time.Second, 503: 7 * time.Second} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
		}))
		t.Cleanup(s.Close)
		if got := plain(t, s.URL, "").Send(t.Context(), callTo(s.URL)); got.RetryAfter != want {
			t.Errorf("status %d: RetryAfter is %s; want %s", status, got.RetryAfter, want)
		}
	}
}

func TestSecretsAreReadForEveryRequest(t *testing.T) {
	b := openHTTP(t, setup, false)
	files := map[string]string{"/run/secrets/token": "old"}
	a := mustNew(t, document(t, b.yaml(setup)), Deps{Allow: loopback, Secrets: func(file string) ([]byte, error) {
		if files[file] == "" {
			return nil, fmt.Errorf("%s: %w", file, os.ErrNotExist)
		}
		return []byte(files[file]), nil
	}})
	send := func() adapter.Answer { return a.Send(t.Context(), callTo(b.Scope().URL)) }
	if got := send(); got.Class == effect.Executed {
		t.Error("executed with the old token")
	}
	files["/run/secrets/token"] = token
	if got := send(); got.Class != effect.Executed {
		t.Errorf("the attempt ended as %s (%s)", got.Class, got.Detail)
	}
	files["/run/secrets/token"] = token + "\nX-Other: 1"
	if got := send(); got.Class != effect.NotSent || strings.Contains(got.Detail, token) {
		t.Errorf("the attempt ended as %s (%s)", got.Class, got.Detail)
	}
	delete(files, "/run/secrets/token")
	if got := send(); got.Class != effect.NotSent || !strings.Contains(got.Detail, "/run/secrets/token is not there") {
		t.Errorf("the attempt ended as %s (%s)", got.Class, got.Detail)
	}
}

func TestAnAdapterIsNotMadeWithoutWhatItNeeds(t *testing.T) {
	broken := func(string) ([]byte, error) { return nil, errors.New(token) }
	withSecret := "kind: Adapter\nname: a\nversion: 1\ntype: http\nurl: https://rewards.example/\nevidence: {key: /ref}\nheaders: {Authorization: {secretFile: /run/s}}\n"
	onNATS := "kind: Adapter\nname: a\nversion: 1\ntype: nats\nsubject: rewards.issue\nevidence: {key: /ref}\n"
	for yaml, deps := range map[string]Deps{withSecret: {Secrets: broken}, onNATS: {}} {
		if _, err := New(document(t, yaml), deps); err == nil || !strings.Contains(err.Error(), "a@1") || strings.Contains(err.Error(), token) {
			t.Errorf("error is %v", err)
		}
	}
	if _, err := New(&policy.Adapter{Name: "a", Version: 1, Type: "mail"}, Deps{}); err == nil {
		t.Error("an adapter of an unknown type was made")
	}
}

func TestAScopeThatCannotBeReadIsNotSent(t *testing.T) {
	a := plain(t, "http://127.0.0.1:1/", "")
	for _, url := range []string{"", "::", "/issue", "nats:subject"} {
		if got := a.Send(context.Background(), callTo(url)); got.Class != effect.NotSent {
			t.Errorf("%q: the attempt ended as %s (%s)", url, got.Class, got.Detail)
		}
	}
}

package httpx

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// serve starts a server and answers its URL.
func serve(t *testing.T, o Options) *Server {
	t.Helper()
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Mux.HandleFunc("/v1/thing", func(w http.ResponseWriter, _ *http.Request) { JSON(w, 200, map[string]int{"n": 1}) })
	done := make(chan error, 1)
	go func() { done <- s.Serve() }()
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

func get(t *testing.T, url string, header ...string) (int, string) {
	t.Helper()
	method := http.MethodGet
	if len(header) > 2 {
		method = header[2]
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(header) > 1 {
		r.Header.Set(header[0], header[1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

func TestHealthSaysReasonsOnRequest(t *testing.T) {
	var problems []string
	s := serve(t, Options{Problems: func() []string { return problems }, Registry: prometheus.NewRegistry()})
	if code, body := get(t, s.URL()+"/readyz"); code != 200 || body != "ready\n" {
		t.Errorf("ready: %d %q", code, body)
	}
	problems = []string{"windower: halted"}
	if code, body := get(t, s.URL()+"/readyz"); code != 503 || strings.Contains(body, "halted") {
		t.Errorf("not ready: %d %q", code, body)
	}
	if code, body := get(t, s.URL()+"/readyz?verbose"); code != 503 || !strings.Contains(body, "- windower: halted") {
		t.Errorf("verbose: %d %q", code, body)
	}
	if code, _ := get(t, s.URL()+"/livez"); code != 200 {
		t.Errorf("live: %d", code)
	}
	if code, _ := get(t, s.URL()+"/metrics"); code != 200 {
		t.Errorf("metrics: %d", code)
	}
}

func TestTokenGuardsTheAPIAndNothingElse(t *testing.T) {
	s := serve(t, Options{Token: "secret"})
	for _, c := range []struct {
		given string
		code  int
	}{{"", 401}, {"Bearer wrong", 401}, {"secret", 401}, {"Bearer secret", 200}} {
		if code, body := get(t, s.URL()+"/v1/thing", "Authorization", c.given); code != c.code {
			t.Errorf("%q answers %d %s, want %d", c.given, code, body, c.code)
		}
	}
	if code, _ := get(t, s.URL()+"/readyz"); code != 200 {
		t.Errorf("health asks for the token: %d", code)
	}
}

func TestForeignPagesCannotSend(t *testing.T) {
	s := serve(t, Options{})
	if code, _ := get(t, s.URL()+"/v1/thing", "Origin", "https://elsewhere.example", http.MethodPost); code != 403 {
		t.Errorf("a foreign page's POST answers %d", code)
	}
	if code, _ := get(t, s.URL()+"/v1/thing", "X-None", "", http.MethodPost); code != 200 {
		t.Errorf("a program's POST answers %d", code)
	}
}

func TestListenRefusesWhatIsUnsafeOrTaken(t *testing.T) {
	if _, err := Listen(Options{Addr: "0.0.0.0:0"}); !errors.Is(err, ErrOpenBind) {
		t.Errorf("beyond loopback without a token: %v", err)
	}
	if _, err := Listen(Options{Addr: "localhost"}); err == nil {
		t.Error("an address without a port is taken")
	}
	s := serve(t, Options{})
	if _, err := Listen(Options{Addr: strings.TrimPrefix(s.URL(), "http://")}); !errors.Is(err, ErrPortInUse) {
		t.Errorf("taken port: %v", err)
	}
}

func TestAdvertisedNamesTheMachineWhereEveryAddressIsBound(t *testing.T) {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, Options{Addr: "0.0.0.0:0", Anonymous: true})
	if !strings.HasPrefix(s.Advertised(), "http://"+name+":") {
		t.Errorf("advertised as %s, the machine is %s", s.Advertised(), name)
	}
	if l := serve(t, Options{}); l.Advertised() != l.URL() {
		t.Errorf("loopback is advertised as %s, bound as %s", l.Advertised(), l.URL())
	}
}

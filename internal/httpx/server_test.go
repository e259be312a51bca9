package httpx

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// serve answers the URL of a server with one route.
func serve(t *testing.T, o Options) string {
	t.Helper()
	o.Addr = "127.0.0.1:0"
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Mux.HandleFunc("GET /v1/streams/{stream}/windows", func(w http.ResponseWriter, r *http.Request) {
		JSON(w, http.StatusOK, map[string]string{"stream": r.PathValue("stream"), "hint": "?a=1&b=<2>"})
	})
	done := make(chan error, 1)
	go func() { done <- s.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s.URL()
}

// ask answers status, headers and body.
func ask(t *testing.T, method, url string, headers ...string) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	a, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, a.Header, string(body)
}

func TestEveryRefusalHasOneShape(t *testing.T) {
	url := serve(t, Options{Token: "secret"})
	auth := []string{"Authorization", "Bearer secret"}
	cases := []struct {
		name, method, path string
		headers            []string
		status             int
		code               string
	}{
		{"no such path", "GET", "/v1/nothing", auth, 404, "not-found"},
		{"root", "GET", "/", nil, 404, "not-found"},
		{"other method", "DELETE", "/v1/streams/a/windows", auth, 405, "method-not-allowed"},
		{"foreign page", "POST", "/v1/streams/a/windows", append([]string{"Origin", "http://evil.example"}, auth...), 403, "cross-origin"},
		{"no token", "GET", "/v1/streams/a/windows", nil, 401, "unauthorized"},
		{"wrong token", "GET", "/v1/nothing", []string{"Authorization", "Bearer other"}, 401, "unauthorized"},
	}
	for _, c := range cases {
		status, header, body := ask(t, c.method, url+c.path, c.headers...)
		var answer struct {
			Error Error `json:"error"`
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil || header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %v in %q %q", c.name, err, header.Get("Content-Type"), body)
		}
		if status != c.status || answer.Error.Code != c.code || answer.Error.Message == "" || answer.Error.Hint == "" {
			t.Errorf("%s: %d %s", c.name, status, body)
		}
		if status == 405 && !strings.Contains(header.Get("Allow"), "GET") {
			t.Errorf("%s: Allow is %q", c.name, header.Get("Allow"))
		}
	}
}

func TestAnswersAreReadable(t *testing.T) {
	url := serve(t, Options{})
	status, header, body := ask(t, "GET", url+"/v1/streams/a.b%3E/windows")
	if want := `{"hint":"?a=1&b=<2>","stream":"a.b>"}` + "\n"; status != 200 || body != want {
		t.Errorf("%d %q, want %q", status, body, want)
	}
	if header.Get("X-Content-Type-Options") != "nosniff" {
		t.Error("a browser may take the answer for HTML")
	}
	if status, header, _ = ask(t, "GET", url+"/v1/streams/../streams/a/windows"); status != 307 || header.Get("Location") != "/v1/streams/a/windows" {
		t.Errorf("a path with dots is answered %d to %q", status, header.Get("Location"))
	}
}

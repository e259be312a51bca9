package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/providersim"
)

// provider is a running `tidemark provider-sim`. Its log is the judge of what was done.
type provider struct {
	*process
	url, log string
}

// newProvider declares a simulator on a port that stays the same over restarts.
func newProvider(t *testing.T, flags ...string) *provider {
	t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	p := &provider{url: "http://" + address, log: filepath.Join(t.TempDir(), "executions.ndjson")}
	args := append([]string{"provider-sim", "--listen", address, "--log", p.log}, flags...)
	p.process = &process{t: t, name: "provider-sim", path: binary, args: args, log: &lines{}}
	t.Cleanup(p.kill)
	return p
}

// begin starts the simulator and waits until it serves.
func (p *provider) begin() { p.t.Helper(); p.start(); p.ready() }

// counts answers what the log says of each effectKey. A log that is not there yet says
// nothing.
func (p *provider) counts() map[string]providersim.Count {
	p.t.Helper()
	records, err := providersim.ReadLog(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	counts := map[string]providersim.Count{}
	for _, c := range providersim.Judge(records) {
		counts[c.EffectKey] = c
	}
	return counts
}

// requests answers how many requests have come since the start.
func (p *provider) requests() int {
	p.t.Helper()
	response, err := http.Get(p.url + "/v1/control")
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	var state providersim.State
	if err := json.NewDecoder(response.Body).Decode(&state); err != nil {
		p.t.Fatal(err)
	}
	return state.Requests
}

// control changes how the simulator behaves.
func (p *provider) control(method, path, body string) {
	p.t.Helper()
	q, err := http.NewRequestWithContext(p.t.Context(), method, p.url+"/v1/control"+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(q)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
		p.t.Fatalf("%s %s: %s %s %v", method, path, response.Status, text, err)
	}
}

// issue asks for an action and answers the status; 0 where the answer was lost.
func (p *provider) issue(key string, amount int) int {
	body := fmt.Sprintf(`{"effectKey":%q,"amount":%d,"subject":"ana"}`, key, amount)
	q, err := http.NewRequest(http.MethodPost, p.url+"/v1/issue", bytes.NewReader([]byte(body)))
	if err != nil {
		p.t.Error(err)
		return 0
	}
	q.Header.Set("Idempotency-Key", key)
	q.GetBody = nil // else the client sends again by itself
	response, err := http.DefaultClient.Do(q)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return 0
	}
	return response.StatusCode
}

// Whatever was answered is in the log, kill -9 or not; nothing is carried out twice, and
// the simulator goes on where it was.
func TestProviderSimOutlivesKills(t *testing.T) {
	p := newProvider(t, "--mode", "accept=60,lose-answer=10,execute-500=10,drop=10,answer-503=10", "--seed", "5")
	var mu sync.Mutex
	answered := map[string]bool{}
	for round := range 4 {
		p.begin()
		var callers sync.WaitGroup
		for caller := range 4 {
			callers.Go(func() {
				for n := 0; n < 500; n++ {
					key := fmt.Sprintf("%d-%d", caller, n)
					if p.issue(key, 10) == http.StatusOK {
						mu.Lock()
						answered[key] = true
						mu.Unlock()
					} else if !p.running() {
						return
					}
				}
			})
		}
		p.await("some executions", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(answered) > 40*(round+1)
		})
		p.kill()
		callers.Wait()
	}
	counts := p.counts()
	for key := range answered {
		if counts[key].Executions == 0 {
			t.Errorf("%s was answered and is not in the log", key)
		}
	}
	r := run(t, "provider-sim", "log", p.log)
	check(t, r, 0, "EFFECTKEY", "none carried out more than once")
	p.begin()
	if code, took := p.stop(); code != 0 || took > 10*time.Second {
		t.Errorf("SIGTERM: it ended with %d after %v\n%s", code, took, p.process.log)
	}
}

func TestProviderSimLogFindsWhatRanTwice(t *testing.T) {
	p := newProvider(t, "--no-idempotency")
	p.begin()
	p.issue("once", 10)
	p.issue("twice", 10)
	p.issue("twice", 11)
	r := run(t, "provider-sim", "log", p.log, "-o", "ndjson")
	check(t, r, 1, `"effectKey":"twice","executions":2,"bodies":2`, `"effectKey":"once","executions":1`)
	if !strings.Contains(r.err, "1 of 2 effectKeys were carried out more than once") {
		t.Errorf("said %q", r.err)
	}
	check(t, run(t, "provider-sim", "log", p.log, "--key", "onc"), 0, "once")
	var keys struct{ Keys []providersim.Count }
	response, err := http.Get(p.url + "/v1/keys")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&keys); err != nil || len(keys.Keys) != 2 || keys.Keys[0].Executions != 2 {
		t.Errorf("/v1/keys says %+v, %v", keys, err)
	}
}

// SIGTERM while requests wait: they end without an answer, and are carried out later.
func TestProviderSimKeepsWhatItHoldsOverSIGTERM(t *testing.T) {
	p := newProvider(t)
	p.begin()
	p.control("PUT", "/mode", `{"mode":"hold:2s"}`)
	answered := make(chan int, 1)
	go func() { answered <- p.issue("held", 10) }()
	p.await("the request is held", func() bool { return p.counts()["held"].Held == 1 })
	if code, took := p.stop(); code != 0 || took > 10*time.Second {
		t.Errorf("SIGTERM: it ended with %d after %v\n%s", code, took, p.process.log)
	}
	if status := <-answered; status != 0 {
		t.Errorf("answered %d", status)
	}
	p.begin()
	p.await("the request is carried out", func() bool { return p.counts()["held"].Executions == 1 })
}

func TestProviderSimSaysWhatIsWrongWithItsFlags(t *testing.T) {
	log := filepath.Join(t.TempDir(), "executions.ndjson")
	for _, c := range []struct {
		code  int
		flags string
		want  string
	}{
		{2, "", "--log"},
		{2, "--log " + log + " --mode acept", "lose-answer"},
		{2, "--log " + log + " --query-mode hold:3s", "not for queries"},
		{2, "--log " + log + " --retention soon", "24h"},
		{2, "--log " + log + " --receipts-to http://127.0.0.1:1", "stand together"},
		{5, "--log " + log + " --basis never", "lastSeen"},
		{5, "--log " + log + " --listen 0.0.0.0:0", "--http-token-file"},
		{5, "--log " + write(t, "log", "x\n"), "line 1"},
		{2, "log " + log + ".none", "no file"},
	} {
		check(t, run(t, append([]string{"provider-sim"}, strings.Fields(c.flags)...)...), c.code, c.want)
	}
	help := must(t, "provider-sim", "--help")
	for _, mode := range providersim.ModeNames() {
		if !regexp.MustCompile(`(?m)^  ` + regexp.QuoteMeta(mode) + ` `).MatchString(help) {
			t.Errorf("the help does not explain the mode %s", mode)
		}
	}
}

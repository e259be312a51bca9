package effector

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/providersim"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// process is one running service with its HTTP API.
type process struct {
	*Service
	http     *httptest.Server
	registry *prometheus.Registry
	stop     func()
}

func (w *world) process(dir string) *process { return w.member(dir, "i-"+w.name) }

// member is a process beside others, which share the partitions.
func (w *world) member(dir, instance string) *process {
	w.t.Helper()
	p := &process{registry: prometheus.NewRegistry()}
	var err error
	p.Service, err = New(Config{
		Conn: w.conn, Dir: dir, Instance: instance, Log: zerolog.Nop(), Registry: p.registry,
		LeaseTTL: 300 * time.Millisecond, AskFirst: 50 * time.Millisecond, AskMost: time.Second,
	})
	must(w.t, err)
	mux := http.NewServeMux()
	p.Routes(mux)
	p.http = httptest.NewServer(mux)
	w.t.Cleanup(p.http.Close)
	ctx, cancel := context.WithCancel(testContext(w.t))
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stopped := false
	p.stop = func() {
		if !stopped {
			stopped = true
			cancel()
			must(w.t, <-done)
		}
	}
	w.t.Cleanup(p.stop)
	return p
}

// get answers the status and body of a request.
func (p *process) get(t *testing.T, path string) (int, string) {
	t.Helper()
	res, err := http.Get(p.http.URL + path)
	must(t, err)
	defer res.Body.Close()
	var body strings.Builder
	buffer := make([]byte, 4096)
	for {
		n, err := res.Body.Read(buffer)
		body.Write(buffer[:n])
		if err != nil {
			return res.StatusCode, body.String()
		}
	}
}

// metric answers the value of a metric, of the child with a label's value where one is
// given.
func (p *process) metric(t *testing.T, name, label string) (value float64) {
	t.Helper()
	families, err := p.registry.Gather()
	must(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				value += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return value
}

func TestTheServiceOwnsEveryPartitionAndTellsOfItsEffects(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable, partitions: 2})
	p := w.process(t.TempDir())
	const each = 5
	for pp := range 2 {
		a := w.generation(1, pp)
		for n := range each {
			a.accept(a.next(fmt.Sprintf("region-%d", pp), hourOf(n), 200, nil))
		}
	}
	list := func(query string) (all page) {
		t.Helper()
		for cursor := ""; ; {
			code, body := p.get(t, "/v1/streams/"+w.name+"/effects?limit=3"+query+cursor)
			var one page
			if err := json.Unmarshal([]byte(body), &one); err != nil || code != http.StatusOK {
				t.Fatalf("%d %s", code, body)
			}
			all.Effects = append(all.Effects, one.Effects...)
			all.Elsewhere = one.Elsewhere
			if one.Next == "" {
				return all
			}
			cursor = "&cursor=" + one.Next
		}
	}
	eventually(t, func() string {
		all := list("&state=ACKED")
		if len(all.Effects) != 2*each || len(all.Elsewhere) != 0 {
			return fmt.Sprintf("%d effects are acknowledged, partitions elsewhere: %v, problems: %v", len(all.Effects), all.Elsewhere, p.Problems())
		}
		return ""
	})
	if got := list("&key=region-1"); len(got.Effects) != each {
		t.Errorf("%d effects of one key", len(got.Effects))
	}
	if got := list("&state=HELD"); len(got.Effects) != 0 {
		t.Errorf("%d effects are held", len(got.Effects))
	}
	var shown effect.Record
	key := w.keyOfWindow("region-1", hourOf(0))
	code, body := p.get(t, "/v1/streams/"+w.name+"/effects/"+key.String())
	if err := json.Unmarshal([]byte(body), &shown); err != nil || code != http.StatusOK || shown.Key != key {
		t.Errorf("%d %s", code, body)
	}
	for path, want := range map[string]int{
		"/v1/streams/" + w.name + "/effects?stat=ACKED":                       http.StatusBadRequest,
		"/v1/streams/" + w.name + "/effects?state=DONE":                       http.StatusBadRequest,
		"/v1/streams/" + w.name + "/effects?limit=0":                          http.StatusBadRequest,
		"/v1/streams/" + w.name + "/effects?cursor=x":                         http.StatusBadRequest,
		"/v1/streams/" + w.name + "/effects/xyz":                              http.StatusBadRequest,
		"/v1/streams/" + w.name + "/effects/" + strings.Repeat("0", 63) + "1": http.StatusNotFound,
		"/v1/streams/none/effects":                                            http.StatusNotFound,
		"/v1/streams/" + w.name + "/effector":                                 http.StatusOK,
	} {
		if code, body := p.get(t, path); code != want {
			t.Errorf("GET %s: %d %s, want %d", path, code, body, want)
		}
	}
	if got := p.metric(t, "tidemark_effects", "ACKED"); got != 2*each {
		t.Errorf("tidemark_effects of ACKED is %v, want %d", got, 2*each)
	}
	if got := p.metric(t, "tidemark_effect_attempts_total", ""); got != 2*each {
		t.Errorf("%v attempts are counted, want %d", got, 2*each)
	}
	if problems := p.Problems(); len(problems) > 0 {
		t.Error(problems)
	}
	p.stop()
	if code, _ := p.get(t, "/v1/streams/"+w.name+"/effects/"+key.String()); code != http.StatusMisdirectedRequest {
		t.Errorf("a process that owns nothing answers %d", code)
	}
}

func TestAReceiptIsEvidenceAfterItsSignatureWasVerified(t *testing.T) {
	secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte("a secret of twenty-four b"))
	file := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
	w := newWorld(t, terms{adapter: "receipts: {secretFile: " + file + "}\nsendUnproven: true\n"})
	mode, err := providersim.ParseMode("lose-answer")
	must(t, err)
	must(t, w.sim.Set(providersim.Rule{Mode: mode}))
	p := w.process(t.TempDir())
	url := p.http.URL + "/receipts/" + w.name + "/" + w.name + "-api"
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	w.await(key, effect.Manual) // nothing else can tell

	post := func(secret string) int {
		t.Helper()
		body, err := providersim.Receipt(&w.sim.Executions(key.String())[0])
		must(t, err)
		req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(string(body)))
		must(t, err)
		raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		must(t, err)
		providersim.Sign(req.Header, raw, "msg-1", time.Now(), body)
		res, err := http.DefaultClient.Do(req)
		must(t, err)
		res.Body.Close()
		return res.StatusCode
	}
	if code := post("whsec_" + base64.StdEncoding.EncodeToString([]byte("another secret of 24 byte"))); code != http.StatusUnauthorized {
		t.Errorf("a receipt with another signature: %d", code)
	}
	if w.now(key).State != effect.Manual {
		t.Errorf("an unverified receipt made it %s", w.now(key).State)
	}
	if code := post(secret); code != http.StatusNoContent {
		t.Fatalf("a signed receipt: %d", code)
	}
	evidence := 0
	for _, e := range w.entries() { // answered only after it is in the journal
		if f, err := effectlog.DecodeForeign(e.Control); err == nil && f.Evidence != nil {
			evidence++
		}
	}
	if evidence != 1 {
		t.Errorf("%d EVIDENCE records", evidence)
	}
	r := w.await(key, effect.Reconciled)
	if r.Outcome != effect.Applied {
		t.Errorf("outcome is %s", r.Outcome)
	}
	w.executed(key, 1)
	res, err := http.Post(p.http.URL+"/receipts/"+w.name+"/none", "application/json", strings.NewReader("{}"))
	must(t, err)
	res.Body.Close()
	if res.StatusCode != http.StatusNotFound {
		t.Errorf("a receipt for an unknown adapter: %d", res.StatusCode)
	}
}

func TestOperatorsCommandsAreAnsweredOnce(t *testing.T) {
	w := newWorld(t, terms{adapter: queryable})
	mode, err := providersim.ParseMode("drop")
	must(t, err)
	must(t, w.sim.Set(providersim.Rule{Mode: mode}))
	w.gate(effectlog.Global, true)
	n := w.node(t.TempDir()).start()
	w.sold("eu-west", 0, 250)
	key := w.keyOf("eu-west", 0)
	w.await(key, effect.Prepared)
	refused := func(c effectlog.Command, want ledger.Refusal) {
		t.Helper()
		if done := w.command(c); done.Refusal != string(want) {
			t.Errorf("%s: refusal %q, want %q", c.Act, done.Refusal, want)
		}
	}
	refused(effectlog.Command{Key: key, Act: effectlog.ActVoid}, ledger.RuleHolds)
	refused(effectlog.Command{Key: effect.EffectKey{1}, Act: effectlog.ActHold}, ledger.NoEffect)
	refused(effectlog.Command{Key: key, Act: effectlog.ActWaive}, ledger.NotSent)
	refused(effectlog.Command{Key: key, Act: effectlog.ActHold}, "")
	w.await(key, effect.Held)
	refused(effectlog.Command{Key: key, Act: effectlog.ActApprove, Approve: &effectlog.Approve{
		Digest: w.now(key).Request.PayloadDigest, Expires: effect.Time(time.Now().Add(time.Hour).UnixMicro()),
	}}, "")
	w.gate(effectlog.Global, false)
	w.await(key, effect.Unknown)
	before := w.now(key).Absences
	done := w.command(effectlog.Command{Key: key, Act: effectlog.ActReconcile})
	if done.Refusal != "" || done.Step == 0 || w.now(key).Absences <= before {
		t.Errorf("asked now: %+v, %d absences", done, w.now(key).Absences)
	}
	must(t, n.stop())
	seen := map[uint64]int{}
	for _, e := range w.entries() {
		for _, data := range e.Records {
			if o, err := effectlog.DecodeOwned(data); err == nil && o.Done != nil {
				seen[o.Done.Sequence]++
			}
		}
	}
	for seq, times := range seen {
		if times != 1 {
			t.Errorf("sequence %d is answered %d times", seq, times)
		}
	}
	w.executed(key, 0)
}

func TestARuleThatCannotBeEvaluatedSendsNothing(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable})
	w.apply(testContext(t), strings.NewReplacer("NAME", w.name).Replace(`
apiVersion: tidemark/v1
kind: EffectPolicy
name: share@1
stream: NAME
job: hourly
effectType: share-out
subject: key
when: 100 / (value.orders - 1) > 0
payload: {subject: key, amount: value.revenue}
adapter: NAME-api@1
airlock: {windowOlderThan: 87600h}
`))
	p := w.process(t.TempDir())
	w.sold("eu-west", 0, 250) // one order: a division by zero
	w.await(w.keyOf("eu-west", 0), effect.Acked)
	if len(w.sim.All()) != 1 {
		t.Errorf("%d executions, want that of the other policy", len(w.sim.All()))
	}
	if got := p.metric(t, "tidemark_effect_rule_failures_total", "share-out"); got < 1 {
		t.Errorf("%v failures of the rule are counted", got)
	}
	if problems := p.Problems(); len(problems) > 0 {
		t.Error(problems)
	}
}

func TestWithoutEffectPoliciesNothingIsOwned(t *testing.T) {
	conn := connect(t)
	s, err := New(Config{Conn: conn, Dir: t.TempDir(), Instance: t.Name(), Log: zerolog.Nop()})
	must(t, err)
	if problems := s.Problems(); len(problems) != 1 {
		t.Errorf("problems before Run: %v", problems)
	}
	s.reconcile(testContext(t), snapshotWithout(t))
	if len(s.units()) != 0 || len(s.Problems()) != 0 {
		t.Errorf("%d partitions, problems %v", len(s.units()), s.Problems())
	}
}

func snapshotWithout(t *testing.T) (snap config.Snapshot) {
	t.Helper()
	docs, findings := policy.Parse("test.yaml", []byte(strings.NewReplacer("NAME", "plain", "PARTITIONS", "2", "WINDOW", "{tumbling: 1h, zone: UTC}").
		Replace(documents[:strings.Index(documents, "---\napiVersion: tidemark/v1\nkind: Adapter")])))
	if len(findings) > 0 {
		t.Fatal(findings)
	}
	snap.Streams = []config.Entry{{Stream: docs[0].Stream}}
	snap.Policies = []config.Entry{{Policy: docs[1].Policy}}
	return snap
}

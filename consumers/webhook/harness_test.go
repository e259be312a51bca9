package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

var (
	server  *natsio.Embedded // one for the package
	streams atomic.Int32     // business streams made so far, for their names
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(childSender(dir))
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "webhook-test-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		if server, err = natsio.Embed(context.Background(), natsio.EmbeddedOptions{Dir: dir}); err != nil {
			panic(err)
		}
		defer server.Shutdown()
		return m.Run()
	}())
}

const (
	hour = envelope.EventTime(3600 * 1_000_000)
	base = envelope.EventTime(1796032800000000) // 2026-11-30T10:00Z
	job  = "hourly"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until check answers "" and fails with its last answer at the deadline.
func eventually(t testing.TB, check func() string) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		problem := check()
		if problem == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(problem)
		}
		time.Sleep(2 * time.Millisecond) // between two looks
	}
}

// feed writes a revisions stream as a projector would: one job of one key partition.
type feed struct {
	t          testing.TB
	ctx        context.Context
	conn       *natsio.Conn
	stream     string
	generation int
	writer     *journal.FencedWriter
	commit     revision.Commit
	heads      map[string]*revision.Predecessor
}

func newFeed(t testing.TB) *feed {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	t.Cleanup(cancel)
	conn, err := server.Connect(ctx, t.Name())
	must(t, err)
	t.Cleanup(conn.Close)
	f := &feed{t: t, ctx: ctx, conn: conn, stream: fmt.Sprintf("orders%d", streams.Add(1)), heads: map[string]*revision.Predecessor{}}
	must(t, natsio.Provision(ctx, conn.JS, 1))
	must(t, natsio.ProvisionStream(ctx, conn.JS, f.stream, 1, 1))
	f.begin(1, 1)
	return f
}

// begin starts a generation and makes it the one that readers see.
func (f *feed) begin(generation int, epoch uint64) {
	f.t.Helper()
	w, _, err := journal.ClaimFenced(f.ctx, f.conn.JS, journal.FencedSettings{
		Stream: subject.RevisionsStream(f.stream), Fence: subject.Commits(f.stream, job, generation, 0), Owner: "feed",
	})
	must(f.t, err)
	f.t.Cleanup(w.Close)
	f.writer, f.generation, f.commit = w, generation, revision.NewCommit()
	a := revision.Alias{Job: job, Canonical: generation, Epoch: epoch}
	_, err = f.conn.JS.Publish(f.ctx, subject.Alias(f.stream, job), a.AppendJSON(nil))
	must(f.t, err)
}

func projectionOf(generation int, name string) string {
	return fmt.Sprintf("%064x", fmt.Sprintf("%d %s", generation, name))[:64]
}

// revision answers the message of the next revision of a projection called name.
func (f *feed) revision(name string, change ...func(*revision.Revision)) journal.Message {
	r := &revision.Revision{
		Stream: f.stream, Job: job, PolicyGeneration: fmt.Sprintf("%s@%d", job, f.generation), PolicyDigest: strings.Repeat("ab", 32),
		Key: name, Window: revision.Window{Start: base, End: base + hour},
		LogicalWindowID: strings.Repeat("cd", 32), ProjectionID: projectionOf(f.generation, name),
		Op: revision.Upsert, Revision: 1, State: revision.OnTimeEmitted, Firing: revision.FiringOnTime, ValueChanged: true,
		Value: []revision.Field{{Name: "orders", Text: "1"}, {Name: "revenue", Text: "25.50", Quoted: true}}, Delta: []revision.Field{{Name: "orders", Text: "1"}},
		Inputs: revision.Inputs{First: 1, Last: 1, Events: 1}, Watermark: revision.Watermark{At: base + hour, Data: base + hour},
		Cause: revision.CauseOnTime, Epoch: f.writer.Epoch(), TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
	id := r.ProjectionID
	if head := f.heads[id]; head != nil {
		r.Revision, r.Predecessor, r.State, r.Firing = head.Revision+1, head, revision.Corrected, revision.FiringLate
	}
	for _, fn := range change {
		fn(r)
	}
	if r.Op == revision.Retract {
		r.Value, r.Delta = nil, nil
	}
	r.AggregateDigest = revision.ValueDigest(r.Value)
	f.heads[id] = &revision.Predecessor{Revision: r.Revision, Digest: r.ComputeDigest()}
	return journal.Message{
		Subject: subject.Revision(f.stream, job, f.generation, 0, name),
		Header:  nats.Header{subject.HeaderSchema: []string{revision.Schema}},
		Data:    r.AppendJSON(nil),
	}
}

// accept writes one batch.
func (f *feed) accept(messages ...journal.Message) {
	f.t.Helper()
	_, err := f.writer.Commit(f.ctx, messages, f.commit)
	must(f.t, err)
}

// names accepts the next revision of each name, in one batch.
func (f *feed) names(names ...string) {
	f.t.Helper()
	var all []journal.Message
	for _, name := range names {
		all = append(all, f.revision(name))
	}
	f.accept(all...)
}

// request is what a receiver got.
type request struct {
	id, timestamp, signature, trace string
	body                            []byte
	word                            string // key/revision, key/revision- for a retraction, or the type
}

// receiver is a real HTTP server that checks every signature and answers as it is told.
type receiver struct {
	t       testing.TB
	url     string
	clock   clock.Clock
	secrets []Secret
	mu      sync.Mutex
	got     []request
	answer  func(w http.ResponseWriter, q request)
}

func newReceiver(t testing.TB, clk clock.Clock) *receiver {
	r := &receiver{t: t, clock: clk, secrets: []Secret{secretOf(t, 'a')}}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	r.url = s.URL
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	body, err := io.ReadAll(hr.Body)
	if err != nil {
		r.t.Errorf("body: %v", err)
	}
	if err := Verify(hr.Header, r.clock.Now(), body, r.secrets...); err != nil {
		r.t.Errorf("delivery %s: %v", hr.Header.Get(HeaderID), err)
	}
	if hr.Method != http.MethodPost || hr.Header.Get("Content-Type") != "application/json" || strings.Contains(hr.Header.Get(HeaderID), ".") {
		r.t.Errorf("%s %v", hr.Method, hr.Header)
	}
	q := request{id: hr.Header.Get(HeaderID), timestamp: hr.Header.Get(HeaderTimestamp), signature: hr.Header.Get(HeaderSignature), trace: hr.Header.Get("traceparent"), body: body, word: wordOf(r.t, body)}
	r.mu.Lock()
	r.got = append(r.got, q)
	answer := r.answer
	r.mu.Unlock()
	if answer != nil {
		answer(w, q)
	}
}

func wordOf(t testing.TB, body []byte) string {
	var m struct {
		Type string
		Data struct {
			Key              string
			Revision         uint64
			PolicyGeneration string
		}
	}
	if err := json.Unmarshal(body, &m); err != nil {
		t.Errorf("body: %v in %s", err, body)
	}
	word := fmt.Sprintf("%s/%d", m.Data.Key, m.Data.Revision)
	switch m.Type {
	case TypeRetract:
		word += "-"
	case TypeSwitched:
		word = m.Data.PolicyGeneration
	}
	return word
}

// says sets how the receiver answers from now on.
func (r *receiver) says(answer func(w http.ResponseWriter, q request)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

func status(code int) func(http.ResponseWriter, request) {
	return func(w http.ResponseWriter, _ request) { w.WriteHeader(code) }
}

func (r *receiver) requests() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]request(nil), r.got...)
}

func (r *receiver) words() string {
	var words []string
	for _, q := range r.requests() {
		words = append(words, q.word)
	}
	return strings.Join(words, " ")
}

// expect waits until the receiver has had exactly these requests, in order.
func (r *receiver) expect(want string) []request {
	r.t.Helper()
	eventually(r.t, func() string {
		if got := r.words(); got != want {
			return fmt.Sprintf("the receiver got %q, want %q", got, want)
		}
		return ""
	})
	return r.requests()
}

// rig is a sender on a feed with a receiver.
type rig struct {
	*feed
	recv     *receiver
	clock    *clock.Fake
	sender   *Sender
	mux      *http.ServeMux
	registry *prometheus.Registry
	dir      string
	logs     *lockedBuffer
	audits   *lockedBuffer
	document string
	stop     func()
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

var start = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

// newRig answers a rig that does not run yet. more is added to the document.
func newRig(t testing.TB, more string) *rig {
	t.Helper()
	fake := clock.NewFake(start)
	r := &rig{feed: newFeed(t), clock: fake, recv: newReceiver(t, fake), dir: t.TempDir(), logs: &lockedBuffer{}, audits: &lockedBuffer{}}
	must(t, os.WriteFile(filepath.Join(r.dir, "secret"), []byte(secretText('a')), 0o600))
	r.document = fmt.Sprintf("endpoint: crm\nurl: %s/hooks?token=hidden\nplainHTTP: true\nallow: [127.0.0.0/8]\nsecretFiles: [secret]\nstream: %s\njob: %s\n%s", r.recv.url, r.stream, job, more)
	t.Cleanup(func() {
		if r.stop != nil {
			r.stop()
		}
		for _, text := range []string{r.logs.String(), r.audits.String()} {
			if strings.Contains(text, "whsec_") || strings.Contains(text, secretText('a')[6:]) || strings.Contains(text, "token=hidden") {
				t.Errorf("a secret is in the logs:\n%s", text)
			}
		}
	})
	return r
}

// run starts the sender, as a process does.
func (r *rig) run() *rig {
	r.t.Helper()
	file := filepath.Join(r.dir, "crm.yaml")
	must(r.t, os.WriteFile(file, []byte(r.document), 0o600))
	e, err := Load(file)
	must(r.t, err)
	r.registry, r.mux = prometheus.NewRegistry(), http.NewServeMux()
	r.sender, err = New(Config{
		Endpoint: e, Conn: r.conn.NC, Dir: r.dir, Clock: r.clock, Registry: r.registry, Log: zerolog.New(r.logs),
		Jitter: func(d time.Duration) time.Duration { return d },
		Audit: func(_ context.Context, verb, reason string, details any) error {
			fmt.Fprintf(r.audits, "%s %q %v\n", verb, reason, details)
			return nil
		},
	})
	must(r.t, err)
	r.sender.Routes(r.mux)
	ctx, cancel := context.WithCancel(r.ctx)
	done := make(chan error, 1)
	sender := r.sender
	go func() { done <- sender.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("run: %v", err)
		}
	})
	return r
}

// call asks the API and decodes the answer.
func (r *rig) call(method, path string, body, into any) int {
	r.t.Helper()
	text, err := json.Marshal(body)
	must(r.t, err)
	w := httptest.NewRecorder()
	r.mux.ServeHTTP(w, httptest.NewRequest(method, path, bytes.NewReader(text)))
	if into != nil {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			r.t.Fatalf("%s %s: %v in %s", method, path, err, w.Body)
		}
	}
	return w.Code
}

func (r *rig) status() *Status {
	r.t.Helper()
	st, err := r.sender.Status(r.ctx)
	must(r.t, err)
	return st
}

// counts waits until the states of all deliveries are these, e.g. "2 DELIVERED 1 FAILED".
func (r *rig) counts(want string) *Status {
	r.t.Helper()
	var st *Status
	eventually(r.t, func() string {
		st = r.status()
		var words []string
		for _, state := range states {
			if n := st.Deliveries[state]; n > 0 {
				words = append(words, fmt.Sprintf("%d %s", n, state))
			}
		}
		if got := strings.Join(words, " "); got != want {
			return fmt.Sprintf("deliveries are %q, want %q; the receiver got %q", got, want, r.recv.words())
		}
		return ""
	})
	return st
}

// metric answers the value of one sample, by name and label value ("" = any); 0 where there
// is none yet.
func (r *rig) metric(name, label string) float64 {
	r.t.Helper()
	families, err := r.registry.Gather()
	must(r.t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if label == "" || l.GetValue() == label {
					return m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
	}
	return 0
}

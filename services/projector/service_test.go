package projector

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

const documents = `
apiVersion: tidemark/v1
kind: BusinessStream
name: STREAM
partitions: 2
key: [/region]
values:
  amount: {path: /amount, type: decimal, scale: 2}
eventTime:
  order.occurred_at@1: {path: /occurred_at, format: rfc3339}
---
apiVersion: tidemark/v1
kind: StreamTimePolicy
stream: STREAM
job: hourly@1
sources: [{name: shop, partitions: 1}]
timestampExtractor: order.occurred_at@1
watermark: {boundedOutOfOrderness: 5m}
window: {tumbling: 1h}
aggregates: {revenue: sum(amount), orders: count()}
allowedLateness: 24h
retention: {ids: 48h}
`

// apply has the documents applied for a stream of its own and answers its authors.
func apply(t *testing.T, conn *natsio.Conn) (stream string, authors []*author) {
	t.Helper()
	stream = fmt.Sprintf("shop%d", streams.Add(1))
	docs, findings := policy.Parse("test.yaml", []byte(strings.ReplaceAll(documents, "STREAM", stream)))
	if len(findings) > 0 {
		t.Fatalf("%+v", findings)
	}
	_, err := config.Apply(testContext(t), conn.JS, docs, config.Options{Replicas: 1})
	must(t, err)
	snapshot, err := config.Load(testContext(t), conn.JS)
	must(t, err)
	for _, e := range snapshot.Policies {
		if e.Policy.Stream != stream {
			continue
		}
		for pp := range 2 {
			p := partition{stream: stream, job: "hourly", generation: 1, number: pp}
			authors = append(authors, newAuthor(t, conn, p, record.Static{
				Stream: stream, Job: "hourly", PolicyGeneration: "hourly@1", PolicyDigest: e.Digest,
			}))
		}
	}
	return stream, authors
}

// ownServer starts a server for services: on one server, processes of a role share all
// partitions. It answers what connects to it.
func ownServer(t *testing.T) (dial func() *natsio.Conn) {
	t.Helper()
	own, err := natsio.Embed(testContext(t), natsio.EmbeddedOptions{Dir: t.TempDir(), Port: -1})
	must(t, err)
	t.Cleanup(own.Shutdown)
	dial = func() *natsio.Conn {
		t.Helper()
		conn, err := own.Connect(testContext(t), t.Name())
		must(t, err)
		t.Cleanup(conn.Close)
		return conn
	}
	must(t, natsio.Provision(testContext(t), dial().JS, 1))
	return dial
}

// process is one projector service.
type process struct {
	*Service
	mux  *http.ServeMux
	stop func() // ends it and waits
}

func startService(t *testing.T, conn *natsio.Conn, instance, dir string) *process {
	t.Helper()
	s, err := New(Config{
		Conn: conn, Dir: dir, Instance: instance, Log: zerolog.Nop(), Registry: prometheus.NewRegistry(),
	})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	p := &process{Service: s, mux: http.NewServeMux(), stop: func() {
		if stopped {
			return
		}
		stopped = true
		begun := time.Now()
		cancel()
		must(t, <-done)
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("draining took %s", took)
		}
	}}
	s.Routes(p.mux)
	t.Cleanup(p.stop)
	return p
}

func (p *process) awaitReady(t *testing.T) {
	t.Helper()
	eventually(t, func() string { return strings.Join(p.Problems(), "\n") })
}

// awaitRows asks over NATS until the current rows are the words wanted.
func awaitRows(t *testing.T, conn *natsio.Conn, stream string, want ...string) {
	t.Helper()
	eventually(t, func() string {
		m, err := conn.NC.Request(subject.Query(stream, "windows"), []byte(`{}`), 5*time.Second)
		if err != nil {
			return err.Error()
		}
		words, problem := replyWords(m.Data)
		if strings.Join(words, " ") == strings.Join(want, " ") {
			return ""
		}
		return fmt.Sprintf("rows %v, want %v %s", words, want, problem)
	})
}

func replyWords(data []byte) (words []string, problem string) {
	var reply struct {
		Rows []row
	}
	if err := json.Unmarshal(data, &reply); err != nil {
		return nil, fmt.Sprintf("%v: %s", err, data)
	}
	for _, r := range reply.Rows {
		words = append(words, fmt.Sprintf("%s/%d", r.Key, r.Revision))
	}
	return words, ""
}

func TestService(t *testing.T) {
	t.Parallel()
	conn := ownServer(t)()
	p := startService(t, conn, "one", t.TempDir())
	p.awaitReady(t)
	stream, authors := apply(t, conn) // picked up without a restart
	keys := []string{keyOf(0), keyOf(1)}
	seq := authors[0].write(base+hour, authors[0].propose(keys[0], base, 1))
	authors[1].write(base+hour, authors[1].propose(keys[1], base, 2), authors[1].propose(keys[1], base, 3))
	want := []string{keys[0] + "/1", keys[1] + "/2"}
	if keys[1] < keys[0] {
		want[0], want[1] = want[1], want[0]
	}
	awaitRows(t, conn, stream, want...)

	answer := httptest.NewRecorder()
	p.mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/v1/streams/"+stream+"/windows?key="+keys[1]+"&history=1", nil))
	if words, _ := replyWords(answer.Body.Bytes()); answer.Code != 200 || strings.Join(words, " ") != keys[1]+"/1 "+keys[1]+"/2" {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
	for path, code := range map[string]int{
		"/v1/streams/nothing/windows":                      404,
		"/v1/streams/" + stream + "/windows?k=x":           400,
		"/v1/streams/" + stream + "/windows?generation=x@": 400,
		"/v1/streams/" + stream + "/status":                200,
	} {
		answer := httptest.NewRecorder()
		p.mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		if answer.Code != code {
			t.Errorf("%s answers %d %s", path, answer.Code, answer.Body)
		}
	}
	m, err := conn.NC.Request(subject.Query(stream, "windows"), []byte(`{"generation":"hourly@7"}`), 5*time.Second)
	must(t, err)
	if !strings.Contains(string(m.Data), `{"error":{"code":"not-found"`) || m.Header.Get("Nats-Service-Error-Code") != "not-found" {
		t.Errorf("%s %v", m.Data, m.Header)
	}
	eventually(t, func() string { return statusProblem(conn.NC, stream, seq) })
}

// statusProblem says what the status lacks of everything before seq being visible.
func statusProblem(nc *nats.Conn, stream string, seq uint64) string {
	m, err := nc.Request(subject.Query(stream, "status"), nil, 5*time.Second)
	if err != nil {
		return err.Error()
	}
	var s struct {
		Partitions []struct {
			Role            string
			W               string
			Windows, Events struct {
				Stream string
				Seq    uint64
			}
		}
	}
	if err := json.Unmarshal(m.Data, &s); err != nil {
		return err.Error()
	}
	for _, p := range s.Partitions {
		if p.Role != "owner" || p.Windows.Seq <= seq || p.Events.Seq != 2 || p.Events.Stream == "" || p.W != "2026-11-30T11:00:00Z" {
			return string(m.Data)
		}
	}
	if len(s.Partitions) != 2 {
		return string(m.Data)
	}
	return ""
}

// keyOf answers a key that falls into one of two key partitions.
func keyOf(pp int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprintf("region-%d", i); partitionOf(key, 2) == pp {
			return key
		}
	}
}

// A second process answers queries at once and takes over when the first one leaves.
func TestTakeover(t *testing.T) {
	t.Parallel()
	dial := ownServer(t)
	conn, other := dial(), dial()
	stream, authors := apply(t, conn)
	one := startService(t, conn, "one", t.TempDir())
	one.awaitReady(t)
	two := startService(t, other, "two", t.TempDir())
	two.awaitReady(t)
	key := keyOf(0)
	authors[0].write(base+hour, authors[0].propose(key, base, 1))
	awaitRows(t, conn, stream, key+"/1")
	one.stop()
	authors[0].write(base+hour, authors[0].propose(key, base, 2))
	awaitRows(t, conn, stream, key+"/2")
	two.stop()
}

// Damage in one partition halts that partition alone, and stays a problem.
func TestDamageStaysInItsPartition(t *testing.T) {
	t.Parallel()
	conn := ownServer(t)()
	stream, authors := apply(t, conn)
	p := startService(t, conn, "one", t.TempDir())
	p.awaitReady(t)
	bad, good := keyOf(0), keyOf(1)
	authors[0].write(base+hour, []byte{99, 1, 2})
	eventually(t, func() string {
		for _, problem := range p.Problems() {
			if strings.Contains(problem, stream+"/hourly@1/00") && strings.Contains(problem, "accepted up to sequence") {
				return ""
			}
		}
		return fmt.Sprintf("no problem is told: %v", p.Problems())
	})
	authors[1].write(base+hour, authors[1].propose(good, base, 1))
	authors[0].write(base+hour, authors[0].propose(bad, base, 1))
	awaitRows(t, conn, stream, good+"/1")
}

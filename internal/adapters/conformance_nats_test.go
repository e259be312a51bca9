package adapters

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adapter"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adaptertest"
)

var (
	server   *natsio.Embedded // one for the package
	subjects atomic.Int32
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "adapters-test-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		if server, err = natsio.Embed(context.Background(), natsio.EmbeddedOptions{Dir: dir, Port: -1}); err != nil {
			panic(err)
		}
		defer server.Shutdown()
		return m.Run()
	}())
}

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

func connect(t testing.TB) *natsio.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := server.Connect(ctx, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// natsBench is the provider on NATS.
type natsBench struct {
	*provider
	t       *testing.T
	conn    *nats.Conn
	subject string
	subs    []*nats.Subscription
	adapter adapter.Adapter
}

func openNATS(t *testing.T, s adaptertest.Setup) adaptertest.Bench {
	t.Helper()
	b := &natsBench{
		provider: newProvider(s.Capabilities), t: t, conn: connect(t).NC,
		subject: fmt.Sprintf("rewards.%d", subjects.Add(1)),
	}
	for subject, handle := range map[string]nats.MsgHandler{".issue": b.issue, ".by-ref.*": b.byRef} {
		sub, err := b.conn.Subscribe(b.subject+subject, func(m *nats.Msg) { go handle(m) })
		if err != nil {
			t.Fatal(err)
		}
		b.subs = append(b.subs, sub)
	}
	b.flush()
	deps := Deps{Conn: connect(t).NC, Secrets: secretFiles(map[string]string{"/run/secrets/token": token})}
	var err error
	if b.adapter, err = New(document(t, b.yaml(s)), deps); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *natsBench) flush() {
	if err := b.conn.FlushTimeout(time.Minute); err != nil {
		b.t.Error(err)
	}
}

func (b *natsBench) yaml(s adaptertest.Setup) string {
	text := fmt.Sprintf(`kind: Adapter
name: rewards-api
version: 1
type: nats
subject: %[1]s.issue
headers: {Authorization: {secretFile: /run/secrets/token, prefix: "Bearer "}}
evidence: {key: /ref, amount: /points, subject: /account, ref: /id}
timeout: %[2]s
sendWithin: 10s
reject: [{code: account_closed}]
throttle: [{code: slow_down}]
inFlight: [{code: in_flight}]
bodyMismatch: [{code: key_reused}]
pending: [{code: accepted}]
`, b.subject, s.Timeout)
	if s.Idempotent {
		text += "idempotency: {header: Idempotency-Key, retention: 24h, basis: firstSeen, onBodyMismatch: error}\n"
	}
	if s.Query {
		text += "query: {subject: '" + b.subject + ".by-ref.{effectKey}', list: /executions, absence: authoritative, lateArrivalBound: 10m}\n"
	}
	return text
}

func (b *natsBench) Adapter() adapter.Adapter { return b.adapter }

func (b *natsBench) Scope() effect.Scope { return effect.Scope{URL: "nats:" + b.subject + ".issue"} }

func (b *natsBench) Vanish() {
	for _, sub := range b.subs {
		if err := sub.Unsubscribe(); err != nil {
			b.t.Error(err)
		}
	}
	b.flush()
}

func (b *natsBench) reply(m *nats.Msg, text string) {
	if err := m.Respond([]byte(text)); err != nil && b.t.Context().Err() == nil {
		b.t.Error(err)
	}
}

func (b *natsBench) issue(m *nats.Msg) {
	if m.Header.Get("Authorization") != "Bearer "+token || m.Header.Get("traceparent") == "" {
		b.reply(m, `{"code":"bad_request"}`)
		return
	}
	behaviour, e, held := b.take(m.Data, m.Header.Get("Idempotency-Key"))
	code := map[adaptertest.Behaviour]string{
		adaptertest.Refuse: "account_closed", adaptertest.Throttle: "slow_down", adaptertest.InFlight: "in_flight",
		adaptertest.OtherBytes: "key_reused", adaptertest.Accept: "accepted", adaptertest.FailAfter: "internal",
		adaptertest.Unlisted: "something_else",
	}[behaviour]
	switch {
	case code != "":
		b.reply(m, fmt.Sprintf(`{"code":%q,"message":"%s"}`, code, token))
	case behaviour == adaptertest.LoseAnswer:
	case behaviour == adaptertest.HoldAnswer:
		select {
		case <-held:
			b.reply(m, e.shown())
		case <-b.t.Context().Done():
		}
	case behaviour == adaptertest.HalfAnswer:
		b.reply(m, e.shown()[:40])
	default:
		b.reply(m, e.answer(behaviour))
	}
}

func (b *natsBench) byRef(m *nats.Msg) {
	var question struct {
		Key effect.EffectKey `json:"effectKey"`
	}
	if json.Unmarshal(m.Data, &question) != nil || !strings.HasSuffix(m.Subject, "."+question.Key.String()) {
		b.reply(m, `{"code":"bad_request"}`)
		return
	}
	behaviour, found := b.query(question.Key)
	switch behaviour {
	case adaptertest.QueryFails:
		b.reply(m, `{"code":"internal"}`)
		return
	case adaptertest.QueryBreaks:
		return
	case adaptertest.QueryOther, adaptertest.QueryMangled:
		found = []execution{{key: question.Key, amount: "1", subject: "a"}}
	}
	list := make([]string, len(found))
	for i, e := range found {
		list[i] = e.answer(behaviour)
	}
	b.reply(m, fmt.Sprintf(`{"executions":[%s]}`, strings.Join(list, ",")))
}

func TestNATSConformance(t *testing.T) {
	adaptertest.Suite{
		Open:   openNATS,
		Matrix: adaptertest.Matrix(),
		// A reply is one message, of the type that it is, and goes to nobody else.
		Lacks: []adaptertest.Behaviour{adaptertest.Redirect, adaptertest.OtherType, adaptertest.HugeAnswer},
	}.Run(t)
}

package adapters

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adapter"
)

func base64Of(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// stored makes a stream that stores what is sent to subject.
func stored(t *testing.T, name, subject string) *natsio.Conn {
	t.Helper()
	conn := connect(t)
	if _, err := conn.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subject}, Storage: jetstream.MemoryStorage}); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestAStoredRequestIsNoExecution(t *testing.T) {
	conn := stored(t, "stored", "stored.>")
	doc := document(t, "kind: Adapter\nname: a\nversion: 1\ntype: nats\nsubject: stored.issue\nevidence: {key: /ref}\ntimeout: 300ms\nquery: {subject: stored.query}\n")
	a := mustNew(t, doc, Deps{Conn: conn.NC})
	got := a.Send(t.Context(), callTo("nats:stored.issue"))
	if got.Class != effect.Ambiguous || !strings.Contains(got.Detail, "stored") {
		t.Errorf("the attempt ended as %s (%s); want AMBIGUOUS, stored", got.Class, got.Detail)
	}
	if f, err := a.Query(t.Context(), adapter.Question{Key: someKey}); err == nil {
		t.Errorf("the query found %d", f.Found)
	}
}

func TestTheProvidersReplyCountsBesideAStream(t *testing.T) {
	conn := stored(t, "beside", "beside.>")
	answer := execution{someKey, "12.50", "account-1"}.shown()
	first := make(chan struct{})
	sub, err := conn.NC.Subscribe("beside.issue", func(m *nats.Msg) {
		<-first
		if err := m.Respond([]byte(answer)); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	doc := document(t, "kind: Adapter\nname: a\nversion: 1\ntype: nats\nsubject: beside.issue\nevidence: {key: /ref, amount: /points, subject: /account}\n")
	a := mustNew(t, doc, Deps{Conn: connect(t).NC})
	go func() {
		defer close(first)
		s, err := conn.JS.Stream(t.Context(), "beside")
		if err != nil {
			t.Error(err)
			return
		}
		for { // until the stream has acknowledged the request
			info, err := s.Info(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if info.State.Msgs > 0 {
				return
			}
		}
	}()
	if got := a.Send(t.Context(), callTo("nats:beside.issue")); got.Class != effect.Executed {
		t.Errorf("the attempt ended as %s (%s); want EXECUTED", got.Class, got.Detail)
	}
}

func TestAConnectionThatKeepsRequestsIsRefused(t *testing.T) {
	keeping := &nats.Conn{Opts: nats.Options{ReconnectBufSize: nats.DefaultReconnectBufSize}}
	doc := document(t, "kind: Adapter\nname: a\nversion: 1\ntype: nats\nsubject: rewards.issue\nevidence: {key: /ref}\n")
	if _, err := New(doc, Deps{Conn: keeping}); err == nil || !strings.Contains(err.Error(), "ReconnectBufSize(-1)") {
		t.Errorf("error is %v", err)
	}
}

func TestNothingIsHandedToAConnectionThatIsDown(t *testing.T) {
	conn := connect(t)
	doc := document(t, "kind: Adapter\nname: a\nversion: 1\ntype: nats\nsubject: rewards.issue\nevidence: {key: /ref}\nquery: {subject: rewards.query}\n")
	a := mustNew(t, doc, Deps{Conn: conn.NC})
	conn.Close()
	call := callTo("nats:rewards.issue")
	call.MaySend = func() bool { t.Error("MaySend was asked"); return true }
	if got := a.Send(t.Context(), call); got.Class != effect.NotSent {
		t.Errorf("the attempt ended as %s (%s); want NOT_SENT", got.Class, got.Detail)
	}
	if f, err := a.Query(t.Context(), adapter.Question{Key: someKey}); err == nil {
		t.Errorf("the query found %d", f.Found)
	}
}

func TestRepliesOfStreamsAreTold(t *testing.T) {
	for text, want := range map[string]bool{
		`{"stream":"rewards","seq":7}`: true, `{"stream":"rewards","domain":"hub","seq":7,"duplicate":true}`: true,
		`{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"rewards","seq":0}`: true,
		`{"type":"io.nats.jetstream.api.v1.stream_info_response"}`:                                                     true,
		`{"stream":"rewards"}`: false, `{"seq":7}`: false, `{"error":{"code":"closed"}}`: false, `[]`: false, ``: false, `{`: false,
		execution{someKey, "12.50", "account-1"}.shown(): false,
	} {
		if got := isPubAck(&nats.Msg{Data: []byte(text)}); got != want {
			t.Errorf("%s is the reply of a stream: %t; want %t", text, got, want)
		}
	}
}

func TestTheLogAdapterWritesOneLineAndRemembersNothing(t *testing.T) {
	var out bytes.Buffer
	doc := document(t, "kind: Adapter\nname: trial\nversion: 1\ntype: log\n")
	a := mustNew(t, doc, Deps{Log: zerolog.New(&out)})
	call := callTo("log:")
	for _, refused := range []func(*adapter.Call){
		func(c *adapter.Call) { c.MaySend = func() bool { return false } },
		func(c *adapter.Call) { c.MaySend = nil },
		func(c *adapter.Call) { c.Payload = nil },
	} {
		not := call
		refused(&not)
		if got := a.Send(t.Context(), not); got.Class != effect.NotSent || out.Len() > 0 {
			t.Errorf("the attempt ended as %s with %q in the log", got.Class, &out)
		}
	}
	got := a.Send(t.Context(), call)
	if e := got.Evidence; got.Class != effect.Executed || e.Key != someKey || e.Amount != "12.50" || e.Subject != "account-1" || e.Attempt != 1 {
		t.Errorf("the attempt ended as %s with %+v", got.Class, e)
	}
	if line := out.String(); strings.Count(line, someKey.String()) != 1 || strings.Contains(line, "account-1") || !strings.Contains(line, "trial@1") {
		t.Errorf("the log holds %q; want the key, and nothing of the payload", line)
	}
	if a.Send(t.Context(), call); strings.Count(out.String(), someKey.String()) != 2 {
		t.Error("a second attempt is no second line")
	}
	if _, err := a.Query(t.Context(), adapter.Question{Key: someKey}); err != adapter.ErrNoQuery {
		t.Errorf("error is %v; want ErrNoQuery", err)
	}
	if doc.Idempotent() || doc.Queryable() {
		t.Error("the log adapter promises what it does not keep")
	}
}

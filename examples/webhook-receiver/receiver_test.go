package main

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/consumers/webhook"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// send signs a body as Tidemark does at some time and answers the receiver's status.
func send(t *testing.T, to *table, at time.Time, body string, secrets ...string) int {
	t.Helper()
	request := httptest.NewRequest("POST", "/hooks", strings.NewReader(body))
	var keys []webhook.Secret
	for _, text := range secrets {
		key, err := webhook.ParseSecret(text)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	webhook.Sign(request.Header, "crm_p_1", at, []byte(body), keys...)
	w := httptest.NewRecorder()
	to.receive(w, request)
	return w.Code
}

func revision(generation, projection string, number int, op string) string {
	return fmt.Sprintf(`{"type":"revision.upsert","data":{"policyGeneration":%q,"projectionId":%q,"revision":%d,"op":%q,"value":{"orders":%d}}}`, generation, projection, number, op, number)
}

func TestTheReceiverTakesSignedMessagesAndNoOthers(t *testing.T) {
	table, err := newTable(secret + "\n")
	if err != nil {
		t.Fatal(err)
	}
	now, other := time.Now(), "whsec_"+strings.Repeat("AAAA", 8)
	body := revision("hourly@1", "p", 1, "UPSERT")
	for _, c := range []struct {
		at      time.Time
		secrets []string
		want    int
	}{
		{now, []string{other}, 401},
		{now, nil, 401},
		{now.Add(-6 * time.Minute), []string{secret}, 401},
		{now.Add(6 * time.Minute), []string{secret}, 401},
		{now, []string{secret}, 204},
		{now, []string{other, secret}, 204},
	} {
		if got := send(t, table, c.at, body, c.secrets...); got != c.want {
			t.Errorf("%s %v: %d, want %d", c.at, c.secrets, got, c.want)
		}
	}
	if got := send(t, table, now, "{", secret); got != 400 {
		t.Errorf("no JSON: %d", got)
	}
}

func TestTheReceiverKeepsTheNewestRevision(t *testing.T) {
	table, err := newTable(secret)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, body := range []string{
		revision("hourly@1", "p", 2, "UPSERT"), revision("hourly@1", "p", 1, "UPSERT"), revision("hourly@1", "p", 2, "UPSERT"), revision("hourly@1", "q", 1, "RETRACT"),
	} {
		if got := send(t, table, now, body, secret); got != 204 {
			t.Fatalf("%s: %d", body, got)
		}
	}
	if rows := table.shown(); len(rows) != 1 || rows[0].Revision != 2 || string(rows[0].Value) != `{"orders":2}` {
		t.Errorf("%+v", rows)
	}
	send(t, table, now, `{"type":"generation.switched","data":{"policyGeneration":"hourly@2"}}`, secret)
	if rows := table.shown(); len(rows) != 0 {
		t.Errorf("rows of the old generation: %+v", rows)
	}
}

// The page shows the receiver that these tests are about.
func TestThePageShowsThisReceiver(t *testing.T) {
	page, err := os.ReadFile("../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("receiver.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := bytes.Cut(source, []byte(")\n\n")) // what follows the imports
	if !bytes.Contains(page, bytes.TrimSpace(code)) {
		t.Error("docs/webhooks.md does not show examples/webhook-receiver/receiver.go as it is")
	}
}

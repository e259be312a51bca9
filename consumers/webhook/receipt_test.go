package webhook

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// receipt sends a receipt signed with secret and answers the status.
func (r *rig) receipt(secret Secret, text string) int {
	r.t.Helper()
	request := httptest.NewRequest("POST", "/receipts", strings.NewReader(text))
	Sign(request.Header, "rcpt_1", r.clock.Now(), []byte(text), secret)
	w := httptest.NewRecorder()
	r.mux.ServeHTTP(w, request)
	return w.Code
}

func applied(id string, number uint64, digest string) string {
	return fmt.Sprintf(`{"schema":"webhookReceipt.v1","webhookId":%q,"result":"APPLIED","appliedRevision":%d,"resultDigest":%q,"appliedAt":"2026-11-30T10:00:01Z"}`, id, number, digest)
}

func refused(id, reason string) string {
	return fmt.Sprintf(`{"schema":"webhookReceipt.v1","webhookId":%q,"result":"REFUSED","reason":%q}`, id, reason)
}

const withReceipts = "applied: {receipts: true, within: 10m}\n"

func TestASignedReceiptMakesADeliveryAppliedOrRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, withReceipts).run()
	r.names("a", "b", "c", "d", "e")
	r.counts("5 DELIVERED")
	key := secretOf(t, 'a')
	id := func(name string) string { return "crm_" + projectionOf(1, name) + "_1" }
	digest := r.delivery(id("a")).Digest
	for _, c := range []struct {
		text string
		code int
		want string // states after it
	}{
		{applied("crm_none_1", 1, digest), 404, "5 DELIVERED"},
		{applied(id("a"), 0, digest), 409, "5 DELIVERED"},
		{applied(id("a"), 1, digest), 204, "4 DELIVERED 1 APPLIED"},
		{applied(id("a"), 1, digest), 204, "4 DELIVERED 1 APPLIED"},
		{refused(id("a"), "stale"), 409, "4 DELIVERED 1 APPLIED"},
		{applied(id("b"), 7, strings.Repeat("00", 32)), 204, "3 DELIVERED 2 APPLIED"}, // it holds a newer one
		{applied(id("c"), 1, strings.Repeat("00", 32)), 204, "2 DELIVERED 2 APPLIED 1 REFUSED"},
		{refused(id("d"), "schema"), 204, "1 DELIVERED 2 APPLIED 2 REFUSED"},
		{applied(id("d"), 1, digest), 204, "1 DELIVERED 3 APPLIED 1 REFUSED"}, // mended since
		{refused(id("e"), "mood"), 400, "1 DELIVERED 3 APPLIED 1 REFUSED"},
		{`{"schema":"webhookReceipt.v1"}`, 400, "1 DELIVERED 3 APPLIED 1 REFUSED"},
		{string(r.recv.requests()[0].body), 400, "1 DELIVERED 3 APPLIED 1 REFUSED"}, // our own message sent back
		{applied(id("e"), 1, digest) + "{}", 400, "1 DELIVERED 3 APPLIED 1 REFUSED"},
		{strings.Repeat(" ", receiptBytes+1), 413, "1 DELIVERED 3 APPLIED 1 REFUSED"},
	} {
		if code := r.receipt(key, c.text); code != c.code {
			t.Errorf("%.150s: %d, want %d", c.text, code, c.code)
		}
		r.counts(c.want)
	}
	if d := r.delivery(id("c")); d.Problem != "digest-mismatch" || d.ClosedAt.IsZero() {
		t.Errorf("%+v", d)
	}
	if st := r.status(); len(st.Alerts) != 1 || !strings.Contains(st.Alerts[0], "1 delivery REFUSED") {
		t.Errorf("%v", st.Alerts)
	}
	if r.metric("tidemark_webhook_receipts_total", "applied") != 3 || r.metric("tidemark_webhook_receipts_total", "refused") != 2 {
		t.Errorf("applied %v, refused %v", r.metric("tidemark_webhook_receipts_total", "applied"), r.metric("tidemark_webhook_receipts_total", "refused"))
	}
	r.stop()
	r.run()
	r.counts("1 DELIVERED 3 APPLIED 1 REFUSED")
}

func TestReceiptsWithoutAValidSignatureAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, "applied: {receipts: true, secretFiles: [receipts]}\n")
	must(t, writeSecret(r.dir+"/receipts", 'r'))
	r.run()
	r.names("eu")
	r.counts("1 DELIVERED")
	id := r.recv.requests()[0].id
	text := applied(id, 1, r.delivery(id).Digest)
	if code := r.receipt(secretOf(t, 'a'), text); code != 401 {
		t.Errorf("signed with the secret of deliveries: %d", code)
	}
	w := httptest.NewRecorder()
	r.mux.ServeHTTP(w, httptest.NewRequest("POST", "/receipts", strings.NewReader(text)))
	if w.Code != 401 {
		t.Errorf("unsigned: %d", w.Code)
	}
	old := httptest.NewRequest("POST", "/receipts", strings.NewReader(text))
	Sign(old.Header, "rcpt_1", r.clock.Now().Add(-time.Hour), []byte(text), secretOf(t, 'r'))
	w = httptest.NewRecorder()
	if r.mux.ServeHTTP(w, old); w.Code != 401 {
		t.Errorf("an old one: %d", w.Code)
	}
	r.counts("1 DELIVERED")
	if code := r.receipt(secretOf(t, 'r'), text); code != 204 {
		t.Errorf("signed: %d", code)
	}
	r.counts("1 APPLIED")
}

// The receiver took the delivery, its answer was lost, and its receipt came: that is proof
// enough, and no attempt follows.
func TestAReceiptCountsWhenTheAnswerWasLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, withReceipts)
	r.recv.says(status(500))
	r.run()
	r.names("eu")
	r.counts("1 ATTEMPTED")
	id := r.recv.requests()[0].id
	if code := r.receipt(secretOf(t, 'a'), applied(id, 1, r.delivery(id).Digest)); code != 204 {
		t.Fatalf("%d", code)
	}
	r.counts("1 APPLIED")
	r.clock.Advance(time.Hour)
	r.recv.says(nil)
	r.names("eu")
	r.recv.expect("eu/1 eu/2")
}

func TestADeliveryWithoutReceiptBeyondItsTimeIsAnAlert(t *testing.T) {
	t.Parallel()
	r := newRig(t, withReceipts).run()
	r.names("eu")
	r.counts("1 DELIVERED")
	r.clock.Advance(10*time.Minute - time.Second)
	if st := r.status(); st.Overdue != 0 || len(st.Alerts) != 0 || !st.Unapplied.Equal(start) {
		t.Fatalf("%+v", st)
	}
	r.names("us")
	r.counts("2 DELIVERED")
	r.clock.Advance(time.Second)
	eventually(t, func() string {
		if st := r.status(); st.Overdue != 1 || len(st.Alerts) != 1 || !strings.Contains(st.Alerts[0], "without a receipt for longer than 10m") {
			return fmt.Sprintf("%+v", st)
		}
		return ""
	})
	if !strings.Contains(r.logs.String(), "does not say that it applied them") || r.metric("tidemark_webhook_overdue", "") != 1 ||
		r.metric("tidemark_webhook_overdue_total", "") != 1 || r.metric("tidemark_webhook_delivered_unapplied_age_seconds", "") != 600 {
		t.Errorf("overdue %v\n%s", r.metric("tidemark_webhook_overdue", ""), r.logs)
	}
	r.stop()
	r.run()
	if st := r.status(); st.Overdue != 1 {
		t.Errorf("after a restart: %+v", st)
	}
	if n := strings.Count(r.logs.String(), "does not say that it applied them"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	var answer struct{ Items []Item }
	r.call("POST", "/v1/webhook/redeliver", Order{Choice: Choice{Overdue: true}, By: "ann", Reason: "asked"}, &answer)
	if len(answer.Items) != 1 || answer.Items[0].Result != "queued" {
		t.Errorf("%+v", answer)
	}
	got := r.recv.expect("eu/1 us/1 eu/1")
	r.counts("2 DELIVERED")
	if r.status().Overdue != 0 || !bytes.Equal(got[0].body, got[2].body) {
		t.Errorf("%+v", r.status())
	}
	if code := r.receipt(secretOf(t, 'a'), applied(got[0].id, 1, r.delivery(got[0].id).Digest)); code != 204 {
		t.Errorf("%d", code)
	}
	if st := r.counts("1 DELIVERED 1 APPLIED"); !st.Unapplied.Equal(start.Add(10*time.Minute - time.Second)) {
		t.Errorf("%+v", st)
	}
}

func TestALookAtTheReceiversStateMakesADeliveryApplied(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	held := map[string]string{}
	answers := make(chan string, 100)
	digest := revision.ValueDigest([]revision.Field{{Name: "orders", Text: "1"}, {Name: "revenue", Text: "25.50", Quoted: true}}).String()
	held[projectionOf(1, "a")] = fmt.Sprintf(`{"appliedRevision":1,"resultDigest":%q}`, digest)
	held[projectionOf(1, "b")] = fmt.Sprintf(`{"appliedRevision":0,"resultDigest":%q}`, digest)
	held[projectionOf(1, "c")] = fmt.Sprintf(`{"appliedRevision":1,"resultDigest":%q}`, strings.Repeat("11", 32))
	held[projectionOf(1, "d")] = `broken`
	state := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if err := Verify(q.Header, r.clock.Now(), nil, secretOf(t, 'a')); err != nil {
			t.Errorf("a look: %v", err)
		}
		answers <- q.URL.Path
		text, ok := held[strings.TrimPrefix(q.URL.Path, "/state/")]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, text)
	}))
	defer state.Close()
	r.document += fmt.Sprintf("applied: {within: 10m, pull: {url: '%s/state/{projectionId}', every: 30s}}\n", state.URL)
	r.run()
	r.names("a", "b", "c", "d", "e")
	r.counts("5 DELIVERED")
	r.clock.AwaitTimers(2) // the loop's and the look's
	r.clock.Advance(30 * time.Second)
	r.counts("3 DELIVERED 1 APPLIED 1 REFUSED")
	eventually(t, func() string {
		if !strings.Contains(r.logs.String(), "cannot be looked at") || len(answers) != 5 {
			return fmt.Sprintf("%d looks\n%s", len(answers), r.logs)
		}
		return ""
	})
	r.clock.AwaitTimers(2)
	r.clock.Advance(30 * time.Second)
	eventually(t, func() string {
		if len(answers) != 8 {
			return fmt.Sprintf("%d looks", len(answers))
		}
		return ""
	})
	r.counts("3 DELIVERED 1 APPLIED 1 REFUSED")
}

// The receiver applies and says so before it answers; whatever the answer, nothing follows.
func TestAReceiptThatComesBeforeTheAnswerStands(t *testing.T) {
	t.Parallel()
	for _, code := range []int{204, 500} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, withReceipts)
			release := make(chan struct{})
			r.recv.says(func(w http.ResponseWriter, _ request) {
				<-release
				w.WriteHeader(code)
			})
			r.run()
			r.names("eu")
			id := r.recv.expect("eu/1")[0].id
			if got := r.receipt(secretOf(t, 'a'), applied(id, 1, r.delivery(id).Digest)); got != 204 {
				t.Fatalf("%d", got)
			}
			r.counts("1 APPLIED")
			close(release)
			eventually(t, func() string {
				if d := r.delivery(id); d.Attempts != 1 || d.Status != code {
					return fmt.Sprintf("%+v", d)
				}
				return ""
			})
			r.counts("1 APPLIED")
			r.recv.says(nil)
			r.clock.Advance(time.Hour)
			r.names("eu")
			r.recv.expect("eu/1 eu/2")
		})
	}
}

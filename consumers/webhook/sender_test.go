package webhook

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

func TestRevisionsArriveSignedInOrderWithWhatTheySay(t *testing.T) {
	t.Parallel()
	r := newRig(t, "").run()
	r.names("eu")
	got := r.recv.expect("eu/1")[0]
	r.names("eu")
	second := r.recv.expect("eu/1 eu/2")[1]
	r.counts("2 DELIVERED")
	id := projectionOf(1, "eu")
	if got.id != "crm_"+id+"_1" || second.id != "crm_"+id+"_2" || got.trace != "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" {
		t.Errorf("%+v", got)
	}
	digest := revision.ValueDigest([]revision.Field{{Name: "orders", Text: "1"}, {Name: "revenue", Text: "25.50", Quoted: true}})
	want := `{"type":"revision.upsert","timestamp":"2026-11-30T10:00:00Z","data":{"stream":"` + r.stream + `","job":"hourly","policyGeneration":"hourly@1","policyDigest":"` + strings.Repeat("ab", 32) +
		`","key":"eu","window":{"start":"2026-11-30T10:00:00Z","end":"2026-11-30T11:00:00Z"},"logicalWindowId":"` + strings.Repeat("cd", 32) + `","projectionId":"` + id +
		`","op":"UPSERT","revision":2,"predecessor":{"revision":1,"digest":"` + predecessorOf(t, r, second.body) + `"},"windowState":"CORRECTED","firing":"LATE","origin":"live","cause":"ON_TIME","valueChanged":true,` +
		`"value":{"orders":1,"revenue":"25.50"},"aggregateDigest":"` + digest.String() + `","supersedes":[]}}`
	if string(second.body) != want {
		t.Errorf("body\n%s\nwant\n%s", second.body, want)
	}
	if st := r.status(); !st.Enabled || st.Generation != 1 || len(st.Alerts) != 0 || strings.Contains(st.URL, "token") {
		t.Errorf("%+v", st)
	}
	if len(r.sender.Problems()) != 0 || r.metric("tidemark_webhook_attempts_total", "delivered") != 2 || r.metric("tidemark_webhook_enabled", "") != 1 {
		t.Errorf("%v", r.sender.Problems())
	}
}

// predecessorOf answers the digest that the body names, once it is known to be a digest.
func predecessorOf(t *testing.T, r *rig, body []byte) string {
	t.Helper()
	_, after, _ := bytes.Cut(body, []byte(`"predecessor":{"revision":1,"digest":"`))
	if len(after) < 64 {
		t.Fatalf("no predecessor in %s", body)
	}
	d, err := revision.ParseDigest(string(after[:64]))
	must(t, err)
	if d.IsZero() || d == r.heads[projectionOf(1, "eu")].Digest {
		t.Errorf("predecessor %s", d)
	}
	return string(after[:64])
}

func TestARetrySendsTheSameBytesUnderTheSameIDSignedAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	r.recv.says(status(500))
	r.run()
	r.names("eu")
	r.counts("1 ATTEMPTED")
	r.clock.Advance(5*time.Second - time.Millisecond)
	if st := r.counts("1 ATTEMPTED"); len(r.recv.requests()) != 1 || st.OldestWaiting.IsZero() {
		t.Fatalf("%d requests before the time of the schedule", len(r.recv.requests()))
	}
	r.clock.Advance(time.Millisecond)
	r.recv.expect("eu/1 eu/1")
	r.recv.says(nil)
	eventually(t, func() string {
		if d := r.delivery(r.recv.requests()[0].id); d.Failures != 2 {
			return fmt.Sprintf("%+v", d)
		}
		return ""
	})
	r.clock.Advance(5 * time.Minute)
	got := r.recv.expect("eu/1 eu/1 eu/1")
	r.counts("1 DELIVERED")
	for _, q := range got[1:] {
		if q.id != got[0].id || !bytes.Equal(q.body, got[0].body) || q.timestamp == got[0].timestamp || q.signature == got[0].signature {
			t.Errorf("%+v after %+v", q, got[0])
		}
	}
	if d := r.delivery(got[0].id); d.Attempts != 3 || d.Status != 200 || d.Problem != "" {
		t.Errorf("%+v", d)
	}
}

// delivery answers one delivery from the API.
func (r *rig) delivery(id string) *Delivery {
	r.t.Helper()
	var list struct{ Deliveries []Delivery }
	r.call("GET", "/v1/webhook/deliveries", nil, &list)
	for i := range list.Deliveries {
		if list.Deliveries[i].ID == id {
			return &list.Deliveries[i]
		}
	}
	r.t.Fatalf("no delivery %s in %+v", id, list)
	return nil
}

func TestBothSecretsSignDuringRotation(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	r.document = strings.Replace(r.document, "[secret]", "[secret, fresh]", 1)
	must(t, writeSecret(r.dir+"/fresh", 'b'))
	r.recv.secrets = []Secret{secretOf(t, 'b')}
	r.run()
	r.names("eu")
	got := r.recv.expect("eu/1")
	if len(strings.Fields(got[0].signature)) != 2 {
		t.Errorf("signature %q", got[0].signature)
	}
}

func TestAnUnbrokenlyFailingDeliveryUsesUpTheScheduleAndWaitsForAnOperator(t *testing.T) {
	t.Parallel()
	r := newRig(t, "schedule: [0s, 5s, 1m]\n")
	r.recv.says(status(500))
	r.run()
	r.names("eu")
	for i, wait := range []time.Duration{0, 5 * time.Second, time.Minute} {
		r.clock.Advance(wait)
		eventually(t, func() string {
			if n := r.metric("tidemark_webhook_attempts_total", "failed"); n != float64(i+1) {
				return fmt.Sprintf("%v attempts", n)
			}
			return ""
		})
		r.counts(map[bool]string{true: "1 FAILED", false: "1 ATTEMPTED"}[i == 2])
	}
	if st := r.status(); len(st.Alerts) != 1 || !strings.Contains(st.Alerts[0], "redeliver --failed") || !strings.Contains(r.logs.String(), "the schedule is used up") {
		t.Errorf("%v\n%s", st.Alerts, r.logs)
	}
	r.clock.Advance(240 * time.Hour)
	r.recv.says(nil)
	r.recv.expect("eu/1 eu/1 eu/1")
	var answer struct{ Items []Item }
	if code := r.call("POST", "/v1/webhook/redeliver", Order{Choice: Choice{Failed: true}, DryRun: true}, &answer); code != 200 || len(answer.Items) != 1 || answer.Items[0].Result != "would-queue" {
		t.Fatalf("%d %+v", code, answer)
	}
	if code := r.call("POST", "/v1/webhook/redeliver", Order{Choice: Choice{Failed: true}, By: "ann"}, nil); code != 400 {
		t.Fatalf("without a reason: %d", code)
	}
	if code := r.call("POST", "/v1/webhook/redeliver", Order{Choice: Choice{Failed: true, IDs: []string{"none"}}, By: "ann", Reason: "receiver mended"}, &answer); code != 200 || len(answer.Items) != 2 || answer.Items[0].Result != "missing" || answer.Items[1].Result != "queued" {
		t.Fatalf("%d %+v", code, answer)
	}
	got := r.recv.expect("eu/1 eu/1 eu/1 eu/1")
	r.counts("1 DELIVERED")
	if !bytes.Equal(got[3].body, got[0].body) || got[3].id != got[0].id || r.delivery(got[0].id).Resent != 1 {
		t.Errorf("%+v", got[3])
	}
	if !strings.Contains(r.audits.String(), `webhook-redeliver "receiver mended"`) || !strings.Contains(r.audits.String(), "by:ann") {
		t.Errorf("audits %s", r.audits)
	}
}

func TestRedirectsAreFailuresAndNotFollowed(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	r := newRig(t, "")
	r.recv.says(func(w http.ResponseWriter, _ request) {
		w.Header().Set("Location", elsewhere.URL)
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	r.run()
	r.names("eu")
	r.counts("1 ATTEMPTED")
	if d := r.delivery(r.recv.requests()[0].id); d.Status != 307 || d.Failures != 1 || !strings.Contains(d.Problem, "not followed") {
		t.Errorf("%+v", d)
	}
}

func TestGoneDisablesTheEndpointUntilAnOperatorEnablesIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, "concurrency: 1\n")
	r.recv.says(status(410))
	r.run()
	r.names("eu", "us")
	eventually(t, func() string {
		if st := r.status(); st.Enabled || !strings.Contains(st.DisabledWhy, "410") || len(st.Alerts) != 1 || st.Deliveries[StateQueued] != 1 {
			return fmt.Sprintf("%+v", st)
		}
		return ""
	})
	r.clock.Advance(100 * time.Hour)
	r.stop()
	r.recv.says(nil)
	r.run() // a new process keeps to it
	r.names("ap")
	r.counts("2 QUEUED 1 ATTEMPTED")
	if r.metric("tidemark_webhook_enabled", "") != 0 || r.recv.words() != "eu/1" {
		t.Fatalf("the receiver got %s", r.recv.words())
	}
	var st Status
	if code := r.call("POST", "/v1/webhook/enable", Order{By: "ann", Reason: "moved back"}, &st); code != 200 || !st.Enabled {
		t.Fatalf("%d %+v", code, st)
	}
	r.recv.expect("eu/1 eu/1 us/1 ap/1")
	r.counts("3 DELIVERED")
}

func TestThrottlingAnswersGiveTheEndpointQuiet(t *testing.T) {
	for _, c := range []struct {
		code     int
		header   string
		quiet    time.Duration
		failures int
	}{
		{429, "120", 2 * time.Minute, 0},
		{429, "", 5 * time.Second, 0},
		{429, "0", time.Second, 0},
		{502, "604800", 24 * time.Hour, 1},
		{504, start.Add(90 * time.Second).Format(http.TimeFormat), 90 * time.Second, 1},
		{503, "120", 0, 1}, // a failure like others
	} {
		t.Run(fmt.Sprintf("%d %q", c.code, c.header), func(t *testing.T) {
			r := newRig(t, "concurrency: 1\n")
			r.recv.says(func(w http.ResponseWriter, _ request) {
				w.Header().Set("Retry-After", c.header)
				w.WriteHeader(c.code)
			})
			r.run()
			r.names("eu", "us")
			if c.quiet == 0 {
				r.recv.expect("eu/1 us/1")
				return
			}
			st := r.counts("1 QUEUED 1 ATTEMPTED")
			if got := st.PausedUntil.Sub(start); got != c.quiet {
				t.Errorf("quiet for %s, want %s", got, c.quiet)
			}
			if d := r.delivery(r.recv.requests()[0].id); d.Failures != c.failures || d.Attempts != 1 {
				t.Errorf("%+v", d)
			}
			r.recv.says(nil)
			r.clock.Advance(c.quiet - time.Millisecond)
			if r.counts("1 QUEUED 1 ATTEMPTED"); r.recv.words() != "eu/1" {
				t.Fatalf("the receiver got %s", r.recv.words())
			}
			r.clock.Advance(6 * time.Second)
			r.counts("2 DELIVERED")
		})
	}
}

func TestAnAddressInsideDisablesTheEndpoint(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	r.document = strings.Replace(r.document, "allow: [127.0.0.0/8]\n", "", 1)
	r.run()
	r.names("eu")
	eventually(t, func() string {
		if st := r.status(); st.Enabled || !strings.Contains(st.DisabledWhy, "127.0.0.1") || !strings.Contains(st.DisabledWhy, "allow") {
			return fmt.Sprintf("%+v", st)
		}
		return ""
	})
	if len(r.recv.requests()) != 0 {
		t.Errorf("the receiver got %s", r.recv.words())
	}
}

func TestUpsertModeSendsTheNewestRevisionOfAProjectionThatWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t, "schedule: [0s, 1m]\n")
	r.recv.says(status(500))
	r.run()
	r.names("eu")
	r.counts("1 ATTEMPTED")
	r.names("eu", "us")
	r.names("eu")
	r.counts("1 QUEUED 1 ATTEMPTED 2 COALESCED")
	if d := r.delivery("crm_" + projectionOf(1, "eu") + "_3"); d.Failures != 1 || !d.Due.Equal(start.Add(time.Minute)) {
		t.Errorf("news do not end the receiver's troubles: %+v", d)
	}
	r.recv.says(nil)
	r.clock.Advance(time.Minute)
	r.counts("2 DELIVERED 2 COALESCED")
	words := strings.Fields(r.recv.words())
	if slices.Sort(words[2:]); strings.Join(words, " ") != "eu/1 us/1 eu/3 us/1" {
		t.Errorf("the receiver got %v", words)
	}
}

func TestDeltaModeSendsEveryRevisionAndWaitsBehindOneThatFailed(t *testing.T) {
	t.Parallel()
	r := newRig(t, "mode: delta\nschedule: [0s, 1m]\n")
	r.recv.says(func(w http.ResponseWriter, q request) {
		if strings.HasPrefix(q.word, "eu/") {
			w.WriteHeader(500)
		}
	})
	r.run()
	r.names("eu", "us")
	r.names("eu", "us")
	r.counts("1 QUEUED 1 ATTEMPTED 2 DELIVERED")
	r.clock.Advance(time.Minute)
	r.counts("1 QUEUED 1 FAILED 2 DELIVERED")
	r.names("eu", "us")
	r.counts("2 QUEUED 1 FAILED 3 DELIVERED")
	var answer struct{ Items []Item }
	first := "crm_" + projectionOf(1, "eu") + "_1"
	if code := r.call("POST", "/v1/webhook/skip", Order{Choice: Choice{IDs: []string{first, "crm_" + projectionOf(1, "us") + "_1"}}, By: "ann", Reason: "booked by hand"}, &answer); code != 200 || answer.Items[0].Result != "skipped" || answer.Items[1].Result != "refused" {
		t.Fatalf("%d %+v", code, answer)
	}
	r.counts("1 QUEUED 1 ATTEMPTED 3 DELIVERED 1 SKIPPED")
	r.recv.says(nil)
	r.clock.Advance(time.Minute)
	r.counts("5 DELIVERED 1 SKIPPED")
	var eu []string
	for _, q := range r.recv.requests() {
		if strings.HasPrefix(q.word, "eu/") {
			eu = append(eu, q.word)
		}
		if !bytes.Contains(q.body, []byte(`"delta":{"orders":1}`)) {
			t.Errorf("no delta in %s", q.body)
		}
	}
	if got := strings.Join(eu, " "); got != "eu/1 eu/1 eu/2 eu/2 eu/3" {
		t.Errorf("eu: %s", got)
	}
}

func TestSessionsThatReplaceOneAnotherArriveInTheOrderOfTheFeed(t *testing.T) {
	t.Parallel()
	r := newRig(t, "concurrency: 16\nschedule: [0s, 1m, 1m]\n")
	r.run()
	r.names("a", "b")
	r.counts("2 DELIVERED")
	r.recv.says(func(w http.ResponseWriter, q request) {
		if q.word == "b/2-" {
			w.WriteHeader(500)
		}
	})
	gone := func(r *revision.Revision) { r.Op, r.SupersededBy = revision.Retract, projectionOf(1, "ab") }
	a, b := r.revision("a", gone), r.revision("b", gone)
	r.accept(a, b, r.revision("ab", func(next *revision.Revision) {
		next.Supersedes = []revision.Supersession{{ProjectionID: projectionOf(1, "a"), Revision: 2}, {ProjectionID: projectionOf(1, "b"), Revision: 2}}
	}), r.revision("c"))
	r.names("ab") // a plain revision, which must not overtake the one that supersedes
	r.counts("2 QUEUED 1 ATTEMPTED 4 DELIVERED")
	r.recv.says(nil)
	r.clock.Advance(time.Minute)
	r.counts("7 DELIVERED")
	words := r.recv.words()
	for _, pair := range [][2]string{{"a/2-", "b/2-"}, {"b/2- ", "ab/1"}, {"c/1", "ab/1"}, {"ab/1", "ab/2"}} {
		if at, then := strings.Index(words, pair[0]), strings.Index(words, pair[1]); at < 0 || then < at {
			t.Errorf("%s comes not before %s in %q", pair[0], pair[1], words)
		}
	}
}

func TestAnotherGenerationIsToldOfBeforeItsFirstRevision(t *testing.T) {
	t.Parallel()
	r := newRig(t, "schedule: [0s, 1m, 1m]\n")
	r.run()
	r.names("eu", "us")
	r.counts("2 DELIVERED")
	r.recv.says(status(500))
	r.names("eu")
	r.counts("1 ATTEMPTED 2 DELIVERED")
	r.begin(2, 2)
	r.names("eu", "us")
	r.counts("2 QUEUED 1 ATTEMPTED 2 DELIVERED 1 DROPPED")
	r.recv.says(nil)
	r.clock.Advance(time.Minute)
	r.counts("5 DELIVERED 1 DROPPED")
	got := r.recv.requests()
	if words := r.recv.words(); !strings.HasPrefix(words, "eu/1 us/1 eu/2 hourly@2 hourly@2 ") && !strings.HasPrefix(words, "us/1 eu/1 eu/2 hourly@2 hourly@2 ") {
		t.Errorf("the receiver got %q", words)
	}
	if s := got[4]; !strings.HasPrefix(s.id, "crm_switch_1_2_") || !strings.Contains(string(s.body), `"from":"hourly@1","job":"hourly","policyGeneration":"hourly@2"`) {
		t.Errorf("%+v %s", s, s.body)
	}
	if st := r.status(); st.Generation != 2 {
		t.Errorf("%+v", st)
	}
}

func TestAProcessGoesOnWhereTheLastOneWas(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	r.recv.says(func(w http.ResponseWriter, q request) {
		if q.word == "us/1" {
			w.WriteHeader(500)
		}
	})
	r.run()
	r.names("eu", "us")
	r.counts("1 ATTEMPTED 1 DELIVERED")
	r.stop()
	r.names("eu")
	r.recv.says(nil)
	r.clock.Advance(5 * time.Second)
	r.run()
	r.counts("3 DELIVERED")
	for word, times := range map[string]int{"eu/1": 1, "us/1": 2, "eu/2": 1} {
		if n := strings.Count(r.recv.words(), word); n != times {
			t.Errorf("%s came %d times, want %d", word, n, times)
		}
	}
	r.stop()
	r.document = strings.Replace(r.document, "endpoint: crm", "endpoint: erp", 1)
	e, err := Parse([]byte(strings.Replace(r.document, "[secret]", "["+r.dir+"/secret]", 1)))
	must(t, err)
	if _, err := New(Config{Endpoint: e, Conn: r.conn.NC, Dir: r.dir, Clock: r.clock}); err == nil || !strings.Contains(err.Error(), "belongs to endpoint crm") {
		t.Errorf("another endpoint in the same directory: %v", err)
	}
}

func TestOldDeliveriesAreForgottenAndTheirProjectionIsNot(t *testing.T) {
	t.Parallel()
	r := newRig(t, "keep: 1h\n").run()
	r.names("eu", "us")
	r.counts("2 DELIVERED")
	r.clock.Advance(2 * time.Hour)
	r.counts("")
	r.names("eu")
	r.counts("1 DELIVERED")
	if r.recv.requests()[2].word != "eu/2" {
		t.Errorf("the receiver got %s", r.recv.words())
	}
}

func TestAFullQueueHoldsTheFeedBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, "mode: delta\nqueueLimit: 2\nschedule: [0s, 1m]\n")
	r.recv.says(status(500))
	r.run()
	for range 6 {
		r.names("eu")
	}
	r.counts("1 QUEUED 1 ATTEMPTED")
	eventually(t, func() string {
		if !strings.Contains(r.logs.String(), "the queue is full") {
			return "no word of a full queue"
		}
		return ""
	})
	r.recv.says(nil)
	r.clock.Advance(time.Minute)
	r.counts("6 DELIVERED")
	r.recv.expect("eu/1 eu/1 eu/2 eu/3 eu/4 eu/5 eu/6")
}

func TestQuestionsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, "").run()
	for path, want := range map[string]int{
		"/v1/webhook/deliveries?state=failed": 200, "/v1/webhook/deliveries?state=LOST": 400, "/v1/webhook/deliveries?limit=0": 400, "/v1/webhook/deliveries?limit=x": 400, "/v1/webhook": 200,
	} {
		if code := r.call("GET", path, nil, nil); code != want {
			t.Errorf("%s: %d", path, code)
		}
	}
	if code := r.call("POST", "/v1/webhook/redeliver", map[string]any{"everything": true}, nil); code != 400 {
		t.Errorf("an unknown member: %d", code)
	}
	if code := r.call("POST", "/receipts", nil, nil); code != 404 {
		t.Errorf("receipts that nobody asked for: %d", code)
	}
}

// What flies when readers move on lands first; if it failed, it is not tried again.
func TestAnAttemptUnderWayEndsBeforeAnotherGenerationIsToldOf(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	release := make(chan struct{})
	r.recv.says(func(w http.ResponseWriter, q request) {
		if q.word == "eu/1" {
			<-release
			w.WriteHeader(500)
		}
	})
	r.run()
	r.names("eu")
	r.recv.expect("eu/1")
	r.begin(2, 2)
	r.names("us")
	st := r.counts("3 QUEUED")
	if r.recv.words() != "eu/1" || st.Generation != 2 {
		t.Fatalf("the receiver got %q", r.recv.words())
	}
	close(release)
	r.counts("2 DELIVERED 1 DROPPED")
	r.clock.Advance(time.Hour)
	r.recv.expect("eu/1 hourly@2 us/1")
}

// Readers come back to a generation: what was delivered of it is not sent again, what was
// dropped is.
func TestAGenerationThatReadersComeBackToGoesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, "mode: delta\n").run()
	r.names("eu")
	r.counts("1 DELIVERED")
	r.recv.says(status(500))
	r.names("eu")
	r.counts("1 ATTEMPTED 1 DELIVERED")
	r.begin(2, 2)
	r.names("us")
	r.counts("1 QUEUED 1 ATTEMPTED 1 DELIVERED 1 DROPPED")
	r.recv.says(nil)
	r.clock.Advance(5 * time.Second)
	r.counts("3 DELIVERED 1 DROPPED")
	r.begin(1, 3)
	r.counts("5 DELIVERED 1 DROPPED")
	got := r.recv.expect("eu/1 eu/2 hourly@2 hourly@2 us/1 hourly@1 eu/2")
	if got[1].id != got[6].id {
		t.Errorf("%s came again as %s", got[1].id, got[6].id)
	}
	var answer struct{ Items []Item }
	if code := r.call("POST", "/v1/webhook/redeliver", Order{Choice: Choice{IDs: []string{got[6].id}}, By: "ann", Reason: "x"}, &answer); code != 200 || answer.Items[0].Result != "queued" {
		t.Errorf("%d %+v", code, answer)
	}
}

package effector

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/effectops"
	"github.com/tidemark-mesh/tidemark/internal/providersim"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// large holds what sold more than 1,000 for an approval.
const large = "airlock: {amountAbove: {field: amount, limit: 1000}, windowOlderThan: 87600h}\n"

// post sends an order about the world's stream and answers status and body.
func (p *process) post(w *world, path, body string) (int, string) {
	w.t.Helper()
	res, err := http.Post(p.http.URL+"/v1/streams/"+w.name+path, "application/json", strings.NewReader(body))
	must(w.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must(w.t, err)
	return res.StatusCode, string(text)
}

// ordered fails unless an order is answered with a status and texts.
func (p *process) ordered(w *world, path, body string, status int, texts ...string) string {
	w.t.Helper()
	code, answer := p.post(w, path, body)
	if code != status {
		w.t.Errorf("%s %s: %d %s, want %d", path, body, code, answer, status)
	}
	for _, text := range texts {
		if !strings.Contains(answer, text) {
			w.t.Errorf("%s %s: no %s in %s", path, body, text, answer)
		}
	}
	return answer
}

// audited answers the last audit record of a verb.
func (w *world) audited(verb string) string {
	w.t.Helper()
	stream, err := w.conn.JS.Stream(testContext(w.t), subject.AuditStream)
	must(w.t, err)
	message, err := stream.GetLastMsgForSubject(testContext(w.t), subject.Audit(w.name, verb))
	must(w.t, err)
	return string(message.Data)
}

// sent waits until an approved effect ran, once. On a slow machine an attempt may end before
// its first byte, which uses the approval up: then it is given again.
func (p *process) sent(w *world, key effect.EffectKey) *effect.Record {
	w.t.Helper()
	var r *effect.Record
	eventually(w.t, func() string {
		r = w.now(key)
		if r.State == effect.Held && r.LastAttempt > 0 {
			p.post(w, "/effects/"+key.String()+"/approve", fmt.Sprintf(`{%s,"payloadDigest":%q}`, person, r.Request.PayloadDigest))
		}
		if r.State != effect.Acked {
			return fmt.Sprintf("%s is %s after %s", key, r.State, r.Step.Name)
		}
		return ""
	})
	w.executed(key, 1)
	return r
}

func TestAnApprovalOverHTTPIsOfThePayloadThatWasShown(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable, policy: large})
	// Neither of two processes need own the partition to take an order.
	first, second := w.process(t.TempDir()), w.member(t.TempDir(), "other")
	w.sold("eu-west", 0, 2000)
	key := w.keyOf("eu-west", 0)
	digest := w.await(key, effect.Held).Request.PayloadDigest
	eventually(t, func() string {
		if second.stream(w.name) == nil {
			return "the second process has no documents yet"
		}
		return ""
	})
	result, path := published(t, "effectResult.v1"), "/effects/"+key.String()
	shown := fmt.Sprintf(`"payloadDigest":%q`, digest)
	for _, p := range []*process{first, second} {
		p.ordered(w, path+"/approve", `{`+person+`,"payloadDigest":"`+someDigest+`"}`, http.StatusConflict, `"other-digest"`, "hint")
		p.ordered(w, path+"/approve", `{"who":"ana",`+shown+`}`, http.StatusBadRequest, `"bad-request"`, "who and reason", "effectOrder.v1")
		p.ordered(w, path+"/void", `{`+person+`}`, http.StatusUnprocessableEntity, `"refused"`, `"refusal":"rule-still-holds"`, `"result":"refused"`)
		p.ordered(w, path+"/hold", `{`+person+`}`, http.StatusUnprocessableEntity, `"refusal":"held"`)
		p.ordered(w, "/effects/"+someDigest+"/hold", `{`+person+`}`, http.StatusNotFound, `"not-found"`, "/effects lists them")
		p.ordered(w, "/effects/5536/hold", `{`+person+`}`, http.StatusBadRequest, `"bad-request"`)
		conforms(t, result, p.ordered(w, path+"/approve", `{"dryRun":true,`+shown+`}`, http.StatusOK, "would-approve"))
	}
	second.ordered(w, path+"/hold", `{"who":"`+strings.Repeat("a", orderBytes)+`"}`, http.StatusRequestEntityTooLarge, `"too-large"`)
	if w.now(key).State != effect.Held {
		t.Fatalf("%s before it was approved", w.now(key).State)
	}
	owner, other := first, second
	if second.units()[0].opened() != nil {
		owner, other = second, first
	}
	answer := other.ordered(w, path+"/approve", `{`+person+`,`+shown+`}`, http.StatusOK, `"result":"done"`, `"state":"PREPARED"`)
	conforms(t, result, answer)
	if a := first.sent(w, key).Approval; a == nil || a.By != "ana" {
		t.Errorf("approval %+v", a)
	}
	owner.ordered(w, path+"/approve", `{`+person+`,`+shown+`}`, http.StatusUnprocessableEntity, `"refusal":"applied"`)
	record := w.audited("effects-approve")
	for _, text := range []string{`"by":"ana"`, `"reason":"a test"`, key.String(), `"refused":1`} {
		if !strings.Contains(record, text) {
			t.Errorf("no %s in the audit record %s", text, record)
		}
	}
	res, err := http.Post(first.http.URL+"/v1/streams/none/effects/hold", "application/json", strings.NewReader(`{`+person+`}`))
	must(t, err)
	res.Body.Close()
	if res.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown stream: %d", res.StatusCode)
	}
}

func TestAnOrderByFilterIsCountedBeforeItIsCarriedOut(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable, policy: large})
	p := w.process(t.TempDir())
	const held = 5
	for n := range held {
		w.sold("eu-west", n, 2000)
	}
	w.sold("eu-west", held, 200)
	for n := range held {
		w.await(w.keyOf("eu-west", n), effect.Held)
	}
	w.await(w.keyOf("eu-west", held), effect.Acked)
	job := published(t, "effectJob.v1")
	counted := p.ordered(w, "/effects/approve", `{"dryRun":true,"filter":{"airlock":"amountAbove"}}`, http.StatusOK, `"count":5`, `"would-approve":5`)
	conforms(t, job, counted)
	p.ordered(w, "/effects/approve", `{`+person+`,"filter":{"airlock":"amountAbove"}}`, http.StatusBadRequest, "dryRun")
	p.ordered(w, "/effects/approve", `{`+person+`,"filter":{"airlock":"amountAbove"},"count":4}`, http.StatusConflict, `"other-count"`, "takes 5 effects now")
	p.ordered(w, "/effects/approve", `{`+person+`,"effectKeys":["`+w.keyOf("eu-west", 0).String()+`","`+someDigest+`"]}`, http.StatusNotFound, "nothing was done")
	for n := range held {
		if s := w.now(w.keyOf("eu-west", n)).State; s != effect.Held {
			t.Fatalf("%s before it was approved", s)
		}
	}
	done := p.ordered(w, "/effects/approve", `{`+person+`,"filter":{"airlock":"amountAbove"},"count":5}`, http.StatusOK, `"done":5`)
	conforms(t, job, done)
	var got jobDone
	must(t, json.Unmarshal([]byte(done), &got))
	if got.Job == "" || len(got.Results) != held || got.Results[0].Job != got.Job || got.Results[0].Sequence == 0 {
		t.Errorf("%+v", got)
	}
	for n := range held {
		p.sent(w, w.keyOf("eu-west", n))
	}
	// What is refused is told of each.
	keys := []string{w.keyOf("eu-west", 0).String(), w.keyOf("eu-west", 1).String()}
	p.ordered(w, "/effects/waive", `{`+person+`,"effectKeys":["`+strings.Join(keys, `","`)+`"]}`, http.StatusOK, `"counts":{"refused":2}`, `"refusal":"applied"`)
	p.ordered(w, "/effects/waive", `{`+person+`,"filter":{"all":true},"count":0}`, http.StatusOK, `"count":0`, `"results":[]`)
	p.ordered(w, "/effector/recover", `{`+person+`}`, http.StatusOK, `"done":1`)
	p.ordered(w, "/effector/recover", `{`+person+`,"partitions":[1]}`, http.StatusBadRequest, "no key partition 1")
}

func TestGatesOverHTTP(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable})
	p := w.process(t.TempDir())
	w.sold("eu-west", 0, 200)
	w.await(w.keyOf("eu-west", 0), effect.Acked)
	gates := func() string {
		t.Helper()
		code, body := p.get(t, "/v1/streams/"+w.name+"/gates")
		var all struct{ Gates []json.RawMessage }
		if err := json.Unmarshal([]byte(body), &all); err != nil || code != http.StatusOK {
			t.Fatalf("%d %s", code, body)
		}
		for _, one := range all.Gates {
			conforms(t, published(t, "gateScope.v1"), string(one))
		}
		return fmt.Sprintf("%s", all.Gates)
	}
	conforms(t, published(t, "gateMoved.v1"), p.ordered(w, "/gates/pause", `{"dryRun":true}`, http.StatusOK, `"scope":"global"`))
	if body := gates(); body != "[]" {
		t.Errorf("a dry run moved %s", body)
	}
	p.ordered(w, "/gates/pause", `{"scope":"global"}`, http.StatusBadRequest, "who and reason")
	conforms(t, published(t, "gatePaused.v1"), p.ordered(w, "/gates/pause", `{"scope":"type:issue-reward",`+person+`}`, http.StatusOK, `"inFlight":[]`))
	if body := gates(); !strings.Contains(body, `"closed":[0]`) || !strings.Contains(body, `"who":"ana"`) {
		t.Errorf("after a pause: %s", body)
	}
	w.sold("eu-west", 1, 200)
	key := w.keyOf("eu-west", 1)
	w.await(key, effect.Prepared)
	w.executed(key, 0)
	conforms(t, published(t, "gateMoved.v1"), p.ordered(w, "/gates/resume", `{"scope":"type:issue-reward",`+person+`}`, http.StatusOK, `"placed":[{"partition":0`))
	w.await(key, effect.Acked)
	w.executed(key, 1)
	if record := w.audited("gate-resume"); !strings.Contains(record, `"by":"ana"`) || !strings.Contains(record, "issue-reward") {
		t.Errorf("audited is %s", record)
	}
}

func TestWhatAPersonFoundOutIsRecordedOverHTTP(t *testing.T) {
	w := newWorld(t, terms{adapter: "sendUnproven: true\n"})
	mode, err := providersim.ParseMode("lose-answer")
	must(t, err)
	must(t, w.sim.Set(providersim.Rule{Mode: mode}))
	p := w.process(t.TempDir())
	w.sold("eu-west", 0, 200)
	key := w.keyOf("eu-west", 0)
	w.await(key, effect.Manual)
	path := "/effects/" + key.String()
	p.ordered(w, path+"/resolve", `{`+person+`,"outcome":"applied"}`, http.StatusBadRequest, "evidence")
	p.ordered(w, path+"/reconcile", `{`+person+`}`, http.StatusUnprocessableEntity, `"refusal":"not-queryable"`)
	p.ordered(w, path+"/resolve", `{`+person+`,"outcome":"applied","evidence":"`+someDigest+`","ref":"881"}`, http.StatusOK, `"state":"RECONCILED"`)
	if e := w.now(key).Step.Evidence; e == nil || e.Ref != "881" || e.Digest.String() != someDigest {
		t.Errorf("evidence %+v", e)
	}
	w.sold("eu-west", 0, 50) // a correction contradicts what ran
	w.await(key, effect.CompensationRequired)
	p.ordered(w, path+"/waive", `{`+person+`}`, http.StatusOK, `"state":"WAIVED"`)
	w.executed(key, 1)
}

func TestAnOrderWithoutAnOwnerWaitsInTheJournal(t *testing.T) {
	w := newWorld(t, terms{adapter: idempotent + queryable, policy: large})
	dir := t.TempDir()
	p := w.process(dir)
	w.sold("eu-west", 0, 2000)
	key := w.keyOf("eu-west", 0)
	digest := w.await(key, effect.Held).Request.PayloadDigest
	p.stop() // its HTTP API is still there, as while a process ends
	answer := p.ordered(w, "/effects/"+key.String()+"/approve", fmt.Sprintf(`{%s,"payloadDigest":%q,"wait":"50ms"}`, person, digest), http.StatusAccepted, effectops.ResultWaiting)
	conforms(t, published(t, "effectResult.v1"), answer)
	w.executed(key, 0)
	w.process(dir).sent(w, key)
}

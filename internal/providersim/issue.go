package providersim

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxBody bounds a request.
const maxBody = 1 << 20

// request is one call of the issue endpoint.
type request struct {
	effectKey, idempotencyKey, digest string
	amount, subject                   json.RawMessage
	headers                           map[string]string
}

// read takes a request apart.
func (s *Sim) read(r *http.Request) (*request, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, errors.New("the body could not be read to its end")
	}
	if len(body) > maxBody {
		return nil, errors.New("the body is too large")
	}
	var members object
	if json.Unmarshal(body, &members) != nil {
		return nil, errors.New("the body is no JSON object")
	}
	s.mu.Lock()
	settings := s.settings
	s.mu.Unlock()
	digest := sha256.Sum256(body)
	q := &request{
		digest: hex.EncodeToString(digest[:]),
		amount: get(members, settings.Fields.Amount), subject: get(members, settings.Fields.Subject),
		headers: attemptHeaders(r.Header),
	}
	if json.Unmarshal(members["effectKey"], &q.effectKey) != nil || q.effectKey == "" {
		return nil, errors.New("the body has no member effectKey")
	}
	if !settings.Idempotency.Off {
		q.idempotencyKey = r.Header.Get(settings.Idempotency.Header)
	}
	return q, nil
}

// attemptHeaders answers the headers that tell who sent an attempt, and no credentials.
func attemptHeaders(from http.Header) map[string]string {
	headers := map[string]string{}
	for name := range from {
		if name == "Traceparent" || name == "User-Agent" || strings.HasPrefix(name, "Tidemark-") {
			headers[name] = from.Get(name)
		}
	}
	return headers
}

// issue is POST /v1/issue.
func (s *Sim) issue(w http.ResponseWriter, r *http.Request) {
	q, err := s.read(r)
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	var mode Mode
	s.change(func() { mode = s.issues.next(q.effectKey) })
	if !mode.executes() {
		s.refuse(w, r, q, mode)
		return
	}
	record, verdict := s.take(q, mode)
	switch verdict {
	case sameInFlight:
		fail(w, http.StatusConflict, "in_flight", "a request with this key is being carried out")
		return
	case otherBody:
		fail(w, http.StatusUnprocessableEntity, "idempotency_mismatch", "this key was used with another body")
		return
	case knownKey:
		w.Header().Set("Idempotent-Replayed", "true")
		s.respond(w, r, mode, record)
		return
	}
	if mode.Name != hold && mode.Name != pending {
		if s.execute(record) != nil {
			fail(w, http.StatusInternalServerError, "log", "the simulator's log cannot be written")
			return
		}
		s.respond(w, r, mode, record)
		return
	}
	s.keep(w, r, mode, record)
}

// verdict is what idempotency makes of a request.
type verdict int

const (
	fresh verdict = iota
	sameInFlight
	otherBody
	knownKey
)

// take decides whether a request is a new action, and takes its key if so. Else the record
// is what the answer repeats.
func (s *Sim) take(q *request, mode Mode) (*Record, verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if q.idempotencyKey == "" {
		return s.begin(q, mode, now), fresh
	}
	k := s.keys[q.idempotencyKey]
	if k == nil || s.forgotten(k, now) {
		s.keys[q.idempotencyKey] = &known{digest: q.digest, firstSeen: now, lastSeen: now}
		return s.begin(q, mode, now), fresh
	}
	k.lastSeen = now
	rule := s.settings.Idempotency.OnBodyMismatch
	switch {
	case k.digest != q.digest && rule == mismatchError:
		return nil, otherBody
	case k.record == nil:
		return nil, sameInFlight
	case k.digest == q.digest || rule == mismatchReplay:
		return k.record, knownKey
	case rule == mismatchIgnore:
		again := *k.record
		again.Amount, again.Subject = q.amount, q.subject
		return &again, knownKey
	}
	s.keys[q.idempotencyKey] = &known{digest: q.digest, firstSeen: now, lastSeen: now}
	return s.begin(q, mode, now), fresh
}

// forgotten tells whether the retention of a key is over; a key that is being carried out
// is never forgotten.
func (s *Sim) forgotten(k *known, now time.Time) bool {
	if k.record == nil {
		return false
	}
	if k.forgetAfter > 0 {
		return now.Sub(k.completed) >= time.Duration(k.forgetAfter)
	}
	from := k.firstSeen
	switch s.settings.Idempotency.Basis {
	case fromLast:
		from = k.lastSeen
	case fromCompletion:
		from = k.completed
	}
	return now.Sub(from) >= time.Duration(s.settings.Idempotency.Retention)
}

// begin makes the record of a new action.
func (s *Sim) begin(q *request, mode Mode, now time.Time) *Record {
	s.ids++
	return &Record{
		Kind: Execution, Time: now, ID: "sim-" + strconv.FormatUint(s.ids, 10), EffectKey: q.effectKey, IdempotencyKey: q.idempotencyKey,
		BodyDigest: q.digest, Amount: q.amount, Subject: q.subject, Headers: q.headers, Mode: mode, ForgetAfter: mode.forgetAfter(),
	}
}

// execute carries an action out: it has happened once its line is on disk.
func (s *Sim) execute(r *Record) error {
	r.Kind, r.Time, r.Due = Execution, s.now(), time.Time{}
	if hidden := r.Mode.hiddenFor(); hidden > 0 {
		r.VisibleFrom = r.Time.Add(hidden)
	}
	if err := s.log.append(r); err != nil {
		s.change(func() { s.broken = err })
		return err
	}
	s.change(func() {
		s.remember(r)
		s.owe(r)
	})
	return nil
}

// keep takes a request now and carries it out later, whether or not its caller waits.
func (s *Sim) keep(w http.ResponseWriter, r *http.Request, mode Mode, record *Record) {
	held := *record
	held.Kind, held.Due = Held, held.Time.Add(mode.For)
	if err := s.log.append(&held); err != nil {
		s.change(func() { s.broken = err })
		fail(w, http.StatusInternalServerError, "log", "the simulator's log cannot be written")
		return
	}
	s.change(func() { s.held[held.ID] = &held })
	done := make(chan *Record, 1)
	s.running.Go(func() { done <- s.carryOut(&held) })
	if mode.Name == pending {
		s.answer(w, http.StatusAccepted, record, "processing")
		return
	}
	patient(w)
	select {
	case executed := <-done:
		if executed == nil {
			cut()
		}
		s.respond(w, r, Accept, executed)
	case <-r.Context().Done():
		cut()
	}
}

// carryOut waits until a held request is due and executes it; nil where the simulator
// ended before.
func (s *Sim) carryOut(held *Record) *Record {
	if !s.pause(s.ctx, held.Due.Sub(s.now())) {
		return nil
	}
	record := *held
	if s.execute(&record) != nil {
		return nil
	}
	return &record
}

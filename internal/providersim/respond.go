package providersim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// respond answers a request whose action was carried out, in the way of the mode.
func (s *Sim) respond(w http.ResponseWriter, r *http.Request, mode Mode, record *Record) {
	switch mode.Name {
	case loseAnswer, hide, forget:
		cut()
	case execute:
		s.status(w, r, mode.Status, record)
	case redirect:
		s.status(w, r, http.StatusTemporaryRedirect, record)
	case halfBody:
		s.half(w, record)
	case garbage:
		fmt.Fprintln(w, "thank you")
	case delay:
		patient(w)
		if !s.pause(r.Context(), mode.For) {
			cut()
		}
		s.answer(w, http.StatusOK, record, "executed")
	default:
		s.answer(w, http.StatusOK, record, "executed")
	}
}

// refuse answers a request whose action is not carried out.
func (s *Sim) refuse(w http.ResponseWriter, r *http.Request, q *request, mode Mode) {
	switch mode.Name {
	case drop:
		cut()
	case doNothing:
		s.mu.Lock()
		lie := s.begin(q, mode, s.now())
		s.mu.Unlock()
		s.answer(w, http.StatusOK, lie, "executed")
	case answer:
		s.status(w, r, mode.Status, nil)
	case inFlight:
		fail(w, http.StatusConflict, "in_flight", "a request with this key is being carried out")
	case throttle:
		if mode.For > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(max(1, int(mode.For/time.Second))))
		}
		fail(w, http.StatusTooManyRequests, "throttled", "too many requests; come again later")
	case reject:
		fail(w, http.StatusUnprocessableEntity, "account_closed", "the account is closed")
	}
}

// status answers with a status that a mode names; a redirect leads back to the same place,
// so that who follows it sends again.
func (s *Sim) status(w http.ResponseWriter, r *http.Request, status int, record *Record) {
	switch {
	case status/100 == 2 && record != nil:
		s.answer(w, status, record, "executed")
	case status/100 == 3:
		w.Header().Set("Location", r.URL.RequestURI())
		w.WriteHeader(status)
	default:
		fail(w, status, "status_"+strconv.Itoa(status), http.StatusText(status))
	}
}

// half sends the head of a whole answer, half of its body, and closes the connection.
func (s *Sim) half(w http.ResponseWriter, record *Record) {
	body := s.body(record, "executed")
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body[:len(body)/2])
	http.NewResponseController(w).Flush() // who does not get it lost the whole answer
	cut()
}

func (s *Sim) answer(w http.ResponseWriter, status int, record *Record, state string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(s.body(record, state))
}

// body answers what the provider says of an action.
func (s *Sim) body(record *Record, state string) []byte {
	s.mu.Lock()
	fields := s.settings.Fields
	s.mu.Unlock()
	text, err := json.Marshal(fields.compose(record, state))
	if err != nil {
		panic(err) // values that were parsed before
	}
	return append(text, '\n')
}

// compose answers the members of an answer: amount and subject stand where the request
// had them.
func (f *Fields) compose(record *Record, state string) map[string]any {
	members := map[string]any{}
	put(members, f.Amount, record.Amount)
	put(members, f.Subject, record.Subject)
	members["effectKey"] = record.EffectKey
	members["id"] = record.ID
	members["status"] = state
	members["time"] = record.Time
	return members
}

// fail answers an error. The code stands where either of two usual shapes has it.
func fail(w http.ResponseWriter, status int, code, message string) {
	text, err := json.Marshal(map[string]any{"code": code, "message": message, "error": map[string]string{"code": code, "message": message}})
	if err != nil {
		panic(err) // strings alone
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(text, '\n'))
}

// cut closes the connection: what was not flushed is never sent.
func cut() { panic(http.ErrAbortHandler) }

// patient lets an answer take longer than the server allows answers to take.
func patient(w http.ResponseWriter) {
	c := http.NewResponseController(w)
	if c.SetReadDeadline(time.Time{}) != nil || c.SetWriteDeadline(time.Time{}) != nil {
		cut()
	}
}

package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// signed checks a Standard Webhooks signature. key is what follows whsec_, decoded.
func signed(key, body []byte, h http.Header) bool {
	sent, err := strconv.ParseInt(h.Get("webhook-timestamp"), 10, 64)
	if err != nil || time.Since(time.Unix(sent, 0)).Abs() > 5*time.Minute {
		return false // an old message that somebody sends again
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(h.Get("webhook-id") + "." + h.Get("webhook-timestamp") + "." + string(body)))
	want := []byte("v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	for _, one := range strings.Fields(h.Get("webhook-signature")) { // two while a secret is replaced
		if hmac.Equal([]byte(one), want) {
			return true
		}
	}
	return false
}

// receive answers 204 once the table has the revision or a newer one.
func (t *table) receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil || !signed(t.key, body, r.Header) {
		http.Error(w, "no valid signature", http.StatusUnauthorized)
		return
	}
	var m struct {
		Type string
		Data row
	}
	if err := json.Unmarshal(body, &m); err != nil {
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	if err := t.apply(m.Type, &m.Data); err != nil {
		http.Error(w, "not applied", http.StatusInternalServerError) // it comes again
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

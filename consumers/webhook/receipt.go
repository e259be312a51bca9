package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/httpx"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// ReceiptSchema names the JSON form of a receipt.
const ReceiptSchema = "webhookReceipt.v1"

// receiptBytes is what a receipt may weigh.
const receiptBytes = 16 << 10

// Reasons with which a receiver may refuse, and the one that is found here.
var refusals = []string{"stale", "schema", "policy", "other"}

const reasonDigest = "digest-mismatch"

// Receipt is a receiver's word on what became of a delivery (schema webhookReceipt.v1).
type Receipt struct {
	Schema          string    `json:"schema"`
	WebhookID       string    `json:"webhookId"`
	Result          State     `json:"result"`                    // APPLIED or REFUSED
	Reason          string    `json:"reason,omitempty"`          // of REFUSED: stale, schema, policy or other
	AppliedRevision uint64    `json:"appliedRevision,omitempty"` // of APPLIED: that the receiver holds now
	ResultDigest    string    `json:"resultDigest,omitempty"`    // of APPLIED: aggregateDigest of that revision
	AppliedAt       time.Time `json:"appliedAt,omitzero"`
}

// ParseReceipt reads a receipt strictly.
func ParseReceipt(text []byte) (*Receipt, error) {
	r := &Receipt{}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(r); err != nil {
		return nil, errors.New("a receipt is one JSON object as the schema webhookReceipt.v1 has it")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the receipt")
	}
	switch {
	case r.Schema != ReceiptSchema:
		return nil, fmt.Errorf("schema is not %s", ReceiptSchema)
	case r.WebhookID == "" || len(r.WebhookID) > 256:
		return nil, errors.New("webhookId is missing")
	case r.Result == StateRefused && !slices.Contains(refusals, r.Reason):
		return nil, fmt.Errorf("a refusal has a reason: %s", strings.Join(refusals, ", "))
	case r.Result == StateRefused:
		return r, nil
	case r.Result != StateApplied:
		return nil, errors.New("result is neither APPLIED nor REFUSED")
	case r.Reason != "":
		return nil, errors.New("what was applied has no reason")
	}
	if r.ResultDigest != "" {
		if _, err := revision.ParseDigest(r.ResultDigest); err != nil {
			return nil, errors.New("resultDigest is not 64 digits of lowercase hex")
		}
	}
	return r, nil
}

// verdict is what a receipt or a look at the receiver's state means for a delivery.
type verdict struct {
	state  State // "" = it leaves it as it is
	reason string
}

// judge compares what the receiver holds with what it was sent. A receiver that holds a
// newer revision of the projection is beyond this one.
func judge(d *Delivery, applied uint64, digest string) verdict {
	switch {
	case d.ProjectionID == "", applied > d.Revision:
		return verdict{state: StateApplied}
	case applied < d.Revision:
		return verdict{}
	case digest != d.Digest:
		return verdict{StateRefused, reasonDigest}
	}
	return verdict{state: StateApplied}
}

// receive is POST /receipts. A 2xx answer means that the receipt is on the disk.
func (s *Sender) receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, receiptBytes))
	if err != nil {
		httpx.Fail(w, http.StatusRequestEntityTooLarge, httpx.Error{Code: "too-large", Message: "a receipt has at most 16 KiB"})
		return
	}
	secrets, err := s.receipts.secrets()
	if err != nil {
		s.log.Warn().Err(err).Msg("secret files of receipts cannot be read; the last secrets stay in use")
	}
	if err := Verify(r.Header, s.clock.Now(), body, secrets...); err != nil {
		s.metrics.receipts.WithLabelValues("unsigned").Inc()
		httpx.Fail(w, http.StatusUnauthorized, httpx.Error{Code: "unauthorized", Message: err.Error(), Hint: "sign receipts by the Standard Webhooks rules with the secret of the endpoint's receipts"})
		return
	}
	receipt, err := ParseReceipt(body)
	if err != nil {
		s.metrics.receipts.WithLabelValues("malformed").Inc()
		httpx.Fail(w, http.StatusBadRequest, httpx.Error{Code: "bad-request", Message: err.Error(), Hint: "tidemark schema webhookReceipt.v1 shows the form"})
		return
	}
	var refusal *httpx.Error
	err = s.do(r.Context(), func(t *turn) (err error) {
		refusal, err = s.accept(t, receipt)
		return err
	})
	switch {
	case err != nil:
		httpx.Fail(w, http.StatusServiceUnavailable, httpx.Error{Code: "unavailable", Message: "the receipt was not kept", Hint: "send it again"})
	case refusal != nil && refusal.Code == "not-found":
		httpx.Fail(w, http.StatusNotFound, *refusal)
	case refusal != nil:
		httpx.Fail(w, http.StatusConflict, *refusal)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// accept takes a receipt in; it answers why it cannot.
func (s *Sender) accept(t *turn, r *Receipt) (*httpx.Error, error) {
	d, err := s.find(t, r.WebhookID)
	if err != nil {
		return nil, err
	}
	if d == nil {
		s.metrics.receipts.WithLabelValues("unknown").Inc()
		return &httpx.Error{Code: "not-found", Message: "no delivery with this webhookId is kept here"}, nil
	}
	v := verdict{r.Result, r.Reason}
	if r.Result == StateApplied {
		if v = judge(d, r.AppliedRevision, r.ResultDigest); v.state == "" {
			return &httpx.Error{Code: "conflict", Message: fmt.Sprintf("appliedRevision %d is below revision %d of the delivery", r.AppliedRevision, d.Revision), Hint: "send APPLIED when it is applied, or REFUSED with a reason"}, nil
		}
	}
	switch d.State {
	case StateCoalesced, StateDropped:
		return nil, nil // the receiver is right, and nothing more is expected
	}
	if d.State == StateApplied && v.state == StateRefused && v.reason != reasonDigest {
		return &httpx.Error{Code: "conflict", Message: "the delivery was reported as applied before"}, nil
	}
	return nil, s.conclude(t, d, v)
}

// conclude closes a delivery by what the receiver says.
func (s *Sender) conclude(t *turn, d *Delivery, v verdict) error {
	if d.State == v.state && d.Problem == v.reason {
		return nil
	}
	word := strings.ToLower(string(v.state))
	s.metrics.receipts.WithLabelValues(word).Inc()
	if v.state == StateRefused {
		id := d.ID
		t.after = append(t.after, func() {
			s.log.Warn().Str("webhookId", id).Str("reason", v.reason).Msg("the receiver refuses a delivery")
		})
	}
	if d.DeliveredAt.IsZero() {
		d.DeliveredAt = t.now
	}
	d.Problem = v.reason
	s.queue.move(d, v.state)
	s.queue.close(d, t.now)
	if err := t.reached(d); err != nil {
		return err
	}
	return t.put(d)
}

// find answers a delivery by its id: the one in memory if it is open.
func (s *Sender) find(t *turn, id string) (*Delivery, error) {
	d, err := t.byID(id)
	if d == nil || err != nil {
		return nil, err
	}
	if open := s.queue.open[d.Sequence]; open != nil {
		return open, nil
	}
	return d, nil
}

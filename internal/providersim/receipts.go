package providersim

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// Retries of a receipt: soon at first, then every half minute until it is taken.
const (
	receiptRetryFirst = 200 * time.Millisecond
	receiptRetryLast  = 30 * time.Second
	receiptTimeout    = 10 * time.Second
)

// outbox holds the receipts that were not taken yet.
type outbox struct {
	owed   []*owed
	client *http.Client
}

type owed struct {
	record *Record
	body   []byte
	tries  int
	due    time.Time
}

func newOutbox() outbox {
	return outbox{client: &http.Client{
		Timeout:       receiptTimeout,
		Transport:     &http.Transport{MaxIdleConnsPerHost: 2},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// owe queues the receipt of an execution; one whose reference is no effectKey has none.
// The lock is held, or nobody else is there yet.
func (s *Sim) owe(r *Record) {
	if s.settings.Receipts.URL == "" {
		return
	}
	if body, err := Receipt(r); err == nil {
		s.outbox.owed = append(s.outbox.owed, &owed{record: r, body: body, due: s.clock.Now()})
	}
}

// deliverReceipts posts what is owed, one after the other; what is refused waits without
// holding up the rest.
func (s *Sim) deliverReceipts() {
	defer s.outbox.client.CloseIdleConnections()
	for s.ctx.Err() == nil {
		s.mu.Lock()
		next, changed := s.outbox.first(), s.changed
		receipts := s.settings.Receipts
		s.mu.Unlock()
		switch {
		case next == nil:
			select {
			case <-changed:
			case <-s.ctx.Done():
			}
		case next.due.After(s.clock.Now()):
			s.napUntil(next.due, changed)
		default:
			s.deliver(receipts, next)
		}
	}
}

// napUntil waits for a time, or for something to change before.
func (s *Sim) napUntil(due time.Time, changed <-chan struct{}) {
	timer := s.clock.NewTimer(due.Sub(s.clock.Now()))
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-changed:
	case <-s.ctx.Done():
	}
}

// first answers the receipt that is due first.
func (o *outbox) first() *owed {
	var first *owed
	for _, x := range o.owed {
		if first == nil || x.due.Before(first.due) {
			first = x
		}
	}
	return first
}

func (s *Sim) deliver(receipts Receipts, next *owed) {
	if err := s.post(receipts, next); err != nil {
		retry := min(receiptRetryFirst<<min(next.tries, 10), receiptRetryLast)
		s.change(func() {
			next.tries++
			next.due = s.clock.Now().Add(retry)
		})
		return
	}
	line := Record{Kind: Delivered, Time: s.now(), ID: next.record.ID, EffectKey: next.record.EffectKey}
	if err := s.log.append(&line); err != nil {
		s.change(func() { s.broken = err })
	}
	s.change(func() {
		for i, x := range s.outbox.owed {
			if x == next {
				s.outbox.owed = append(s.outbox.owed[:i], s.outbox.owed[i+1:]...)
				return
			}
		}
	})
}

// post sends the receipt of an execution, signed anew, and fails unless it is taken.
func (s *Sim) post(receipts Receipts, next *owed) error {
	key, err := receipts.key()
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(s.ctx, http.MethodPost, receipts.URL, bytes.NewReader(next.body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	Sign(request.Header, key, "receipt-"+next.record.ID, s.clock.Now(), next.body)
	response, err := s.outbox.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(response.Body, maxBody)); err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return errors.New(response.Status)
	}
	return nil
}

// Receipt answers the body of the receipt of an execution.
func Receipt(r *Record) ([]byte, error) {
	key, err := effect.ParseEffectKey(r.EffectKey)
	if err != nil {
		return nil, fmt.Errorf("receipt of %s: %w", r.ID, err)
	}
	receipt := effect.Receipt{
		Schema: effect.ReceiptSchema, Key: key, Ref: r.ID, Amount: text(r.Amount), Subject: text(r.Subject), AppliedAt: effect.Time(r.Time.UnixMicro()),
	}
	return receipt.Encode()
}

// Sign sets the headers of Standard Webhooks on a message that is sent at a time.
func Sign(header http.Header, key []byte, id string, at time.Time, body []byte) {
	seconds := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, seconds, body)
	header.Set("webhook-id", id)
	header.Set("webhook-timestamp", seconds)
	header.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

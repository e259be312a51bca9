package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	pullStep  = 500      // deliveries looked after in one round
	pullBytes = 64 << 10 // of an answer
)

// holding is what a receiver answers when its state is looked at.
type holding struct {
	AppliedRevision uint64 `json:"appliedRevision"`
	ResultDigest    string `json:"resultDigest"`
}

// pull looks at the receiver's state for deliveries that are only DELIVERED, until ctx ends.
func (s *Sender) pull(ctx context.Context) error {
	var from uint64
	for {
		if err := s.wait(ctx, time.Duration(s.endpoint.Applied.Pull.Every)); err != nil {
			return err
		}
		asked, err := s.unapplied(ctx, from)
		if err != nil {
			return err
		}
		from = 0
		if len(asked) == pullStep {
			from = asked[len(asked)-1].Sequence + 1 // the rest has its turn in the next round
		}
		problem := ""
		for i := range asked {
			held, err := s.look(ctx, &asked[i])
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				problem = err.Error()
				continue
			}
			if err := s.looked(ctx, asked[i].ID, held); err != nil {
				return err
			}
		}
		if problem != "" {
			s.log.Warn().Str("problem", problem).Msg("the receiver's state cannot be looked at")
		}
	}
}

// unapplied answers copies of deliveries that wait for a receipt, from a sequence on.
func (s *Sender) unapplied(ctx context.Context, from uint64) (list []Delivery, err error) {
	err = s.do(ctx, func(*turn) error {
		for _, d := range s.queue.open {
			if d.State == StateDelivered && d.Sequence >= from {
				list = append(list, *d)
			}
		}
		slices.SortFunc(list, func(a, b Delivery) int { return int(a.Sequence) - int(b.Sequence) })
		list = list[:min(len(list), pullStep)]
		return nil
	})
	return list, err
}

// look asks the receiver what it holds of a delivery's projection; nil = nothing.
func (s *Sender) look(ctx context.Context, d *Delivery) (*holding, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.endpoint.Timeout))
	defer cancel()
	at := strings.NewReplacer("{projectionId}", url.PathEscape(d.ProjectionID), "{webhookId}", url.PathEscape(d.ID)).Replace(s.endpoint.Applied.Pull.URL)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, errors.New("the request could not be made")
	}
	secrets, err := s.receipts.secrets()
	if err != nil {
		return nil, err
	}
	Sign(request.Header, "look_"+d.ID, s.clock.Now(), nil, secrets...)
	answer, err := s.client.Do(request)
	if err != nil {
		return nil, errors.New(failedRequest(ctx, err).problem)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, pullBytes))
	switch {
	case answer.StatusCode == http.StatusNotFound:
		return nil, nil
	case answer.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("answered %d", answer.StatusCode)
	case err != nil:
		return nil, errors.New("the answer broke off")
	}
	held := &holding{}
	if err := json.Unmarshal(body, held); err != nil {
		return nil, errors.New("the answer is no JSON object with appliedRevision and resultDigest")
	}
	return held, nil
}

// looked draws the conclusion for a delivery that is still only DELIVERED.
func (s *Sender) looked(ctx context.Context, id string, held *holding) error {
	if held == nil {
		return nil
	}
	return s.do(ctx, func(t *turn) error {
		d, err := s.find(t, id)
		if d == nil || err != nil || d.State != StateDelivered || !d.open() {
			return err
		}
		if v := judge(d, held.AppliedRevision, held.ResultDigest); v.state != "" {
			return s.conclude(t, d, v)
		}
		return nil
	})
}

package webhook

import (
	"fmt"
	"time"
)

// delay answers how long to wait before attempt n of the schedule, from 0.
func (s *Sender) delay(n int) time.Duration {
	d := time.Duration(s.endpoint.Schedule[n])
	if d == 0 {
		return 0
	}
	return s.cfg.Jitter(d)
}

// landed takes in what an attempt came to.
func (s *Sender) landed(t *turn, d *Delivery, o outcome) error {
	defer s.queue.landed(d)
	if o.result == resultCut {
		return nil
	}
	d.Attempts++
	d.Status = o.status
	s.endpointSaid(t, o)
	switch {
	case !d.waiting(): // a receipt came before the answer
	case o.result == resultDelivered:
		return s.delivered(t, d)
	case d.Generation != s.position.Generation:
		return s.drop(t, d)
	default:
		d.Problem = o.problem
		s.failed(t, d, o)
	}
	return t.put(d)
}

func (s *Sender) delivered(t *turn, d *Delivery) error {
	d.DeliveredAt, d.Problem = t.now, ""
	s.queue.move(d, StateDelivered)
	if s.endpoint.Applied == nil || d.barrier() {
		s.queue.close(d, t.now)
	}
	if err := t.reached(d); err != nil {
		return err
	}
	return t.put(d)
}

// failed says when the delivery is tried again, if it is.
func (s *Sender) failed(t *turn, d *Delivery, o outcome) {
	switch o.result {
	case resultThrottled: // asked to wait is not failed
		d.Due = t.now.Add(max(o.wait, quiet))
	case resultGone, resultBarred:
		d.Due = t.now
	default:
		d.Failures++
		if d.Failures >= len(s.endpoint.Schedule) {
			s.queue.move(d, StateFailed)
			t.after = append(t.after, func() {
				s.log.Error().Str("webhookId", d.ID).Int("attempts", d.Attempts).Str("problem", d.Problem).Msg("the schedule is used up; mend the receiver, then: tidemark webhook redeliver --failed")
			})
			return
		}
		d.Due = t.now.Add(max(s.delay(d.Failures), o.wait))
	}
	s.queue.move(d, StateAttempted)
}

// endpointSaid draws what an answer means for the whole endpoint.
func (s *Sender) endpointSaid(t *turn, o outcome) {
	switch o.result {
	case resultGone:
		s.disable(t, "the receiver answered 410 Gone")
	case resultBarred:
		s.disable(t, o.problem)
	case resultThrottled, resultStruggles:
		wait := o.wait
		if wait == 0 {
			wait = quiet
		}
		if until := t.now.Add(wait); until.After(s.position.PausedTo) {
			s.position.PausedTo = until
		}
	}
}

// disable stops all sending until an operator enables the endpoint.
func (s *Sender) disable(t *turn, why string) {
	if s.position.Disabled != nil {
		return
	}
	s.position.Disabled = &disabled{Since: t.now, Why: why}
	t.after = append(t.after, func() {
		s.log.Error().Str("why", why).Msg("the endpoint is disabled; nothing is sent until: tidemark webhook enable")
	})
}

// overdueAt answers when the delivery that waits longest for a receipt is overdue.
func (s *Sender) overdueAt() (time.Time, bool) {
	if s.endpoint.Applied == nil {
		return time.Time{}, false
	}
	d := s.queue.oldestFresh()
	if d == nil {
		return time.Time{}, false
	}
	return d.DeliveredAt.Add(time.Duration(s.endpoint.Applied.Within)), true
}

// sayEvery is how often the log speaks of overdue deliveries at most.
const sayEvery = time.Minute

func (s *Sender) choresDue(now time.Time) bool {
	at, ok := s.overdueAt()
	return !now.Before(s.pruneAt) || ok && !now.Before(at) || s.unsaid > 0 && !now.Before(s.sayAt)
}

// chores marks deliveries that are overdue and forgets old ones.
func (s *Sender) chores(t *turn) error {
	if err := s.markOverdue(t); err != nil {
		return err
	}
	if t.now.Before(s.pruneAt) {
		return nil
	}
	more, err := s.prune(t)
	s.pruneAt = t.now.Add(pruneEvery)
	if more {
		s.pruneAt = t.now
	}
	return err
}

func (s *Sender) markOverdue(t *turn) error {
	for {
		at, ok := s.overdueAt()
		if !ok || t.now.Before(at) {
			break
		}
		d := s.queue.oldestFresh()
		s.queue.outgrow(d)
		if err := t.put(d); err != nil {
			return err
		}
		s.unsaid++
		s.metrics.overdueTotal.Inc()
	}
	if s.unsaid > 0 && !t.now.Before(s.sayAt) {
		t.after = append(t.after, s.sayOverdue)
	}
	return nil
}

// sayOverdue logs what became overdue since it was logged last.
func (s *Sender) sayOverdue() {
	line := s.log.Warn().Int("deliveries", s.unsaid).Int("overdue", s.queue.overdue).Stringer("within", time.Duration(s.endpoint.Applied.Within))
	if d := s.queue.oldestUnapplied(); d != nil {
		line = line.Str("oldest", d.ID)
	}
	line.Msg("the receiver has deliveries and does not say that it applied them; ask it, then: tidemark webhook redeliver --overdue")
	s.unsaid, s.sayAt = 0, s.now().Add(sayEvery)
}

// prune forgets closed deliveries that are kept no longer. It answers whether more may be
// there.
func (s *Sender) prune(t *turn) (more bool, err error) {
	var old []*Delivery
	err = t.each(func(d *Delivery) (bool, error) {
		if t.now.Sub(d.QueuedAt) <= time.Duration(s.endpoint.Keep) {
			return false, nil // and all behind it are younger
		}
		if !d.open() && t.now.Sub(d.ClosedAt) > time.Duration(s.endpoint.Keep) {
			old = append(old, d)
		}
		return len(old) < pruneStep, nil
	})
	if err != nil {
		return false, err
	}
	for _, d := range old {
		if err := t.remove(d); err != nil {
			return false, fmt.Errorf("forget delivery %s: %w", d.ID, err)
		}
	}
	return len(old) == pruneStep, nil
}

package webhook

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the figures of one endpoint. No business key is a label.
type metrics struct {
	deliveries   *prometheus.GaugeVec
	attempts     *prometheus.CounterVec
	seconds      prometheus.Histogram
	receipts     *prometheus.CounterVec
	overdue      prometheus.Gauge
	overdueTotal prometheus.Counter
	unapplied    prometheus.Gauge
	queued       prometheus.Gauge
	enabled      prometheus.Gauge
}

func newMetrics(reg *prometheus.Registry, endpoint string) (*metrics, error) {
	labels := prometheus.Labels{"endpoint": endpoint}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels})
	}
	m := &metrics{
		deliveries: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tidemark_webhook_deliveries", Help: "Deliveries for which something is still to happen.", ConstLabels: labels,
		}, []string{"state"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidemark_webhook_attempts_total", Help: "Attempts by what they came to.", ConstLabels: labels,
		}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tidemark_webhook_attempt_seconds", Help: "Time of one attempt.", ConstLabels: labels,
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 14),
		}),
		receipts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidemark_webhook_receipts_total", Help: "What receivers said of deliveries, by result.", ConstLabels: labels,
		}, []string{"result"}),
		overdueTotal: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_webhook_overdue_total", Help: "Deliveries that stayed DELIVERED for longer than agreed.", ConstLabels: labels,
		}),
		overdue:   gauge("tidemark_webhook_overdue", "Deliveries that are DELIVERED for longer than agreed now."),
		unapplied: gauge("tidemark_webhook_delivered_unapplied_age_seconds", "Age of the oldest delivery without the receiver's word that it is applied."),
		queued:    gauge("tidemark_webhook_waiting", "Deliveries that wait for an attempt."),
		enabled:   gauge("tidemark_webhook_enabled", "1 while the endpoint is sent to, 0 while it is disabled."),
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.deliveries, m.attempts, m.seconds, m.receipts, m.overdue, m.overdueTotal, m.unapplied, m.queued, m.enabled} {
		errs = append(errs, reg.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("metrics of endpoint %s: %w", endpoint, err)
	}
	return m, nil
}

func (m *metrics) attempted(r result, took time.Duration) {
	m.attempts.WithLabelValues(string(r)).Inc()
	m.seconds.Observe(took.Seconds())
}

// show sets the gauges after a turn.
func (m *metrics) show(s *Sender, now time.Time) {
	for _, state := range []State{StateQueued, StateAttempted, StateFailed, StateDelivered} {
		m.deliveries.WithLabelValues(string(state)).Set(float64(s.queue.counts[state]))
	}
	m.overdue.Set(float64(s.queue.overdue))
	m.queued.Set(float64(s.queue.waiting))
	age := 0.0
	if d := s.queue.oldestUnapplied(); d != nil {
		age = now.Sub(d.DeliveredAt).Seconds()
	}
	m.unapplied.Set(age)
	enabled := 1.0
	if s.position.Disabled != nil {
		enabled = 0
	}
	m.enabled.Set(enabled)
}

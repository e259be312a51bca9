package ingest

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of one process; never a business key as a label.
type metrics struct {
	events      *prometheus.CounterVec
	quarantined *prometheus.CounterVec
	requests    *prometheus.CounterVec
	published   *prometheus.CounterVec
	resent      *prometheus.CounterVec
	marks       *prometheus.CounterVec
	claims      prometheus.Counter
	clockAlarms prometheus.Counter
	pushSeconds prometheus.Histogram
}

func newMetrics(r *prometheus.Registry, s *Service) (*metrics, error) {
	if r == nil {
		r = prometheus.NewRegistry()
	}
	b := &metricsBuilder{registry: r}
	m := &metrics{
		events:      b.vec("tidemark_ingest_events_total", "Items taken in, by verdict.", "stream", "verdict"),
		quarantined: b.vec("tidemark_quarantine_total", "Events quarantined, by reason.", "reason"),
		requests:    b.vec("tidemark_ingest_requests_total", "Requests, by transport and outcome.", "transport", "code"),
		published:   b.vec("tidemark_ingest_messages_total", "Messages sent to a journal, resends included.", "journal"),
		resent:      b.vec("tidemark_ingest_resends_total", "Messages sent again because their acknowledgement was lost or refused.", "journal"),
		marks:       b.vec("tidemark_ingest_marks_total", "Rounds of marks written.", "stream"),
	}
	// Shared with the other services of a process: same help, same label.
	m.claims = b.vec("tidemark_claims_total", "Claims of journals.", "stage").WithLabelValues("ingest")
	m.clockAlarms = prometheus.NewCounter(prometheus.CounterOpts{Name: "tidemark_ingest_clock_alarms_total", Help: "Steps of the wall clock above 2 s."})
	m.pushSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "tidemark_ingest_push_seconds", Help: "From a request's arrival to its durability.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
	})
	b.add(m.clockAlarms, m.pushSeconds,
		gauge("tidemark_ingest_unacknowledged_bytes", "Bytes of requests that are not acknowledged.", func() float64 { return float64(s.budget.used.Load()) }),
		gauge("tidemark_ingest_clock_step_seconds", "How far the wall clock is ahead of arrival stamps.", func() float64 { return s.stamp.step().Seconds() }),
		gauge("tidemark_ingest_source_partitions_owned", "Source partitions that this process owns.", func() float64 {
			n := 0
			for _, st := range s.allStreams() {
				n += st.owned()
			}
			return float64(n)
		}),
	)
	return m, b.err
}

func gauge(name, help string, read func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read)
}

// metricsBuilder registers; a vector that another service of the process registered under
// the same name is shared.
type metricsBuilder struct {
	registry *prometheus.Registry
	err      error
}

func (b *metricsBuilder) vec(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	var taken prometheus.AlreadyRegisteredError
	if err := b.registry.Register(v); errors.As(err, &taken) {
		if shared, ok := taken.ExistingCollector.(*prometheus.CounterVec); ok {
			return shared
		}
		b.err = errors.Join(b.err, err)
	} else if err != nil {
		b.err = errors.Join(b.err, err)
	}
	return v
}

func (b *metricsBuilder) add(all ...prometheus.Collector) {
	for _, c := range all {
		if err := b.registry.Register(c); err != nil {
			b.err = errors.Join(b.err, err)
		}
	}
}

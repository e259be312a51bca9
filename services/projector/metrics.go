package projector

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

const stage = "projector"

// metrics are the figures of this service. Those that several services of one process
// share are registered once and told apart by their stage.
type metrics struct {
	clock     clock.Clock
	revisions *prometheus.CounterVec
	publish   prometheus.Histogram
	conflicts *prometheus.CounterVec
	claims    *prometheus.CounterVec
	position  *prometheus.GaugeVec
	watermark *prometheus.GaugeVec
}

func newMetrics(reg *prometheus.Registry, clk clock.Clock) (*metrics, error) {
	m := &metrics{
		clock: clk,
		revisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidemark_revisions_total", Help: "Accepted revisions.",
		}, []string{"firing"}),
		publish: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tidemark_revision_publish_seconds", Help: "Time of one atomic batch from append to acceptance.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}),
		conflicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidemark_cas_conflicts_total", Help: "Appends refused because another claim won.",
		}, []string{"stage"}),
		claims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidemark_claims_total", Help: "Claims of journals.",
		}, []string{"stage"}),
		position: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tidemark_journal_position", Help: "Sequence of the next message to be taken in from an input journal.",
		}, []string{"stage", "journal"}),
		watermark: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tidemark_watermark_timestamp_seconds", Help: "Committed watermark of a partition.",
		}, []string{"stage", "partition"}),
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	m.revisions = register(reg, m.revisions, &errs)
	m.publish = register(reg, m.publish, &errs)
	m.conflicts = register(reg, m.conflicts, &errs)
	m.claims = register(reg, m.claims, &errs)
	m.position = register(reg, m.position, &errs)
	m.watermark = register(reg, m.watermark, &errs)
	return m, errors.Join(errs...)
}

// register answers the collector of that name that the registry holds: c, or the one
// that another service of this process brought.
func register[C prometheus.Collector](reg *prometheus.Registry, c C, errs *[]error) C {
	err := reg.Register(c)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if same, ok := already.ExistingCollector.(C); ok {
			return same
		}
	}
	if err != nil {
		*errs = append(*errs, fmt.Errorf("register metric: %w", err))
	}
	return c
}

func (m *metrics) claimed() { m.claims.WithLabelValues(stage).Inc() }

func (m *metrics) fenced() { m.conflicts.WithLabelValues(stage).Inc() }

// accepted notes one accepted batch.
func (m *metrics) accepted(p partition, c *revision.Commit, firings map[revision.Firing]int, begun time.Time) {
	for firing, n := range firings {
		m.revisions.WithLabelValues(string(firing)).Add(float64(n))
	}
	m.publish.Observe(m.clock.Since(begun).Seconds())
	m.position.WithLabelValues(stage, c.Inputs[0].Stream).Set(float64(c.Inputs[0].Seq))
	if c.W != envelope.MinEventTime && c.W != envelope.MaxEventTime {
		m.watermark.WithLabelValues(stage, p.String()).Set(float64(c.W) / float64(time.Second/time.Microsecond))
	}
}

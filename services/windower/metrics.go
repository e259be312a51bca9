package windower

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

const (
	stage        = "windower"
	metricsEvery = time.Second
)

// classes are the counts of a COMMIT that are events, each in one class.
var classes = [...]string{
	window.CountApplied, window.CountTooLate, window.CountDuplicate,
	window.CountConflict, window.CountForeign, window.CountNoTime,
}

// metrics are the figures of this service. Those that several services of one process
// share are registered once and told apart by their stage.
type metrics struct {
	clock     clock.Clock
	claims    *prometheus.CounterVec
	conflicts *prometheus.CounterVec
	position  *prometheus.GaugeVec
	watermark *prometheus.GaugeVec
	events    *prometheus.CounterVec
	lag       *prometheus.GaugeVec
	holder    *prometheus.GaugeVec
	idle      *prometheus.GaugeVec
	windows   *prometheus.GaugeVec
	lateness  prometheus.Histogram
	snapshots *prometheus.CounterVec
}

func newMetrics(reg *prometheus.Registry, clk clock.Clock) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		clock:     clk,
		claims:    counter("tidemark_claims_total", "Claims of journals.", "stage"),
		conflicts: counter("tidemark_cas_conflicts_total", "Appends refused because another claim won.", "stage"),
		position:  gauge("tidemark_journal_position", "Sequence of the next message to be taken in from an input journal.", "stage", "journal"),
		watermark: gauge("tidemark_watermark_timestamp_seconds", "Committed watermark of a partition.", "stage", "partition"),
		events:    counter("tidemark_events_total", "Events taken in by windowers, by what became of them.", "class"),
		lag:       gauge("tidemark_event_time_lag_seconds", "How far the committed watermark is behind the clock.", "partition"),
		holder:    gauge("tidemark_watermark_holder", "1 where a source partition holds the watermark back.", "partition", "source", "source_partition"),
		idle:      gauge("tidemark_partition_idle", "1 where a source partition is idle.", "partition", "source", "source_partition"),
		snapshots: counter("tidemark_snapshots_total", "Snapshots of windowers' state in the object store, by what became of them.", "outcome"),
		windows:   gauge("tidemark_windows", "Windows held, by state.", "partition", "state"),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tidemark_lateness_seconds", Help: "How far behind the watermark late events are (a sample).",
			Buckets: prometheus.ExponentialBuckets(1, 4, 12),
		}),
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []**prometheus.CounterVec{&m.claims, &m.conflicts, &m.events, &m.snapshots} {
		*c = register(reg, *c, &errs)
	}
	for _, g := range []**prometheus.GaugeVec{&m.position, &m.watermark, &m.lag, &m.holder, &m.idle, &m.windows} {
		*g = register(reg, *g, &errs)
	}
	m.lateness = register(reg, m.lateness, &errs)
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

// Outcomes of snapshots.
const (
	snapshotStored   = "stored"
	snapshotFailed   = "failed"
	snapshotRestored = "restored"
	snapshotRefused  = "refused"
)

func (m *metrics) snapshot(outcome string) { m.snapshots.WithLabelValues(outcome).Inc() }

func (m *metrics) fenced() { m.conflicts.WithLabelValues(stage).Inc() }

// committed notes an accepted COMMIT: its counts are cumulative, so the ones before are
// taken off.
func (m *metrics) committed(p partition, before, c *revision.Commit) {
	m.position.WithLabelValues(stage, c.Inputs[0].Stream).Set(float64(c.Inputs[0].Seq))
	for _, class := range classes {
		if more := count(c, class) - count(before, class); more > 0 {
			m.events.WithLabelValues(class).Add(float64(more))
		}
	}
	if c.W == envelope.MinEventTime || c.W == envelope.MaxEventTime {
		return
	}
	name := p.String()
	m.watermark.WithLabelValues(stage, name).Set(seconds(int64(c.W)))
	m.lag.WithLabelValues(name).Set(seconds(m.clock.Now().UnixMicro() - int64(c.W)))
}

// refresh shows what the operator holds.
func (m *metrics) refresh(p partition, f *fold) {
	f.mu.Lock()
	_, _, partitions := f.op.Status()
	windows, _, _ := f.op.Sizes()
	behind := f.late.behind
	f.late.behind = nil
	f.mu.Unlock()
	name := p.String()
	m.windows.WithLabelValues(name, "held").Set(float64(windows))
	for _, s := range partitions {
		number := strconv.FormatUint(uint64(s.Partition), 10)
		m.holder.WithLabelValues(name, s.Source, number).Set(truth(s.Holds))
		m.idle.WithLabelValues(name, s.Source, number).Set(truth(s.Status == "idle"))
	}
	for _, d := range behind {
		m.lateness.Observe(seconds(d))
	}
}

func count(c *revision.Commit, name string) uint64 {
	if c == nil {
		return 0
	}
	for _, n := range c.Counts {
		if n.Name == name {
			return n.N
		}
	}
	return 0
}

func seconds(microseconds int64) float64 { return float64(microseconds) / 1e6 }

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

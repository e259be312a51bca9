package leases

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// What became of leases, as the metric tells it.
const (
	eventTaken      = "taken"       // by another process
	eventExpired    = "expired"     // no heartbeat was accepted for a ttl
	eventSuperseded = "superseded"  // another process runs under our instance
	eventReleased   = "released"    // given back at the end
	eventHandedOver = "handed-over" // to the member that should have it
	eventAbandoned  = "abandoned"   // the unit failed here
	eventAcquired   = "acquired"
)

// metrics are shared by the roles of one process.
type metrics struct {
	role    string
	events  *prometheus.CounterVec
	held    prometheus.Gauge
	members prometheus.Gauge
}

func newMetrics(reg *prometheus.Registry, role string) (*metrics, error) {
	events := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidemark_lease_events_total", Help: "Leases of partitions, by what became of them.",
	}, []string{"stage", "event"})
	held := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tidemark_leases_held", Help: "Partitions that this process has the lease of.",
	}, []string{"stage"})
	members := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tidemark_lease_members", Help: "Processes that share the partitions, as this one sees it.",
	}, []string{"stage"})
	if reg != nil {
		var errs []error
		events, held, members = register(reg, events, &errs), register(reg, held, &errs), register(reg, members, &errs)
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
	}
	return &metrics{role: role, events: events, held: held.WithLabelValues(role), members: members.WithLabelValues(role)}, nil
}

// register answers the collector of that name that the registry holds already, or c.
func register[C prometheus.Collector](reg *prometheus.Registry, c C, errs *[]error) C {
	err := reg.Register(c)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if same, ok := already.ExistingCollector.(C); ok {
			return same
		}
	}
	if err != nil {
		*errs = append(*errs, err)
	}
	return c
}

func (m *metrics) taken() {
	m.events.WithLabelValues(m.role, eventAcquired).Inc()
	m.held.Inc()
}

func (m *metrics) ended(event string) {
	m.events.WithLabelValues(m.role, event).Inc()
	m.held.Dec()
}

package effector

import (
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/sendlimit"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// metrics of this service. No label is a business key.
type metrics struct {
	conflicts *prometheus.CounterVec
	claims    *prometheus.CounterVec
	position  *prometheus.GaugeVec
	attempts  prometheus.Counter
	refusals  *prometheus.CounterVec
	limits    *prometheus.CounterVec
	rules     *prometheus.CounterVec
	receipts  *prometheus.CounterVec
	alarms    prometheus.Counter
}

func newMetrics(reg *prometheus.Registry, survey func() survey, limits *sendlimit.Group) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		conflicts: counter("tidemark_cas_conflicts_total", "Appends refused because another claim won.", "stage"),
		claims:    counter("tidemark_claims_total", "Claims of journals.", "stage"),
		position: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tidemark_journal_position", Help: "Sequence of the next message to be taken in from an input journal.",
		}, []string{"stage", "journal"}),
		attempts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_effect_attempts_total", Help: "Attempts handed to adapters.",
		}),
		refusals: counter("tidemark_effect_refusals_total", "What the ledger refused, by the name of the refusal.", "refusal"),
		limits:   counter("tidemark_effect_limited_total", "Times that a limit held an effect back.", "adapter", "reason"),
		rules:    counter("tidemark_effect_rule_failures_total", "Revisions for which a rule could not be evaluated.", "type"),
		receipts: counter("tidemark_effect_receipts_total", "Receipts, by what became of them.", "outcome"),
		alarms: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_effect_alarms_total", Help: "Findings that a person must look at: evidence that contradicts, nondeterministic rules.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	m.conflicts = register(reg, m.conflicts, &errs)
	m.claims = register(reg, m.claims, &errs)
	m.position = register(reg, m.position, &errs)
	m.attempts = register(reg, m.attempts, &errs)
	m.refusals = register(reg, m.refusals, &errs)
	m.limits = register(reg, m.limits, &errs)
	m.rules = register(reg, m.rules, &errs)
	m.receipts = register(reg, m.receipts, &errs)
	m.alarms = register(reg, m.alarms, &errs)
	register[prometheus.Collector](reg, &ledgerCollector{survey: survey, limits: limits}, &errs)
	return m, errors.Join(errs...)
}

// register answers the collector of that name that the registry holds: c, or the one that
// another service of this process brought.
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

func (m *metrics) committed(p partition, seq uint64) {
	m.position.WithLabelValues(stage, p.journal()).Set(float64(seq + 1))
}

func (m *metrics) attempted() { m.attempts.Inc() }

func (m *metrics) refused(why ledger.Refusal) { m.refusals.WithLabelValues(string(why)).Inc() }

func (m *metrics) limited(adapter string, why sendlimit.Reason) {
	m.limits.WithLabelValues(adapter, string(why)).Inc()
}

func (m *metrics) broken(effectType string) { m.rules.WithLabelValues(effectType).Inc() }

func (m *metrics) received(outcome string) { m.receipts.WithLabelValues(outcome).Inc() }

func (m *metrics) alarmed() { m.alarms.Inc() }

// survey is what the partitions owned here hold, at the time of a scrape.
type survey struct {
	states   map[effect.State]int
	watching watching
	closed   map[effectlog.Scope]int // closed gates, by scope: in how many partitions
	barred   int
}

func (s *Service) survey() survey {
	out := survey{states: map[effect.State]int{}, closed: map[effectlog.Scope]int{}}
	for _, u := range s.units() {
		u.mu.Lock()
		v, w, barred := u.view, u.watching, u.barred
		u.mu.Unlock()
		if v == nil {
			continue
		}
		for state, n := range v.population() {
			out.states[state] += n
		}
		out.watching.open += w.open
		out.watching.unknown += w.unknown
		out.watching.oldest = max(out.watching.oldest, w.oldest)
		if w.any && (!out.watching.any || w.deadline < out.watching.deadline) {
			out.watching.deadline, out.watching.any = w.deadline, true
		}
		if barred != "" {
			out.barred++
		}
		gates, _, aliases := v.gates()
		for _, g := range gates {
			if g.Closed {
				out.closed[g.Scope]++
			}
		}
		for _, a := range aliases {
			if a.Switching {
				out.closed[effectlog.SwitchScope(a.Job)]++
			}
		}
	}
	return out
}

// ledgerCollector says at a scrape how the effects stand.
type ledgerCollector struct {
	survey func() survey
	limits *sendlimit.Group
}

var (
	effectsDesc  = prometheus.NewDesc("tidemark_effects", "Effects of the partitions owned here, by state.", []string{"state"}, nil)
	oldestDesc   = prometheus.NewDesc("tidemark_effect_unknown_oldest_age_seconds", "Age of the oldest attempt whose outcome is unknown; 0 if there is none.", nil, nil)
	deadlineDesc = prometheus.NewDesc("tidemark_effect_resend_deadline_seconds", "Seconds to the nearest end of resends among unknown outcomes; absent if there is none.", nil, nil)
	openDesc     = prometheus.NewDesc("tidemark_effect_attempts_open", "Attempts under way.", nil, nil)
	gateDesc     = prometheus.NewDesc("tidemark_effect_gate_closed", "Key partitions in which the gate of a scope is closed.", []string{"scope"}, nil)
	barredDesc   = prometheus.NewDesc("tidemark_effect_recover_needed", "Key partitions whose journal is behind their dispatch file: effects recover is needed.", nil, nil)
	breakerDesc  = prometheus.NewDesc("tidemark_effect_breaker_open", "1 while the breaker of an adapter lets nothing go.", []string{"adapter", "account"}, nil)
)

// Describe answers what Collect may say.
func (c *ledgerCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{effectsDesc, oldestDesc, deadlineDesc, openDesc, gateDesc, barredDesc, breakerDesc} {
		out <- d
	}
}

// Collect looks at every partition owned here.
func (c *ledgerCollector) Collect(out chan<- prometheus.Metric) {
	const second = 1e6
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := c.survey()
	for _, state := range effect.States() {
		gauge(effectsDesc, float64(s.states[state]), string(state))
	}
	gauge(oldestDesc, float64(s.watching.oldest)/second)
	if s.watching.any {
		gauge(deadlineDesc, float64(s.watching.deadline)/second)
	}
	gauge(openDesc, float64(s.watching.open))
	gauge(barredDesc, float64(s.barred))
	if !slices.ContainsFunc(sortedScopes(s.closed), func(x effectlog.Scope) bool { return x == effectlog.Global }) {
		gauge(gateDesc, 0, string(effectlog.Global))
	}
	for _, scope := range sortedScopes(s.closed) {
		gauge(gateDesc, float64(s.closed[scope]), string(scope))
	}
	for of, state := range c.limits.States() {
		open := 0.0
		if state.Breaker != sendlimit.Closed {
			open = 1
		}
		gauge(breakerDesc, open, of.Adapter, of.Account)
	}
}

func sortedScopes(m map[effectlog.Scope]int) (list []effectlog.Scope) {
	for scope := range m {
		list = append(list, scope)
	}
	slices.Sort(list)
	return list
}

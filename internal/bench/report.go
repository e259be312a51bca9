package bench

// Report is what one run measured.
type Report struct {
	Stage       string           `json:"stage"`
	Spec        Spec             `json:"workload"`
	Seconds     float64          `json:"seconds"`
	PerSecond   float64          `json:"eventsPerSecond"`
	CPUPerM     float64          `json:"cpuSecondsPerMillion"`
	PeakRSS     int64            `json:"peakRssBytes"`
	Disk        map[string]int64 `json:"diskBytes"` // by journal; "checkpoints", "views"
	Messages    map[string]int64 `json:"messages"`  // by journal
	InputBytes  int64            `json:"inputBytes,omitempty"`
	Windows     uint64           `json:"windows"`
	Revisions   uint64           `json:"revisions"`
	Replaced    uint64           `json:"replacedSessions,omitempty"`
	LateEvents  uint64           `json:"lateEvents"` // accepted, behind their window's end; (event, window) pairs
	RowsPerLate float64          `json:"rowsWrittenPerLateEvent"`
	Latency     *Latency         `json:"correctionLatency,omitempty"`
	Projector   *Rate            `json:"projector,omitempty"` // of the windower's stage, measured behind it
	Checks      []Check          `json:"checks"`
	OK          bool             `json:"ok"`
}

// Rate is a part measured on its own.
type Rate struct {
	Count     uint64  `json:"count"`
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"perSecond"`
	CPUMicros float64 `json:"cpuMicrosEach"`
}

// Check is one judgement of the result.
type Check struct {
	Name    string   `json:"name"`
	OK      bool     `json:"ok"`
	Checked uint64   `json:"checked"`
	Wrong   uint64   `json:"wrong"`
	Details []string `json:"details,omitempty"`
}

const maxDetails = 5

// Fail notes one thing that is wrong.
func (c *Check) Fail(what string) {
	c.Wrong++
	if len(c.Details) < maxDetails {
		c.Details = append(c.Details, what)
	}
}

// Add enters a finished check.
func (r *Report) Add(c Check) {
	c.OK = c.Wrong == 0
	r.Checks = append(r.Checks, c)
}

// Finish sums up.
func (r *Report) Finish() {
	r.OK = true
	for _, c := range r.Checks {
		r.OK = r.OK && c.OK
	}
	if r.Seconds > 0 {
		r.PerSecond = float64(r.Spec.Events) / r.Seconds
	}
	if r.LateEvents > 0 {
		r.RowsPerLate = float64(r.Revisions-min(r.Revisions, r.Windows)) / float64(r.LateEvents)
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/bench"
)

// oracleUpTo is how many events the oracle recomputes unless asked for more: it keeps
// every event in memory and takes its time, for it is meant to be plainly right.
const oracleUpTo = 2_000_000

// oracleUpToSessions is the same for sessions: at every mark it looks at every member of
// a key anew.
const oracleUpToSessions = 100_000

// benchOptions of one run.
type benchOptions struct {
	spec    bench.Spec
	stage   string
	verify  string
	data    string
	keep    bool
	keepIDs string
	markBy  int // windower: events between two marks
	rate    int
	seconds int
	profile string
	heap    string
}

func (c *cli) benchCmd() *cobra.Command {
	o := benchOptions{}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure speed on a generated workload, and check the result",
		Long: `Generate hourly revenue with late corrections from a fixed seed, run it through an
embedded server that syncs every write, print what it took, and check what readers see.
A wrong result is a failure, however fast.

Stages:
  windower  the events journal is prepared first; timed from the start of the windower
            to its last COMMIT, checkpoints included
  e2e       JSON lines through ingest, windower and projector; timed from the first line
            to the moment at which everything is readable
  latency   a steady rate; how long a late event takes from its acknowledgement to the
            accepted revision that a subscriber sees

The same events are computed in windows of 1 h (tumbling), of 1 h every 15 min (hopping),
or in sessions with a gap of 11 min, which late events lengthen and bridge.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.bench(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.IntVar(&o.spec.Events, "events", 10_000_000, "events")
	f.IntVar(&o.spec.Keys, "keys", 100_000, "distinct keys at most, Zipf distributed")
	f.IntVar(&o.spec.Hours, "hours", 24, "hours of event time that the events span")
	f.Uint64Var(&o.spec.Seed, "seed", 1, "seed of the workload")
	f.StringVar(&o.stage, "stage", "e2e", "windower, e2e or latency")
	f.StringVar((*string)(&o.spec.Window), "window", string(bench.Tumbling), "windower and e2e: tumbling, hopping or session")
	f.StringVar(&o.verify, "verify", "auto", "full: the oracle recomputes everything; auto: up to 2 million events, of sessions 100 thousand; batch: the batch sums only")
	f.StringVar(&o.data, "data", "", "data directory, empty or absent (default: a temporary one)")
	f.BoolVar(&o.keep, "keep", false, "keep the temporary data directory")
	f.StringVar(&o.keepIDs, "keep-ids", "49h", "how long ids are kept (retention.ids)")
	f.IntVar(&o.markBy, "mark-every", 60_000, "windower: events between two marks of the prepared journal")
	f.IntVar(&o.rate, "rate", 20_000, "latency: events a second")
	f.IntVar(&o.seconds, "seconds", 30, "latency: how long")
	f.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile of the timed part to this file")
	f.StringVar(&o.heap, "memprofile", "", "write a heap profile of the end of the timed part to this file")
	return cmd
}

func (o *benchOptions) check() error {
	switch {
	case o.spec.Events < 10_000:
		return usage(fmt.Errorf("--events %d: at least 10000 make a workload", o.spec.Events))
	case o.spec.Keys < 2 || o.spec.Keys > 1_000_000:
		return usage(fmt.Errorf("--keys %d: choose 2 to 1000000", o.spec.Keys))
	case o.spec.Hours < 1 || o.spec.Hours > 1000:
		return usage(fmt.Errorf("--hours %d: choose 1 to 1000", o.spec.Hours))
	case !slices.Contains([]string{"full", "auto", "batch"}, o.verify):
		return usage(fmt.Errorf("--verify %s: choose full, auto or batch", o.verify))
	case !slices.Contains(bench.Windows(), o.spec.Window):
		return usage(fmt.Errorf("--window %s: choose one of %v", o.spec.Window, bench.Windows()))
	case o.stage == "latency" && o.spec.Window != bench.Tumbling:
		return usage(fmt.Errorf("--window %s: latency is measured with tumbling windows; choose --stage windower or e2e", o.spec.Window))
	case o.rate < 100 || o.seconds < 1 || o.markBy < 1:
		return usage(errors.New("--rate must be at least 100, --seconds and --mark-every at least 1"))
	}
	return nil
}

// bench runs one stage.
func (c *cli) bench(ctx context.Context, o benchOptions) error {
	stages := map[string]func(*benchRig, context.Context) error{
		"windower": (*benchRig).windower, "e2e": (*benchRig).endToEnd, "latency": (*benchRig).latency,
	}
	stage := stages[o.stage]
	if stage == nil {
		return usage(fmt.Errorf("--stage %s: choose one of %v", o.stage, slices.Sorted(maps.Keys(stages))))
	}
	if err := o.check(); err != nil {
		return err
	}
	if o.data == "" {
		dir, err := os.MkdirTemp("", "tidemark-bench-")
		if err != nil {
			return refused(err)
		}
		if !o.keep {
			defer os.RemoveAll(dir)
		}
		c.note("data in %s", dir)
		o.data = dir + "/data"
	}
	rig, err := newBenchRig(ctx, c, o)
	if err != nil {
		return err
	}
	defer rig.close()
	if err := stage(rig, ctx); err != nil {
		return err
	}
	rig.report.Finish()
	if err := c.benchReport(&rig.report); err != nil {
		return err
	}
	if !rig.report.OK {
		return findings(errors.New("the result is wrong: see the checks"))
	}
	return nil
}

// timed measures one part: wall time, processor time, peak memory, and profiles if asked for.
func (r *benchRig) timed(part func() error) error {
	if r.options.profile != "" {
		f, err := os.Create(r.options.profile)
		if err != nil {
			return refused(err)
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
	}
	bench.ForgetPeak()
	cpu, begun := bench.CPU(), r.clock.Now()
	err := part()
	took, used := r.clock.Since(begun), bench.CPU()-cpu
	if r.options.profile != "" {
		pprof.StopCPUProfile()
	}
	if err != nil {
		return err
	}
	r.report.Seconds = took.Seconds()
	n := r.report.Spec.Events
	r.report.CPUPerM = used.Seconds() * 1e6 / float64(n)
	r.report.PeakRSS = bench.PeakRSS()
	r.note("%s: %d events in %s, %.0f events/s, %.2f CPU s a million, peak %d MiB", r.options.stage, n,
		took.Round(time.Millisecond), float64(n)/took.Seconds(), r.report.CPUPerM, r.report.PeakRSS>>20)
	return r.heapProfile()
}

func (r *benchRig) heapProfile() error {
	if r.options.heap == "" {
		return nil
	}
	f, err := os.Create(r.options.heap)
	if err != nil {
		return refused(err)
	}
	defer f.Close()
	return pprof.WriteHeapProfile(f)
}

// benchReport prints what was measured.
func (c *cli) benchReport(r *bench.Report) error {
	if c.output != "table" {
		return c.object(r)
	}
	line := func(name, format string, args ...any) {
		fmt.Fprintf(c.out, "%-26s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("stage", "%s, %s, %d events, %d keys, seed %d", r.Stage, r.Spec.Window, r.Spec.Events, r.Spec.Keys, r.Spec.Seed)
	line("events/s", "%.0f (%.2f s)", r.PerSecond, r.Seconds)
	line("CPU s a million events", "%.2f", r.CPUPerM)
	line("peak RSS", "%d MiB", r.PeakRSS>>20)
	line("windows, revisions", "%d, %d", r.Windows, r.Revisions)
	if r.Spec.Window == bench.Session {
		line("sessions replaced", "%d", r.Replaced)
	}
	line("rows written a late event", "%.2f (%d late events)", r.RowsPerLate, r.LateEvents)
	for _, name := range slices.Sorted(maps.Keys(r.Disk)) {
		text := fmt.Sprintf("%.1f MiB, %.0f B an event", float64(r.Disk[name])/(1<<20), float64(r.Disk[name])/float64(r.Spec.Events))
		if n := r.Messages[name]; n > 0 {
			text += fmt.Sprintf(", %d messages", n)
		}
		line("disk: "+name, "%s", text)
	}
	if p := r.Projector; p != nil {
		line("projector", "%.0f revisions/s (%d in %.2f s), %.1f CPU µs each", p.PerSecond, p.Count, p.Seconds, p.CPUMicros)
	}
	if l := r.Latency; l != nil {
		line("correction latency", "P50 %.0f ms, P99 %.0f ms, max %.0f ms (%d late events)", l.P50, l.P99, l.Max, l.Count)
	}
	for _, check := range r.Checks {
		result := "ok"
		if !check.OK {
			result = fmt.Sprintf("FAILED: %d wrong: %v", check.Wrong, check.Details)
		}
		line("check: "+check.Name, "%s (%d)", result, check.Checked)
	}
	return nil
}

package main

import (
	"context"
	"fmt"

	"github.com/tidemark-mesh/tidemark/internal/bench"
	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/internal/verify/gates"
	"github.com/tidemark-mesh/tidemark/pkg/subscribe"
)

// judge checks what readers see: against the batch sums of the generator, and with the
// oracle's gates where the options ask for them.
func (r *benchRig) judge(ctx context.Context) error {
	if err := r.measureDisk(ctx); err != nil {
		return err
	}
	counts, err := r.counts(ctx)
	if err != nil {
		return err
	}
	r.report.Revisions, r.report.LateEvents = counts[window.CountRevisions], counts[window.CountLate]
	r.note("checking against batch sums")
	expected := bench.Expect(r.options.spec)
	r.report.Windows = uint64(expected.Windows())
	events := bench.Check{Name: "every event accounted for", Checked: uint64(r.options.spec.Events)}
	for name, want := range map[string]uint64{
		window.CountApplied: expected.Applied, window.CountTooLate: expected.TooLate, window.CountDuplicate: expected.Twins, window.CountConflict: 0,
	} {
		if counts[name] != want {
			events.Fail(fmt.Sprintf("%d events are %s, the workload has %d", counts[name], name, want))
		}
	}
	r.report.Add(events)
	sums := bench.Check{Name: "windows equal a batch over the workload"}
	if err := r.read(ctx, expected, &sums); err != nil {
		return err
	}
	expected.Judge(&sums)
	r.report.Add(sums)
	return r.oracle(ctx)
}

// read follows the revisions as a subscriber does, from the first to the last.
func (r *benchRig) read(ctx context.Context, expected *bench.Expected, check *bench.Check) error {
	sub, err := subscribe.Open(ctx, r.client.NC, subscribe.Options{Stream: bench.Stream, Job: bench.Job})
	if err != nil {
		return err
	}
	defer sub.Close()
	bar := r.progress("check", int64(r.report.Revisions))
	defer bar.end()
	for seen := uint64(0); seen < r.report.Revisions; {
		b, err := sub.Next(ctx)
		if err != nil {
			return err
		}
		for _, rev := range b.Revisions {
			seen++
			if rev.SupersededBy != "" {
				r.report.Replaced++
			}
			if err := expected.Note(rev); err != nil {
				check.Fail(err.Error())
			}
		}
		bar.set(int64(seen), int64(seen))
	}
	return nil
}

// oracle runs the gates of `tidemark verify`.
func (r *benchRig) oracle(ctx context.Context) error {
	upTo := oracleUpTo
	if r.options.spec.Window == bench.Session {
		upTo = oracleUpToSessions
	}
	if r.options.verify == "batch" || r.options.verify == "auto" && r.report.Spec.Events > upTo {
		return nil
	}
	r.note("checking with the oracle")
	bar := r.progress("verify", 1)
	defer bar.end()
	report, err := gates.Run(ctx, r.client.JS, bench.Stream, gates.Options{
		Progress: func(done, total uint64) { bar.scale(int64(done), int64(total)) },
	})
	if err != nil {
		return err
	}
	for _, g := range report.Gates {
		c := bench.Check{Name: "oracle: " + g.Name, Checked: g.Checked, Wrong: g.Wrong, Details: g.Details}
		if !g.OK && c.Wrong == 0 {
			c.Wrong = 1
		}
		r.report.Add(c)
	}
	return nil
}

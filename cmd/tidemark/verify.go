package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/verify/gates"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

func (c *cli) verifyCmd() *cobra.Command {
	var o gates.Options
	var from, to string
	cmd := &cobra.Command{
		Use:   "verify STREAM",
		Short: "Prove that what readers see equals a full recomputation",
		Long: `Recompute every window of a business stream from the events journal with an
independent oracle and compare it with what readers see. One row a gate; exit status 1
if any gate fails.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if o.From, o.To, err = timeRange(from, to); err != nil {
				return err
			}
			conn, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			bar := c.progress("verify", 1)
			o.Progress = func(done, total uint64) { bar.scale(int64(done), int64(total)) }
			report, err := gates.Run(cmd.Context(), conn.JS, args[0], o)
			bar.end()
			if errors.Is(err, gates.ErrUnknownStream) {
				return usage(err)
			}
			if errors.Is(err, gates.ErrBeyondOracle) {
				return refused(err)
			}
			if err != nil {
				return err
			}
			return c.verdict(report)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Generation, "generation", "", "one policy generation (job@n)")
	f.StringVar(&o.Key, "key", "", "compare the windows of one key")
	f.StringVar(&from, "from", "", "compare windows that start at or after this time (RFC 3339)")
	f.StringVar(&to, "to", "", "compare windows that start before this time (RFC 3339)")
	return cmd
}

// timeFlag reads an optional RFC 3339 flag; absent is 0.
func timeFlag(name, text string) (envelope.EventTime, error) {
	if text == "" {
		return 0, nil
	}
	t, err := envelope.ParseEventTime(text)
	if err != nil {
		return 0, usage(fmt.Errorf("--%s: %w", name, err))
	}
	return t, nil
}

// timeRange reads --from and --to.
func timeRange(from, to string) (start, end envelope.EventTime, err error) {
	if start, err = timeFlag("from", from); err != nil {
		return 0, 0, err
	}
	if end, err = timeFlag("to", to); err != nil {
		return 0, 0, err
	}
	if from != "" && to != "" && start >= end {
		return 0, 0, usage(fmt.Errorf("--from %s is not before --to %s: no window starts between them", from, to))
	}
	return start, end, nil
}

// verdict prints a verify report; a failed gate makes the verb exit 1.
func (c *cli) verdict(r gates.Report) error {
	var err error
	if c.output == "table" {
		rows := make([]row, len(r.Gates))
		for i, g := range r.Gates {
			result := "ok"
			if !g.OK {
				result = "FAILED"
			}
			rows[i] = row{cells: []string{result, g.Name, g.Must, strconv.FormatUint(g.Checked, 10), strconv.FormatUint(g.Wrong, 10)}}
		}
		err = c.list([]string{"RESULT", "GATE", "MUST BE", "CHECKED", "WRONG"}, rows)
		for _, g := range r.Gates {
			for _, d := range g.Details {
				c.note("%s: %s", g.Name, d)
			}
		}
		for _, n := range r.Notes {
			c.note("note: %s", n)
		}
	} else {
		err = c.object(r)
	}
	if err != nil {
		return err
	}
	if !r.OK {
		return findings(errFindings)
	}
	return nil
}

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/effectops"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

const gateScopes = `Scopes: global (everything), type:<effectType>, adapter:<name> (all its versions),
generation:<job>@<number>.`

func (c *cli) gateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gate",
		Short: "Stop outside actions from being sent, and let them go again",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.gatePauseCmd(), c.gateResumeCmd(), c.gateStatusCmd())
	return cmd
}

func (c *cli) gatePauseCmd() *cobra.Command {
	var d decision
	var scope string
	cmd := &cobra.Command{
		Use:   "pause STREAM [--scope S] --reason TEXT",
		Short: "Stop effects from being sent; returns when nothing more can go out",
		Long: `Stop effects from being sent. Returns when every key partition has the record and every
attempt that was open is closed, or its time to be sent has passed: from then on nothing
of the scope reaches a provider. The attempts that were open are listed; one that is not
closed may have been sent before. Queries, receipts and late answers go on. Exit status 6
if the outcome of one of them is unknown.

` + gateScopes,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.moveGate(cmd.Context(), args[0], scope, &d, "pause", func(ctx context.Context, ops *effectops.Ops, s effectlog.Scope) error {
				paused, err := ops.Pause(ctx, s, d.person())
				if paused == nil {
					return err
				}
				if shown := c.paused(paused); err == nil {
					err = shown
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&scope, "scope", string(effectlog.Global), "what to stop")
	d.flags(cmd)
	return cmd
}

// paused prints what a pause found in flight.
func (c *cli) paused(p *effectops.Paused) error {
	unknown, open := false, 0
	rows := make([]row, len(p.InFlight))
	for i := range p.InFlight {
		f := &p.InFlight[i]
		unknown = unknown || f.State == effect.Unknown || !f.Closed
		if !f.Closed {
			open++
		}
		rows[i] = row{
			cells:  []string{f.Key.String()[:shortKey], f.Type, f.Adapter, strconv.FormatUint(uint64(f.Attempt), 10), f.SendBy.String(), strconv.FormatBool(f.Closed), string(f.State)},
			object: f,
		}
	}
	c.note("gate %s is closed in %d key partitions; %d attempts were in flight, %d of them are not closed yet", p.Scope, len(p.Placed), len(rows), open)
	var err error
	switch {
	case c.output == "json" || c.output == "yaml":
		err = c.object(p)
	case len(rows) > 0 || c.output == "ndjson":
		err = c.list([]string{"EFFECT", "TYPE", "ADAPTER", "ATTEMPT", "SEND BY", "CLOSED", "STATE"}, rows)
	}
	if err == nil && unknown {
		return coded{exitUnknown, errFindings}
	}
	return err
}

func (c *cli) gateResumeCmd() *cobra.Command {
	var d decision
	var scope string
	cmd := &cobra.Command{
		Use:   "resume STREAM [--scope S] --reason TEXT",
		Short: "Let effects be sent again",
		Long: `Let effects be sent again. Each is judged by the newest revision before it goes. A scope
that another gate covers stays closed by that one.

` + gateScopes + `
The scope unreadable is closed by a record in the journal that this version cannot read,
since it may be a pause: resume it once you know that it is none.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.moveGate(cmd.Context(), args[0], scope, &d, "resume", func(ctx context.Context, ops *effectops.Ops, s effectlog.Scope) error {
				placed, err := ops.Resume(ctx, s, d.person())
				if err != nil {
					return err
				}
				c.note("gate %s is open in %d key partitions", s, len(placed))
				rows := make([]row, len(placed))
				for i := range placed {
					rows[i] = row{cells: []string{strconv.Itoa(placed[i].Partition), strconv.FormatUint(placed[i].Sequence, 10)}, object: &placed[i]}
				}
				return c.list([]string{"PARTITION", "SEQUENCE"}, rows)
			})
		},
	}
	cmd.Flags().StringVar(&scope, "scope", string(effectlog.Global), "what to let go")
	d.flags(cmd)
	return cmd
}

func (c *cli) moveGate(ctx context.Context, stream, text string, d *decision, verb string, move func(context.Context, *effectops.Ops, effectlog.Scope) error) error {
	scope, err := effectops.OperatorScope(text)
	if err == nil && verb == "pause" && scope == effectlog.Unreadable {
		err = fmt.Errorf("scope %s is closed by records alone", scope)
	}
	if err != nil {
		return usage(fmt.Errorf("--scope: %w", err))
	}
	if err := d.stated(); err != nil {
		return err
	}
	return c.withEffects(ctx, stream, func(ctx context.Context, ops *effectops.Ops) error {
		if d.dryRun {
			c.note("would %s gate %s in %d key partitions; nothing was done (--dry-run)", verb, scope, ops.Partitions())
			return nil
		}
		if err := c.confirmGate(d, verb, scope); err != nil {
			return err
		}
		return move(ctx, ops, scope)
	})
}

// confirmGate asks before a gate is opened. Closing one is safe, and in a hurry.
func (c *cli) confirmGate(d *decision, verb string, scope effectlog.Scope) error {
	if verb == "pause" {
		return nil
	}
	return c.confirm(d, verb, "gate "+string(scope), 1)
}

func (c *cli) gateStatusCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "status STREAM",
		Short: "Show which gates are closed, by whom and why",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withEffects(cmd.Context(), args[0], func(ctx context.Context, ops *effectops.Ops) error {
				status, err := ops.Status(ctx)
				if err != nil {
					return err
				}
				scopes := effectops.Scopes(status)
				rows := make([]row, len(scopes))
				for i := range scopes {
					rows[i] = scopeRow(&scopes[i])
				}
				return c.list([]string{"SCOPE", "GATE", "PARTITIONS", "BY", "AT", "REASON"}, rows)
			})
		},
	}
}

func scopeRow(s *effectops.ScopeStatus) row {
	gate, partitions := "open", s.Open
	switch {
	case len(s.Closed) > 0 && len(s.Open) > 0:
		gate, partitions = "CLOSED in part", s.Closed
	case len(s.Closed) > 0:
		gate, partitions = "CLOSED", s.Closed
	}
	numbers := make([]string, len(partitions))
	for i, pp := range partitions {
		numbers[i] = strconv.Itoa(pp)
	}
	cells := []string{string(s.Scope), gate, strings.Join(numbers, ","), "", "", ""}
	if s.Stamp != nil {
		cells[3], cells[4], cells[5] = s.Stamp.Who, s.Stamp.At.String(), s.Stamp.Reason
	}
	return row{cells: cells, object: s}
}

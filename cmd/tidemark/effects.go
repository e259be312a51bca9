package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/effectops"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// effectLine is one line of `effects ls` (schema effectLine.v1): an effect without its
// payload, which may hold what is nobody's business.
type effectLine struct {
	EffectKey           effect.EffectKey `json:"effectKey"`
	EffectType          string           `json:"effectType"`
	Job                 string           `json:"job"`
	Key                 string           `json:"key"`
	Subject             string           `json:"subject"`
	Start               string           `json:"start"`
	End                 string           `json:"end"`
	State               effect.State     `json:"state"`
	Outcome             effect.Outcome   `json:"outcome"`
	Airlock             string           `json:"airlock,omitempty"`
	PayloadDigest       revision.Digest  `json:"payloadDigest,omitzero"`
	Policy              string           `json:"policy,omitempty"`
	Adapter             string           `json:"adapter,omitempty"`
	Attempts            uint32           `json:"attempts"`
	CompensationPending bool             `json:"compensationPending,omitempty"`
	Conflict            string           `json:"conflict,omitempty"`
	Step                uint64           `json:"step"`
	Did                 string           `json:"did"` // name of the last step
	By                  effect.Actor     `json:"by"`
	Who                 string           `json:"who,omitempty"`
	Reason              string           `json:"reason,omitempty"`
	At                  effect.Time      `json:"at"`
	Partition           int              `json:"partition"`
	Sequence            uint64           `json:"sequence"`
}

func lineOf(item effectops.Item) *effectLine {
	r := item.Record
	l := &effectLine{
		EffectKey: r.Key, EffectType: r.Identity.EffectType, Job: r.Identity.Job, Key: r.Identity.Key, Subject: r.Identity.Subject,
		Start: effect.Time(r.Identity.Window.Start).String(), End: effect.Time(r.Identity.Window.End).String(), State: r.State, Outcome: r.Outcome,
		Airlock: r.Airlock, Attempts: r.LastAttempt, CompensationPending: r.CompensationPending, Conflict: r.Conflict,
		Step: r.Step.N, Did: r.Step.Name, By: r.Step.By, Who: r.Step.Who, Reason: r.Step.Reason, At: r.Step.At,
		Partition: item.Partition, Sequence: item.Sequence,
	}
	if q := r.Request; q != nil {
		l.PayloadDigest, l.Policy, l.Adapter = q.PayloadDigest, q.Policy, q.Adapter
	}
	return l
}

// shortKey is how many digits of an effectKey a table shows; as many name it.
const shortKey = 12

func (l *effectLine) row() row {
	return row{
		cells:  []string{l.EffectKey.String()[:shortKey], l.EffectType, l.Key, l.Start, string(l.State), l.Airlock, strconv.FormatUint(uint64(l.Attempts), 10), l.At.String(), l.Did},
		object: l,
	}
}

// effectFilter holds the flags that choose effects.
type effectFilter struct {
	effectops.Filter
	states []string
}

func (f *effectFilter) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.states, "state", nil, "only effects in these states, e.g. HELD,UNKNOWN")
	flags.StringVar(&f.Type, "type", "", "only effects of this type")
	flags.StringVar(&f.Adapter, "adapter", "", "only effects that go through this adapter, with or without its version")
	flags.StringVar(&f.Job, "job", "", "only effects of this job")
	flags.StringVar(&f.Key, "key", "", "only effects of this business key")
	flags.StringVar(&f.Subject, "subject", "", "only effects of this business subject")
	flags.StringVar(&f.Airlock, "airlock", "", "only effects that this airlock rule holds, e.g. amountAbove")
}

// read takes the flags over.
func (f *effectFilter) read() error {
	f.States = nil
	for _, text := range f.states {
		state := effect.State(strings.ToUpper(text))
		if !state.Known() {
			names := make([]string, 0, len(effect.States()))
			for _, s := range effect.States() {
				names = append(names, string(s))
			}
			return usage(fmt.Errorf("--state %q is no state; choose %s", text, strings.Join(names, ", ")))
		}
		f.States = append(f.States, state)
	}
	return nil
}

func (c *cli) effectsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "effects",
		Short: "Look at outside actions, approve them, and settle those of unknown outcome",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.effectsListCmd(), c.effectsShowCmd(), c.effectsApproveCmd(), c.effectsResolveCmd(), c.effectsRecoverCmd(), c.effectsExportCmd())
	for _, act := range plainActs() {
		cmd.AddCommand(c.effectsActCmd(act))
	}
	return cmd
}

func (c *cli) effectsListCmd() *cobra.Command {
	var filter effectFilter
	cmd := &cobra.Command{
		Use:   "ls STREAM",
		Short: "List effects with their states",
		Long: `List effects with their states, as the effects journals have them; the history of each
is verified on the way. Works without the effector. Payloads are shown by "effects show".
Exit status 6 if an effect of unknown outcome is among them.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := filter.read(); err != nil {
				return err
			}
			return c.withEffects(cmd.Context(), args[0], func(ctx context.Context, ops *effectops.Ops) error {
				items, err := ops.List(ctx, filter.Filter)
				if err != nil {
					return err
				}
				rows := make([]row, len(items))
				for i, item := range items {
					rows[i] = lineOf(item).row()
				}
				if err := c.list([]string{"EFFECT", "TYPE", "KEY", "WINDOW", "STATE", "AIRLOCK", "ATTEMPTS", "AT", "DID"}, rows); err != nil {
					return err
				}
				return unknownAmong(items)
			})
		},
	}
	filter.flags(cmd)
	return cmd
}

// unknownAmong ends a verb that has shown effects of unknown outcome.
func unknownAmong(items []effectops.Item) error {
	if slices.ContainsFunc(items, func(i effectops.Item) bool { return i.Record.State == effect.Unknown }) {
		return coded{exitUnknown, errFindings}
	}
	return nil
}

func (c *cli) effectsShowCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "show STREAM EFFECT",
		Short: "Show one effect whole: payload, attempts, history, commands about it",
		Long: `Show one effect whole: its payload with the digest that an approval is bound to, its
attempts, every step with who made it and why, and the commands about it with their
answers. EFFECT is an effectKey or its first 8 digits or more.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withEffects(cmd.Context(), args[0], func(ctx context.Context, ops *effectops.Ops) error {
				items, err := named(ctx, ops, args[0], args[1:])
				if err != nil {
					return err
				}
				shown, err := ops.Show(ctx, items[0].Record.Key)
				if err != nil {
					return err
				}
				return c.object(shown)
			})
		},
	}
}

// withEffects connects and does something with the effects of a stream.
func (c *cli) withEffects(ctx context.Context, stream string, do func(context.Context, *effectops.Ops) error) error {
	conn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	ops, err := c.effectOps(ctx, conn, stream)
	if err != nil {
		return err
	}
	return do(ctx, ops)
}

func (c *cli) effectOps(ctx context.Context, conn *natsio.Conn, stream string) (*effectops.Ops, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	if err := knownStream(ctx, conn.JS, stream); err != nil {
		return nil, err
	}
	snapshot, err := config.Load(ctx, conn.JS)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(snapshot.Streams, func(e config.Entry) bool { return e.Stream.Name == stream })
	if i < 0 {
		return nil, findings(fmt.Errorf("stream %s is gone", stream))
	}
	return effectops.New(conn.JS, stream, snapshot.Streams[i].Stream.Partitions), nil
}

// person answers who decides.
func (d *decision) person() effectops.Person {
	return effectops.Person{Who: config.Operator(), Reason: d.reason}
}

// named answers the effects that keys name: whole effectKeys, or the first 8 digits or
// more of one, which must name one effect alone.
func named(ctx context.Context, ops *effectops.Ops, stream string, keys []string) ([]effectops.Item, error) {
	for _, text := range keys {
		if _, err := hex.DecodeString(text + strings.Repeat("0", len(text)%2)); err != nil || len(text) < 8 || len(text) > 64 || strings.ToLower(text) != text {
			return nil, usage(fmt.Errorf("%q is no effectKey, nor the first 8 digits or more of one; `tidemark effects ls %s` lists them", text, stream))
		}
	}
	all, err := ops.List(ctx, effectops.Filter{})
	if err != nil {
		return nil, err
	}
	var items []effectops.Item
	for _, text := range keys {
		count := 0
		for _, item := range all {
			if strings.HasPrefix(item.Record.Key.String(), text) {
				items = append(items, item)
				count++
			}
		}
		switch {
		case count == 0:
			return nil, findings(fmt.Errorf("stream %s has no effect %s; `tidemark effects ls %s` lists them", stream, text, stream))
		case count > 1:
			return nil, usage(fmt.Errorf("%d effects begin with %s; write more digits", count, text))
		}
	}
	return items, nil
}

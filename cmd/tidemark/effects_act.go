package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/effectops"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// effectAct is a verb that puts commands about effects into their journals.
type effectAct struct {
	verb        string // as in the command line and in words
	order       effectops.Order
	short, long string
	filter      effectFilter
	every       bool
	decision
}

// plainActs are the acts that need nothing but a reason.
func plainActs() []*effectAct {
	return []*effectAct{
		{
			verb: "void", order: effectops.Order{Act: effectlog.ActVoid}, short: "Withdraw effects whose rule no longer holds",
			long: `Withdraw effects that were never sent and whose rule no longer holds. An effect whose
rule holds is refused: hold it.`,
		},
		{
			verb: "hold", order: effectops.Order{Act: effectlog.ActHold}, short: "Keep effects from being sent until somebody approves them",
			long: "Keep effects that were never sent from being sent until somebody approves them.",
		},
		{
			verb: "reconcile", order: effectops.Order{Act: effectlog.ActReconcile}, short: "Ask the provider now what became of effects",
			long: `Ask the provider now what became of effects, by our own reference. Exit status 6 if an
outcome is still unknown afterwards.`,
		},
		{
			verb: "waive", order: effectops.Order{Act: effectlog.ActWaive}, short: "Let stand what a correction contradicts",
			long: "Let effects stand that ran and that a later correction contradicts.",
		},
	}
}

const chooseEffects = "STREAM (EFFECT… | --state S | --type T | … | --all) --reason TEXT"

func (c *cli) effectsActCmd(a *effectAct) *cobra.Command {
	cmd := &cobra.Command{
		Use: a.verb + " " + chooseEffects, Short: a.short,
		Long: a.long + "\n\n" + `EFFECT is an effectKey or its first 8 digits or more. With a filter the effects are
counted and shown first; they are done as one job, with a result for each.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.effectsAct(cmd.Context(), a, args) },
	}
	a.bulkFlags(cmd)
	return cmd
}

func (a *effectAct) bulkFlags(cmd *cobra.Command) {
	a.filter.flags(cmd)
	cmd.Flags().BoolVar(&a.every, "all", false, "every effect that the verb is for")
	a.flags(cmd)
}

func (c *cli) effectsApproveCmd() *cobra.Command {
	a := &effectAct{verb: "approve", order: effectops.Order{Act: effectlog.ActApprove}}
	var digest string
	cmd := &cobra.Command{
		Use:   "approve STREAM (EFFECT --digest D | --type T | … | --all) --reason TEXT",
		Short: "Let held effects be sent, once, with the payload that you saw",
		Long: `Let held effects be sent. An approval is of one payload: of a single effect give the
payloadDigest that "effects show" printed; with a filter each approval is bound to the
digest that its effect has while it is counted. It is used by one dispatch, expires, and
is void when the payload changes.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) > 1) != (digest != "") || len(args) > 2 {
				return usage(fmt.Errorf("approve one EFFECT with the --digest that you saw, or many with a filter and without --digest"))
			}
			if digest == "" {
				return c.effectsAct(cmd.Context(), a, args)
			}
			var shown revision.Digest
			if err := shown.UnmarshalText([]byte(digest)); err != nil {
				return usage(fmt.Errorf("--digest is not 64 digits of lowercase hex; `tidemark effects show %s %s` prints payloadDigest", args[0], args[1]))
			}
			return c.effectsAct(cmd.Context(), a, args, func(items []effectops.Item) error { return effectops.ShownAs(items[0], shown) })
		},
	}
	cmd.Flags().StringVar(&digest, "digest", "", "payloadDigest as it was shown")
	cmd.Flags().DurationVar(&a.order.Expires, "expires", time.Hour, "how long the approval may be used")
	a.bulkFlags(cmd)
	return cmd
}

func (c *cli) effectsResolveCmd() *cobra.Command {
	a := &effectAct{verb: "resolve"}
	var outcome, evidence, ref string
	cmd := &cobra.Command{
		Use:   "resolve STREAM EFFECT… --outcome applied|not-applied|compensated --evidence FILE --reason TEXT",
		Short: "Record what you found out about effects that need a person",
		Long: `Record what you found out about effects in state MANUAL: that they ran (applied) or did
not (not-applied), with the evidence: a file whose SHA-256 is kept in the journal. Keep
the file. Nothing is ever sent again after it. With --outcome compensated: that the
correction of an effect in COMPENSATION_REQUIRED was carried out outside.`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch outcome {
			case "compensated":
				if evidence != "" || ref != "" {
					return usage(fmt.Errorf("--evidence and --ref are for the outcomes applied and not-applied"))
				}
				a.order.Act = effectlog.ActCompensated
			case "applied", "not-applied":
				digest, err := fileDigest(evidence)
				if err != nil {
					return err
				}
				a.order.Act, a.order.Resolve = effectlog.ActResolve, &effectlog.Resolve{Applied: outcome == "applied", Ref: ref, Evidence: digest}
			default:
				return usage(fmt.Errorf("--outcome %q: choose applied, not-applied or compensated", outcome))
			}
			return c.effectsAct(cmd.Context(), a, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&outcome, "outcome", "", "applied, not-applied or compensated")
	f.StringVar(&evidence, "evidence", "", "file with what proves it")
	f.StringVar(&ref, "ref", "", "the provider's own id of what it did")
	a.flags(cmd)
	return cmd
}

// fileDigest answers the SHA-256 of a file.
func fileDigest(path string) (digest revision.Digest, err error) {
	if path == "" {
		return digest, usage(fmt.Errorf("--evidence is missing: name the file that proves it"))
	}
	file, err := os.Open(path)
	if err != nil {
		return digest, usage(fmt.Errorf("--evidence: %w", err))
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return digest, fmt.Errorf("--evidence: %w", err)
	}
	return revision.Digest(hash.Sum(nil)), nil
}

func (c *cli) effectsRecoverCmd() *cobra.Command {
	var partitions []int
	var d decision
	cmd := &cobra.Command{
		Use:   "recover STREAM [--partition N]… --reason TEXT",
		Short: "Go on after an effects journal lost its tail",
		Long: `Go on after an effects journal lost its tail, or was replaced: the effector found
attempts in its dispatch file that the journal does not know, and sends nothing. Every
such attempt becomes an effect of unknown outcome, which its provider or you must settle;
then the key partition is open again. Without --partition all of them are recovered;
where nothing was lost nothing happens.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := d.stated(); err != nil {
				return err
			}
			return c.withEffects(cmd.Context(), args[0], func(ctx context.Context, ops *effectops.Ops) error {
				var targets []effectops.Target
				if len(partitions) == 0 {
					for pp := range ops.Partitions() {
						partitions = append(partitions, pp)
					}
				}
				for _, pp := range partitions {
					if pp < 0 || pp >= ops.Partitions() {
						return usage(fmt.Errorf("--partition %d: stream %s has key partitions 0 to %d", pp, args[0], ops.Partitions()-1))
					}
					targets = append(targets, effectops.Target{Partition: pp})
				}
				return c.effectsJob(ctx, ops, &d, "recover", "key partitions", effectops.Order{Act: effectlog.ActRecover}, targets, true)
			})
		},
	}
	cmd.Flags().IntSliceVar(&partitions, "partition", nil, "only these key partitions")
	d.flags(cmd)
	return cmd
}

// effectsAct chooses effects and runs the act as a job. checks see what was chosen.
func (c *cli) effectsAct(ctx context.Context, a *effectAct, args []string, checks ...func([]effectops.Item) error) error {
	stream, keys := args[0], args[1:]
	if err := a.filter.read(); err != nil {
		return err
	}
	if len(keys) == 0 && !a.every && a.filter.Empty() {
		return usage(fmt.Errorf("say which effects: effectKeys, a filter such as --type, or --all; `tidemark effects ls %s` lists them", stream))
	}
	if len(keys) > 0 && (a.every || !a.filter.Empty()) {
		return usage(fmt.Errorf("name effects or give a filter, not both"))
	}
	if err := a.stated(); err != nil {
		return err
	}
	return c.withEffects(ctx, stream, func(ctx context.Context, ops *effectops.Ops) error {
		items, err := a.chosen(ctx, ops, stream, keys)
		if err != nil {
			return err
		}
		for _, check := range checks {
			if err := check(items); err != nil {
				return err
			}
		}
		if len(items) == 0 {
			c.note("nothing to %s", a.verb)
			return c.effectResults(nil)
		}
		return c.effectsJob(ctx, ops, &a.decision, a.verb, "effects", a.order, effectops.Targets(items), len(keys) != 1)
	})
}

func (a *effectAct) chosen(ctx context.Context, ops *effectops.Ops, stream string, keys []string) ([]effectops.Item, error) {
	if len(keys) > 0 {
		return named(ctx, ops, stream, keys)
	}
	if len(a.filter.States) == 0 {
		a.filter.States = effectops.Meant(a.order.Act)
	}
	return ops.List(ctx, a.filter.Filter)
}

// effectsJob counts, asks, and runs the job with a line for each result.
func (c *cli) effectsJob(ctx context.Context, ops *effectops.Ops, d *decision, verb, things string, order effectops.Order, targets []effectops.Target, ask bool) error {
	if d.dryRun {
		rows := make([]row, len(targets))
		for i, t := range targets {
			r := &effectops.Result{Partition: t.Partition, Result: "would-" + verb}
			if !t.Key.IsZero() {
				r.Key = t.Key.String()
			}
			rows[i] = resultRow(r)
		}
		c.note("%d %s to %s; nothing was done (--dry-run)", len(targets), things, verb)
		return c.effectResults(rows)
	}
	// One effect that was named is no bulk: there is nothing to count.
	if ask {
		if err := c.confirm(d, verb, things, len(targets)); err != nil {
			return err
		}
	}
	order.Wait = c.timeout
	bar := c.progress(verb, int64(len(targets)))
	defer bar.end()
	counts, unknown, told := map[string]int{}, false, int64(0)
	var rows []row
	err := ops.Run(ctx, d.person(), order, targets, func(r effectops.Result) error {
		counts[r.Result]++
		unknown = unknown || r.State == effect.Unknown
		told++
		bar.set(told, told)
		if c.output == "ndjson" {
			return writeJSON(c.out, &r, "")
		}
		rows = append(rows, resultRow(&r))
		return nil
	})
	bar.end()
	if c.output != "ndjson" {
		if err := c.effectResults(rows); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	return c.jobEnd(counts, len(targets), unknown)
}

func resultRow(r *effectops.Result) row {
	key := r.Key
	if len(key) > shortKey {
		key = key[:shortKey]
	}
	return row{cells: []string{strconv.Itoa(r.Partition), key, r.Result, string(r.State), string(r.Refusal), r.Why}, object: r}
}

func (c *cli) effectResults(rows []row) error {
	if len(rows) == 0 && c.output == "table" {
		return nil
	}
	return c.list([]string{"PARTITION", "EFFECT", "RESULT", "STATE", "REFUSAL", "WHY"}, rows)
}

// jobEnd says how a job went and answers its exit status.
func (c *cli) jobEnd(counts map[string]int, all int, unknown bool) error {
	done := counts[effectops.ResultDone]
	c.note("%d done, %d refused, %d without an answer yet", done, counts[effectops.ResultRefused], counts[effectops.ResultWaiting]+counts[effectops.ResultVoid])
	switch {
	case counts[effectops.ResultRefused] == all:
		return coded{exitRefused, errFindings}
	case counts[effectops.ResultWaiting] == all:
		return coded{exitUnreachable, errFindings}
	case done < all:
		return findings(errFindings)
	case unknown:
		return coded{exitUnknown, errFindings}
	}
	return nil
}

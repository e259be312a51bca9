package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// disposeChunk is how many records one request to ingest decides about.
const disposeChunk = 100

// disposed is the result of one item of a job (schema quarantineResult.v1).
type disposed struct {
	Job          string `json:"job"`
	Sequence     uint64 `json:"sequence"`
	ID           string `json:"id,omitempty"`
	Source       string `json:"source,omitempty"`
	Result       string `json:"result"` // replayed, discarded, refused, missing; with --dry-run: would-replay, would-discard
	Reason       string `json:"reason,omitempty"`
	Rule         string `json:"rule,omitempty"`
	KeyPartition *int   `json:"keyPartition,omitempty"`
}

func (d *disposed) row() row {
	return row{cells: []string{strconv.FormatUint(d.Sequence, 10), d.ID, d.Source, d.Result, d.Reason, d.Rule}, object: d}
}

// quarantineAct is one of the two bulk verbs.
type quarantineAct struct {
	verb   string // replay, discard
	action string // as ingest and the journal call it
	filter quarantineFilter
	every  bool
	decision
}

func (c *cli) quarantineReplayCmd() *cobra.Command {
	a := &quarantineAct{verb: "replay", action: envelope.Replayed}
	return c.quarantineActCmd(a, "Take quarantined events in again", `Send quarantined events through the door again: same id, same event time, as source
partition "replay" of their source. Events that pass now, because a document gained what
they needed, enter the events journal; the others are listed with what refuses them and
stay where they are. The quarantine record itself is kept.

An event that is already in the stream counts once, however often it is replayed.
Exit status 1 if any event was refused.`)
}

func (c *cli) quarantineDiscardCmd() *cobra.Command {
	a := &quarantineAct{verb: "discard", action: envelope.Discarded}
	return c.quarantineActCmd(a, "Decide that quarantined events are not taken in", `Note that quarantined events will not be taken in. Nothing is deleted: the record stays
in the journal with who decided, when and why, and "quarantine ls --all" shows it.`)
}

func (c *cli) quarantineActCmd(a *quarantineAct, short, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   a.verb + " STREAM (--seq N… | --refused-for REASON | --source S | --id ID | --all) --reason TEXT",
		Short: short, Long: long,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !a.every && a.filter.reason == "" && a.filter.source == "" && a.filter.id == "" && len(a.filter.sequences) == 0 {
				return usage(fmt.Errorf("say which events: --seq, --refused-for, --source, --id or --all; `tidemark quarantine ls %s` lists them", args[0]))
			}
			if err := knownReason("refused-for", a.filter.reason); err != nil {
				return err
			}
			if err := a.stated(); err != nil {
				return err
			}
			return c.quarantineAct(cmd.Context(), args[0], a)
		},
	}
	f := cmd.Flags()
	f.UintSliceVar(&a.filter.sequences, "seq", nil, "these sequences of the quarantine journal")
	f.StringVar(&a.filter.reason, "refused-for", "", "events refused for this reason, e.g. value-precision")
	f.StringVar(&a.filter.source, "source", "", "events of this source")
	f.StringVar(&a.filter.id, "id", "", "events with this id")
	f.BoolVar(&a.every, "all", false, "every event without a decision")
	f.BoolVar(&a.filter.decided, "again", false, "also events about which was decided before")
	a.flags(cmd)
	return cmd
}

// quarantineAct runs the job: it chooses, counts, asks, and decides in steps.
func (c *cli) quarantineAct(ctx context.Context, stream string, a *quarantineAct) error {
	conn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	chosen, err := c.choose(ctx, conn, stream, a)
	if err != nil {
		return err
	}
	if len(chosen) == 0 {
		c.note("nothing to %s", a.verb)
		return c.results(nil)
	}
	if a.dryRun {
		rows := make([]row, len(chosen))
		for i := range chosen {
			chosen[i].Result = "would-" + a.verb
			rows[i] = chosen[i].row()
		}
		c.note("%d events to %s; nothing was done (--dry-run)", len(chosen), a.verb)
		return c.results(rows)
	}
	if err := c.confirm(&a.decision, a.verb, "events", len(chosen)); err != nil {
		return err
	}
	return c.quarantineJob(ctx, conn, stream, a, chosen)
}

// choose answers what the filter takes, without the events' bytes: memory stays small.
func (c *cli) choose(ctx context.Context, conn *natsio.Conn, stream string, a *quarantineAct) ([]disposed, error) {
	if err := knownStream(ctx, conn.JS, stream); err != nil {
		return nil, err
	}
	var chosen []disposed
	err := c.quarantined(ctx, conn, stream, a.filter, func(q *quarantined) error {
		chosen = append(chosen, disposed{Sequence: q.Sequence, ID: q.ID, Source: q.Source, Reason: q.Reason, Rule: q.Rule})
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, seq := range a.filter.sequences {
		if !slices.ContainsFunc(chosen, func(d disposed) bool { return d.Sequence == uint64(seq) }) {
			return nil, findings(fmt.Errorf("stream %s has no quarantined event with sequence %d that waits for a decision; `tidemark quarantine ls %s --all` lists all, --again decides once more", stream, seq, stream))
		}
	}
	return chosen, nil
}

// quarantineJob decides about the chosen records, a step at a time, and tells each result.
func (c *cli) quarantineJob(ctx context.Context, conn *natsio.Conn, stream string, a *quarantineAct, chosen []disposed) error {
	job := uuid.NewString()
	details := map[string]any{"job": job, "events": len(chosen)}
	if err := config.Audit(ctx, conn.JS, stream, "quarantine-"+a.verb, a.reason, details); err != nil {
		return err
	}
	bar := c.progress(a.verb, int64(len(chosen)))
	defer bar.end()
	counts := map[string]int{}
	var rows []row
	for from := 0; from < len(chosen); from += disposeChunk {
		step := chosen[from:min(from+disposeChunk, len(chosen))]
		items, err := c.disposeStep(ctx, conn, stream, job, a, step)
		if err != nil {
			return fmt.Errorf("after %d of %d events: %w; run the same command again, it goes on with the rest", from, len(chosen), err)
		}
		for i := range items {
			items[i].Job = job
			counts[items[i].Result]++
			if c.output == "ndjson" {
				if err := writeJSON(c.out, &items[i], ""); err != nil {
					return err
				}
				continue
			}
			rows = append(rows, items[i].row())
		}
		bar.set(int64(from+len(step)), int64(from+len(step)))
	}
	bar.end()
	details["results"] = counts
	if err := config.Audit(ctx, conn.JS, stream, "quarantine-"+a.verb, a.reason, details); err != nil {
		return err
	}
	if c.output != "ndjson" {
		if err := c.results(rows); err != nil {
			return err
		}
	}
	done := counts[a.action]
	c.note("job %s: %d %s, %d not", job, done, a.action, len(chosen)-done)
	if done < len(chosen) {
		return findings(errFindings)
	}
	return nil
}

func (c *cli) disposeStep(ctx context.Context, conn *natsio.Conn, stream, job string, a *quarantineAct, step []disposed) ([]disposed, error) {
	request := map[string]any{"action": a.action, "by": config.Operator(), "reason": a.reason, "job": job}
	sequences := make([]uint64, len(step))
	for i := range step {
		sequences[i] = step[i].Sequence
	}
	request["sequences"] = sequences
	var reply struct {
		Items []disposed `json:"items"`
	}
	err := c.ask(ctx, conn.NC, subject.IngestQuarantine(stream), "ingest", request, &reply)
	return reply.Items, err
}

func (c *cli) results(rows []row) error {
	if len(rows) == 0 && c.output == "table" {
		return nil
	}
	return c.list([]string{"SEQUENCE", "ID", "SOURCE", "RESULT", "REASON", "RULE"}, rows)
}

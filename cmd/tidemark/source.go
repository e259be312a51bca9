package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

func (c *cli) sourceCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "source",
		Short: "Decide what only an operator can know about sources",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.sourceGapCmd())
	return cmd
}

// gapResult is what `source gap` prints (schema sourceGap.v1).
type gapResult struct {
	Stream    string `json:"stream"`
	Partition int    `json:"partition"` // key partition
	Writer    string `json:"writer"`
	First     uint64 `json:"first"`
	Last      uint64 `json:"last"`
	Missing   uint64 `json:"missing"` // of these frames are not in the journal
	Reason    string `json:"reason"`
	Sequence  uint64 `json:"sequence,omitempty"` // of the GAP record; none in a dry run
	DryRun    bool   `json:"dryRun,omitempty"`
}

func (c *cli) sourceGapCmd() *cobra.Command {
	var partition int
	var writer, frames string
	var d decision
	cmd := &cobra.Command{
		Use:   "gap STREAM --partition PP --writer W --frames A-B --reason TEXT",
		Short: "Declare frames of an events journal lost, so that a halted partition goes on",
		Long: `A windower stops at a mark whose frames are not all in the events journal, and names
writer and frames. Restore the journal if you can. When the frames are gone for good, this
appends a GAP record; the partition goes on without them at once. Events that stood in
them count nowhere, and verify reports the GAP for ever: have their sender send them again.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			first, last, err := parseFrames(frames)
			switch {
			case err != nil:
				return usage(err)
			case writer == "" || partition < 0:
				return usage(errors.New("--partition and --writer must be given: the windower's problem names both"))
			}
			if err := d.stated(); err != nil {
				return err
			}
			g := gapResult{Stream: args[0], Partition: partition, Writer: writer, First: first, Last: last, Reason: d.reason, DryRun: d.dryRun}
			return c.declareGap(cmd.Context(), g, &d)
		},
	}
	f := cmd.Flags()
	f.IntVar(&partition, "partition", -1, "key partition")
	f.StringVar(&writer, "writer", "", "writer whose frames are gone")
	f.StringVar(&frames, "frames", "", "first and last frame number, as 17-19 or 17")
	d.flags(cmd)
	return cmd
}

// parseFrames reads "A-B" or "A".
func parseFrames(text string) (first, last uint64, err error) {
	a, b, ranged := strings.Cut(text, "-")
	if !ranged {
		b = a
	}
	first, err = strconv.ParseUint(a, 10, 64)
	if err == nil {
		last, err = strconv.ParseUint(b, 10, 64)
	}
	if err != nil || first == 0 || last < first {
		return 0, 0, fmt.Errorf("--frames %q: write the first and the last frame number, as 17-19", text)
	}
	return first, last, nil
}

func (c *cli) declareGap(ctx context.Context, g gapResult, d *decision) error {
	conn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := knownPartition(ctx, conn.JS, g.Stream, g.Partition); err != nil {
		return err
	}
	if g.Missing, err = missingFrames(ctx, conn.JS, g); err != nil {
		return err
	}
	if g.Missing == 0 {
		return refused(fmt.Errorf("every one of the frames %d to %d of writer %s stands in the events journal of key partition %s: there is nothing to declare", g.First, g.Last, g.Writer, subject.PP(g.Partition)))
	}
	if g.DryRun {
		c.note("dry run: nothing was written")
		return c.object(g)
	}
	if err := c.confirm(d, "declare lost", "frames of writer "+g.Writer, int(g.Missing)); err != nil {
		return err
	}
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	if g.Sequence, err = appendGap(ctx, conn.JS, g); err != nil {
		return err
	}
	return c.object(g)
}

// knownPartition refuses a stream or key partition that does not exist.
func knownPartition(ctx context.Context, js jetstream.JetStream, stream string, pp int) error {
	if err := knownStream(ctx, js, stream); err != nil {
		return err
	}
	snapshot, err := config.Load(ctx, js)
	if err != nil {
		return err
	}
	for _, e := range snapshot.Streams {
		if e.Stream.Name == stream && pp >= e.Stream.Partitions {
			return usage(fmt.Errorf("stream %s has the key partitions 0 to %d, not %d", stream, e.Stream.Partitions-1, pp))
		}
	}
	return nil
}

// missingFrames reads the events journal and counts which of the frames are not in it.
func missingFrames(ctx context.Context, js jetstream.JetStream, g gapResult) (uint64, error) {
	stream := subject.EventsStream(g.Stream, g.Partition)
	last, err := journal.LastSeq(ctx, js, stream, "")
	if err != nil || last == 0 {
		return g.Last - g.First + 1, err
	}
	had := map[uint64]bool{}
	known := false
	var frame envelope.FrameReader
	err = journal.ReadRange(ctx, js, stream, 0, 1, last, func(m journal.Msg) error {
		if err := frame.Reset(m.Data); err != nil {
			return fmt.Errorf("frame at sequence %d: %w", m.Seq, err)
		}
		if frame.Writer != g.Writer {
			return nil
		}
		known = true
		if frame.Number >= g.First && frame.Number <= g.Last {
			had[frame.Number] = true
		}
		return nil
	})
	if err == nil && !known {
		err = usage(fmt.Errorf("no frame of writer %q stands in the events journal of key partition %s; copy the name from the windower's problem", g.Writer, subject.PP(g.Partition)))
	}
	return g.Last - g.First + 1 - uint64(len(had)), err
}

// appendGap audits, then appends: a decision that was only announced does no harm.
func appendGap(ctx context.Context, js jetstream.JetStream, g gapResult) (uint64, error) {
	if err := config.Audit(ctx, js, g.Stream, "source-gap", g.Reason, g); err != nil {
		return 0, fmt.Errorf("nothing was declared: %w", err)
	}
	data, err := envelope.AppendFrame(nil, &envelope.Frame{Records: []envelope.Record{
		{Gap: &envelope.Gap{Writer: g.Writer, First: g.First, Last: g.Last, Reason: g.Reason}},
	}})
	if err != nil {
		return 0, err
	}
	ack, err := js.Publish(ctx, subject.Events(g.Stream, g.Partition), data, jetstream.WithExpectStream(subject.EventsStream(g.Stream, g.Partition)))
	if err != nil {
		return 0, fmt.Errorf("the GAP record was not acknowledged: %w; run the command again, a second record does no harm", err)
	}
	return ack.Sequence, nil
}

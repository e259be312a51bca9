package main

import (
	"context"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// quarantined is one line of `quarantine ls`: the record with its place in the journal.
type quarantined struct {
	Sequence uint64 `json:"sequence"`
	envelope.QuarantineRecord
	Text string `json:"text,omitempty"` // the bytes where they are readable text
}

func (c *cli) quarantineCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quarantine",
		Short: "Look at events that were refused at the door",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.quarantineListCmd(), c.quarantineShowCmd())
	return cmd
}

func (c *cli) quarantineListCmd() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "ls STREAM",
		Short: "List quarantined events with their reasons",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var rows []row
			err := c.eachQuarantined(cmd.Context(), args[0], reason, func(q *quarantined) error {
				rows = append(rows, row{
					cells:  []string{strconv.FormatUint(q.Sequence, 10), q.ID, q.Reason, fmt.Sprintf("%s/%d", q.Source, q.Partition), q.IngestTime.UTC().Format("2006-01-02T15:04:05Z"), q.Rule},
					object: q,
				})
				return nil
			})
			if err != nil {
				return err
			}
			return c.list([]string{"SEQUENCE", "ID", "REASON", "SOURCE", "AT", "RULE"}, rows)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "only this reason")
	return cmd
}

func (c *cli) quarantineShowCmd() *cobra.Command {
	var raw bool
	cmd := &cobra.Command{
		Use:   "show STREAM SEQUENCE",
		Short: "Show one quarantined event whole",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted, err := strconv.ParseUint(args[1], 10, 64)
			if err != nil {
				return usage(fmt.Errorf("sequence %q is no number; `tidemark quarantine ls %s` lists them", args[1], args[0]))
			}
			found := false
			err = c.eachQuarantined(cmd.Context(), args[0], "", func(q *quarantined) error {
				if q.Sequence != wanted {
					return nil
				}
				found = true
				if raw {
					_, err := c.out.Write(q.Bytes)
					return err
				}
				return c.object(q)
			})
			if err == nil && !found {
				return findings(fmt.Errorf("stream %s has no quarantined event with sequence %d", args[0], wanted))
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "write the exact bytes and nothing else")
	return cmd
}

// eachQuarantined reads the quarantine journal of a stream as it is now.
func (c *cli) eachQuarantined(ctx context.Context, stream, reason string, each func(*quarantined) error) error {
	conn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	if err := knownStream(ctx, conn.JS, stream); err != nil {
		return err
	}
	return c.quarantined(ctx, conn, stream, reason, each)
}

// quarantined calls each for every record that is there now.
func (c *cli) quarantined(ctx context.Context, conn *natsio.Conn, stream, reason string, each func(*quarantined) error) error {
	last, err := journal.LastSeq(ctx, conn.JS, subject.QuarantineStream(stream), "")
	if err != nil || last == 0 {
		return err
	}
	r, err := journal.Read(ctx, conn.JS, subject.QuarantineStream(stream), 0, 1)
	if err != nil {
		return err
	}
	defer r.Close()
	type number struct {
		writer string
		n      uint64
	}
	had := map[number]bool{} // a record resent after a lost acknowledgement is one event
	for seq := uint64(0); seq < last; {
		m, err := r.Next(ctx)
		if err != nil {
			return err
		}
		seq = m.Seq
		record, err := envelope.DecodeQuarantine(m.Data)
		if err != nil {
			return err
		}
		id := number{record.Writer, record.Number}
		if had[id] || reason != "" && record.Reason != reason {
			continue
		}
		had[id] = true
		q := &quarantined{Sequence: m.Seq, QuarantineRecord: record}
		if utf8.Valid(record.Bytes) {
			q.Text = string(record.Bytes)
		}
		if err := each(q); err != nil {
			return err
		}
	}
	return nil
}

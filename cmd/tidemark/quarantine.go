package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/core/admission"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// quarantined is one line of `quarantine ls`: the record with its place in the journal
// and what was decided about it.
type quarantined struct {
	Sequence uint64 `json:"sequence"`
	ID       string `json:"id"` // there also when it could not be read, for scripts
	envelope.QuarantineRecord
	Text        string                          `json:"text,omitempty"` // the bytes where they are readable text
	Disposition *envelope.QuarantineDisposition `json:"disposition,omitempty"`
}

// quarantineFilter chooses records; empty fields do not narrow.
type quarantineFilter struct {
	reason    string
	source    string
	id        string
	sequences []uint
	decided   bool // also records about which an operator has decided
}

func (f *quarantineFilter) takes(q *quarantined) bool {
	return (f.decided || q.Disposition == nil) && (f.reason == "" || q.Reason == f.reason) && (f.source == "" || q.Source == f.source) &&
		(f.id == "" || q.ID == f.id) && (len(f.sequences) == 0 || slices.Contains(f.sequences, uint(q.Sequence)))
}

// knownReason refuses a reason that no event can have, so that a misspelt one does not
// look like an empty quarantine.
func knownReason(flag, reason string) error {
	known := admission.Reasons()
	if reason == "" || slices.Contains(known, admission.Reason(reason)) {
		return nil
	}
	names := make([]string, len(known))
	for i, r := range known {
		names[i] = string(r)
	}
	return usage(fmt.Errorf("--%s %q is no reason; choose %s", flag, reason, strings.Join(names, ", ")))
}

func (c *cli) quarantineCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quarantine",
		Short: "Look at events that were refused at the door, take them in again or discard them",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.quarantineListCmd(), c.quarantineShowCmd(), c.quarantineReplayCmd(), c.quarantineDiscardCmd())
	return cmd
}

func (c *cli) quarantineListCmd() *cobra.Command {
	var filter quarantineFilter
	cmd := &cobra.Command{
		Use:   "ls STREAM",
		Short: "List quarantined events with their reasons",
		Long: `List quarantined events with their reasons. Events that an operator has replayed or
discarded are left out; --all shows them with what was decided.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := knownReason("reason", filter.reason); err != nil {
				return err
			}
			var rows []row
			err := c.eachQuarantined(cmd.Context(), args[0], filter, func(q *quarantined) error {
				cells := []string{strconv.FormatUint(q.Sequence, 10), q.ID, q.Reason, fmt.Sprintf("%s/%d", q.Source, q.Partition), q.IngestTime.UTC().Format("2006-01-02T15:04:05Z"), q.Rule}
				if filter.decided {
					decided := ""
					if q.Disposition != nil {
						decided = q.Disposition.Action + ": " + q.Disposition.Reason
					}
					cells = append(cells, decided)
				}
				rows = append(rows, row{cells: cells, object: q})
				return nil
			})
			if err != nil {
				return err
			}
			columns := []string{"SEQUENCE", "ID", "REASON", "SOURCE", "AT", "RULE"}
			if filter.decided {
				columns = append(columns, "DECIDED")
			}
			return c.list(columns, rows)
		},
	}
	f := cmd.Flags()
	f.StringVar(&filter.reason, "reason", "", "only events refused for this reason")
	f.StringVar(&filter.source, "source", "", "only events of this source")
	f.StringVar(&filter.id, "id", "", "only events with this id")
	f.BoolVar(&filter.decided, "all", false, "also events that were replayed or discarded")
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
			filter := quarantineFilter{sequences: []uint{uint(wanted)}, decided: true}
			err = c.eachQuarantined(cmd.Context(), args[0], filter, func(q *quarantined) error {
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
func (c *cli) eachQuarantined(ctx context.Context, stream string, filter quarantineFilter, each func(*quarantined) error) error {
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
	return c.quarantined(ctx, conn, stream, filter, each)
}

// quarantined calls each for every record that is there now and that the filter takes.
func (c *cli) quarantined(ctx context.Context, conn *natsio.Conn, stream string, filter quarantineFilter, each func(*quarantined) error) error {
	name := subject.QuarantineStream(stream)
	last, err := journal.LastSeq(ctx, conn.JS, name, "")
	if err != nil || last == 0 {
		return err
	}
	decided, err := dispositions(ctx, conn, stream, last)
	if err != nil {
		return err
	}
	type number struct {
		writer string
		n      uint64
	}
	had := map[number]bool{} // a record resent after a lost acknowledgement is one event
	return journal.ReadRange(ctx, conn.JS, name, 0, 1, last, func(m journal.Msg) error {
		if m.Subject == subject.QuarantineDisposition(stream) {
			return nil
		}
		record, err := envelope.DecodeQuarantine(m.Data)
		if err != nil {
			return fmt.Errorf("stream %s sequence %d: %w", name, m.Seq, err)
		}
		id := number{record.Writer, record.Number}
		if had[id] {
			return nil
		}
		had[id] = true
		q := &quarantined{Sequence: m.Seq, ID: record.ID, QuarantineRecord: record, Disposition: decided[m.Seq]}
		if !filter.takes(q) {
			return nil
		}
		if utf8.Valid(record.Bytes) {
			q.Text = string(record.Bytes)
		}
		return each(q)
	})
}

// dispositions answers the last decision about every record that has one.
func dispositions(ctx context.Context, conn *natsio.Conn, stream string, last uint64) (map[uint64]*envelope.QuarantineDisposition, error) {
	decided := map[uint64]*envelope.QuarantineDisposition{}
	err := journal.ReadRange(ctx, conn.JS, subject.QuarantineStream(stream), 0, 1, last, func(m journal.Msg) error {
		d, err := envelope.DecodeDisposition(m.Data)
		if err != nil {
			return fmt.Errorf("stream %s sequence %d: %w", subject.QuarantineStream(stream), m.Seq, err)
		}
		decided[d.Sequence] = &d
		return nil
	}, subject.QuarantineDisposition(stream))
	return decided, err
}

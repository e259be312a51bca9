package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Steps of a trace, in the order in which an event takes them.
const (
	stepQuarantine  = "quarantine"  // refused at the door
	stepDisposition = "disposition" // what an operator decided about that
	stepEvent       = "event"       // in an events journal
	stepWithdrawal  = "withdrawal"  // a retraction that names it
	stepLate        = "late"        // a window refused it as too late
	stepConflict    = "conflict"    // its id was taken
	stepReopen      = "reopen"      // the reconciler hands it back
	stepRefused     = "refused"     // the windower refused that
	stepRevision    = "revision"    // a revision of its window made since
	stepRow         = "row"         // what readers see of its window now
)

// traceStep is one place at which an event was met (schema traceStep.v1).
type traceStep struct {
	Step     string `json:"step"`
	Stream   string `json:"stream"`
	Journal  string `json:"journal,omitempty"`
	Sequence uint64 `json:"sequence,omitempty"`
	Index    *int   `json:"index,omitempty"` // record within the message

	ID              string                        `json:"id,omitempty"`
	Source          string                        `json:"source,omitempty"`
	SourcePartition string                        `json:"sourcePartition,omitempty"`
	SourceOffset    uint64                        `json:"sourceOffset,omitempty"`
	Key             string                        `json:"key,omitempty"`
	KeyPartition    *int                          `json:"keyPartition,omitempty"`
	EventTimes      map[string]envelope.EventTime `json:"eventTimes,omitempty"` // by extractor
	IngestTime      string                        `json:"ingestTime,omitempty"`
	Op              string                        `json:"op,omitempty"`
	Origin          string                        `json:"origin,omitempty"`
	Withdraws       string                        `json:"withdraws,omitempty"`
	Digest          string                        `json:"digest,omitempty"`
	Writer          string                        `json:"writer,omitempty"`
	Frame           uint64                        `json:"frame,omitempty"`
	Class           string                        `json:"class,omitempty"` // events: first, duplicate, other-digest, resent

	Reason string `json:"reason,omitempty"`
	Rule   string `json:"rule,omitempty"`

	PolicyGeneration string                     `json:"policyGeneration,omitempty"`
	Window           *revision.Window           `json:"window,omitempty"`
	Revision         uint64                     `json:"revision,omitempty"`
	Firing           string                     `json:"firing,omitempty"`
	State            string                     `json:"state,omitempty"`
	FirstIncluding   bool                       `json:"firstIncluding,omitempty"` // revisions: the first that holds the event
	Value            map[string]json.RawMessage `json:"value,omitempty"`
}

// traceQuery says what is looked for.
type traceQuery struct {
	id, stream, source, key string
}

func (c *cli) traceCmd() *cobra.Command {
	var q traceQuery
	cmd := &cobra.Command{
		Use:   "trace EVENT_ID",
		Short: "Follow one event through every journal",
		Long: `Follow one event through every journal, with positions: quarantine and what was decided
there, events, late and conflict records of every policy generation, REOPENs that hand it
back and what refused them, the revisions of its windows made since (and the first that
holds it), and what readers see now.

Reads whole journals; --stream, --source and --key say where to look and make it faster.
Exit status 1 if the event is nowhere.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if q.id = args[0]; q.id == "" {
				return usage(fmt.Errorf("the event id is empty"))
			}
			conn, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			steps, err := c.trace(cmd.Context(), conn, q)
			if err != nil {
				return err
			}
			rows := make([]row, len(steps))
			for i := range steps {
				rows[i] = steps[i].row()
			}
			if len(rows) == 0 {
				where := "any stream"
				if q.stream != "" {
					where = "stream " + q.stream
				}
				if c.output != "table" {
					if err := c.list(nil, rows); err != nil {
						return err
					}
				}
				return findings(fmt.Errorf("event %q is nowhere in %s: neither accepted nor quarantined", q.id, where))
			}
			return c.list([]string{"STEP", "JOURNAL", "POSITION", "WHAT"}, rows)
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.stream, "stream", "", "only this business stream")
	f.StringVar(&q.source, "source", "", "only events of this source")
	f.StringVar(&q.key, "key", "", "only events of this key: reads one key partition")
	return cmd
}

// trace follows the event through one stream or all of them.
func (c *cli) trace(ctx context.Context, conn *natsio.Conn, q traceQuery) ([]traceStep, error) {
	snapshot, err := config.Load(ctx, conn.JS)
	if err != nil {
		return nil, err
	}
	if q.stream != "" {
		if err := knownStream(ctx, conn.JS, q.stream); err != nil {
			return nil, err
		}
	}
	var steps []traceStep
	for _, e := range snapshot.Streams {
		if q.stream != "" && e.Stream.Name != q.stream {
			continue
		}
		t := &tracer{cli: c, conn: conn, query: q, stream: e.Stream, snapshot: snapshot}
		if err := t.run(ctx); err != nil {
			return nil, err
		}
		steps = append(steps, t.steps...)
	}
	return steps, nil
}

func (s *traceStep) row() row {
	position := ""
	if s.Sequence != 0 {
		position = strconv.FormatUint(s.Sequence, 10)
	}
	if s.Index != nil {
		position += "/" + strconv.Itoa(*s.Index)
	}
	return row{cells: []string{s.Step, s.Journal, position, s.what()}, object: s}
}

// what says the step in words.
func (s *traceStep) what() string {
	switch s.Step {
	case stepQuarantine:
		return fmt.Sprintf("%s/%s offset %d refused: %s: %s", s.Source, s.SourcePartition, s.SourceOffset, s.Reason, s.Rule)
	case stepDisposition:
		return fmt.Sprintf("record %d %s", s.SourceOffset, s.Reason)
	case stepEvent, stepWithdrawal:
		return fmt.Sprintf("%s/%s offset %d, key %q, %s, %s, frame %d of %s, %s", s.Source, s.SourcePartition, s.SourceOffset, s.Key, s.Op, s.Origin, s.Frame, s.Writer, s.Class)
	case stepLate:
		return fmt.Sprintf("%s: too late for window %s to %s", s.PolicyGeneration, s.Window.Start, s.Window.End)
	case stepConflict:
		return fmt.Sprintf("%s: %s", s.PolicyGeneration, s.Rule)
	case stepReopen:
		return fmt.Sprintf("%s: handed back to key %q, %s", s.PolicyGeneration, s.Key, s.Op)
	case stepRefused:
		return fmt.Sprintf("%s: key %q was not reopened: %s", s.PolicyGeneration, s.Key, s.Reason)
	}
	values := (&windowRow{Op: s.Op, Value: s.Value}).values()
	what := fmt.Sprintf("%s window %s to %s revision %d %s %s %s", s.PolicyGeneration, s.Window.Start, s.Window.End, s.Revision, s.Firing, s.State, values)
	if s.FirstIncluding {
		what += " (first to hold the event)"
	}
	return what
}

package main

import (
	"context"
	"encoding/json"
	"sort"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// windowQuery is a query of current rows or of the ledger; empty fields do not narrow.
type windowQuery struct {
	Key        string `json:"key,omitempty"`
	From       string `json:"from,omitempty"`
	To         string `json:"to,omitempty"`
	Generation string `json:"generation,omitempty"`
	Job        string `json:"job,omitempty"`
	History    bool   `json:"history,omitempty"`
	Cursor     string `json:"cursor,omitempty"`
}

// windowRow is one result as the projector answers it.
type windowRow struct {
	Key              string                     `json:"key"`
	Start            envelope.EventTime         `json:"start"`
	End              envelope.EventTime         `json:"end"`
	Revision         uint64                     `json:"revision"`
	Op               string                     `json:"op"`
	State            string                     `json:"state"`
	Value            map[string]json.RawMessage `json:"value"`
	Job              string                     `json:"job"`
	PolicyGeneration string                     `json:"policyGeneration"`
	Firing           string                     `json:"firing"`
	ValueChanged     bool                       `json:"valueChanged"`
	Provenance       string                     `json:"provenance"`
	ProjectionID     string                     `json:"projectionId"`
	ResultID         string                     `json:"resultId,omitempty"`     // sessions
	Supersedes       []supersededRow            `json:"supersedes,omitempty"`   // sessions: what it took the place of
	SupersededBy     string                     `json:"supersededBy,omitempty"` // sessions: projection that took its place
	Record           json.RawMessage            `json:"record,omitempty"`       // the revision as published
}

// supersededRow names a projection and the revision that retracted it.
type supersededRow struct {
	ProjectionID string `json:"projectionId"`
	Revision     uint64 `json:"revision"`
}

func (c *cli) windowsCmd() *cobra.Command {
	var q windowQuery
	var full bool
	cmd := &cobra.Command{
		Use:   "windows STREAM",
		Short: "Show current results, or the ledger of revisions",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, _, err := timeRange(q.From, q.To); err != nil {
				return err
			}
			conn, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			if err := knownStream(cmd.Context(), conn.JS, args[0]); err != nil {
				return err
			}
			var rows []row
			names := windowNames{}
			err = c.eachWindow(cmd.Context(), conn.NC, args[0], q, func(w *windowRow) error {
				if !full {
					w.Record = nil
				}
				names.note(w)
				rows = append(rows, w.row())
				return nil
			})
			if err != nil {
				return err
			}
			if q.History {
				for _, r := range rows {
					r.cells[5] += names.succession(r.object.(*windowRow))
				}
			}
			return c.list([]string{"KEY", "START", "END", "REVISION", "STATE", "VALUE", "GENERATION", "FIRING", "PROVENANCE"}, rows)
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.Key, "key", "", "only this key")
	f.StringVar(&q.From, "from", "", "windows that start at or after this time, sessions that end after it (RFC 3339)")
	f.StringVar(&q.To, "to", "", "windows and sessions that start before this time (RFC 3339)")
	f.StringVar(&q.Generation, "generation", "", "a policy generation (job@n) instead of the canonical one")
	f.StringVar(&q.Job, "job", "", "only this job")
	f.BoolVar(&q.History, "history", false, "every revision, not the current rows")
	f.BoolVar(&full, "full", false, "with the whole published revision as record")
	return cmd
}

// eachWindow calls each for every row, over all pages.
func (c *cli) eachWindow(ctx context.Context, nc *nats.Conn, stream string, q windowQuery, each func(*windowRow) error) error {
	verb := "windows"
	if q.History {
		verb = "history"
	}
	warned := map[string]bool{}
	for {
		var page struct {
			Rows     []windowRow `json:"rows"`
			Cursor   string      `json:"cursor"`
			Problems []string    `json:"problems"`
		}
		if err := c.ask(ctx, nc, subject.Query(stream, verb), "projector", q, &page); err != nil {
			return err
		}
		for _, p := range page.Problems {
			if !warned[p] { // every page repeats them
				c.note("warning: %s", p)
				warned[p] = true
			}
		}
		for i := range page.Rows {
			if err := each(&page.Rows[i]); err != nil {
				return err
			}
		}
		if page.Cursor == "" {
			return nil
		}
		q.Cursor = page.Cursor
	}
}

func (w *windowRow) row() row {
	return row{
		cells: []string{
			w.Key, w.Start.String(), w.End.String(), strconv.FormatUint(w.Revision, 10), w.State, w.values(),
			w.PolicyGeneration, w.Firing, w.Provenance,
		},
		object: w,
	}
}

// values writes the value as name=text, sorted by name.
func (w *windowRow) values() string {
	if w.Op == "RETRACT" {
		return "(retracted)"
	}
	parts := make([]string, 0, len(w.Value))
	for name, raw := range w.Value {
		text := string(raw)
		var unquoted string
		if json.Unmarshal(raw, &unquoted) == nil {
			text = unquoted
		}
		parts = append(parts, name+"="+plain(text))
	}
	sort.Strings(parts)
	return strings.Join(parts, " ")
}

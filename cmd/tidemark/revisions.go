package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subscribe"
)

func (c *cli) revisionsCmd() *cobra.Command {
	var follow bool
	var job, key, generation string
	cmd := &cobra.Command{
		Use:   "revisions STREAM",
		Short: "The feed of accepted revisions",
		Long: `Print accepted revisions in the order of acceptance, whole batches only: with
--follow until interrupted, else those that are there now. json and ndjson print one
object a line, yaml one document a revision.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			conn, err := c.connect(ctx)
			if err != nil {
				return err
			}
			defer conn.Close()
			if err := knownStream(ctx, conn.JS, args[0]); err != nil {
				return err
			}
			if name, _, found := strings.Cut(generation, "@"); found && job == "" {
				job = name
			}
			if job == "" {
				if job, err = onlyJob(ctx, conn.JS, args[0]); err != nil {
					return err
				}
			}
			number, err := knownGeneration(ctx, conn.JS, args[0], job, generation)
			if err != nil {
				return err
			}
			if !follow {
				q := windowQuery{Job: job, Key: key, History: true}
				if number > 0 {
					q.Job, q.Generation = "", policy.PolicyGeneration(job, number)
				}
				return c.pastRevisions(ctx, conn.NC, args[0], q)
			}
			return c.followRevisions(ctx, conn.NC, subscribe.Options{Stream: args[0], Job: job, Key: key, Generation: number})
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&follow, "follow", "f", false, "stay and print what comes")
	f.StringVar(&job, "job", "", "job (needed when the stream has several)")
	f.StringVar(&key, "key", "", "only this key")
	f.StringVar(&generation, "generation", "", "a policy generation (job@n, or n) instead of the canonical one")
	return cmd
}

// knownGeneration answers the number of a generation written job@n or n, 0 for none, and
// refuses one that is not applied.
func knownGeneration(ctx context.Context, js jetstream.JetStream, stream, job, text string) (int, error) {
	snapshot, err := config.Load(ctx, js)
	if err != nil {
		return 0, err
	}
	var applied []string
	for _, e := range snapshot.Policies {
		p := e.Policy
		if p.Stream != stream || p.Job != job {
			continue
		}
		if text == p.PolicyGeneration() || text == strconv.Itoa(p.Generation) {
			return p.Generation, nil
		}
		applied = append(applied, p.PolicyGeneration())
	}
	switch {
	case len(applied) == 0:
		return 0, noJob(snapshot, stream, job)
	case text == "":
		return 0, nil
	}
	return 0, usage(fmt.Errorf("job %s of stream %s has no generation %s; applied are %s", job, stream, text, strings.Join(applied, ", ")))
}

func (c *cli) pastRevisions(ctx context.Context, nc *nats.Conn, stream string, q windowQuery) error {
	lines := lineGroup{cli: c}
	err := c.eachWindow(ctx, nc, stream, q, func(w *windowRow) error {
		if c.output == "table" {
			return lines.add(w)
		}
		return c.published(w.Record)
	})
	if err != nil {
		return err
	}
	return lines.flush()
}

// published prints one revision as it was published.
func (c *cli) published(record []byte) error {
	if c.output == "yaml" {
		text, err := yaml.JSONToYAML(record)
		if err != nil {
			return err
		}
		record = append([]byte("---\n"), bytes.TrimRight(text, "\n")...)
	}
	_, err := fmt.Fprintf(c.out, "%s\n", record)
	return err
}

// lineGroup prints revisions for people, a line each; rows come as they are accepted, so
// there are no columns to align. Retractions of sessions are held back until the session
// comes that replaces them, so that each can name the other.
type lineGroup struct {
	cli  *cli
	held []*windowRow
}

func (g *lineGroup) add(w *windowRow) error {
	g.held = append(g.held, w)
	if w.SupersededBy != "" {
		return nil
	}
	return g.flush()
}

// flush prints what is held back.
func (g *lineGroup) flush() error {
	names := windowNames{}
	for _, w := range g.held {
		names.note(w)
	}
	for _, w := range g.held {
		_, err := fmt.Fprintf(g.cli.out, "%s  %s to %s  revision %s  %s  %s  %s%s\n",
			plain(w.Key), w.Start, w.End, strconv.FormatUint(w.Revision, 10), w.Firing, w.State, w.values(), names.succession(w))
		if err != nil {
			return err
		}
	}
	g.held = nil
	return nil
}

func (c *cli) followRevisions(ctx context.Context, nc *nats.Conn, o subscribe.Options) error {
	feed, err := subscribe.Open(ctx, nc, o)
	if err != nil {
		return err
	}
	defer feed.Close()
	lines := lineGroup{cli: c}
	for {
		batch, err := feed.Next(ctx)
		if errors.Is(err, context.Canceled) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, r := range batch.Revisions {
			if err := c.printRevision(&lines, r); err != nil {
				return err
			}
		}
	}
}

func (c *cli) printRevision(lines *lineGroup, r *revision.Revision) error {
	if c.output != "table" {
		return c.published(r.AppendJSON(nil))
	}
	w := windowRow{
		Key: r.Key, Start: r.Window.Start, End: r.Window.End, Revision: r.Revision, Op: string(r.Op), State: string(r.State), Firing: string(r.Firing),
		Value: valueOf(r), ProjectionID: r.ProjectionID, SupersededBy: r.SupersededBy,
	}
	for _, s := range r.Supersedes {
		w.Supersedes = append(w.Supersedes, supersededRow(s))
	}
	return lines.add(&w)
}

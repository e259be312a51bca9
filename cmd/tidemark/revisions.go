package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subscribe"
)

func (c *cli) revisionsCmd() *cobra.Command {
	var follow bool
	var job, key string
	var generation int
	cmd := &cobra.Command{
		Use:   "revisions STREAM",
		Short: "The feed of accepted revisions",
		Long: `Print accepted revisions in the order of acceptance, whole batches only: with
--follow until interrupted, else those that are there now. One JSON object a line.`,
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
			if job == "" {
				if job, err = onlyJob(ctx, conn.JS, args[0]); err != nil {
					return err
				}
			}
			if !follow {
				return c.pastRevisions(ctx, conn.NC, args[0], windowQuery{Job: job, Key: key, History: true})
			}
			return c.followRevisions(ctx, conn.NC, subscribe.Options{Stream: args[0], Job: job, Key: key, Generation: generation})
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&follow, "follow", "f", false, "stay and print what comes")
	f.StringVar(&job, "job", "", "job (needed when the stream has several)")
	f.StringVar(&key, "key", "", "only this key")
	f.IntVar(&generation, "generation", 0, "a generation number instead of the canonical one")
	return cmd
}

func (c *cli) pastRevisions(ctx context.Context, nc *nats.Conn, stream string, q windowQuery) error {
	return c.eachWindow(ctx, nc, stream, q, func(w *windowRow) error {
		if c.output == "table" {
			return c.line(w)
		}
		_, err := fmt.Fprintf(c.out, "%s\n", w.Record)
		return err
	})
}

// line prints one revision for people; rows come as they are accepted, so there are no
// columns to align.
func (c *cli) line(w *windowRow) error {
	_, err := fmt.Fprintf(c.out, "%s  %s to %s  revision %s  %s  %s  %s\n", w.Key, w.Start, w.End, strconv.FormatUint(w.Revision, 10), w.Firing, w.State, w.values())
	return err
}

func (c *cli) followRevisions(ctx context.Context, nc *nats.Conn, o subscribe.Options) error {
	feed, err := subscribe.Open(ctx, nc, o)
	if err != nil {
		return err
	}
	defer feed.Close()
	for {
		batch, err := feed.Next(ctx)
		if errors.Is(err, context.Canceled) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, r := range batch.Revisions {
			if err := c.printRevision(r); err != nil {
				return err
			}
		}
	}
}

func (c *cli) printRevision(r *revision.Revision) error {
	text := r.AppendJSON(nil)
	if c.output != "table" {
		_, err := fmt.Fprintf(c.out, "%s\n", text)
		return err
	}
	w := windowRow{Key: r.Key, Start: r.Window.Start, End: r.Window.End, Revision: r.Revision, Op: string(r.Op), State: string(r.State), Firing: string(r.Firing)}
	w.Value = valueOf(r)
	return c.line(&w)
}

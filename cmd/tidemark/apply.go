package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/config"
)

func (c *cli) applyCmd() *cobra.Command {
	var files []string
	var replicas int
	var dryRun, yes, activate bool
	var reason string
	cmd := &cobra.Command{
		Use:   "apply -f FILE…",
		Short: "Store documents and create the journals they need",
		Long: `Check documents, create the journals they need and store them; services take them up at
once. Either every document is taken or none is. What is applied never changes: a changed
policy needs a higher generation, a changed stream only gains values and extractors
together with a higher schemaGeneration, a changed effect policy or adapter is a higher
version.

A new version of an effect policy that is higher than the active one becomes active: from
then on effects of its type are made by it. Applying documents again undoes no such
choice; --activate makes the versions given active, also lower ones.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			names := append(files, args...)
			if len(names) == 0 {
				return usage(errors.New("no file given; write `tidemark apply -f FILE` (a directory, or - for stdin)"))
			}
			docs, found, err := c.readDocuments(names)
			if err != nil {
				return err
			}
			if len(docs)+len(found) == 0 {
				return usage(fmt.Errorf("these files hold no document to apply; test cases are run with `tidemark test`"))
			}
			if len(found) > 0 {
				return c.refuse(&config.RefusedError{Findings: found})
			}
			ctx, cancel := c.deadline(cmd.Context())
			defer cancel()
			conn, err := c.connect(ctx)
			if err != nil {
				return err
			}
			defer conn.Close()
			results, err := config.Apply(ctx, conn.JS, docs, config.Options{Replicas: replicas, DryRun: dryRun, Activate: activate, Reason: reason})
			if err != nil {
				return c.refuse(err)
			}
			if dryRun {
				c.note("dry run: nothing was written")
			}
			rows := make([]row, len(results))
			for i, r := range results {
				action := r.Action
				if r.Active != "" {
					action += ", " + r.Active
				}
				rows[i] = row{cells: []string{r.Kind, r.Name, action, r.Digest[:12]}, object: r}
			}
			return c.list([]string{"KIND", "NAME", "ACTION", "DIGEST"}, rows)
		},
	}
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "file with documents, a directory, or - for stdin; may be repeated")
	cmd.Flags().IntVar(&replicas, "replicas", 1, "replicas of the journals: 1, or 3 in a cluster")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be done, write nothing")
	cmd.Flags().BoolVar(&activate, "activate", false, "make the effect policies given active, whatever version is now")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit journal")
	cmd.Flags().BoolVar(&yes, "yes", false, "accepted for scripts; apply asks nothing")
	return cmd
}

// refuse prints findings line by line and answers the error with its exit code.
func (c *cli) refuse(err error) error {
	var bad *config.RefusedError
	if !errors.As(err, &bad) {
		return err
	}
	if reportErr := c.reportFindings(bad.Findings, 0); !errors.Is(reportErr, errFindings) {
		return reportErr
	}
	return findings(fmt.Errorf("nothing was applied: %d findings", len(bad.Findings)))
}

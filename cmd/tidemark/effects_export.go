package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/effectops"
)

func (c *cli) effectsExportCmd() *cobra.Command {
	var filter effectFilter
	cmd := &cobra.Command{
		Use:   "export STREAM",
		Short: "Write every record of the effects journals, verified, one JSON object a line",
		Long: `Write every record of the effects journals in their order, one JSON object a line: the
steps of effects with their payloads, CONTROL, COMMAND and EVIDENCE records and answers.
The chain over commits and the history of each effect are verified on the way; what does
not verify ends the export with an error. With filters only steps of effects are
written that the filters take. The output is lines of JSON whatever -o says.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := filter.read(); err != nil {
				return err
			}
			return c.withEffects(cmd.Context(), args[0], func(ctx context.Context, ops *effectops.Ops) error {
				return ops.Export(ctx, filter.Filter, func(line effectops.Line) error { return writeJSON(c.out, &line, "") })
			})
		},
	}
	filter.flags(cmd)
	return cmd
}

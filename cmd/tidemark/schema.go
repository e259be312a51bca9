package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/pkg/schema"
)

func (c *cli) schemaCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "schema [NAME]",
		Short: "Print a published schema, or list them",
		Long: `Print a JSON Schema (or .proto file) of what Tidemark reads and writes, or list their names.
A document's kind works too: tidemark schema BusinessStream.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				var rows []row
				for _, name := range schema.Names() {
					rows = append(rows, row{cells: []string{name}, object: map[string]string{"name": name}})
				}
				return c.list([]string{"NAME"}, rows)
			}
			text, found := schema.Lookup(args[0])
			if !found {
				return usage(fmt.Errorf("there is no schema %s; there are %s", args[0], strings.Join(schema.Names(), ", ")))
			}
			_, err := c.out.Write(text)
			return err
		},
	}
}

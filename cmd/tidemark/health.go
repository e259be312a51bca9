package main

import (
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"
)

// healthCmd is what a container without a shell runs as its health check.
func (c *cli) healthCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "health URL",
		Short: "Ask a health endpoint; exit 0 if it answers 200",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := c.deadline(cmd.Context())
			defer cancel()
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0], nil)
			if err != nil {
				return usage(err)
			}
			answer, err := http.DefaultClient.Do(request)
			if err != nil {
				return coded{exitUnreachable, err}
			}
			defer answer.Body.Close()
			body, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
			if err != nil {
				return coded{exitUnreachable, err}
			}
			if answer.StatusCode != http.StatusOK {
				return findings(fmt.Errorf("%s answers %s: %s", args[0], answer.Status, body))
			}
			fmt.Fprint(c.out, string(body))
			return nil
		},
	}
}

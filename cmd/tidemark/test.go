package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/cases"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

func (c *cli) testCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "test FILE…",
		Short: "Run test cases of documents without a server",
		Long: `Run test cases: events in; windows, revisions, quarantine and late records out. The case
drives time and marks, so nothing waits. Every case is also compared with the oracle.

A directory stands for the YAML files in it, - for stdin. "tidemark create TestCase"
writes a case to begin with. Exit status 1 if a case fails.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, files []string) error {
			all, bad, err := c.readCases(files, false)
			if err != nil {
				return err
			}
			if len(bad) > 0 {
				return c.reportFindings(bad, len(all))
			}
			if len(all) == 0 {
				return usage(fmt.Errorf("there is no test case in these files; `tidemark create %s` writes one", cases.Kind))
			}
			return c.runCases(all)
		},
	}
}

// runCases prints a verdict a case, with the diff of those that fail.
func (c *cli) runCases(all []*cases.Case) error {
	failed := 0
	var rows []row
	for _, one := range all {
		r := cases.Run(one)
		if !r.OK {
			failed++
		}
		if c.output != "table" {
			rows = append(rows, row{object: r})
			continue
		}
		verdict := "ok  "
		if !r.OK {
			verdict = "FAIL"
		}
		fmt.Fprintf(c.out, "%s  %s  (%s:%d, %d events)\n", verdict, r.Name, r.File, r.Line, r.Events)
		for _, line := range r.Diff {
			fmt.Fprintf(c.out, "      %s\n", line)
		}
		for _, line := range r.Notes {
			fmt.Fprintf(c.out, "      note: %s\n", line)
		}
	}
	c.note("%d cases, %d failed", len(all), failed)
	if c.output != "table" {
		if err := c.list(nil, rows); err != nil {
			return err
		}
	}
	if failed > 0 {
		return findings(errFindings)
	}
	return nil
}

// readCases parses the test cases in files. Files of other documents are left to
// readDocuments when mixed; else they are findings, unless a directory brought them.
func (c *cli) readCases(names []string, mixed bool) (all []*cases.Case, bad []policy.Finding, err error) {
	for _, name := range names {
		files, err := documentFiles(name)
		if err != nil {
			return nil, nil, err
		}
		for _, file := range files {
			src, err := c.readSource(file)
			if err != nil {
				return nil, nil, usage(fmt.Errorf("%w; name a file with test cases, a directory, or - for stdin", err))
			}
			if !cases.Holds(src) && (mixed || file != name) {
				continue
			}
			parsed, found := cases.Parse(file, src)
			all, bad = append(all, parsed...), append(bad, found...)
		}
	}
	return all, bad, nil
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/cases"
	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

func (c *cli) lintCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "lint FILE…",
		Short: "Check documents without applying them",
		Long: `Check documents and name every fault with file, line and rule.

Policies are checked against their stream in the same files, effect policies against
their job and adapter, with the types of their expressions; test cases with the documents
that they name. With --server or --context they are also checked against what is applied
there.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			docs, found, err := c.readDocuments(files)
			if err != nil {
				return err
			}
			tests, bad, err := c.readCases(files, true)
			if err != nil {
				return err
			}
			found = append(found, bad...)
			var applied config.Snapshot
			if c.server != "" || c.context != "" {
				ctx, cancel := c.deadline(cmd.Context())
				defer cancel()
				conn, err := c.connect(ctx)
				if err != nil {
					return err
				}
				defer conn.Close()
				if applied, err = config.Load(ctx, conn.JS); err != nil {
					return err
				}
			}
			found = append(found, lintWhole(docs, found, applied.Documents())...)
			return c.reportFindings(found, len(docs)+len(tests))
		},
	}
}

// lintWhole lints across documents. Where a file did not parse, a policy may only seem
// to lack its stream, job or adapter: those findings are left out.
func lintWhole(docs []policy.Document, parse []policy.Finding, applied []policy.Document) []policy.Finding {
	found := config.Lint(docs, applied)
	if len(parse) > 0 {
		missing := []string{"unknown-stream", "unknown-job", "unknown-adapter"}
		found = slices.DeleteFunc(found, func(f policy.Finding) bool { return slices.Contains(missing, f.Rule) })
	}
	return found
}

// reportFindings prints findings, or says that there are none.
func (c *cli) reportFindings(found []policy.Finding, documents int) error {
	if len(found) == 0 {
		c.note("%d documents, no findings", documents)
		if c.output == "json" {
			return c.object([]policy.Finding{})
		}
		return nil
	}
	if c.output == "table" {
		for _, f := range found {
			fmt.Fprintln(c.out, f)
		}
		return findings(errFindings)
	}
	rows := make([]row, len(found))
	for i, f := range found {
		rows[i] = row{object: f}
	}
	if err := c.list(nil, rows); err != nil {
		return err
	}
	return findings(errFindings)
}

// readDocuments parses files; a directory stands for the YAML files in it, - for stdin.
func (c *cli) readDocuments(names []string) ([]policy.Document, []policy.Finding, error) {
	var docs []policy.Document
	var found []policy.Finding
	for _, name := range names {
		files, err := documentFiles(name)
		if err != nil {
			return nil, nil, err
		}
		for _, file := range files {
			src, err := c.readSource(file)
			if err != nil {
				return nil, nil, usage(fmt.Errorf("%w; name a file with documents, a directory, or - for stdin", err))
			}
			if cases.Holds(src) {
				continue // readCases takes these
			}
			parsed, bad := policy.Parse(file, src)
			docs, found = append(docs, parsed...), append(found, bad...)
		}
	}
	return docs, found, nil
}

// readSource reads a file, or all of stdin, which is kept for whoever reads it again.
func (c *cli) readSource(file string) ([]byte, error) {
	if file != "-" {
		return os.ReadFile(file)
	}
	src, err := io.ReadAll(c.in)
	c.in = bytes.NewReader(src)
	return src, err
}

func documentFiles(name string) ([]string, error) {
	if name == "-" {
		return []string{name}, nil
	}
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usage(fmt.Errorf("there is no file %s; name a file with documents, a directory, or - for stdin", name))
	}
	if err != nil {
		return nil, usage(err)
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, usage(err)
	}
	var files []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".yaml" || ext == ".yml") {
			files = append(files, filepath.Join(name, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, usage(fmt.Errorf("directory %s holds no .yaml file", name))
	}
	return files, nil
}

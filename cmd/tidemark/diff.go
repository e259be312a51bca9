package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// documentDiff is what diff prints of one document.
type documentDiff struct {
	Kind    string             `json:"kind"`
	Name    string             `json:"name"`
	Status  string             `json:"status"`            // new, unchanged, changed
	Against string             `json:"against,omitempty"` // the applied document compared with
	Fields  []policy.FieldDiff `json:"fields"`
}

func (c *cli) diffCmd() *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "diff -f FILE…",
		Short: "Compare documents with what is applied",
		Long: `Compare documents field by field with those applied under the same name. A policy of a
new generation is compared with the generation before it, an effect policy or adapter of
a new version with the version before it. Exits 1 if anything differs.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			names := append(files, args...)
			if len(names) == 0 {
				return usage(errors.New("no file given; write `tidemark diff -f FILE` (a directory, or - for stdin)"))
			}
			docs, found, err := c.readDocuments(names)
			if err != nil {
				return err
			}
			if len(docs)+len(found) == 0 {
				return usage(fmt.Errorf("these files hold no document to compare; test cases are run with `tidemark test`"))
			}
			if len(found) > 0 {
				return c.reportFindings(found, 0)
			}
			ctx, cancel := c.deadline(cmd.Context())
			defer cancel()
			conn, err := c.connect(ctx)
			if err != nil {
				return err
			}
			defer conn.Close()
			snapshot, err := config.Load(ctx, conn.JS)
			if err != nil {
				return err
			}
			diffs := make([]documentDiff, len(docs))
			for i, doc := range docs {
				diffs[i] = compareApplied(doc, snapshot)
			}
			return c.printDiffs(diffs)
		},
	}
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "file with documents, a directory, or - for stdin; may be repeated")
	return cmd
}

func compareApplied(doc policy.Document, snapshot config.Snapshot) documentDiff {
	d := documentDiff{Kind: doc.Kind(), Name: doc.Name(), Status: "new", Fields: []policy.FieldDiff{}}
	entry, found := snapshot.Find(doc)
	if found {
		d.Status = "unchanged"
		if entry.Digest != doc.Digest() {
			d.Status = "changed"
		}
	} else if entry, found = versionBefore(doc, snapshot); !found {
		return d
	}
	applied := entry.Document()
	d.Against = applied.Name()
	d.Fields = append(d.Fields, policy.Differing(applied, doc)...)
	return d
}

// versionBefore answers the highest applied generation or version below doc's.
func versionBefore(doc policy.Document, snapshot config.Snapshot) (config.Entry, bool) {
	name, version := versionOf(doc)
	for _, e := range slices.Backward(snapshot.Entries()) {
		applied := e.Document()
		if other, n := versionOf(applied); applied.Kind() == doc.Kind() && other == name && n < version {
			return e, true
		}
	}
	return config.Entry{}, false
}

// versionOf takes a document's name apart: "orders/hourly-revenue@14" is the 14th of
// "orders/hourly-revenue". A stream has no versions.
func versionOf(doc policy.Document) (name string, version int) {
	name, version, err := policy.ParsePolicyGeneration(doc.Name())
	if err != nil {
		return doc.Name(), 0
	}
	return name, version
}

func (c *cli) printDiffs(diffs []documentDiff) error {
	var rows []row
	differs := false
	for _, d := range diffs {
		differs = differs || d.Status != "unchanged"
		if c.output != "table" || len(d.Fields) == 0 {
			rows = append(rows, row{cells: []string{d.Name, d.Status, "", "", ""}, object: d})
			continue
		}
		for _, f := range d.Fields {
			rows = append(rows, row{cells: []string{d.Name, d.Status, f.Field, f.Old, f.New}})
		}
	}
	if err := c.list([]string{"NAME", "STATUS", "FIELD", "APPLIED", "GIVEN"}, rows); err != nil {
		return err
	}
	if differs {
		return findings(errFindings)
	}
	return nil
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/config"
)

// appliedDocument is what get prints of one document.
type appliedDocument struct {
	Kind        string          `json:"kind"`
	Name        string          `json:"name"`
	Digest      string          `json:"digest"`
	CoreVersion int             `json:"coreVersion,omitempty"` // policies
	Active      bool            `json:"active,omitempty"`      // effect policies
	Revision    uint64          `json:"revision"`              // of the config bucket
	Document    json.RawMessage `json:"document"`
}

func (c *cli) getCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "get [NAME…]",
		Short: "Show applied documents",
		Long: `Show applied documents: all of them, or those whose stream, job or full name is given
(orders, orders/hourly-revenue, orders/hourly-revenue@14, orders/reward, rewards-api@2).
ACTIVE marks the version of an effect policy that apply last made active. -o yaml prints
documents that can be edited and applied again.`,
		RunE: func(cmd *cobra.Command, names []string) error {
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
			entries, err := chosen(snapshot, names)
			if err != nil {
				return err
			}
			if c.output == "yaml" {
				return c.documentsYAML(entries)
			}
			rows := make([]row, len(entries))
			for i, e := range entries {
				doc := e.Document()
				core, active := "", ""
				if snapshot.IsActive(e) {
					active = "yes"
				}
				if e.CoreVersion > 0 {
					core = strconv.Itoa(e.CoreVersion)
				}
				rows[i] = row{
					cells:  []string{doc.Kind(), doc.Name(), e.Digest[:12], core, active},
					object: appliedDocument{doc.Kind(), doc.Name(), e.Digest, e.CoreVersion, active != "", e.Revision, e.Canonical},
				}
			}
			return c.list([]string{"KIND", "NAME", "DIGEST", "CORE", "ACTIVE"}, rows)
		},
	}
}

// chosen answers the entries that names stand for, every entry where there are none.
func chosen(snapshot config.Snapshot, names []string) ([]config.Entry, error) {
	all := snapshot.Entries()
	if len(names) == 0 {
		return all, nil
	}
	var out []config.Entry
	for _, name := range names {
		found := false
		for _, e := range all {
			doc := e.Document()
			if full := doc.Name(); full == name || strings.HasPrefix(full, name+"@") || strings.HasPrefix(full, name+"/") {
				out, found = append(out, e), true
			}
		}
		if !found {
			return nil, findings(fmt.Errorf("no document %s is applied; `tidemark get` lists those that are", name))
		}
	}
	return out, nil
}

// documentsYAML prints documents as a user would write them.
func (c *cli) documentsYAML(entries []config.Entry) error {
	var b bytes.Buffer
	for i, e := range entries {
		if i > 0 {
			b.WriteString("---\n")
		}
		doc := e.Document()
		b.Write(doc.YAML())
	}
	_, err := c.out.Write(b.Bytes())
	return err
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/backup"
	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/internal/verify/gates"
)

func (c *cli) backupCmd() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "backup STREAM --to DIR",
		Short: "Copy every journal of a business stream to files, and restore it",
		Long: `Copy every journal of a business stream into a directory, as of one moment: events,
quarantine, sources, windows, revisions with aliases, and the documents. Services go on;
while the inputs are copied ingest writes no marks, so results wait and events do not.

An interrupted backup is completed by running the command again.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if dir == "" {
				return usage(fmt.Errorf("--to is missing: name a directory for the files"))
			}
			conn, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			tell, end := c.backupProgress("backup")
			m, err := backup.Take(cmd.Context(), conn, args[0], dir, tell)
			end()
			if err != nil {
				return backupError(err)
			}
			return c.printManifest(m)
		},
	}
	cmd.Flags().StringVar(&dir, "to", "", "directory to write to; made if it does not exist")
	cmd.AddCommand(c.backupRestoreCmd(), c.backupVerifyCmd())
	return cmd
}

func (c *cli) backupRestoreCmd() *cobra.Command {
	var replicas int
	var d decision
	cmd := &cobra.Command{
		Use:   "restore DIR --reason TEXT",
		Short: "Make a business stream from a backup, in an installation that does not have it",
		Long: `Make every journal of a backup in an installation that has none of them. Sequences and
identities stay, so checkpoints are rebuilt and verify is green. The documents come last:
services begin when everything is there. An interrupted restore goes on where it was.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := d.stated(); err != nil {
				return err
			}
			conn, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			if d.dryRun {
				m, faults, err := backup.Check(args[0], func(backup.Step) {})
				if err != nil {
					return backupError(err)
				}
				c.note("%s: %d journals, %d documents, %d faults; nothing was done (--dry-run)", m.Stream, len(m.Journals), len(m.Documents), len(faults))
				return c.printManifest(m)
			}
			tell, end := c.backupProgress("restore")
			m, err := backup.Restore(cmd.Context(), conn, args[0], replicas, tell)
			end()
			if err != nil {
				return backupError(err)
			}
			details := map[string]any{"backup": m.Started, "journals": len(m.Journals)}
			if err := config.Audit(cmd.Context(), conn.JS, m.Stream, "backup-restore", d.reason, details); err != nil {
				return err
			}
			return c.printManifest(m)
		},
	}
	d.flags(cmd)
	cmd.Flags().IntVar(&replicas, "replicas", 1, "replicas of the journals: 1, or 3 in a cluster")
	return cmd
}

func (c *cli) backupVerifyCmd() *cobra.Command {
	var deep bool
	cmd := &cobra.Command{
		Use:   "verify DIR",
		Short: "Check the files of a backup",
		Long: `Compare every file of a backup with the digests in its manifest. With --restore it is
also restored into a temporary server of this process, and every result in it is
recomputed and compared, as verify does. Exit status 1 if anything is wrong.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			tell, end := c.backupProgress("verify")
			m, faults, err := backup.Check(args[0], tell)
			end()
			if err != nil {
				return backupError(err)
			}
			if len(faults) > 0 {
				rows := make([]row, len(faults))
				for i, f := range faults {
					rows[i] = row{cells: []string{f.File, f.What}, object: f}
				}
				if err := c.list([]string{"FILE", "WHAT IS WRONG"}, rows); err != nil {
					return err
				}
				return findings(errFindings)
			}
			if deep {
				return c.proveBackup(cmd.Context(), args[0], m.Stream)
			}
			return c.printManifest(m)
		},
	}
	cmd.Flags().BoolVar(&deep, "restore", false, "also restore it into a temporary server and verify every result")
	return cmd
}

// proveBackup restores into a server of its own and runs verify there.
func (c *cli) proveBackup(ctx context.Context, dir, stream string) error {
	store, err := os.MkdirTemp("", "tidemark-backup-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(store) // made by us, and nobody else's
	server, err := natsio.Embed(ctx, natsio.EmbeddedOptions{Dir: store, Port: -1})
	if err != nil {
		return err
	}
	defer server.Shutdown()
	conn, err := server.Connect(ctx, "tidemark-backup")
	if err != nil {
		return err
	}
	defer conn.Close()
	tell, end := c.backupProgress("restore")
	_, err = backup.Restore(ctx, conn, dir, 1, tell)
	end()
	if err != nil {
		return backupError(err)
	}
	report, err := gates.Run(ctx, conn.JS, stream, gates.Options{})
	if err != nil {
		return err
	}
	return c.verdict(report)
}

// backupProgress shows each journal as a bar on terminals and as a line elsewhere.
func (c *cli) backupProgress(verb string) (tell func(backup.Step), end func()) {
	var bar *progress
	var of string
	end = func() {
		if bar != nil {
			bar.end()
			bar = nil
		}
	}
	return func(s backup.Step) {
		switch {
		case s.Note != "":
			c.note("%s", s.Note)
		case s.Done:
			end()
			c.note("%s %s: %d bytes", verb, s.Journal, s.Bytes)
		default:
			if bar == nil || of != s.Journal {
				end()
				bar, of = c.progress(s.Journal, max(s.Total, 1)), s.Journal
			}
			bar.scale(s.Bytes, s.Total)
		}
	}, end
}

func (c *cli) printManifest(m *backup.Manifest) error {
	if c.output != "table" {
		return c.object(m)
	}
	rows := make([]row, len(m.Journals))
	for i, j := range m.Journals {
		rows[i] = row{cells: []string{j.Role, j.Name, strconv.FormatUint(j.First, 10), strconv.FormatUint(j.Last, 10), strconv.FormatInt(j.Size, 10), j.SHA256[:12]}}
	}
	return c.list([]string{"ROLE", "JOURNAL", "FIRST", "LAST", "BYTES", "SHA-256"}, rows)
}

func backupError(err error) error {
	switch {
	case errors.Is(err, backup.ErrDirectory), errors.Is(err, backup.ErrUnknown):
		return usage(err)
	case errors.Is(err, backup.ErrNotEmpty):
		return refused(err)
	}
	return err
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/consumers/webhook"
	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/internal/dirlock"
	"github.com/tidemark-mesh/tidemark/internal/dispatchfile"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
	"github.com/tidemark-mesh/tidemark/services/effector"
	"github.com/tidemark-mesh/tidemark/services/projector"
)

// Verdicts on checkpoint files.
const (
	stateOK      = "ok"
	stateDamaged = "damaged"
	stateOlder   = "older"   // of an older format: rebuilt at the next start
	stateNewer   = "newer"   // of a newer format: only a newer binary reads it
	stateForeign = "foreign" // none of Tidemark's
	stateInUse   = "in-use"  // a process has it open
	stateAhead   = "ahead"   // knows more than the journal, or another journal
)

// stateFile is what is known of one checkpoint file (schema stateFile.v1).
type stateFile struct {
	File     string `json:"file"`
	Size     int64  `json:"size"`
	Kind     string `json:"kind,omitempty"`
	Format   int    `json:"format,omitempty"`
	Journal  string `json:"journal,omitempty"`  // the stream that it is a fold of
	Created  string `json:"created,omitempty"`  // identity of that stream
	Position uint64 `json:"position,omitempty"` // the COMMIT it stands at, in that stream
	Entries  uint64 `json:"entries"`
	State    string `json:"state"`
	Cache    bool   `json:"cache"` // can be made anew from the journals
	What     string `json:"what,omitempty"`
	MovedTo  string `json:"movedTo,omitempty"` // rebuild: where it is now

	created int64
}

// knownCaches are the kinds that this binary reads, with their formats. All of them are
// caches: their facts stand in journals.
func knownCaches() map[string]int {
	return map[string]int{"windower": window.Format, projector.ViewKind: projector.ViewFormat, effector.ViewKind: effector.ViewFormat}
}

func (c *cli) stateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "state",
		Short: "Check and rebuild the local files of a data directory",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.stateVerifyCmd(), c.stateRebuildCmd())
	return cmd
}

func (c *cli) stateVerifyCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "verify DIR",
		Short: "Read every checkpoint file of a data directory and say whether it is whole",
		Long: `Read every checkpoint file of a data directory from end to end, without writing to it:
kind, format, the journal it is a fold of, its position, and whether its checksums fit.
With --server or --context the journals are asked whether they know that position.

Files that a running process has open are listed as in-use. Exit status 1 if a file is
damaged, of a newer format, or does not fit its journal.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := c.inspectDir(args[0])
			if err != nil {
				return err
			}
			if c.server != "" || c.context != "" {
				if err := c.againstJournals(cmd.Context(), files); err != nil {
					return err
				}
			}
			if err := c.listState(files); err != nil {
				return err
			}
			if slices.ContainsFunc(files, func(f stateFile) bool {
				return f.State != stateOK && f.State != stateInUse && f.State != stateOlder
			}) {
				return findings(errFindings)
			}
			return nil
		},
	}
}

func (c *cli) stateRebuildCmd() *cobra.Command {
	var dryRun, every bool
	cmd := &cobra.Command{
		Use:   "rebuild DIR",
		Short: "Set damaged checkpoint files aside; services make them anew",
		Long: `Rename checkpoint files that are damaged, so that services make them anew from the
journals at their next start; with --all whole ones too. Nothing is deleted, and only
files whose content stands in journals are touched. Refused while a process uses the
directory.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			release, err := holdDir(args[0])
			if err != nil {
				return err
			}
			defer release()
			files, err := c.inspectDir(args[0])
			if err != nil {
				return err
			}
			return c.setAside(args[0], files, every, dryRun)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be set aside and change nothing")
	cmd.Flags().BoolVar(&every, "all", false, "also files that are whole")
	return cmd
}

// inspectDir inspects every checkpoint file under a data directory.
func (c *cli) inspectDir(dir string) ([]stateFile, error) {
	if _, err := os.Stat(filepath.Join(dir, markerFile)); err != nil {
		return nil, usage(fmt.Errorf("%s is no data directory of Tidemark (it has no %s); name the directory given to --data", dir, markerFile))
	}
	if _, err := openDataDir(dir); err != nil {
		return nil, err
	}
	var files []stateFile
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == "nats" && filepath.Dir(path) == filepath.Clean(dir) {
			return filepath.SkipDir
		}
		if ext := filepath.Ext(path); d.Type().IsRegular() && (ext == ".db" || ext == ".view" || ext == ".dispatch") {
			name, err := filepath.Rel(dir, path)
			if err != nil {
				return err
			}
			files = append(files, inspectFile(path, filepath.ToSlash(name)))
		}
		return nil
	})
	return files, err
}

func inspectFile(path, name string) stateFile {
	in, err := checkpoint.Inspect(path)
	f := stateFile{File: name, Size: in.Size, Kind: in.Kind, Format: in.Format, State: stateOK}
	for _, n := range in.Entries {
		f.Entries += n
	}
	format, known := knownCaches()[in.Kind]
	f.Cache = known || strings.HasPrefix(name, "windower/") || strings.HasPrefix(name, "projector/") || strings.HasPrefix(name, "effector/") && strings.HasSuffix(name, ".view")
	switch {
	case errors.Is(err, checkpoint.ErrLocked):
		f.State, f.What = stateInUse, "a process has it open"
	case errors.Is(err, checkpoint.ErrForeign):
		f.State, f.What = stateForeign, err.Error()
	case err != nil:
		f.State, f.What = stateDamaged, err.Error()
	case in.Kind == webhook.StateKind && in.Format == webhook.StateFormat: // no cache: what was delivered stands nowhere else
	case in.Kind == dispatchfile.Kind && in.Format == dispatchfile.Format: // no cache: what may have been sent stands nowhere else
	case !known:
		f.State, f.What = stateForeign, fmt.Sprintf("kind %q is unknown to this binary", in.Kind)
	case in.Format > format:
		f.State, f.What = stateNewer, fmt.Sprintf("this binary reads format %d; run the one that wrote it", format)
	case in.Format < format:
		f.State, f.What = stateOlder, fmt.Sprintf("this binary reads format %d; it is rebuilt at the next start", format)
	}
	f.position(in)
	return f
}

// position reads where a checkpoint stands from what its owner stored.
func (f *stateFile) position(in checkpoint.Inspection) {
	switch f.Kind {
	case "windower":
		var at struct {
			Commit  json.RawMessage `json:"commit"`
			Seq     uint64          `json:"seq"`
			Windows int64           `json:"windows"`
		}
		if json.Unmarshal(in.Meta["commit"], &at) != nil {
			return // never checkpointed
		}
		f.Position, f.created = at.Seq, at.Windows
		if commit, err := revision.ParseCommit(at.Commit); err == nil && len(commit.Inputs) == 1 {
			f.Journal = windowsJournalOf(f.File)
			f.What = joinWhat(f.What, fmt.Sprintf("events up to %d of %s, W %s", commit.Inputs[0].Seq-1, commit.Inputs[0].Stream, commit.W))
		}
	case effector.ViewKind:
		var at struct {
			Stream  string `json:"stream"`
			Created int64  `json:"created"`
			Seq     uint64 `json:"sequence"`
		}
		if json.Unmarshal(in.Meta["place"], &at) != nil {
			return
		}
		f.Journal, f.created, f.Position = at.Stream, at.Created, at.Seq
	case dispatchfile.Kind:
		// Which attempts the journal lacks is for the effector to find out at its claim.
		var at dispatchfile.Identity
		if json.Unmarshal(in.Meta[dispatchfile.JournalMeta], &at) != nil {
			return
		}
		f.Journal, f.created = at.Stream, at.Created
	case projector.ViewKind:
		var at struct {
			Stream  string `json:"stream"`
			Created int64  `json:"created"`
			Fence   uint64 `json:"fence"`
		}
		if json.Unmarshal(in.Meta["place"], &at) != nil {
			return
		}
		f.Journal, f.created, f.Position = at.Stream, at.Created, at.Fence
	}
	if f.created != 0 {
		f.Created = time.Unix(0, f.created).UTC().Format(time.RFC3339Nano)
	}
}

// windowsJournalOf answers the windows journal whose checkpoint is a file
// windower/<stream>/<job>.<generation>.<key partition>.db, "" for another name.
func windowsJournalOf(file string) string {
	parts := strings.Split(file, "/")
	if len(parts) < 2 {
		return ""
	}
	stream, errStream := subject.Unescape(parts[len(parts)-2])
	fields := strings.Split(strings.TrimSuffix(parts[len(parts)-1], ".db"), ".")
	if len(fields) != 3 || errStream != nil {
		return ""
	}
	job, errJob := subject.Unescape(fields[0])
	generation, errGeneration := strconv.Atoi(fields[1])
	pp, errPartition := strconv.Atoi(fields[2])
	if errors.Join(errJob, errGeneration, errPartition) != nil {
		return ""
	}
	return subject.WindowsStream(stream, job, generation, pp)
}

func joinWhat(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// againstJournals asks whether the journals know what the files say.
func (c *cli) againstJournals(ctx context.Context, files []stateFile) error {
	conn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for i := range files {
		if f := &files[i]; f.State == stateOK && f.Journal != "" {
			f.compare(ctx, conn)
		}
	}
	return nil
}

func (f *stateFile) compare(ctx context.Context, conn *natsio.Conn) {
	id, err := journal.Identify(ctx, conn.JS, f.Journal)
	if err == nil {
		err = id.Check(f.created, f.Position+1)
	}
	if err != nil {
		f.State, f.What = stateAhead, err.Error()
	}
}

// holdDir takes every lock of a data directory, so that no process begins to use it.
func holdDir(dir string) (release func(), err error) {
	var held []*dirlock.Lock
	release = func() {
		for _, l := range held {
			l.Release()
		}
	}
	locks, err := filepath.Glob(filepath.Join(dir, "*.lock"))
	if err != nil {
		return nil, err
	}
	inner, err := filepath.Glob(filepath.Join(dir, "nats", "*.lock"))
	if err != nil {
		return nil, err
	}
	for _, path := range append(locks, inner...) {
		l, err := dirlock.Acquire(path)
		if err != nil {
			release()
			return nil, refused(fmt.Errorf("data directory %s: %s is %w; stop the process that uses it first", dir, filepath.Base(path), err))
		}
		held = append(held, l)
	}
	return release, nil
}

// setAside renames what is to be made anew.
func (c *cli) setAside(dir string, files []stateFile, every, dryRun bool) error {
	var moved []stateFile
	for _, f := range files {
		switch {
		case f.State == stateInUse:
			return refused(fmt.Errorf("%s is in use; stop the process that uses %s first", f.File, dir))
		case f.State == stateNewer || f.State == stateForeign && !every || !f.Cache:
			continue
		case f.State == stateOK && !every:
			continue
		}
		if !dryRun {
			suffix := f.State
			if suffix == stateOK {
				suffix = "set-aside"
			}
			aside, err := checkpoint.MoveAside(filepath.Join(dir, filepath.FromSlash(f.File)), suffix, "state rebuild")
			if err != nil {
				return err
			}
			f.MovedTo = aside.Path
		}
		moved = append(moved, f)
	}
	verb := "set aside; services make them anew from the journals"
	if dryRun {
		verb = "to set aside; nothing was done (--dry-run)"
	}
	c.note("%d of %d files %s", len(moved), len(files), verb)
	if len(moved) == 0 && c.output == "table" {
		return nil
	}
	return c.listState(moved)
}

func (c *cli) listState(files []stateFile) error {
	rows := make([]row, len(files))
	for i := range files {
		f := &files[i]
		rows[i] = row{
			cells:  []string{f.File, f.Kind, strconv.Itoa(f.Format), f.Journal, strconv.FormatUint(f.Position, 10), strconv.FormatUint(f.Entries, 10), f.State, f.What},
			object: f,
		}
	}
	return c.list([]string{"FILE", "KIND", "FORMAT", "JOURNAL", "POSITION", "ENTRIES", "STATE", "WHAT"}, rows)
}

package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Fault is one thing that is wrong with a backup.
type Fault struct {
	File string `json:"file"`
	What string `json:"what"`
}

// Check compares every file of a backup with its manifest. An error means that it could
// not be checked.
func Check(dir string, tell func(Step)) (*Manifest, []Fault, error) {
	m, err := Load(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%w: there is no backup in %s (no %s)", ErrDirectory, dir, ManifestFile)
	}
	if err != nil {
		return nil, nil, err
	}
	var faults []Fault
	if !m.Complete {
		faults = append(faults, Fault{ManifestFile, "the backup was interrupted; complete it with `tidemark backup " + m.Stream + " --to " + dir + "`"})
	}
	derived, inputs, err := journals(m.Stream, m.Documents)
	if err != nil {
		faults = append(faults, Fault{ManifestFile, err.Error()})
	}
	for _, j := range append(derived, inputs...) {
		if m.journal(j.name) == nil {
			faults = append(faults, Fault{ManifestFile, "journal " + j.name + " is missing"})
		}
	}
	for i := range m.Journals {
		j := &m.Journals[i]
		why, err := j.check(dir)
		if err != nil {
			return nil, nil, err
		}
		if why != "" {
			faults = append(faults, Fault{j.File, why})
		}
		tell(Step{Journal: j.Name, Bytes: j.Size, Total: j.Size, Done: true})
	}
	return m, faults, nil
}

// check answers what is wrong with the file of a journal, "" if nothing is.
func (j *Journal) check(dir string) (string, error) {
	f, err := os.Open(filepath.Join(dir, filepath.Base(j.File)))
	if errors.Is(err, fs.ErrNotExist) {
		return "the file is missing", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	switch {
	case err != nil:
		return "", fmt.Errorf("read %s: %w", f.Name(), err)
	case n != j.Size:
		return fmt.Sprintf("the file has %d bytes, the manifest says %d", n, j.Size), nil
	case hex.EncodeToString(h.Sum(nil)) != j.SHA256:
		return "the file's SHA-256 is not that of the manifest", nil
	}
	return "", nil
}

// Restore makes the journals of a backup in an installation that has none of them, then
// its documents, so that services see it only when it is whole. One that was interrupted
// goes on where it was.
func Restore(ctx context.Context, conn *natsio.Conn, dir string, replicas int, tell func(Step)) (*Manifest, error) {
	m, faults, err := Check(dir, func(Step) {})
	if err != nil {
		return nil, err
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("%w: %s: %s; `tidemark backup verify` lists every fault", ErrIncomplete, faults[0].File, faults[0].What)
	}
	if err := natsio.Provision(ctx, conn.JS, replicas); err != nil {
		return nil, err
	}
	there, err := config.Export(ctx, conn.JS, m.Stream)
	if err != nil {
		return nil, err
	}
	if len(there) > 0 {
		return nil, fmt.Errorf("%w: business stream %s is applied here; restore into another installation", ErrNotEmpty, m.Stream)
	}
	for i := range m.Journals {
		j := &m.Journals[i]
		if err := j.restore(ctx, conn, dir, replicas, tell); err != nil {
			return nil, err
		}
		tell(Step{Journal: j.Name, Bytes: j.Size, Total: j.Size, Done: true})
	}
	if err := pause(ctx, conn, m); err != nil {
		return nil, err
	}
	if err := config.Import(ctx, conn.JS, m.Documents); err != nil {
		return nil, err
	}
	return m, complete(ctx, conn, m, replicas)
}

// restore makes one stream and checks that it is what the manifest says.
func (j *Journal) restore(ctx context.Context, conn *natsio.Conn, dir string, replicas int, tell func(Step)) error {
	_, err := journal.Identify(ctx, conn.JS, j.Name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		f, err := os.Open(filepath.Join(dir, filepath.Base(j.File)))
		if err != nil {
			return err
		}
		err = conn.Restore(ctx, j.copyOf(), replicas, f, func(n int64) { tell(Step{Journal: j.Name, Bytes: n, Total: j.Size}) })
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	id, err := journal.Identify(ctx, conn.JS, j.Name)
	switch {
	case err != nil:
		return err
	case id.Created != j.Created.UnixNano():
		return fmt.Errorf("%w: stream %s is there, and it is not the one of the backup", ErrNotEmpty, j.Name)
	case id.Last < j.Last || id.First > max(j.First, 1):
		return fmt.Errorf("stream %s was restored with the sequences %d to %d, the backup has %d to %d", j.Name, id.First, id.Last, j.First, j.Last)
	}
	return nil
}

// pause closes the global gate of every restored effects journal before a service sees it:
// what was sent after the backup is not in it, and must be found out before anything goes.
func pause(ctx context.Context, conn *natsio.Conn, m *Manifest) error {
	for i := range m.Journals {
		j := &m.Journals[i]
		if j.Role != roleEffects {
			continue
		}
		last, err := journal.LastSeq(ctx, conn.JS, j.Name, "")
		if err != nil {
			return err
		}
		gate := effectlog.Control{
			Stamp: effectlog.Stamp{ID: uuid.NewString(), Basis: last, Who: config.Operator(), Reason: "restored from a backup", At: effect.Time(clock.System().Now().UnixMicro())},
			Gate:  &effectlog.Gate{Scope: effectlog.Global, Closed: true},
		}
		record, err := gate.Encode()
		if err != nil {
			return err
		}
		if _, err := journal.AppendControl(ctx, conn.JS, j.Name, subject.EffectsOf(j.Name), record); err != nil {
			return fmt.Errorf("close the gates of %s: %w; restore again", j.Name, err)
		}
	}
	return nil
}

// complete makes what is no fact and therefore in no backup: previews.
func complete(ctx context.Context, conn *natsio.Conn, m *Manifest, replicas int) error {
	var docs []policy.Document
	for _, d := range m.Documents {
		if !d.IsDocument() {
			continue
		}
		e, err := d.Entry()
		if err != nil {
			return err
		}
		docs = append(docs, e.Document())
	}
	_, err := config.Apply(ctx, conn.JS, docs, config.Options{Replicas: replicas, Reason: "restored from a backup"})
	return err
}

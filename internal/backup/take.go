package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// attempts is how often the inputs are copied again when marks went on meanwhile.
const attempts = 3

// Step is what Take and Restore tell about their progress.
type Step struct {
	Journal string
	Bytes   int64 // of this journal so far
	Total   int64 // of this journal; about right for Take, exact for Restore
	Done    bool
	Note    string // something else worth a line
}

// roleEffects is the role of effects journals, which restore treats by itself.
const roleEffects = "effects"

// named is a journal that belongs to the backup.
type named struct{ name, role string }

// Take copies every journal of a business stream into dir. A directory with an
// interrupted backup of the same stream is completed: what a journal derives from others
// is copied first and kept, so that it is never ahead of its inputs.
//
// Effects, results and windows first, then, while ingest writes no marks, everything that marks
// speak of: sources, events of every key partition, quarantine. Events go on meanwhile;
// those behind the last mark are in the copy like after a crash.
func Take(ctx context.Context, conn *natsio.Conn, stream, dir string, tell func(Step)) (*Manifest, error) {
	documents, err := config.Export(ctx, conn.JS, stream)
	if err != nil {
		return nil, err
	}
	if len(documents) == 0 {
		return nil, fmt.Errorf("%w: %s is not applied; `tidemark get` lists what is", ErrUnknown, stream)
	}
	derived, inputs, err := journals(stream, documents)
	if err != nil {
		return nil, err
	}
	t := &take{conn: conn, dir: dir, stream: stream, tell: tell}
	if err := t.begin(documents); err != nil {
		return nil, err
	}
	for _, j := range derived {
		done, err := t.done(ctx, j)
		if err != nil {
			return nil, err
		}
		if !done {
			if err := t.copy(ctx, j); err != nil {
				return nil, err
			}
		}
	}
	if err := t.inputs(ctx, inputs); err != nil {
		return nil, err
	}
	now := clock.System().Now().UTC()
	t.manifest.Complete, t.manifest.Finished = true, &now
	return t.manifest, t.manifest.save(dir)
}

// journals lists what belongs to a business stream, in the order in which it is copied.
func journals(stream string, documents []config.Stored) (derived, inputs []named, err error) {
	var bs *policy.BusinessStream
	var policies []*policy.StreamTimePolicy
	effects := false
	for _, d := range documents {
		if !d.IsDocument() {
			continue
		}
		e, err := d.Entry()
		if err != nil {
			return nil, nil, err
		}
		switch {
		case e.Stream != nil:
			bs = e.Stream
		case e.Policy != nil:
			policies = append(policies, e.Policy)
		case e.Effect != nil:
			effects = true
		}
	}
	if bs == nil {
		return nil, nil, fmt.Errorf("%w: %s has policies, but its own document is missing", ErrUnknown, stream)
	}
	for pp := range bs.Partitions {
		if effects {
			derived = append(derived, named{subject.EffectsStream(stream, pp), roleEffects})
		}
	}
	derived = append(derived, named{subject.RevisionsStream(stream), "revisions"})
	for _, p := range policies {
		for pp := range bs.Partitions {
			derived = append(derived, named{subject.WindowsStream(stream, p.Job, p.Generation, pp), "windows"})
		}
	}
	inputs = append(inputs, named{subject.SourcesStream(stream), "sources"})
	for pp := range bs.Partitions {
		inputs = append(inputs, named{subject.EventsStream(stream, pp), "events"})
	}
	return derived, append(inputs, named{subject.QuarantineStream(stream), "quarantine"}), nil
}

type take struct {
	conn     *natsio.Conn
	dir      string
	stream   string
	tell     func(Step)
	manifest *Manifest
}

// begin opens the directory: a fresh one, or that of an interrupted backup.
func (t *take) begin(documents []config.Stored) error {
	if err := os.MkdirAll(t.dir, 0o750); err != nil {
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	m, err := Load(t.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		entries, err := os.ReadDir(t.dir)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrDirectory, err)
		}
		if len(entries) > 0 {
			return fmt.Errorf("%w: %s holds other files; choose an empty one", ErrDirectory, t.dir)
		}
	case err != nil:
		return err
	case m.Complete:
		return fmt.Errorf("%w: %s holds a complete backup of %s already; choose an empty one", ErrDirectory, t.dir, m.Stream)
	case m.Stream != t.stream:
		return fmt.Errorf("%w: %s holds an interrupted backup of %s, not of %s; choose an empty one", ErrDirectory, t.dir, m.Stream, t.stream)
	case slices.EqualFunc(m.Documents, documents, func(a, b config.Stored) bool { return a.Key == b.Key && string(a.Value) == string(b.Value) }):
		t.manifest = m
		t.tell(Step{Note: "going on with an interrupted backup"})
		return nil
	default:
		t.tell(Step{Note: "the documents changed since the interrupted backup: it is taken anew"})
	}
	t.manifest = &Manifest{Schema: Schema, Stream: t.stream, Started: clock.System().Now().UTC(), Documents: documents}
	return t.manifest.save(t.dir)
}

// done tells whether an interrupted backup has the journal already, of the same stream.
func (t *take) done(ctx context.Context, j named) (bool, error) {
	old := t.manifest.journal(j.name)
	if old == nil {
		return false, nil
	}
	id, err := journal.Identify(ctx, t.conn.JS, j.name)
	if err != nil {
		return false, err
	}
	if id.Created != old.Created.UnixNano() || id.Last < old.Last {
		return false, nil
	}
	if why, err := old.check(t.dir); err != nil || why != "" {
		return false, err
	}
	t.tell(Step{Journal: j.name, Bytes: old.Size, Total: old.Size, Done: true})
	return true, nil
}

// copy writes one journal's file and notes it in the manifest.
func (t *take) copy(ctx context.Context, j named) error {
	handle, err := t.conn.JS.Stream(ctx, j.name)
	if err != nil {
		return fmt.Errorf("stream %s: %w", j.name, err)
	}
	total := int64(handle.CachedInfo().State.Bytes)
	file := j.name + ".snapshot"
	path := filepath.Join(t.dir, file)
	f, err := os.OpenFile(path+".part", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	w := &hashingWriter{file: f, hash: sha256.New()}
	from, err := t.conn.Snapshot(ctx, j.name, w, func(n int64) { t.tell(Step{Journal: j.name, Bytes: n, Total: max(total, n)}) })
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(path+".part", path)
	}
	if err != nil {
		return err
	}
	t.manifest.put(Journal{
		Name: j.name, Role: j.role, Created: time.Unix(0, from.Created).UTC(), First: from.State.FirstSeq, Last: from.State.LastSeq,
		Messages: from.State.Msgs, File: file, Size: w.size, SHA256: hex.EncodeToString(w.hash.Sum(nil)), Config: from.Config,
	})
	t.tell(Step{Journal: j.name, Bytes: w.size, Total: w.size, Done: true})
	return t.manifest.save(t.dir)
}

// inputs copies what marks speak of while none is written.
func (t *take) inputs(ctx context.Context, inputs []named) error {
	for try := 1; ; try++ {
		moved, err := t.tryInputs(ctx, inputs)
		if err != nil || moved == "" {
			return err
		}
		if try == attempts {
			return fmt.Errorf("%w: %s; stop ingest while the backup is taken, or take it again", ErrMoving, moved)
		}
		t.tell(Step{Note: moved + ": copying again"})
	}
}

func (t *take) tryInputs(ctx context.Context, inputs []named) (moved string, err error) {
	h, err := hold(ctx, t.conn.NC, t.stream)
	if err != nil {
		return "", err
	}
	defer h.release()
	before := make([]uint64, len(inputs))
	for i, j := range inputs {
		if before[i], err = journal.LastSeq(ctx, t.conn.JS, j.name, ""); err != nil {
			return "", err
		}
	}
	for _, j := range inputs {
		if err := t.copy(ctx, j); err != nil {
			return "", err
		}
	}
	for i, j := range inputs {
		if moved, err = t.moved(ctx, j, before[i]+1); err != nil || moved != "" {
			return moved, err
		}
	}
	return "", h.failed()
}

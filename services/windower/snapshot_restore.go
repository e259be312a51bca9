package windower

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

const (
	// worthIt is how many messages of the events journal a snapshot must be ahead of the
	// local file to be loaded instead: reading a few frames is cheaper than a download.
	worthIt = 1024
	// restoreBytes is how much of a snapshot is written to the local file at once.
	restoreBytes = 8 << 20
	// restoreLeast and restoreRate (bytes a second) bound how long a download may take.
	restoreLeast = time.Minute
	restoreRate  = 4 << 20
)

// download loads the newest snapshot that fits into the local file, unless that is about as
// new. A snapshot that is damaged, or of another journal, document or version, is passed
// over for the next older one. It answers whether the fold stands at one now.
func (r *recovery) download(ctx context.Context, local *saved) (loaded bool) {
	if r.head.Commit == nil || local != nil && !behind(*local, r.head.Commit) {
		return false
	}
	log := r.u.log.With().Stringer("partition", r.u.part).Logger()
	refs, err := r.u.snapshots().list(ctx)
	if err != nil {
		log.Warn().Err(err).Msg("windower: the snapshots cannot be listed, going on without")
		return false
	}
	for _, ref := range refs {
		if at, err := revision.ParseCommit(ref.State.Commit); local != nil && (err != nil || !behind(*local, at)) {
			continue
		}
		begun := r.u.clock.Now()
		why, err := r.adopt(ctx, ref)
		if err != nil {
			why = err.Error()
		}
		if why == "" {
			r.u.metrics.snapshot(snapshotRestored)
			log.Info().Str("snapshot", ref.Name).Int64("bytes", ref.Size).Dur("took", r.u.clock.Since(begun)).Msg("windower: restored a snapshot")
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		r.u.metrics.snapshot(snapshotRefused)
		log.Warn().Str("snapshot", ref.Name).Str("why", why).Msg("windower: a snapshot cannot be used, trying an older one")
	}
	return false
}

// behind tells whether a checkpoint is so far behind a COMMIT that a download is worth it.
func behind(state saved, c *revision.Commit) bool {
	at, err := revision.ParseCommit(state.Commit)
	return err != nil || len(at.Inputs) == 0 || len(c.Inputs) == 0 || c.Inputs[0].Seq > at.Inputs[0].Seq+worthIt
}

// adopt checks a snapshot against the journal, writes it into the local file and loads it;
// it answers why that is not possible, or "".
func (r *recovery) adopt(ctx context.Context, ref snapshotRef) (why string, err error) {
	if ref.Format != window.Format {
		return fmt.Sprintf("its state has format %d, this program reads %d", ref.Format, window.Format), nil
	}
	if why, err := r.fits(ctx, ref.State); why != "" || err != nil {
		return why, err
	}
	file, err := r.fetch(ctx, ref)
	if err != nil {
		return "", err
	}
	defer func() {
		_ = file.Close()
		_ = os.Remove(file.Name())
	}()
	if err := failpoint.Hit("windower/snapshot-fetched"); err != nil {
		return "", err
	}
	fill := &filler{store: r.store}
	if err := fill.begin(); err != nil {
		return "", err
	}
	state, err := readSnapshot(file, fill.put)
	if err == nil && !sameCommit(state, ref.State) {
		err = damagedSnapshot("it stands at another COMMIT than its pointer says", nil)
	}
	if err == nil {
		err = failpoint.Hit("windower/snapshot-filled")
	}
	if err != nil {
		return "", errors.Join(err, fill.begin()) // what was written of it goes
	}
	if err := fill.end(state); err != nil {
		return "", err
	}
	return r.load(state)
}

// fetch downloads a snapshot into a file beside the checkpoint, so that the checkpoint is
// touched only once all of it is there and is what it should be.
func (r *recovery) fetch(ctx context.Context, ref snapshotRef) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, restoreLeast+time.Duration(ref.Size/restoreRate)*time.Second)
	defer cancel()
	file, err := os.Create(r.u.file + ".restore")
	if err != nil {
		return nil, err
	}
	err = r.u.snapshots().read(ctx, ref, func(in io.Reader) error {
		_, err := io.Copy(file, in)
		return err
	})
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	return file, nil
}

// filler writes entries into the local file, some at a time. The file says what it stands
// at only once all of them are in.
type filler struct {
	store *checkpoint.Store
	pairs []pair
	arena []byte
}

// begin empties the file.
func (f *filler) begin() error {
	f.pairs, f.arena = nil, nil
	return f.store.Update(func(tx *checkpoint.Tx) error {
		if err := tx.Drop(stateBucket); err != nil {
			return err
		}
		return tx.SetMeta(stateKey, saved{})
	})
}

func (f *filler) put(key, value []byte) error {
	if len(f.arena)+len(key)+len(value) > cap(f.arena) {
		if err := f.flush(nil); err != nil {
			return err
		}
		if f.arena = f.arena[:0]; len(key)+len(value) > cap(f.arena) {
			f.arena = make([]byte, 0, max(restoreBytes, len(key)+len(value)))
		}
	}
	from := len(f.arena)
	f.arena = append(append(f.arena, key...), value...)
	split := from + len(key)
	f.pairs = append(f.pairs, pair{f.arena[from:split:split], f.arena[split:len(f.arena):len(f.arena)]})
	return nil
}

func (f *filler) end(state saved) error { return f.flush(&state) }

func (f *filler) flush(state *saved) error {
	if state == nil && len(f.pairs) == 0 {
		return nil
	}
	err := f.store.Update(func(tx *checkpoint.Tx) error {
		bucket, err := tx.Bucket(stateBucket)
		if err != nil {
			return err
		}
		for _, p := range f.pairs {
			if err := bucket.Put(p.key, p.value); err != nil {
				return err
			}
		}
		if state == nil {
			return nil
		}
		return tx.SetMeta(stateKey, *state)
	})
	f.pairs = f.pairs[:0]
	return err
}

package windower

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Names inside a checkpoint file.
const (
	stateBucket = "operator"
	stateKey    = "commit"
)

// checkpointKind is raised with the operator's own format: a file of another one is set
// aside and rebuilt from the journal.
var checkpointKind = checkpoint.Kind{Name: "windower", Format: window.Format, Cache: true}

// saved says which COMMIT a checkpoint file stands at and what it is a function of.
type saved struct {
	Commit       json.RawMessage `json:"commit"`
	Seq          uint64          `json:"seq"`     // of the COMMIT in the windows journal
	Windows      int64           `json:"windows"` // creation time of the windows journal
	PolicyDigest string          `json:"policyDigest"`
	CoreVersion  int             `json:"coreVersion"`
}

// snapshot is what changed in the operator up to one COMMIT.
type snapshot struct {
	pairs []pair
	state saved
	fresh bool // of an operator that nothing was saved of: what the file holds is void
}

type pair struct{ key, value []byte }

// snapshot asks the operator what changed. It must stand exactly at the COMMIT that the
// snapshot will be saved with.
func (f *fold) snapshot(fresh bool) (*snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &snapshot{fresh: fresh}
	err := f.op.Delta(func(key, value []byte) error {
		s.pairs = append(s.pairs, pair{key, value})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: checkpoint: %w", f.part, err)
	}
	return s, nil
}

// at names the accepted COMMIT.
func (s *snapshot) at(seq uint64, c *revision.Commit) {
	s.state.Seq, s.state.Commit = seq, c.AppendJSON(nil)
}

// write puts the snapshot into the file in one transaction. In key order, because bbolt
// writes pages that lie side by side far cheaper.
func (s *snapshot) write(store *checkpoint.Store) error {
	slices.SortFunc(s.pairs, func(a, b pair) int { return bytes.Compare(a.key, b.key) })
	if err := failpoint.Hit("windower/before-checkpoint"); err != nil {
		return err
	}
	err := store.Update(func(tx *checkpoint.Tx) error {
		if s.fresh {
			if err := tx.Drop(stateBucket); err != nil {
				return err
			}
		}
		bucket, err := tx.Bucket(stateBucket)
		if err != nil {
			return err
		}
		for _, p := range s.pairs {
			if p.value == nil {
				err = bucket.Delete(p.key)
			} else {
				err = bucket.Put(p.key, p.value)
			}
			if err != nil {
				return err
			}
		}
		if err := failpoint.Hit("windower/in-checkpoint"); err != nil {
			return err
		}
		return tx.SetMeta(stateKey, s.state)
	})
	if err != nil {
		return err
	}
	return failpoint.Hit("windower/after-checkpoint")
}

// saver writes snapshots in the background, one at a time and in order.
type saver struct {
	store  *checkpoint.Store
	state  saved // what does not change from one checkpoint to the next
	fresh  bool  // nothing of this operator was saved yet
	taken  *snapshot
	busy   bool       // taken waits for its COMMIT to be accepted, or is being written
	failed error      // why the last write failed; taken is kept
	done   chan error // the end of a write
	writes bool       // a write is going on
}

func newSaver(store *checkpoint.Store, state saved, fresh bool) *saver {
	return &saver{store: store, state: state, fresh: fresh, done: make(chan error, 1)}
}

// ready tells whether a snapshot may be taken or written again.
func (s *saver) ready() bool { return !s.busy }

// take makes the snapshot at the COMMIT that is being appended now.
func (s *saver) take(f *fold) error {
	snap, err := f.snapshot(s.fresh)
	if err != nil {
		return err
	}
	snap.state = s.state
	s.taken, s.fresh, s.busy = snap, false, true
	return nil
}

// start writes what was taken: its COMMIT is accepted at seq, so the file is never ahead
// of the journal.
func (s *saver) start(seq uint64, c *revision.Commit) {
	s.taken.at(seq, c)
	s.write()
}

// retry writes what is left of a failed write; false when nothing is. It goes before
// anything newer: the operator does not say twice what changed.
func (s *saver) retry() bool {
	if s.taken == nil {
		return false
	}
	s.write()
	return true
}

func (s *saver) write() {
	snap := s.taken
	s.busy, s.writes = true, true
	go func() { s.done <- snap.write(s.store) }()
}

// finished notes the end of a write. What may heal, such as a full disk, is no error
// here; failed tells it.
func (s *saver) finished(err error) error {
	s.busy, s.writes, s.failed = false, false, err
	if err == nil {
		s.taken = nil
	}
	if errors.Is(err, checkpoint.ErrDamaged) {
		return err
	}
	return nil
}

// wait waits for a write that is going on.
func (s *saver) wait() error {
	if !s.writes {
		return nil
	}
	return s.finished(<-s.done)
}

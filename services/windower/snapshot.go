package windower

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
)

// When to make a snapshot: what a process that has lost its files must read again.
const (
	snapshotEvery = 5 * time.Minute // default of Config.SnapshotEvery
	snapshotInput = 4 << 30         // bytes of frames
	// snapshotFor bounds one snapshot, handoffFor one that the next owner waits for.
	snapshotFor = 10 * time.Minute
	handoffFor  = 8 * time.Second
)

// snapshotter makes snapshots of a checkpoint file beside the loop, one at a time.
type snapshotter struct {
	store   *checkpoint.Store
	objects *snapshotStore
	file    string // where one is kept on its way
	clock   clock.Clock
	every   time.Duration // 0: never, but at an orderly handoff
	metrics *metrics
	log     zerolog.Logger

	last    time.Time
	taken   int   // bytes of frames that went into checkpoints before the last one
	stored  saved // what the newest one stands at
	swept   bool  // nothing that was cut off is left
	running chan struct{}
	stop    context.CancelFunc
}

func newSnapshotter(u *unit, store *checkpoint.Store) *snapshotter {
	done := make(chan struct{})
	close(done)
	return &snapshotter{
		store: store, objects: u.snapshots(), file: u.file + ".snapshot", clock: u.clock, every: u.snapshotEvery,
		metrics: u.metrics, log: u.log, last: u.clock.Now(), running: done, stop: func() {},
	}
}

func (u *unit) snapshots() *snapshotStore {
	return &snapshotStore{js: u.js, part: u.part, clock: u.clock}
}

// checkpointed is told after every checkpoint how many bytes of frames went into all of
// them; it begins a snapshot when one is due. It does not wait.
func (s *snapshotter) checkpointed(input int) {
	if s.every <= 0 || s.busy() || input-s.taken < snapshotInput && s.clock.Since(s.last) < s.every {
		return
	}
	s.last, s.taken = s.clock.Now(), input
	ctx, cancel := context.WithTimeout(context.Background(), snapshotFor)
	running := make(chan struct{})
	s.running, s.stop = running, cancel
	go func() {
		defer close(running)
		defer cancel()
		s.note(s.make(ctx))
		if !s.swept {
			err := s.objects.sweep(ctx)
			if s.swept = err == nil; err != nil {
				s.log.Debug().Err(err).Msg("windower: snapshots that were cut off are looked for another time")
			}
		}
	}()
}

func (s *snapshotter) busy() bool {
	select {
	case <-s.running:
		return false
	default:
		return true
	}
}

// end stops what is going on: the file is closed next.
func (s *snapshotter) end() {
	s.stop()
	<-s.running
}

// handoff makes a snapshot for the next owner. A takeover without one takes longer, so
// that it fails is no error.
func (s *snapshotter) handoff(ctx context.Context) {
	s.end() // what it was at is older
	ctx, cancel := context.WithTimeout(ctx, handoffFor)
	defer cancel()
	s.note(s.make(ctx))
}

func (s *snapshotter) note(err error) {
	switch {
	case errors.Is(err, context.Canceled):
	case err != nil:
		s.metrics.snapshot(snapshotFailed)
		s.log.Warn().Err(err).Stringer("partition", s.objects.part).
			Msg("windower: no snapshot was stored; a process without this file would have to read more of the journals")
	}
}

// make writes the content of the checkpoint file to a file beside it, so that the file
// is not kept from being written for as long as the upload takes, and uploads that.
func (s *snapshotter) make(ctx context.Context) error {
	begun := s.clock.Now()
	file, err := os.Create(s.file)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	defer func() {
		_ = file.Close()
		_ = os.Remove(s.file) // one that stays is overwritten by the next
	}()
	sum := &checkedWriter{w: bufio.NewWriterSize(file, 1<<20), hash: sha256.New()}
	state, err := writeSnapshot(sum, s.store)
	if err == nil {
		err = sum.w.Flush()
	}
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	if sameCommit(state, s.stored) {
		return nil
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	ref := snapshotRef{Size: sum.size, SHA256: hex.EncodeToString(sum.hash.Sum(nil)), State: state}
	if err := failpoint.Hit("windower/before-snapshot"); err != nil {
		return err
	}
	if err := s.objects.store(ctx, file, ref); err != nil {
		return err
	}
	if err := failpoint.Hit("windower/after-snapshot"); err != nil {
		return err
	}
	s.stored = state
	s.metrics.snapshot(snapshotStored)
	s.log.Info().Stringer("partition", s.objects.part).Uint64("sequence", state.Seq).Int64("bytes", ref.Size).
		Dur("took", s.clock.Since(begun)).Msg("windower: snapshot stored")
	return nil
}

// checkedWriter hashes and counts what it writes.
type checkedWriter struct {
	w    *bufio.Writer
	hash hash.Hash
	size int64
}

func (c *checkedWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.hash.Write(p[:n])
	c.size += int64(n)
	return n, err
}

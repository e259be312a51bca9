package windower

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

const (
	// snapshotsKept is how many snapshots of a unit are kept: one that turns out damaged
	// leaves others.
	snapshotsKept = 3
	// A server takes only so much of what it has not written yet, so uploads are paced:
	// burst bytes at once, and that often.
	uploadBurst = 4 << 20
	uploadEvery = 80 * time.Millisecond
	uploadChunk = 256 << 10
	// sweepFor bounds one look for what was left behind.
	sweepFor = 10 * time.Second
	// stallFor is how long nothing of a snapshot may arrive; up to twice as long is waited.
	stallFor = 3 * time.Second
	// pointerFormat is raised when an older program could not read the pointer any more.
	pointerFormat = 1
)

// pointer lists the snapshots of a unit that were read back and found good, newest first.
type pointer struct {
	Format    int           `json:"format"`
	Snapshots []snapshotRef `json:"snapshots"`
}

// snapshotRef is one snapshot: where it is, what it must be, and which COMMIT it stands at.
type snapshotRef struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	Format int    `json:"format"` // of the operator's state
	State  saved  `json:"state"`
}

// snapshotStore keeps the snapshots of one unit in the object store.
type snapshotStore struct {
	js    jetstream.JetStream
	part  partition
	clock clock.Clock
}

func (s *snapshotStore) pointerName() string {
	return subject.SnapshotPointer(s.part.stream, s.part.job, s.part.generation, s.part.number)
}

func (s *snapshotStore) objects(ctx context.Context) (jetstream.ObjectStore, error) {
	objects, err := s.js.ObjectStore(ctx, subject.SnapshotBucket)
	if err != nil {
		return nil, fmt.Errorf("object store %s: %w", subject.SnapshotBucket, err)
	}
	return objects, nil
}

// list answers the snapshots that the pointer names, newest first; none when there is no
// pointer or it cannot be read.
func (s *snapshotStore) list(ctx context.Context) ([]snapshotRef, error) {
	objects, err := s.objects(ctx)
	if err != nil {
		return nil, err
	}
	data, err := objects.GetBytes(ctx, s.pointerName())
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("pointer to the snapshots of %s: %w", s.part, err)
	}
	var p pointer
	if err := json.Unmarshal(data, &p); err != nil || p.Format != pointerFormat {
		return nil, fmt.Errorf("pointer to the snapshots of %s: format %d cannot be read: %w", s.part, p.Format, errSnapshot)
	}
	return p.Snapshots, nil
}

// store uploads what r reads, reads it back, and publishes it in the pointer only then.
// Snapshots that fall out of the pointer are deleted.
func (s *snapshotStore) store(ctx context.Context, r io.Reader, ref snapshotRef) error {
	objects, err := s.objects(ctx)
	if err != nil {
		return err
	}
	ref.Name = subject.Snapshot(s.part.stream, s.part.job, s.part.generation, s.part.number,
		fmt.Sprintf("%d-%s", ref.State.Seq, uuid.NewString()))
	ref.Format = window.Format
	meta := jetstream.ObjectMeta{Name: ref.Name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: uploadChunk}}
	if _, err := objects.Put(ctx, meta, &pacedReader{ctx: ctx, r: r, clock: s.clock}); err != nil {
		return fmt.Errorf("upload snapshot %s: %w", ref.Name, err)
	}
	if err := s.read(ctx, ref, func(r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		return err
	}); err != nil {
		return errors.Join(fmt.Errorf("read snapshot %s back: %w", ref.Name, err), objects.Delete(ctx, ref.Name))
	}
	if err := failpoint.Hit("windower/snapshot-uploaded"); err != nil {
		return err
	}
	return s.publish(ctx, objects, ref)
}

// read opens a snapshot for fn, and is satisfied only when all of it was read and is what
// ref says. ctx must have a deadline.
func (s *snapshotStore) read(ctx context.Context, ref snapshotRef, fn func(io.Reader) error) error {
	objects, err := s.objects(ctx)
	if err != nil {
		return err
	}
	object, err := objects.Get(ctx, ref.Name)
	if err != nil {
		return err
	}
	// The object's own Read cannot be ended before the deadline, so it reads on the far
	// side of a pipe, which can.
	near, far := io.Pipe()
	check := &checkedReader{r: near, hash: sha256.New()}
	go func() {
		_, err := io.Copy(far, object)
		_ = far.CloseWithError(errors.Join(err, object.Close()))
	}()
	done := make(chan struct{})
	go s.watch(done, check, far)
	err = fn(check)
	if err == nil {
		_, err = io.Copy(io.Discard, check) // what fn did not ask for
	}
	close(done)
	_ = near.Close() // the far side ends with its next write
	if err != nil {
		return err
	}
	if sum := hex.EncodeToString(check.hash.Sum(nil)); sum != ref.SHA256 || check.size.Load() != ref.Size {
		return damagedSnapshot(fmt.Sprintf("%d bytes with SHA-256 %s, expected %d with %s", check.size.Load(), sum, ref.Size, ref.SHA256), nil)
	}
	return nil
}

// watch ends a read of which nothing arrives any more: the server sends what it has, and
// nobody tells when a part is missing.
func (s *snapshotStore) watch(done <-chan struct{}, check *checkedReader, pipe *io.PipeWriter) {
	ticker := s.clock.NewTicker(stallFor)
	defer ticker.Stop()
	for before := int64(-1); ; {
		select {
		case <-done:
			return
		case <-ticker.C():
		}
		now := check.size.Load()
		if now == before {
			_ = pipe.CloseWithError(damagedSnapshot("a part of it does not arrive", nil))
			return
		}
		before = now
	}
}

// publish puts ref into the pointer and deletes what falls out of it: older ones, and
// those of another journal of the same name. Two owners may do so at once (a frozen one
// that woke up): one entry may be lost then, and its object is swept later. It costs time,
// never facts.
func (s *snapshotStore) publish(ctx context.Context, objects jetstream.ObjectStore, ref snapshotRef) error {
	have, err := s.list(ctx)
	if err != nil && !errors.Is(err, errSnapshot) {
		return err
	}
	have = append(have, ref)
	slices.SortStableFunc(have, func(a, b snapshotRef) int { return cmp.Compare(b.State.Seq, a.State.Seq) })
	var kept, dropped []snapshotRef
	for _, o := range have {
		if o.State.Windows == ref.State.Windows && len(kept) < snapshotsKept {
			kept = append(kept, o)
		} else {
			dropped = append(dropped, o)
		}
	}
	data, err := json.Marshal(pointer{Format: pointerFormat, Snapshots: kept})
	if err != nil {
		return err
	}
	if _, err := objects.PutBytes(ctx, s.pointerName(), data); err != nil {
		return fmt.Errorf("pointer to the snapshots of %s: %w", s.part, err)
	}
	for _, o := range dropped {
		if err := objects.Delete(ctx, o.Name); err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
			return fmt.Errorf("delete snapshot %s: %w", o.Name, err)
		}
	}
	return nil
}

// sweep deletes the unit's objects that the pointer does not name: what an upload that
// ended in the middle left behind. Nobody may wait for it: the list of an object store may
// never come to its end while others delete objects.
func (s *snapshotStore) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sweepFor)
	defer cancel()
	objects, err := s.objects(ctx)
	if err != nil {
		return err
	}
	named, err := s.list(ctx)
	if err != nil {
		return err
	}
	all, err := objects.List(ctx)
	if err != nil {
		return fmt.Errorf("list the snapshots of %s: %w", s.part, err)
	}
	mine := strings.TrimSuffix(s.pointerName(), "pointer")
	for _, o := range all {
		if !strings.HasPrefix(o.Name, mine) || o.Name == s.pointerName() ||
			slices.ContainsFunc(named, func(r snapshotRef) bool { return r.Name == o.Name }) {
			continue
		}
		if err := objects.Delete(ctx, o.Name); err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
			return fmt.Errorf("delete snapshot %s: %w", o.Name, err)
		}
	}
	return nil
}

// checkedReader hashes and counts what it reads.
type checkedReader struct {
	r    io.Reader
	hash hash.Hash
	size atomic.Int64
}

func (c *checkedReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.hash.Write(p[:n])
	c.size.Add(int64(n))
	return n, err
}

// pacedReader reads so many bytes at once and then pauses. It fills p as far as it can:
// every read becomes a message.
type pacedReader struct {
	ctx   context.Context
	r     io.Reader
	clock clock.Clock
	spent int
}

func (p *pacedReader) Read(to []byte) (int, error) {
	if p.spent >= uploadBurst {
		p.spent = 0
		timer := p.clock.NewTimer(uploadEvery)
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-p.ctx.Done():
			return 0, p.ctx.Err()
		}
	}
	n, err := io.ReadFull(p.r, to)
	p.spent += n
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

// sameCommit tells whether two states stand at the same COMMIT of the same journal.
func sameCommit(a, b saved) bool {
	return a.Windows == b.Windows && a.Seq == b.Seq && bytes.Equal(a.Commit, b.Commit)
}

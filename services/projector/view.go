package projector

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/core/projection"
	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// ViewKind and ViewFormat are what a view's file says about itself. It is a cache: the
// revisions stream holds everything in it.
const (
	ViewKind   = "projector-view"
	ViewFormat = 1
)

const (
	rowsBucket = "rows"
	// goneBucket holds the heads of retracted rows, for views in which most rows are
	// retracted sooner or later (byKey): so a query walks over current rows only.
	goneBucket = "gone"
	placeName  = "place"
)

// A view writes its file when it holds this much that the file does not, or this long
// after the first such change. What is not written costs reading it again after a crash,
// nothing else; writing seldom and in key order is what keeps bbolt out of the hot path.
const (
	flushRows  = 16 << 10
	flushBytes = 24 << 20
	flushAfter = 5 * second
)

// place says how far into the revisions stream a view reaches.
type place struct {
	Stream  string           `json:"stream"`
	Created int64            `json:"created"` // identity of the stream, Unix nanoseconds
	Fence   uint64           `json:"fence"`   // sequence of the last fence record applied; 0 = none
	Commit  *revision.Commit `json:"commit,omitempty"`
	Retired bool             `json:"retired,omitempty"`
	Of      string           `json:"of,omitempty"` // the partition; files of before have none
}

// change is one row to be written: the newest revision of a projection.
type change struct {
	key   string // row key
	value []byte // row value; owned by the view from then on
}

// view holds the current rows of one (stream, job, generation, key partition): a fold of
// the revisions stream. Rows not yet in the file stand in memory: fresh takes new ones,
// frozen is being written. One goroutine applies; any number may read.
type view struct {
	store *checkpoint.Store
	aside *checkpoint.SetAside // the file that stood there and could not be used; nil = none
	clock clock.Clock
	every time.Duration // from the first change to its write
	order rowOrder

	mu     sync.RWMutex
	fresh  *recent
	frozen *recent // nil while nothing is being written
	place  place
	dirty  bool          // place or fresh differ from what is written or being written
	failed error         // why it can take in no more; it must be opened again
	broken chan struct{} // closed when failed is set by a write

	timer  clock.Timer
	wake   chan struct{} // asks the writer to look
	thawed chan struct{} // told when frozen became free
	done   chan struct{}
	closed chan struct{}
}

// openView opens the file of a partition's view, or makes it anew when it is damaged or
// that of another partition: its rows and its place would be taken for a damaged journal.
func openView(path, of string, order rowOrder, clk clock.Clock, every time.Duration) (*view, error) {
	v, err := readView(path, order, clk, every)
	if err != nil {
		return nil, err
	}
	if was := v.place.Of; was != "" && was != of {
		if err := v.store.Close(); err != nil {
			return nil, err
		}
		aside, err := checkpoint.MoveAside(path, "stale", "it is the view of "+was)
		if err != nil {
			return nil, err
		}
		if v, err = readView(path, order, clk, every); err != nil {
			return nil, err
		}
		v.aside = aside
	}
	v.place.Of = of
	v.timer = clk.NewTimer(0)
	go v.write()
	return v, nil
}

// readView opens a view's file and reads how far it reaches.
func readView(path string, order rowOrder, clk clock.Clock, every time.Duration) (*view, error) {
	store, err := checkpoint.Open(path, checkpoint.Kind{Name: ViewKind, Format: ViewFormat, Cache: true})
	if err != nil {
		return nil, err
	}
	v := &view{
		store: store, aside: store.SetAside(), clock: clk, every: every, order: order, fresh: newRecent(0),
		wake: make(chan struct{}, 1), thawed: make(chan struct{}, 1), broken: make(chan struct{}),
		done: make(chan struct{}), closed: make(chan struct{}),
	}
	err = store.View(func(tx *checkpoint.Tx) error {
		_, err := tx.Meta(placeName, &v.place)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return v, nil
}

// at answers how far the view reaches.
func (v *view) at() place {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.place
}

// bind tells a view which stream it is a fold of, or checks that it still is.
func (v *view) bind(id journal.Identity) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.place.Created == 0 {
		v.place.Stream, v.place.Created = id.Stream, id.Created
		return nil
	}
	if err := id.Check(v.place.Created, v.place.Fence+1); err != nil {
		return fmt.Errorf("view %s: %w; if the stream was replaced on purpose, move that file away and start again", v.store.Path(), err)
	}
	return nil
}

// heads answers the accepted head of every row key given, in one look at the file.
func (v *view) heads(keys []string, found func(key string, head projection.Current)) error {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.failed != nil {
		return v.failed
	}
	return v.store.View(func(tx *checkpoint.Tx) error {
		rows, err := tx.Bucket(rowsBucket)
		if err != nil {
			return err
		}
		buckets := []*checkpoint.Bucket{rows}
		if v.order == byKey {
			gone, err := tx.Bucket(goneBucket)
			if err != nil {
				return err
			}
			buckets = append(buckets, gone)
		}
		for _, key := range keys {
			value := v.inMemory(key)
			for i := 0; value == nil && i < len(buckets); i++ {
				if value, err = buckets[i].Get([]byte(key)); err != nil {
					return err
				}
			}
			head, err := rowHead(value)
			if err != nil {
				return err
			}
			found(key, head)
		}
		return nil
	})
}

// apply takes in one fence record with the rows of its batch. Owners and followers both
// come through here: what differs is only where the rows come from.
func (v *view) apply(fence journal.FenceRecord, seq uint64, rows []change) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.failed != nil {
		return v.failed
	}
	if seq <= v.place.Fence {
		return nil
	}
	if fence.Commit != nil {
		if err := follows(v.place, seq, fence.Commit); err != nil {
			return err
		}
		v.place.Commit = fence.Commit
	}
	if fence.Control != nil {
		retired, err := retires(fence.Control)
		if err != nil {
			return damagef("stream %s: the CONTROL record at sequence %d cannot be read: %v", v.place.Stream, seq, err)
		}
		v.place.Retired = v.place.Retired || retired
	}
	for _, c := range rows {
		v.fresh.put(c.key, c.value)
	}
	v.place.Fence = seq
	if !v.dirty {
		v.dirty = true
		v.timer.Reset(v.every)
	}
	v.crowd()
	return nil
}

// crowd starts a write when enough stands in memory, and waits when the file cannot keep
// up at all. The lock is held.
func (v *view) crowd() {
	for len(v.fresh.rows) >= flushRows || v.fresh.bytes >= flushBytes {
		if v.frozen == nil {
			poke(v.wake)
		}
		if len(v.fresh.rows) < 2*flushRows && v.fresh.bytes < 2*flushBytes || v.failed != nil {
			return
		}
		v.mu.Unlock()
		select {
		case <-v.thawed:
		case <-v.done:
		}
		v.mu.Lock()
	}
}

// write is the goroutine that brings changes into the file.
func (v *view) write() {
	defer close(v.closed)
	for {
		select {
		case <-v.wake:
		case <-v.timer.C():
		case <-v.done:
			v.flush()
			return
		}
		v.flush()
	}
}

// flush writes what stands in memory in one transaction.
func (v *view) flush() {
	v.mu.Lock()
	if !v.dirty || v.failed != nil {
		v.mu.Unlock()
		return
	}
	v.frozen, v.fresh, v.dirty = v.fresh, newRecent(len(v.fresh.rows)), false
	rows, at := v.frozen, v.place
	v.mu.Unlock()

	err := v.save(rows, at)
	v.mu.Lock()
	if err != nil {
		v.failed = fmt.Errorf("write view: %w", err)
		close(v.broken) // once: nothing is written after a failure
	} else {
		v.frozen = nil
	}
	v.mu.Unlock()
	poke(v.thawed)
}

// save writes rows and how far they reach in one transaction.
func (v *view) save(rows *recent, at place) error {
	if err := failpoint.Hit("projector/before-view"); err != nil {
		return err
	}
	err := v.store.Update(func(tx *checkpoint.Tx) error {
		if err := v.putRows(tx, rows); err != nil {
			return err
		}
		if err := failpoint.Hit("projector/in-view"); err != nil {
			return err
		}
		return tx.SetMeta(placeName, at)
	})
	if err != nil {
		return err
	}
	return failpoint.Hit("projector/after-view")
}

// putRows writes rows in their order. Where retracted rows stand apart, of those only
// the head is kept: it is what the next revision of the same bounds is judged by.
func (v *view) putRows(tx *checkpoint.Tx, list *recent) error {
	rows, err := tx.Bucket(rowsBucket)
	if err != nil {
		return err
	}
	var gone *checkpoint.Bucket
	if v.order == byKey {
		if gone, err = tx.Bucket(goneBucket); err != nil {
			return err
		}
	}
	for w := list.from(""); ; w.next() {
		at, more := w.head()
		if !more {
			return nil
		}
		key, value := []byte(at), list.rows[at]
		to, other := rows, gone
		if gone != nil && rowRetracted(value) {
			to, other, value = gone, rows, value[:rowHeader]
		}
		if err := to.Put(key, value); err != nil {
			return err
		}
		if other == nil {
			continue
		}
		if err := other.Delete(key); err != nil {
			return err
		}
	}
}

// failure answers why the view can take in no more, nil while it can.
func (v *view) failure() error {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.failed
}

// errClosed is what a closed view answers to late readers.
var errClosed = errors.New("the view is closed")

// close writes what is left and closes the file. The applier must have ended; readers
// that come later get errClosed.
func (v *view) close() error {
	close(v.done)
	<-v.closed
	v.timer.Stop()
	v.mu.Lock()
	defer v.mu.Unlock()
	err := v.failed
	v.failed = errClosed
	return errors.Join(err, v.store.Close())
}

// poke tells a channel of capacity one without waiting.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

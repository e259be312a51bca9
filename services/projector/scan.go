package projector

import (
	"bytes"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// visit looks at one row of a scan. Slices are valid only inside it. It answers where to
// go on (nil: at the next row) and whether to go on at all.
type visit func(key, value []byte) (skip []byte, more bool, err error)

// scan visits the rows with from <= row key < to in order (nil to: to the end), all as of
// one moment, and answers the COMMIT of that moment. Applying waits meanwhile, so a visit
// must be short and a scan must end after a bounded number of rows.
func (v *view) scan(from, to []byte, fn visit) (*revision.Commit, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.failed != nil {
		return nil, v.failed
	}
	return v.place.Commit, v.store.View(func(tx *checkpoint.Tx) error {
		rows, err := tx.Bucket(rowsBucket)
		if err != nil {
			return err
		}
		for {
			next, err := v.run(rows, from, to, fn)
			if next == nil || err != nil {
				return err
			}
			from = next
		}
	})
}

// inMemory answers a row that is not in the file yet.
func (v *view) inMemory(key string) []byte {
	if value, ok := v.fresh.rows[key]; ok {
		return value
	}
	if v.frozen == nil {
		return nil
	}
	return v.frozen.rows[key]
}

// held walks the rows in memory below a row key.
type held struct {
	fresh, frozen walk
	to            string
	bounded       bool
}

func (v *view) heldFrom(from, to []byte) held {
	return held{fresh: v.fresh.from(string(from)), frozen: v.frozen.from(string(from)), to: string(to), bounded: to != nil}
}

// head answers the next row key, false at the end.
func (h *held) head() (string, bool) {
	key, ok := h.fresh.head()
	if other, more := h.frozen.head(); more && (!ok || other < key) {
		key, ok = other, true
	}
	return key, ok && (!h.bounded || key < h.to)
}

// pass moves behind key, which is the head.
func (h *held) pass(key string) {
	for _, w := range []*walk{&h.fresh, &h.frozen} {
		if at, ok := w.head(); ok && at == key {
			w.next()
		}
	}
}

// run merges file and memory from one place on until a visit skips; it answers where to,
// or nil at the end.
func (v *view) run(rows *checkpoint.Bucket, from, to []byte, fn visit) (next []byte, err error) {
	memory := v.heldFrom(from, to)
	stopped := false
	// turn visits one row and tells whether the run goes on.
	turn := func(key, value []byte) (bool, error) {
		skip, more, err := fn(key, value)
		if err != nil || !more {
			stopped = true
			return false, err
		}
		if skip != nil {
			next = bytes.Clone(skip)
			return false, nil
		}
		return true, nil
	}
	// remember visits the row in memory at key.
	remember := func(key string) (bool, error) {
		memory.pass(key)
		return turn([]byte(key), v.inMemory(key))
	}
	err = rows.Range(from, to, func(key, value []byte) (bool, error) {
		for {
			at, ok := memory.head()
			switch {
			case !ok || at > string(key):
				return turn(key, value)
			case at == string(key):
				return remember(at)
			}
			if more, err := remember(at); !more {
				return false, err
			}
		}
	})
	for err == nil && !stopped && next == nil {
		at, ok := memory.head()
		if !ok {
			break
		}
		_, err = remember(at)
	}
	return next, err
}

package projector

import (
	"bytes"
	"slices"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
)

// visit looks at one row of a scan. Slices are valid only inside it. It answers where to
// go on (nil: at the next row) and whether to go on at all.
type visit func(key, value []byte) (skip []byte, more bool, err error)

// scan visits the rows with from <= row key < to in order (nil to: to the end). Applying
// waits meanwhile, so a visit must be short and a scan must end after a bounded number of
// rows.
func (v *view) scan(from, to []byte, fn visit) error {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.failed != nil {
		return v.failed
	}
	held := v.held(from, to)
	return v.store.View(func(tx *checkpoint.Tx) error {
		rows, err := tx.Bucket(rowsBucket)
		if err != nil {
			return err
		}
		for {
			next, err := v.run(rows, held, from, to, fn)
			if next == nil || err != nil {
				return err
			}
			from = next
		}
	})
}

// held answers the sorted keys of the range that stand in memory.
func (v *view) held(from, to []byte) []string {
	low, high := string(from), string(to)
	var keys []string
	for _, rows := range []map[string][]byte{v.frozen, v.fresh} {
		for key := range rows {
			if key >= low && (to == nil || key < high) {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// inMemory answers a row that is not in the file yet.
func (v *view) inMemory(key string) []byte {
	if value, ok := v.fresh[key]; ok {
		return value
	}
	return v.frozen[key]
}

// run merges file and memory from one place on until a visit skips; it answers where to,
// or nil at the end.
func (v *view) run(rows *checkpoint.Bucket, held []string, from, to []byte, fn visit) (next []byte, err error) {
	i, _ := slices.BinarySearch(held, string(from))
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
	err = rows.Range(from, to, func(key, value []byte) (bool, error) {
		for i < len(held) && held[i] < string(key) {
			i++
			if more, err := turn([]byte(held[i-1]), v.inMemory(held[i-1])); !more {
				return false, err
			}
		}
		if i < len(held) && held[i] == string(key) {
			i++
			value = v.inMemory(held[i-1])
		}
		return turn(key, value)
	})
	for err == nil && !stopped && next == nil && i < len(held) {
		i++
		_, err = turn([]byte(held[i-1]), v.inMemory(held[i-1]))
	}
	return next, err
}

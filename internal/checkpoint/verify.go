package checkpoint

import (
	"fmt"

	"go.etcd.io/bbolt"
)

// Verify reads the whole file and compares every checksum and total; it answers
// ErrDamaged with what does not fit. Open has done it already.
func (s *Store) Verify() error {
	return s.view(func(tx *Tx) error {
		err := tx.bolt.ForEach(func(name []byte, b *bbolt.Bucket) error {
			if b == nil {
				return s.damaged("an entry stands outside of every bucket")
			}
			return tx.verifyBucket(string(name))
		})
		if err != nil {
			return err
		}
		return s.verifyPages(tx.bolt)
	})
}

func (tx *Tx) verifyBucket(name string) error {
	b, err := tx.Bucket(name)
	if err != nil {
		return err
	}
	var got totals
	err = b.Each(func(key, value []byte) error {
		got.Entries++
		got.Sum += uint64(b.sum(key, value))
		return nil
	})
	if err != nil {
		return err
	}
	if name != metaBucket && got != b.totals {
		return tx.store.damaged(fmt.Sprintf("bucket %s holds %d entries with sum %x, expected %d with %x",
			name, got.Entries, got.Sum, b.totals.Entries, b.totals.Sum))
	}
	return nil
}

// verifyPages compares the free list with the pages in use. It runs bbolt's own check,
// which works in a goroutine of its own where a panic could not be caught: therefore only
// after every page in use was read without harm.
func (s *Store) verifyPages(tx *bbolt.Tx) error {
	var first error
	for err := range tx.Check() {
		if first == nil {
			first = err
		}
	}
	if first != nil {
		return s.damaged(first.Error())
	}
	return nil
}

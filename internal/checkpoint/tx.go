package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"

	"go.etcd.io/bbolt"
)

// metaBucket holds JSON values: identity, bucket totals (under totalsPrefix), and what
// callers store by SetMeta (under userPrefix).
const (
	metaBucket   = "tidemark.meta"
	totalsPrefix = "totals."
	sumBytes     = 4
	arenaBytes   = 64 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Tx is one transaction. It and all slices it answers are valid only inside the function
// it was given to, and only in its goroutine.
type Tx struct {
	bolt    *bbolt.Tx
	store   *Store
	buckets map[string]*Bucket
	arena   []byte
}

// totals is what a bucket must add up to.
type totals struct {
	Entries uint64 `json:"entries"`
	Sum     uint64 `json:"sum"` // of the entries' checksums, mod 2^64
}

// Bucket is one named map of a transaction, ordered by key.
type Bucket struct {
	tx     *Tx
	name   string
	bolt   *bbolt.Bucket // nil: a bucket that was never written, in a View
	seek   *bbolt.Cursor // for looking up: bbolt's own Get makes a cursor each time
	seed   uint32        // checksum of the name
	totals totals
	dirty  bool
}

// View runs fn in a read transaction: a consistent picture while Updates go on.
func (s *Store) View(fn func(tx *Tx) error) error {
	if broken := s.broken.Load(); broken != nil {
		return broken
	}
	return s.view(fn)
}

// Update runs fn in the one write transaction and syncs it to the disk; an error of fn
// undoes all of it.
func (s *Store) Update(fn func(tx *Tx) error) error {
	if broken := s.broken.Load(); broken != nil {
		return broken
	}
	return s.update(fn)
}

func (s *Store) view(fn func(tx *Tx) error) error {
	return s.noteDamage(s.guard(func() error {
		return s.db.View(func(b *bbolt.Tx) error {
			return fn(&Tx{bolt: b, store: s, buckets: map[string]*Bucket{}})
		})
	}))
}

func (s *Store) update(fn func(tx *Tx) error) error {
	return s.noteDamage(s.guard(func() error {
		return s.db.Update(func(b *bbolt.Tx) error {
			tx := &Tx{bolt: b, store: s, buckets: map[string]*Bucket{}}
			if err := fn(tx); err != nil {
				return err
			}
			return tx.writeTotals()
		})
	}))
}

// noteDamage remembers damage: after it the file must not be written any more.
func (s *Store) noteDamage(err error) error {
	if e, ok := err.(*Error); ok && e.Err == ErrDamaged {
		s.broken.CompareAndSwap(nil, e)
	}
	return err
}

// Bucket answers the bucket named so. In an Update it is made if it is not there; in a
// View a bucket never written reads as empty.
func (tx *Tx) Bucket(name string) (*Bucket, error) {
	if b := tx.buckets[name]; b != nil {
		return b, nil
	}
	b := &Bucket{tx: tx, name: name, bolt: tx.bolt.Bucket([]byte(name)), seed: crc32.Checksum([]byte(name), castagnoli)}
	if b.bolt == nil && tx.bolt.Writable() {
		var err error
		if b.bolt, err = tx.bolt.CreateBucket([]byte(name)); err != nil {
			return nil, fmt.Errorf("make bucket %s of %s: %w", name, tx.store.path, err)
		}
	}
	if b.bolt != nil {
		b.seek = b.bolt.Cursor()
	}
	if name != metaBucket {
		if _, err := tx.Meta(totalsPrefix+name, &b.totals); err != nil {
			return nil, err
		}
	}
	tx.buckets[name] = b
	return b, nil
}

// Drop deletes a bucket and all in it.
func (tx *Tx) Drop(name string) error {
	delete(tx.buckets, name)
	if tx.bolt.Bucket([]byte(name)) == nil {
		return nil
	}
	meta, err := tx.Bucket(metaBucket)
	if err != nil {
		return err
	}
	if err := meta.Delete([]byte(totalsPrefix + name)); err != nil {
		return err
	}
	return tx.bolt.DeleteBucket([]byte(name))
}

// Meta reads the JSON value stored under name into v and answers whether there is one.
func (tx *Tx) Meta(name string, v any) (bool, error) {
	meta, err := tx.Bucket(metaBucket)
	if err != nil {
		return false, err
	}
	text, err := meta.Get([]byte(name))
	if text == nil || err != nil {
		return false, err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return false, tx.store.damaged(fmt.Sprintf("meta value %s: %v", name, err))
	}
	return true, nil
}

// SetMeta stores v as JSON under name. Names beginning with "identity" or "totals." are
// this package's own.
func (tx *Tx) SetMeta(name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("meta value %s: %w", name, err)
	}
	meta, err := tx.Bucket(metaBucket)
	if err != nil {
		return err
	}
	return meta.Put([]byte(name), text)
}

func (tx *Tx) writeTotals() error {
	for name, b := range tx.buckets {
		if !b.dirty || name == metaBucket {
			continue
		}
		if err := tx.SetMeta(totalsPrefix+name, b.totals); err != nil {
			return err
		}
	}
	return nil
}

// Get answers the value of key, nil when there is none (an empty value is not nil).
func (b *Bucket) Get(key []byte) ([]byte, error) {
	if b.bolt == nil {
		return nil, nil
	}
	found, stored := b.seek.Seek(key)
	if found == nil || !bytes.Equal(found, key) {
		return nil, nil
	}
	return b.open(key, stored)
}

// Put stores value under key. Both may be reused by the caller at once. Keys must not be empty.
func (b *Bucket) Put(key, value []byte) error {
	if err := b.forget(key); err != nil {
		return err
	}
	sum := b.sum(key, value)
	stored := b.tx.take(sumBytes + len(value))
	binary.BigEndian.PutUint32(stored, sum)
	copy(stored[sumBytes:], value)
	b.totals.Entries++
	b.totals.Sum += uint64(sum)
	if err := b.bolt.Put(key, stored); err != nil {
		return fmt.Errorf("put into %s of %s: %w", b.name, b.tx.store.path, err)
	}
	return nil
}

// Delete removes key; a key that is not there is no error.
func (b *Bucket) Delete(key []byte) error {
	if err := b.forget(key); err != nil {
		return err
	}
	if err := b.bolt.Delete(key); err != nil {
		return fmt.Errorf("delete from %s of %s: %w", b.name, b.tx.store.path, err)
	}
	return nil
}

// forget takes the entry under key out of the totals.
func (b *Bucket) forget(key []byte) error {
	b.dirty = true
	found, stored := b.seek.Seek(key)
	if found == nil || !bytes.Equal(found, key) {
		return nil
	}
	if len(stored) < sumBytes {
		return b.tx.store.damaged("bucket " + b.name + ": an entry is cut short")
	}
	b.totals.Entries--
	b.totals.Sum -= uint64(binary.BigEndian.Uint32(stored))
	return nil
}

// Each calls fn for every entry in key order until fn answers an error.
func (b *Bucket) Each(fn func(key, value []byte) error) error {
	return b.Range(nil, nil, func(key, value []byte) (bool, error) { return true, fn(key, value) })
}

// Prefix calls fn for every entry whose key begins with prefix, in key order, until fn
// answers false or an error.
func (b *Bucket) Prefix(prefix []byte, fn func(key, value []byte) (more bool, err error)) error {
	return b.Range(prefix, nil, func(key, value []byte) (bool, error) {
		if !bytes.HasPrefix(key, prefix) {
			return false, nil
		}
		return fn(key, value)
	})
}

// Range calls fn for every entry with from <= key < to in key order (nil to = to the end)
// until fn answers false or an error. fn must not write to the bucket.
func (b *Bucket) Range(from, to []byte, fn func(key, value []byte) (more bool, err error)) error {
	if b.bolt == nil {
		return nil
	}
	c := b.bolt.Cursor()
	for key, stored := c.Seek(from); key != nil; key, stored = c.Next() {
		if to != nil && bytes.Compare(key, to) >= 0 {
			return nil
		}
		value, err := b.open(key, stored)
		if err != nil {
			return err
		}
		if more, err := fn(key, value); err != nil || !more {
			return err
		}
	}
	return nil
}

// Reverse calls fn for every entry with from <= key < to from the last to the first,
// until fn answers false or an error. A nil bound is open.
func (b *Bucket) Reverse(from, to []byte, fn func(key, value []byte) (more bool, err error)) error {
	if b.bolt == nil {
		return nil
	}
	c := b.bolt.Cursor()
	for key, stored := lastBelow(c, to); key != nil; key, stored = c.Prev() {
		if bytes.Compare(key, from) < 0 {
			return nil
		}
		value, err := b.open(key, stored)
		if err != nil {
			return err
		}
		if more, err := fn(key, value); err != nil || !more {
			return err
		}
	}
	return nil
}

// lastBelow moves c to the last key < to.
func lastBelow(c *bbolt.Cursor, to []byte) (key, stored []byte) {
	if to == nil {
		return c.Last()
	}
	if key, _ = c.Seek(to); key == nil {
		return c.Last()
	}
	return c.Prev()
}

// Len answers the number of entries.
func (b *Bucket) Len() int { return int(b.totals.Entries) }

func (b *Bucket) sum(key, value []byte) uint32 {
	return crc32.Update(crc32.Update(b.seed, castagnoli, key), castagnoli, value)
}

// open checks and unwraps a stored entry.
func (b *Bucket) open(key, stored []byte) ([]byte, error) {
	if len(stored) < sumBytes || binary.BigEndian.Uint32(stored) != b.sum(key, stored[sumBytes:]) {
		return nil, b.tx.store.damaged(fmt.Sprintf("bucket %s: the checksum of an entry does not fit", b.name))
	}
	return stored[sumBytes:], nil
}

// take answers n bytes that stay valid until the transaction ends, which is what bbolt
// asks of a value.
func (tx *Tx) take(n int) []byte {
	if n > arenaBytes/4 {
		return make([]byte, n)
	}
	if len(tx.arena) < n {
		tx.arena = make([]byte, arenaBytes)
	}
	out := tx.arena[:n:n]
	tx.arena = tx.arena[n:]
	return out
}

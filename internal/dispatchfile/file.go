package dispatchfile

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
)

// What the file says about itself, as internal/checkpoint knows it. Format is raised when
// the meaning of the content changes. JournalMeta is under which name its Identity stands.
const (
	Kind        = "effector-dispatch"
	Format      = 1
	JournalMeta = "journal"
)

// Buckets.
const (
	attemptsBucket = "attempts" // effectKey, attempt → epoch, sequence, digest
	orderBucket    = "order"    // sequence, effectKey, attempt → nothing
)

// Sizes of what stands in the buckets.
const (
	keyBytes     = 32
	attemptBytes = keyBytes + 4
	orderBytes   = 8 + attemptBytes
	valueBytes   = 8 + 8 + 32 // epoch, sequence, digest
)

// File is an open dispatch file. Its methods may be called from any goroutine.
type File struct {
	store    *checkpoint.Store
	identity Identity
}

// Open opens the file at path, or makes it, reads all of it to be sure of it, and locks it
// against other processes. Errors are those of internal/checkpoint, each with the file and
// what to do.
func Open(path string) (*File, error) {
	store, err := checkpoint.Open(path, checkpoint.Kind{Name: Kind, Format: Format})
	if err != nil {
		return nil, fmt.Errorf("dispatch file: %w", err)
	}
	f := &File{store: store}
	if err := f.load(); err != nil {
		_ = store.Close()
		return nil, fmt.Errorf("dispatch file: %w", err)
	}
	return f, nil
}

// load reads the identity and holds the two buckets against one another.
func (f *File) load() error {
	return f.store.View(func(tx *checkpoint.Tx) error {
		if _, err := tx.Meta(JournalMeta, &f.identity); err != nil {
			return err
		}
		attempts, err := tx.Bucket(attemptsBucket)
		if err != nil {
			return err
		}
		order, err := tx.Bucket(orderBucket)
		if err != nil {
			return err
		}
		if attempts.Len() != order.Len() || f.identity == (Identity{}) && order.Len() > 0 {
			return f.damaged("its attempts and their order do not fit together")
		}
		return order.Each(func(key, _ []byte) error {
			_, err := f.entry(attempts, key)
			return err
		})
	})
}

func (f *File) damaged(detail string) error {
	return &checkpoint.Error{
		Path: f.store.Path(), Err: checkpoint.ErrDamaged, Detail: detail,
		Hint: "keep it, and run tidemark effects recover: what this machine sent is only known to the providers",
	}
}

// Close closes the file and gives its lock back.
func (f *File) Close() error { return f.store.Close() }

// Identity answers the journal that the entries speak of, and false where none is set.
func (f *File) Identity() (Identity, bool) { return f.identity, f.identity != Identity{} }

// Bind says which journal the entries speak of, in a file that no journal is named in yet;
// of any other than the one that is named it answers ErrForeign.
func (f *File) Bind(ctx context.Context, journal Identity) error {
	if _, bound := f.Identity(); bound {
		return f.speaksOf(journal)
	}
	return f.Recovered(ctx, journal)
}

// Recovered says that all entries were taken into a journal, and that new ones speak of
// it: of a journal that has lost its tail, or of another one. The old entries stay, at
// sequence 0: they can be missing nowhere any more.
func (f *File) Recovered(ctx context.Context, journal Identity) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if journal.Stream == "" || journal.Created == 0 {
		return fmt.Errorf("dispatch file %s: a journal without name or time of creation", f.store.Path())
	}
	err := f.store.Update(func(tx *checkpoint.Tx) error {
		if err := tx.SetMeta(JournalMeta, journal); err != nil {
			return err
		}
		return f.forgetSequences(tx)
	})
	if err == nil {
		f.identity = journal
	}
	return err
}

func (f *File) speaksOf(journal Identity) error {
	if journal == f.identity {
		return nil
	}
	return &checkpoint.Error{
		Path: f.store.Path(), Err: checkpoint.ErrForeign,
		Detail: fmt.Sprintf("it speaks of stream %q created at %d, not of %q created at %d", f.identity.Stream, f.identity.Created, journal.Stream, journal.Created),
		Hint:   "run tidemark effects recover",
	}
}

// forgetSequences moves every entry to sequence 0, since its sequence was another journal's.
func (f *File) forgetSequences(tx *checkpoint.Tx) error {
	entries, err := f.read(tx, 0)
	if err != nil {
		return err
	}
	if err := tx.Drop(orderBucket); err != nil {
		return err
	}
	for i := range entries {
		entries[i].Seq = 0
	}
	return f.write(tx, entries)
}

// Append writes the attempts of one commit to the journal that Bind named, in one
// transaction, and answers when they are on the disk. An attempt that is there already is
// replaced by the same; another one under the same number is an error.
func (f *File) Append(ctx context.Context, entries []Entry) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, bound := f.Identity(); !bound {
		return fmt.Errorf("dispatch file %s: no journal is bound to it", f.store.Path())
	}
	for i := range entries {
		if e := &entries[i]; e.Key.IsZero() || e.Attempt == 0 || e.Digest.IsZero() || e.Seq == 0 {
			return fmt.Errorf("dispatch file %s: entry %d has no key, attempt, digest or sequence", f.store.Path(), i)
		}
	}
	return f.store.Update(func(tx *checkpoint.Tx) error { return f.write(tx, entries) })
}

func (f *File) write(tx *checkpoint.Tx, entries []Entry) error {
	attempts, err := tx.Bucket(attemptsBucket)
	if err != nil {
		return err
	}
	order, err := tx.Bucket(orderBucket)
	if err != nil {
		return err
	}
	for i := range entries {
		key, value := entries[i].encode()
		old, err := attempts.Get(key[8:])
		if err != nil {
			return err
		}
		if old != nil && string(old[8:16]) != string(value[8:16]) && entries[i].Seq != 0 {
			return fmt.Errorf("dispatch file %s: attempt %d of %s stands in it already, at another sequence", f.store.Path(), entries[i].Attempt, entries[i].Key)
		}
		if err := attempts.Put(key[8:], value); err != nil {
			return err
		}
		if err := order.Put(key, nil); err != nil {
			return err
		}
	}
	return nil
}

// After answers the attempts whose DISPATCHING record stands behind sequence seq, in the
// order of the journal: what a journal that ends at seq has lost.
func (f *File) After(seq uint64) (entries []Entry, err error) {
	err = f.store.View(func(tx *checkpoint.Tx) error {
		entries, err = f.read(tx, seq+1)
		return err
	})
	return entries, err
}

// Everything answers every attempt, in the order of the journal, recovered ones first.
func (f *File) Everything() (entries []Entry, err error) {
	err = f.store.View(func(tx *checkpoint.Tx) error {
		entries, err = f.read(tx, 0)
		return err
	})
	return entries, err
}

func (f *File) read(tx *checkpoint.Tx, from uint64) (entries []Entry, err error) {
	attempts, err := tx.Bucket(attemptsBucket)
	if err != nil {
		return nil, err
	}
	order, err := tx.Bucket(orderBucket)
	if err != nil {
		return nil, err
	}
	err = order.Range(binary.BigEndian.AppendUint64(nil, from), nil, func(key, _ []byte) (bool, error) {
		e, err := f.entry(attempts, key)
		entries = append(entries, e)
		return true, err
	})
	return entries, err
}

// Last answers the sequence of the last entry, 0 if there is none.
func (f *File) Last() (seq uint64, err error) {
	err = f.store.View(func(tx *checkpoint.Tx) error {
		order, err := tx.Bucket(orderBucket)
		if err != nil {
			return err
		}
		return order.Reverse(nil, nil, func(key, _ []byte) (bool, error) {
			seq = binary.BigEndian.Uint64(key)
			return false, nil
		})
	})
	return seq, err
}

// Size answers the bytes of the file.
func (f *File) Size() int64 { return f.store.Size() }

// Package checkpoint keeps the fold of journals in a local bbolt file, so that a process
// that starts again need not read its journals from the beginning.
//
// A file belongs to one kind in one format. The journals are the truth: losing a file of
// a cache kind costs time, never facts. What must never happen is that a damaged file is
// taken for a good one, therefore
//
//   - every transaction is synced to the disk. Checkpoints are rare (one in seconds), so
//     the price is small, and without it a power cut could leave a file whose pages are
//     of different transactions;
//   - every entry carries a checksum over bucket, key and value, and every bucket its
//     number of entries and the sum of their checksums: a page that the disk forgot is
//     found even when what stands in its place is a well-formed older page;
//   - opening reads the whole file and compares.
//
// bbolt panics on damage in many places, and a file that was cut short faults in its
// memory map; both are turned into ErrDamaged here.
package checkpoint

import (
	"errors"
	"fmt"
	"sync/atomic"

	"go.etcd.io/bbolt"
)

// Errors of this package; use errors.Is. An *Error carries the file and what to do.
var (
	// ErrLocked: another process has the file open.
	ErrLocked = errors.New("file is in use by another process")
	// ErrDamaged: the file is torn, zeroed, cut short, or its checksums do not fit.
	ErrDamaged = errors.New("file is damaged")
	// ErrForeign: the file is of another kind, or none of Tidemark's.
	ErrForeign = errors.New("file belongs to something else")
	// ErrNewer: a newer version of Tidemark wrote the file.
	ErrNewer = errors.New("file has a newer format")
	// ErrOlder: an older version wrote the file, and its kind is none that can be made anew.
	ErrOlder = errors.New("file has an older format")
)

// Error says what is wrong with which file, and what to do about it.
type Error struct {
	Path   string
	Err    error  // one of the errors above
	Detail string // what was seen
	Hint   string // what to do
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %v", e.Path, e.Err)
	if e.Detail != "" {
		text += " (" + e.Detail + ")"
	}
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// Unwrap makes errors.Is work for the errors above.
func (e *Error) Unwrap() error { return e.Err }

// Kind says what a file is.
type Kind struct {
	Name   string // e.g. windower; written into the file and compared at Open
	Format int    // from 1; raised when the meaning of the content changes
	Cache  bool   // content can be made anew from journals: a damaged or older file is set aside
}

// SetAside tells that Open or Reset moved a file out of the way and made a fresh one.
type SetAside struct {
	Path string // where the old file is now
	Why  string
}

// Store is one open file. Views may run beside one another and beside one Update.
type Store struct {
	path   string
	kind   Kind
	db     *bbolt.DB
	aside  *SetAside
	broken atomic.Pointer[Error]
}

// Path answers where the file is.
func (s *Store) Path() string { return s.path }

// SetAside answers what Open or the last Reset moved out of the way, or nil.
func (s *Store) SetAside() *SetAside { return s.aside }

// Close closes the file. Transactions must have ended.
func (s *Store) Close() error {
	if s.db == nil {
		return nil
	}
	err := s.db.Close()
	s.db = nil
	if err != nil {
		return fmt.Errorf("close %s: %w", s.path, err)
	}
	return nil
}

// Reset moves the file aside as <name>.<suffix>-N and goes on with a fresh one: for a
// cache whose content does not fit the journals. No transaction may be running.
func (s *Store) Reset(suffix, why string) error {
	if !s.kind.Cache {
		return fmt.Errorf("%s of kind %s is no cache: it cannot be made anew", s.path, s.kind.Name)
	}
	// The lock is on the file, not on its name: closing first is what lets the next
	// open have it.
	if err := s.Close(); err != nil {
		return err
	}
	aside, err := moveAside(s.path, suffix, why)
	if err != nil {
		return err
	}
	fresh, err := openFile(s.path, s.kind)
	if err != nil {
		return err
	}
	s.db, s.aside = fresh.db, aside
	s.broken.Store(nil)
	return nil
}

// Size answers the bytes of the file.
func (s *Store) Size() (bytes int64) {
	_ = s.db.View(func(tx *bbolt.Tx) error {
		bytes = tx.Size()
		return nil
	})
	return bytes
}

package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// lockWait is how long a file in use by another process is waited for: long enough for
// a process that is just ending.
const lockWait = time.Second

// mapBytes is the least size of the memory map, and of the (sparse) file. Whenever the map
// grows, bbolt copies all that a transaction holds, so it must not begin tiny.
const mapBytes = 16 << 20

// kept is how many files of one name are kept aside for whoever wants to look at them.
const kept = 3

// Open opens the file at path, or makes it, and reads all of it to be sure of it.
//
// A file in use answers ErrLocked, one of another kind ErrForeign, one of a newer format
// ErrNewer. A damaged file or one of an older format is set aside as <name>.damaged-N or
// <name>.older-N when its kind is a cache (SetAside tells), and answers ErrDamaged or
// ErrOlder when it is not.
func Open(path string, kind Kind) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of %s: %w", path, err)
	}
	s, err := openFile(path, kind)
	if err == nil || !kind.Cache {
		return s, err
	}
	suffix := ""
	switch {
	case errors.Is(err, ErrDamaged):
		suffix = "damaged"
	case errors.Is(err, ErrOlder):
		suffix = "older"
	default:
		return nil, err
	}
	aside, asideErr := moveAside(path, suffix, err.Error())
	if asideErr != nil {
		return nil, errors.Join(err, asideErr)
	}
	if s, err = openFile(path, kind); err != nil {
		return nil, err
	}
	s.aside = aside
	return s, nil
}

// openFile opens the file, or makes one under another name and renames it: so a file under
// its own name is whole, and an empty one is damage.
func openFile(path string, kind Kind) (*Store, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return makeFile(path, kind)
	case err != nil:
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	s := &Store{path: path, kind: kind}
	if info.Size() == 0 {
		return nil, s.damaged("it is empty")
	}
	err = s.openBolt(path)
	if err == nil {
		err = s.identify()
	}
	if err == nil {
		err = s.Verify()
	}
	if err != nil {
		if s.db != nil {
			_ = s.guard(s.db.Close)
		}
		return nil, s.classify(err)
	}
	return s, nil
}

func makeFile(path string, kind Kind) (*Store, error) {
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("make %s: %w", path, err)
	}
	s := &Store{path: path, kind: kind}
	if err := s.openBolt(fresh); err != nil {
		return nil, s.classify(err)
	}
	err := s.update(func(tx *Tx) error {
		return tx.SetMeta(identityKey, identity{Kind: kind.Name, Format: kind.Format})
	})
	// The descriptor, and with it the lock, goes on under the new name.
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", path, errors.Join(err, s.Close()))
	}
	return s, nil
}

// openBolt opens with bbolt. When bbolt gives up in the middle, by panic even, it leaves
// its descriptor and its lock behind: they are given back here.
func (s *Store) openBolt(path string) error {
	var file *os.File
	err := s.guard(func() (err error) {
		s.db, err = bbolt.Open(path, 0o600, &bbolt.Options{
			Timeout:         lockWait,
			FreelistType:    bbolt.FreelistMapType,
			InitialMmapSize: mapBytes,
			OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
				f, err := os.OpenFile(name, flag, mode)
				file = f
				return f, err
			},
		})
		return err
	})
	if err != nil && s.db == nil && file != nil {
		// A memory map that stayed behind keeps the lock even over the close.
		unlock(file)
		_ = file.Close()
	}
	return err
}

// classify turns what bbolt answers at opening into this package's errors.
func (s *Store) classify(err error) error {
	var typed *Error
	switch {
	case errors.As(err, &typed):
		return err
	case errors.Is(err, bolterrors.ErrTimeout):
		return &Error{
			Path: s.path, Err: ErrLocked,
			Hint: "stop the other process, or give this one a data directory of its own",
		}
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum),
		errors.Is(err, bolterrors.ErrVersionMismatch), strings.Contains(err.Error(), "file size too small"):
		return s.damaged(err.Error())
	}
	return fmt.Errorf("open %s: %w", s.path, err)
}

func (s *Store) damaged(detail string) *Error {
	hint := "restore it from a backup; do not delete it, its facts are in no journal yet"
	if s.kind.Cache {
		hint = "it is rebuilt from the journals"
	}
	return &Error{Path: s.path, Err: ErrDamaged, Detail: detail, Hint: hint}
}

// identity is what stands under identityKey in the meta bucket.
type identity struct {
	Kind   string `json:"kind"`
	Format int    `json:"format"`
}

const identityKey = "identity"

// identify compares kind and format.
func (s *Store) identify() error {
	var found bool
	var id identity
	err := s.view(func(tx *Tx) (err error) {
		found, err = tx.Meta(identityKey, &id)
		return err
	})
	switch {
	case err != nil:
		return err
	case !found || id.Kind != s.kind.Name:
		return &Error{
			Path: s.path, Err: ErrForeign,
			Detail: fmt.Sprintf("kind %q, expected %q", id.Kind, s.kind.Name),
			Hint:   "check the data directory",
		}
	case id.Format > s.kind.Format:
		return &Error{
			Path: s.path, Err: ErrNewer,
			Detail: fmt.Sprintf("format %d, this version reads %d", id.Format, s.kind.Format),
			Hint:   "run the version that wrote it, or use another data directory",
		}
	case id.Format < s.kind.Format:
		return &Error{
			Path: s.path, Err: ErrOlder,
			Detail: fmt.Sprintf("format %d, this version reads %d", id.Format, s.kind.Format),
		}
	}
	return nil
}

// moveAside renames path to <path>.<suffix>-N with the next free N, and drops the oldest
// of more than a few.
func moveAside(path, suffix, why string) (*SetAside, error) {
	n := 1
	for ; ; n++ {
		_, err := os.Lstat(fmt.Sprintf("%s.%s-%d", path, suffix, n))
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("set %s aside: %w", path, err)
		}
	}
	if n > kept {
		// Shift down, so that a file that is damaged again and again cannot fill the disk.
		for i := 2; i < n; i++ {
			if err := os.Rename(fmt.Sprintf("%s.%s-%d", path, suffix, i), fmt.Sprintf("%s.%s-%d", path, suffix, i-1)); err != nil {
				return nil, fmt.Errorf("set %s aside: %w", path, err)
			}
		}
		n--
	}
	target := fmt.Sprintf("%s.%s-%d", path, suffix, n)
	if err := os.Rename(path, target); err != nil {
		return nil, fmt.Errorf("set %s aside: %w", path, err)
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	return &SetAside{Path: target, Why: why}, nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return errors.Join(f.Sync(), f.Close())
}

// guard runs fn so that a panic of bbolt or a fault in its memory map becomes ErrDamaged.
func (s *Store) guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = s.damaged(fmt.Sprint(p))
		}
	}()
	return fn()
}

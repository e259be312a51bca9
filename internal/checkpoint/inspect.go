package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.etcd.io/bbolt"
)

// Inspection is what a file says about itself.
type Inspection struct {
	Path    string
	Size    int64
	Kind    string
	Format  int
	Meta    map[string]json.RawMessage // what its owner stored with SetMeta
	Entries map[string]uint64          // per bucket
}

// Inspect reads a file of any kind from end to end without writing to it. ErrLocked tells
// that a process has it open, ErrDamaged that it cannot be trusted, ErrForeign that it is
// none of this package's; the inspection then holds what could be read.
func Inspect(path string) (Inspection, error) {
	in := Inspection{Path: path, Meta: map[string]json.RawMessage{}, Entries: map[string]uint64{}}
	info, err := os.Stat(path)
	if err != nil {
		return in, fmt.Errorf("inspect %s: %w", path, err)
	}
	in.Size = info.Size()
	s := &Store{path: path}
	if in.Size == 0 {
		return in, s.damaged("it is empty")
	}
	err = s.guard(func() (err error) {
		s.db, err = bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: 50 * time.Millisecond, PreLoadFreelist: true})
		return err
	})
	if err != nil {
		return in, s.classify(err)
	}
	err = s.view(in.read)
	if err == nil {
		err = s.Verify()
	}
	return in, errors.Join(err, s.guard(s.Close))
}

func (in *Inspection) read(tx *Tx) error {
	var id identity
	found, err := tx.Meta(identityKey, &id)
	if err != nil {
		return err
	}
	if !found {
		return &Error{Path: in.Path, Err: ErrForeign, Detail: "it does not say of which kind it is", Hint: "check the data directory"}
	}
	in.Kind, in.Format = id.Kind, id.Format
	meta, err := tx.Bucket(metaBucket)
	if err != nil {
		return err
	}
	return meta.Each(func(key, value []byte) error {
		name := string(key)
		if bucket, counts := strings.CutPrefix(name, totalsPrefix); counts {
			var sum totals
			if err := json.Unmarshal(value, &sum); err != nil {
				return tx.store.damaged("totals of bucket " + bucket)
			}
			in.Entries[bucket] = sum.Entries
		} else if name != identityKey {
			in.Meta[name] = append(json.RawMessage{}, value...)
		}
		return nil
	})
}

// MoveAside renames a file to <name>.<suffix>-N and keeps it there. Nothing may have it open.
func MoveAside(path, suffix, why string) (*SetAside, error) { return moveAside(path, suffix, why) }

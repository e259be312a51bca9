// Package backup copies every journal of a business stream to files, of one moment, and
// makes an installation from them in which `verify` is green.
//
// The files are JetStream's own stream snapshots: sequences stay, and a restored stream
// keeps the identity (creation time) by which the COMMITs of other journals name it.
package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
)

// Schema names the form of a Manifest.
const Schema = "backupManifest.v1"

// ManifestFile lies beside the copies.
const ManifestFile = "manifest.json"

// Errors of this package.
var (
	// ErrDirectory: the directory holds something else than what is needed.
	ErrDirectory = errors.New("directory does not fit")
	// ErrIncomplete: the backup was interrupted.
	ErrIncomplete = errors.New("backup is incomplete")
	// ErrNotEmpty: the installation already holds what would be restored.
	ErrNotEmpty = errors.New("installation is not empty")
	// ErrMoving: marks went on while the copies were taken.
	ErrMoving = errors.New("journals did not hold still")
	// ErrUnknown: no such business stream is applied.
	ErrUnknown = errors.New("no such business stream")
)

// Manifest says what a backup holds.
type Manifest struct {
	Schema    string          `json:"schema"`
	Stream    string          `json:"stream"`
	Complete  bool            `json:"complete"`
	Started   time.Time       `json:"started"`
	Finished  *time.Time      `json:"finished,omitempty"`
	Documents []config.Stored `json:"documents"`
	Journals  []Journal       `json:"journals"`
}

// Journal is the copy of one JetStream stream.
type Journal struct {
	Name     string                 `json:"name"`
	Role     string                 `json:"role"`    // revisions, windows, sources, events, quarantine
	Created  time.Time              `json:"created"` // by this time journals know the stream
	First    uint64                 `json:"first"`   // sequences at the begin of the copy: it holds at least these
	Last     uint64                 `json:"last"`
	Messages uint64                 `json:"messages"`
	File     string                 `json:"file"`
	Size     int64                  `json:"size"` // of the file
	SHA256   string                 `json:"sha256"`
	Config   jetstream.StreamConfig `json:"config"`
}

func (j *Journal) copyOf() natsio.StreamCopy {
	return natsio.StreamCopy{
		Stream: j.Name, Created: j.Created.UnixNano(), Config: j.Config,
		State: jetstream.StreamState{Msgs: j.Messages, Bytes: uint64(j.Size), FirstSeq: j.First, LastSeq: j.Last},
	}
}

// Load reads the manifest of a directory; os.ErrNotExist if there is none.
func Load(dir string) (*Manifest, error) {
	path := filepath.Join(dir, ManifestFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var m Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("%w: %s is no manifest: %w", ErrDirectory, path, err)
	}
	if m.Schema != Schema {
		return nil, fmt.Errorf("%w: %s has schema %q, this version reads %s", ErrDirectory, path, m.Schema, Schema)
	}
	return &m, nil
}

// save writes the manifest whole or not at all.
func (m *Manifest) save(dir string) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, ManifestFile)
	if err := writeSynced(path+".part", append(text, '\n')); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}

func writeSynced(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

func (m *Manifest) journal(name string) *Journal {
	for i := range m.Journals {
		if m.Journals[i].Name == name {
			return &m.Journals[i]
		}
	}
	return nil
}

// put replaces the entry of a journal, or adds it.
func (m *Manifest) put(j Journal) {
	if old := m.journal(j.Name); old != nil {
		*old = j
		return
	}
	m.Journals = append(m.Journals, j)
}

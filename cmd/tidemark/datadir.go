package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/dirlock"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// dataFormat is raised when an older binary could not read the directory any more.
const dataFormat = 1

// markerFile names the file by which a data directory is recognised.
const markerFile = "tidemark.json"

// dataDir is a directory that belongs to one instance of one installation.
type dataDir struct {
	path   string
	marker marker
}

type marker struct {
	Format       int    `json:"format"`
	Instance     string `json:"instance"`               // stable over restarts
	Installation int64  `json:"installation,omitempty"` // creation time of the configuration bucket
}

// openDataDir makes the directory or recognises it. A directory that holds something
// else, or comes from a newer binary, is refused before anything is written.
func openDataDir(path string) (*dataDir, error) {
	d := &dataDir{path: path}
	if err := os.MkdirAll(path, 0o750); err != nil {
		return nil, refused(fmt.Errorf("data directory %s: %w; choose another with --data", path, err))
	}
	text, err := os.ReadFile(filepath.Join(path, markerFile))
	switch {
	case errors.Is(err, os.ErrNotExist):
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, refused(err)
		}
		if len(entries) > 0 {
			return nil, refused(fmt.Errorf("%s holds files but no %s: it is no data directory of Tidemark; choose an empty one with --data", path, markerFile))
		}
		d.marker = marker{Format: dataFormat, Instance: uuid.NewString()}
		return d, d.save()
	case err != nil:
		return nil, refused(err)
	}
	err = json.Unmarshal(text, &d.marker)
	switch {
	case err == nil && d.marker.Format > dataFormat:
		return nil, refused(fmt.Errorf("data directory %s has format %d, this binary knows %d: it was written by a newer Tidemark; run that one", path, d.marker.Format, dataFormat))
	case err != nil || d.marker.Format < 1 || d.marker.Instance == "":
		return nil, refused(fmt.Errorf("%s is not readable as a marker of Tidemark; restore it from a backup or choose another directory with --data", filepath.Join(path, markerFile)))
	}
	return d, nil
}

// lock keeps a second process of the same service off the directory: under one instance
// name both would own the same partitions. The lock ends with the process.
func (d *dataDir) lock(service string) (*dirlock.Lock, error) {
	held, err := dirlock.Acquire(filepath.Join(d.path, service+".lock"))
	switch {
	case errors.Is(err, dirlock.ErrHeld):
		return nil, refused(fmt.Errorf("data directory %s is in use by another %s process; stop that one, or give this one a directory of its own with --data", d.path, service))
	case err != nil:
		return nil, refused(fmt.Errorf("data directory %s: %w; give one that this user may write", d.path, err))
	}
	return held, nil
}

// bind ties the directory to the installation behind js, or refuses one of another:
// its checkpoints speak of streams that are not there.
func (d *dataDir) bind(ctx context.Context, js jetstream.JetStream) error {
	id, err := journal.Identify(ctx, js, "KV_"+subject.ConfigBucket)
	if err != nil {
		return fmt.Errorf("read the identity of the installation: %w", err)
	}
	if d.marker.Installation == id.Created {
		return nil
	}
	if d.marker.Installation != 0 {
		return refused(fmt.Errorf("data directory %s belongs to another installation: its checkpoints speak of other streams; start with the server it was used with, or with an empty directory (checkpoints are rebuilt from the journals)", d.path))
	}
	d.marker.Installation = id.Created
	return d.save()
}

func (d *dataDir) save() error {
	text, err := json.MarshalIndent(d.marker, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(d.path, markerFile), append(text, '\n'))
}

// writeFile replaces a file whole or not at all.
func writeFile(path string, text []byte) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, text, 0o640); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

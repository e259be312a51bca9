package providersim

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/tidemark-mesh/tidemark/internal/dirlock"
)

// log is the file, open for appending by one process.
type log struct {
	lock *dirlock.Lock
	file *os.File

	writing sync.Mutex
	written uint64 // lines
	broken  error  // a write failed: where the file ends is not known any more

	syncing sync.Mutex
	synced  uint64 // lines
}

// openLog opens or makes a log and answers what it holds. A last line that was cut off in
// the middle is removed: nobody was told that it happened.
func openLog(path string) (*log, []Record, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, nil, err
	}
	lock, err := dirlock.Acquire(path + ".lock")
	if errors.Is(err, dirlock.ErrHeld) {
		return nil, nil, fmt.Errorf("log %s: another provider simulator writes it; stop that one or name another file", path)
	}
	if err != nil {
		return nil, nil, err
	}
	l := &log{lock: lock}
	records, err := l.load(path)
	if err != nil {
		l.close()
		return nil, nil, err
	}
	return l, records, nil
}

func (l *log) load(path string) ([]Record, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	l.file = file
	records, whole, err := readLog(file, path)
	if err != nil {
		return nil, err
	}
	if err := file.Truncate(whole); err != nil {
		return nil, err
	}
	if _, err := file.Seek(whole, io.SeekStart); err != nil {
		return nil, err
	}
	if err := file.Sync(); err != nil {
		return nil, err
	}
	return records, syncDir(filepath.Dir(path))
}

// syncDir makes a new file's name durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// readLog answers the records of a log and where its last whole line ends.
func readLog(from io.Reader, path string) (records []Record, whole int64, err error) {
	lines := bufio.NewReaderSize(from, 1<<16)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return records, whole, nil // what is behind the last newline was never acknowledged
		}
		if err != nil {
			return nil, 0, err
		}
		r, err := decode(bytes.TrimSuffix(line, []byte{'\n'}))
		if err != nil {
			return nil, 0, fmt.Errorf("log %s, line %d: %w; the file is damaged, or no log of a provider simulator", path, n, err)
		}
		records = append(records, r)
		whole += int64(len(line))
	}
}

// append writes a line and returns once it is on disk. Calls at the same time share an
// fsync.
func (l *log) append(r *Record) error {
	line, err := r.encode()
	if err != nil {
		return err
	}
	mine, err := l.write(line)
	if err != nil {
		return err
	}
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if l.synced >= mine {
		return nil
	}
	l.writing.Lock()
	all := l.written
	l.writing.Unlock()
	if err := l.file.Sync(); err != nil {
		l.writing.Lock()
		l.broken = err
		l.writing.Unlock()
		return err
	}
	l.synced = all
	return nil
}

func (l *log) write(line []byte) (uint64, error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.broken != nil {
		return 0, l.broken
	}
	if _, err := l.file.Write(line); err != nil {
		l.broken = err
		return 0, err
	}
	l.written++
	return l.written, nil
}

func (l *log) close() {
	if l.file != nil {
		l.file.Close()
	}
	l.lock.Release()
}

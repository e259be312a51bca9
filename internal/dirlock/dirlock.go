// Package dirlock keeps two processes from using one directory.
package dirlock

import (
	"errors"
	"os"
)

// ErrHeld: another process holds the lock.
var ErrHeld = errors.New("locked by another process")

// Lock is held on a file for as long as the file is open, so the operating system gives
// it back however the process ends.
type Lock struct{ file *os.File }

// Acquire makes the file where it is missing and locks it without waiting. It answers
// ErrHeld, or an error of the file system.
func Acquire(path string) (*Lock, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := lockFile(file); err != nil {
		file.Close()
		return nil, err
	}
	return &Lock{file: file}, nil
}

// Release gives the lock back; a second time it does nothing.
func (l *Lock) Release() {
	if l != nil && l.file != nil {
		l.file.Close()
		l.file = nil
	}
}

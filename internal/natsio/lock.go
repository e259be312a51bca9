package natsio

import (
	"errors"
	"os"
)

// errLocked: another process holds the lock.
var errLocked = errors.New("locked")

// dirLock is held on a file for as long as the file is open, so the operating system
// gives it back however the process ends.
type dirLock struct{ file *os.File }

func lockDir(path string) (*dirLock, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := lockFile(file); err != nil {
		file.Close()
		return nil, err
	}
	return &dirLock{file: file}, nil
}

func (l *dirLock) release() {
	if l != nil && l.file != nil {
		l.file.Close()
		l.file = nil
	}
}

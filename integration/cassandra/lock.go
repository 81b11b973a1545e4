package cassandra

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// fileLock excludes other processes, and other holders in this one. The kernel takes it back when its process dies.
type fileLock struct{ file *os.File }

// tryLock takes the lock of the file at path, which it makes, or returns an error that wraps ErrInUse.
func tryLock(path string) (fileLock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fileLock{}, fmt.Errorf("lock: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fileLock{}, fmt.Errorf("lock: %w", err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return fileLock{file}, nil
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrInUse
	}
	return fileLock{}, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
}

// lock is tryLock that waits for its turn. It polls because a blocked flock would not hear ctx.
func lock(ctx context.Context, path string) (fileLock, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		l, err := tryLock(path)
		if !errors.Is(err, ErrInUse) {
			return l, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fileLock{}, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}

// release gives the lock back. The file stays: removing it would let two processes lock two files of one name.
func (l fileLock) release() { _ = l.file.Close() }

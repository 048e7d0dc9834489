// Package lockfile locks files with locks of the operating system, which are released when
// the process ends, also by SIGKILL. So a lock shows whether its holder is still alive.
//
// A lock excludes other processes and also other goroutines of the same process, whatever
// path they use for the file. It does not work across machines. The package is safe for
// concurrent use.
//
// [Open] and [Held] do not block. [With] waits, but returns an error if its context holds
// another lock: two callers that take two locks in different orders would deadlock.
package lockfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"
)

// HeldError reports that a lock is held.
type HeldError struct {
	// Path is the lock's file.
	Path string
	// Process is the id of the process that holds the lock; 0 if unknown.
	Process int
}

// Error names the lock and its holder, and says what to do.
func (e *HeldError) Error() string {
	return fmt.Sprintf("%s has the lock %s: wait until it is done, or stop it", e.Holder(), e.Path)
}

// Holder describes the process that holds the lock.
func (e *HeldError) Holder() string {
	switch e.Process {
	case 0:
		return "another process"
	case os.Getpid():
		return fmt.Sprintf("this process (%d)", e.Process)
	}
	return fmt.Sprintf("process %d", e.Process)
}

// Lock is a held lock. It is returned by [Open].
type Lock struct {
	file *os.File
	info fs.FileInfo
}

// held are the locks of this process.
var held struct {
	sync.Mutex
	locks map[*Lock]struct{}
}

// ours finds the lock that this process has on a file. held is locked.
func ours(path string) (*Lock, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	for l := range held.locks {
		if os.SameFile(l.info, info) {
			return l, nil
		}
	}
	return nil, nil
}

// Open locks the file at path. If the file does not exist, it is created, readable by its
// owner only. Open returns a *[HeldError] if the file is locked already.
func Open(path string) (*Lock, error) {
	held.Lock()
	defer held.Unlock()
	// Check before opening the file: on some systems closing it again would release the
	// lock of this process.
	l, err := ours(path)
	switch {
	case l != nil:
		return nil, &HeldError{path, os.Getpid()}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	taken := false
	if err == nil {
		taken, err = Try(f)
	}
	if err == nil && !taken {
		err = &HeldError{path, holder(f)}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	sign(f)
	l = &Lock{f, info}
	if held.locks == nil {
		held.locks = map[*Lock]struct{}{}
	}
	held.locks[l] = struct{}{}
	return l, nil
}

// Close releases the lock. The file stays. It is safe to call Close again.
func (l *Lock) Close() error {
	held.Lock()
	defer held.Unlock()
	if _, ok := held.locks[l]; !ok {
		return nil
	}
	delete(held.locks, l)
	return l.file.Close()
}

// Held reports whether a file is locked. To find out, it takes the lock for a moment. A
// missing file is not locked. An error means that it is unknown.
func Held(path string) (bool, error) {
	held.Lock()
	defer held.Unlock()
	l, err := ours(path)
	switch {
	case l != nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	taken, err := Try(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return false, err
	}
	return !taken, nil
}

// look is the time between two attempts of With to take a lock.
const look = 20 * time.Millisecond

// waited is the context key of the lock that a context holds.
type waited struct{}

// With waits for the lock of the file at path and calls f while it holds the lock. It
// returns the error of f, of ctx if it ended first, or of [Open]. f must use its context
// argument, so that a nested With returns an error instead of waiting.
func With(ctx context.Context, path string, f func(context.Context) error) error {
	if first, ok := ctx.Value(waited{}).(string); ok {
		return fmt.Errorf("the lock %s is not waited for while %s is held: another process may do so the other way round, and both would wait for ever; take one after the other", path, first)
	}
	for {
		l, err := Open(path)
		if err == nil {
			defer func() { _ = l.Close() }() // what f did is done, and the lock ends in any case
			return f(context.WithValue(ctx, waited{}, path))
		}
		if _, ok := errors.AsType[*HeldError](err); !ok {
			return err
		}
		select {
		case <-time.After(look):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// The holder writes its process id into the file, for error texts only. The first byte is
// a blank, since on Windows others cannot read the locked byte.
const signature = " process %d\n"

// sign writes the process id into the file. Errors are ignored: the lock is valid anyway.
func sign(f *os.File) {
	if f.Truncate(0) == nil {
		_, _ = fmt.Fprintf(f, signature, os.Getpid())
	}
}

// holder returns the process id in a lock file; 0 if there is none.
func holder(f *os.File) (process int) {
	b := make([]byte, 64)
	n, _ := f.ReadAt(b[1:], 1)
	b[0] = ' '
	if _, err := fmt.Sscanf(string(b[:n+1]), signature, &process); err != nil || process < 0 {
		return 0
	}
	return process
}

// Package lockfile takes locks that end with their process: a lock on a file that
// the system gives back when the process ends, also by SIGKILL. It answers "is the
// process that had this still alive?", which no lease in a file can.
//
// A lock excludes everybody, other goroutines of the same process included, whatever
// path they open the file by, and also on systems whose own locks only keep processes
// apart. It does not work across machines. All of it is safe for concurrent use.
//
// [Open] and [Held] do not block. [With] waits, but not while its context holds
// another lock: two callers that take the same two locks in different orders would
// wait for each other for ever.
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

// HeldError says that a lock is taken.
type HeldError struct {
	// Path is the lock's file.
	Path string
	// Process is the one that has the lock; 0 when that cannot be found out.
	Process int
}

// Error says who has what, and what to do.
func (e *HeldError) Error() string {
	return fmt.Sprintf("%s has the lock %s: wait until it is done, or stop it", e.Holder(), e.Path)
}

// Holder names the process that has the lock.
func (e *HeldError) Holder() string {
	switch e.Process {
	case 0:
		return "another process"
	case os.Getpid():
		return fmt.Sprintf("this process (%d)", e.Process)
	}
	return fmt.Sprintf("process %d", e.Process)
}

// Lock is a lock that is held. It is made by [Open].
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

// Open takes the lock of the file at path, and creates the file, readable by its
// owner only, when it is missing. A *[HeldError] says that it is taken.
func Open(path string) (*Lock, error) {
	held.Lock()
	defer held.Unlock()
	// Before the file is opened: on some systems closing it again would free the
	// lock that this process has.
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

// Close gives the lock back. The file stays. It is safe to call again.
func (l *Lock) Close() error {
	held.Lock()
	defer held.Unlock()
	if _, ok := held.locks[l]; !ok {
		return nil
	}
	delete(held.locks, l)
	return l.file.Close()
}

// Held reports whether somebody has the lock of a file, by taking it for an instant.
// Nobody has the lock of a missing file. An error means that it is unknown.
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

// look is the time between two looks at a lock that somebody has.
const look = 20 * time.Millisecond

// waited is the key of the lock that a context holds.
type waited struct{}

// With waits for the lock of the file at path and calls f while it has it. The
// error is that of f, or of the context when that ended before, or that of [Open].
// f must use the context that it is given: With refuses one that holds a lock.
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

// The holder writes its number into the file, for errors only. The first byte is
// a blank: it is the one that Windows keeps others from reading.
const signature = " process %d\n"

// sign says who has the lock. A file that cannot be written is locked all the same.
func sign(f *os.File) {
	if f.Truncate(0) == nil {
		_, _ = fmt.Fprintf(f, signature, os.Getpid())
	}
}

// holder reads who has a lock; 0 when the file does not say.
func holder(f *os.File) (process int) {
	b := make([]byte, 64)
	n, _ := f.ReadAt(b[1:], 1)
	b[0] = ' '
	if _, err := fmt.Sscanf(string(b[:n+1]), signature, &process); err != nil || process < 0 {
		return 0
	}
	return process
}

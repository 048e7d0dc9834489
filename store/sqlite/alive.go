package sqlite

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/headway-go/headway/internal/lockfile"
)

// alive holds a lock file for each lease of this process. The system gives the
// lock back when the process dies, so that a lease whose lock is free belongs
// to the dead and need not be waited for. The file's name carries the token:
// each holder has a file of its own.
type alive struct {
	path string
	mu   sync.Mutex
	held map[string]*os.File
}

func (a *alive) name(connection, token int64) string { return leaseFile(a.path, connection, token) }

func leaseFile(path string, connection, token int64) string {
	return fmt.Sprintf("%s-lease-%d-%d", path, connection, token)
}

// take locks the file of a new lease. Failing that is no reason to refuse the
// lease: it is then waited for until it expires.
func (a *alive) take(connection, token int64) {
	name := a.name(connection, token)
	// The file gets its name once it is locked: whoever finds it finds it so.
	f, err := os.OpenFile(name+".new", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return
	}
	// Whoever may read the store may ask who is alive.
	if info, err := os.Stat(a.path); err == nil {
		_ = f.Chmod(0o600 | info.Mode().Perm()&0o444)
	}
	taken, err := lockfile.Try(f)
	if err == nil && taken {
		err = os.Rename(name+".new", name)
	}
	if err != nil || !taken {
		_ = f.Close()
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held[name] = f
}

// leaseOfTheDead reports whether a lease's lock file is there and nobody has it
// locked. Asking takes the lock for a moment, so that of two who ask at once one
// may take the other for the holder: whoever is dead is so the next time, too.
// The right to read suffices.
func leaseOfTheDead(path string, connection, token int64) bool {
	f, err := os.Open(leaseFile(path, connection, token))
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	taken, err := lockfile.Try(f)
	return err == nil && taken
}

// lives reports whether a lease may still have its holder at an instant.
func lives(path string, connection, token int64, expires, now time.Time) bool {
	return now.Before(expires) && !leaseOfTheDead(path, connection, token)
}

// release ends a lease's lock and removes its file.
func (a *alive) release(connection, token int64) {
	name := a.name(connection, token)
	a.mu.Lock()
	f := a.held[name]
	delete(a.held, name)
	a.mu.Unlock()
	_ = os.Remove(name)
	if f != nil {
		_ = f.Close()
	}
}

// close ends the locks of leases that were not finished. Their files stay, so
// that the next holder sees that nobody is there.
func (a *alive) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for name, f := range a.held {
		errs = append(errs, f.Close())
		delete(a.held, name)
	}
	return errors.Join(errs...)
}

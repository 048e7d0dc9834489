package folder

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/internal/lockfile"
)

// LockName is the file whose lock is the right to write to the folder.
const LockName = ".headway.lock"

// Locked is a folder that nobody else writes to until it is unlocked, or the
// process has ended.
type Locked struct {
	Folder
	lock *lockfile.Lock
}

// Lock makes dir absolute, creates what is missing of it, and locks it. It
// returns *[LockedError] when another has it. The others are the folder's
// fields.
func Lock(sink, dir string, step func(), on disk.Disk) (*Locked, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, Explain(sink, "find", dir, err)
	}
	d := Folder{Sink: sink, Dir: abs, Step: step, Disk: on}
	if err := d.Make(); err != nil {
		return nil, err
	}
	lock, err := lockfile.Open(d.Path(LockName))
	if held, ok := errors.AsType[*lockfile.HeldError](err); ok {
		return nil, &LockedError{Sink: sink, Dir: abs, Holder: held.Holder()}
	}
	if err != nil {
		return nil, Explain(sink, "lock", d.Path(LockName), err)
	}
	return &Locked{Folder: d, lock: lock}, nil
}

// LockExisting is Lock for a folder that is there; nil when there is none, and
// then nothing is created.
func LockExisting(sink, dir string, step func(), on disk.Disk) (*Locked, error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return Lock(sink, dir, step, on)
}

// Unlock gives the folder back. It is safe to call again.
func (l *Locked) Unlock() error { return l.lock.Close() }

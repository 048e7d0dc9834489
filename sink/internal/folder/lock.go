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
	lock *os.File
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
	f, err := os.OpenFile(d.Path(LockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, Explain(sink, "open", d.Path(LockName), err)
	}
	taken, err := lockfile.Try(f)
	switch {
	case err != nil:
		_ = f.Close()
		return nil, Explain(sink, "lock", d.Path(LockName), err)
	case !taken:
		_ = f.Close()
		return nil, &LockedError{Sink: sink, Dir: abs}
	}
	return &Locked{Folder: d, lock: f}, nil
}

// LockExisting is Lock for a folder that is there; nil when there is none, and
// then nothing is created.
func LockExisting(sink, dir string, step func(), on disk.Disk) (*Locked, error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return Lock(sink, dir, step, on)
}

// Unlock gives the folder back. It may be called once.
func (l *Locked) Unlock() error { return l.lock.Close() }
